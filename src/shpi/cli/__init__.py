"""The command line: one file per verb, each with ``add_parser(verbs)`` and ``run(options) -> exit code``."""

from shpi.cli.main import main

__all__ = ["main"]
