"""HTTP: a raw ASGI application, since a framework costs half of the throughput.

    requests   bodies, parsed strictly
    problems   errors as status codes, in the form of all errors of shpi
    limits     tokens, rates
    metrics    counters for Prometheus
    routes     what each path does
    app        the ASGI application
    openapi    the description of the API
    server     run it with uvicorn

A page for people is in `shpi.serve.page`.
"""
