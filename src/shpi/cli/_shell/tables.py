"""Tables on standard output: as wide as the terminal, and never cut where there is none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich takes a while to import, and most verbs print no table
    from rich.table import Table

WIDE = 240  # characters, for files and pipes, where a terminal's 80 would cut numbers off


def print_table(table: Table) -> None:
    """Print a table to standard output."""
    from rich.console import Console

    into_terminal = sys.stdout.isatty()
    Console(file=sys.stdout, width=None if into_terminal else WIDE).print(table)
