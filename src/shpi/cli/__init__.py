"""The command line: one file per verb, each with ``add_parser(verbs)`` and ``run(arguments) -> exit code``."""

from shpi.cli.main import main

__all__ = ["main"]
