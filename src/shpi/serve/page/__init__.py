"""The page at ``/``: is it learning? It has no scripts, loads nothing, and suits dark mode and phones."""

from shpi.serve.page.page import page_of, report_of

__all__ = ["page_of", "report_of"]
