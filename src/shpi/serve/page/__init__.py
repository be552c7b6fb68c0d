"""The page at ``/``: is it learning? No script and no request leaves it; light, dark and phones."""

from shpi.serve.page.page import page_of, report_of

__all__ = ["page_of", "report_of"]
