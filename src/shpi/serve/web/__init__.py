"""HTTP: a raw protocol for the common routes, since a framework would halve the speed, and ASGI for all.

    requests   bodies, parsed strictly
    problems   errors as status codes, in the form of all errors of shpi
    limits     tokens, rates
    metrics    counters for Prometheus
    replies    statuses, headers, bodies
    routes     what each path does
    app        the ASGI application
    heads      the head of a request, parsed strictly
    hot        rank, reward and activate without a coroutine
    front      connections: HTTP/1.1 with strict limits
    openapi    the description of the API
    server     run it with uvicorn

The HTML page is in `shpi.serve.page`.
"""
