"""Prints tables: as wide as the terminal, and never cut off in files and pipes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich is slow to import, and most verbs print no table
    from rich.table import Table

WIDE = 240  # characters per line in files and pipes, where the default of 80 would cut numbers off


def print_table(table: Table) -> None:
    """Print a table to standard output."""
    from rich.console import Console

    into_terminal = sys.stdout.isatty()
    Console(file=sys.stdout, width=None if into_terminal else WIDE).print(table)
