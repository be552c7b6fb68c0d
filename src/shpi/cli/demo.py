"""``shpi demo``: what there is so far, shown on a simulated log."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser("demo", help="a short tour of what there is", description=__doc__)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    return 0
