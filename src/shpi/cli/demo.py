"""``shpi demo``: the storefront of the paper's introduction, from a simulated log to the exact answer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from shpi.envs.storefront import Storefront

NOT_YET = (
    "learning a policy from the log (shpi fit)",
    "judging a policy from the log alone, with a verdict and an HTML report (shpi evaluate)",
    "rerunning the paper's tables and figures (shpi reproduce)",
)


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "demo", help="a short tour of what there is", description="A tour of what there is, in half a minute."
    )
    parser.add_argument("--users", type=int, default=4000, help="simulated users (default: 4000)")
    parser.add_argument("--out", type=Path, default=Path("demo-log.parquet"), help="where the log goes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Simulate, audit, reveal."""
    from rich.console import Console

    from shpi.envs.storefront import Storefront
    from shpi.policies import UniformPolicy

    console = Console()
    shop = Storefront()
    console.rule("1. A shop that recommends at random")
    console.print(
        "Users visit up to five times a month and see two recommendations per visit. A bestseller sells at "
        "once; functional items sell in the course of a visit; discovery items sell nothing now, but bring "
        "people back.\n"
    )
    logs = shop.rollout(UniformPolicy(shop.n_actions), options.users, seed=0)
    logs.to_parquet(options.out)
    console.print(f"{len(logs):,} decisions of {logs.n_users:,} users, written to {options.out}.\n")
    console.rule("2. Is this log fit for learning?  (shpi audit)")
    logs.audit().show(console)
    console.rule("3. What could be gained: exact values, by dynamic programming")
    _reveal(shop, console)
    console.rule("Not there yet")
    for line in NOT_YET:
        console.print(f"- {line}")
    return 0


def _reveal(shop: Storefront, console: Console) -> None:
    from rich.table import Table

    rows = (
        ("uniform (the logging policy)", shop.uniform(), "recommends at random"),
        ("bandit", shop.bandit(), "maximises the next click"),
        ("session RL", shop.session_rl(), "maximises the visit, forgets the next one"),
        ("SHPI, k = 3", shop.shpi(3), "maximises the visit plus the value of the state it ends in"),
        ("optimum", shop.optimal(), "knows the whole month"),
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("policy", "conversions a month", "visits a month", ""):
        table.add_column(name, justify="right" if "month" in name else "left")
    best = shop.exact_value(shop.optimal())
    for name, policy, story in rows:
        value = shop.exact_value(policy)
        bar = "█" * round(20 * value / best)
        table.add_row(name, f"{value:.3f}", f"{shop.expected_sessions(policy):.2f}", f"{bar} {story}")
    console.print(table)
