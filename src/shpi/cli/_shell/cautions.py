"""Options of ``shpi evaluate`` that make the gate more cautious, and the file that counts looks."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shpi.errors import ShpiError

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData
    from shpi.data.shards import ShardedLog
    from shpi.ope.candidates import Comparison
    from shpi.ope.gate import Gate
    from shpi.protocols import Policy


def add_caution_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a `Gate` more cautious, and the one that `with_looks` reads."""
    add = parser.add_argument
    add("--anytime", nargs="?", const="asymptotic", choices=("asymptotic", "betting"), default=False,
        help="bounds that hold however often a growing log is evaluated")  # fmt: skip
    add("--planned-users", type=int, default=None, metavar="N",
        help="users at which anytime bounds are tightest; set at the first look (default: 2000)")  # fmt: skip
    add("--looks", type=Path, metavar="FILE",
        help="remember looks in this file (default: .NAME.looks.json beside POLICY)")  # fmt: skip
    add("--hidden-cause", type=float, default=1.3, metavar="GAMMA",
        help="ship on estimated propensities only if no confounder that changes odds by this factor could "
        "undo it (default: 1.3; 1 trusts them)")  # fmt: skip
    add("--cluster", metavar="NAME",
        help="what users with correlated outcomes share: day, week, context column or metric")  # fmt: skip


def with_looks(
    comparison: Comparison,
    policies: Mapping[str, Policy],
    logs: LoggedData | ShardedLog,
    gate: Gate,
    options: argparse.Namespace,
) -> Comparison:
    """Count this look for every candidate; if the default file cannot be written, go on without a count."""
    from shpi.ope.checks.looks.file import count_look

    named: Path | None = options.looks
    place = named or options.policy.resolve().with_name(f".{options.policy.resolve().name}.looks.json")
    try:
        counted = tuple(
            count_look(evaluation, policies[evaluation.policy_name], logs, place, gate=gate)
            for evaluation in comparison.evaluations
        )
    except (ShpiError, OSError):
        if named is not None or gate.anytime:
            raise
        return comparison
    return replace(comparison, evaluations=counted)
