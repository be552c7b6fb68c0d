"""``shpi demo``: the storefront of the paper's introduction, from a simulated log to the exact answer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from shpi.data.logged import LoggedData
    from shpi.envs.storefront import Storefront
    from shpi.protocols import Policy

NOT_YET = (
    "judging a policy from the log alone, with a verdict and an HTML report (shpi evaluate)",
    "defaults of OfflineSHPI for logs with little exploration: for now, look at its held-out gain",
    "rerunning the paper's tables and figures (shpi reproduce)",
)


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "demo", help="a short tour of what there is", description="A tour of what there is, in half a minute."
    )
    parser.add_argument("--users", type=int, default=8000, help="simulated users (default: 8000)")
    parser.add_argument("--out", type=Path, default=Path("demo-log.parquet"), help="where the log goes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Simulate, audit, learn, reveal."""
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
    console.rule("3. Three policies, learned from the log alone")
    policies = _learn(logs, console)
    console.rule("4. The simulator reveals the truth: exact values, by dynamic programming")
    _reveal(shop, policies, console)
    console.rule("Not there yet")
    for line in NOT_YET:
        console.print(f"- {line}")
    return 0


def _learn(logs: LoggedData, console: Console) -> list[tuple[str, Policy, str]]:
    from shpi.learners import OfflineSHPI
    from shpi.values import Constant

    plans = (
        ("bandit", OfflineSHPI(k=1, value=Constant(0.0)), "the next sale"),
        (
            "session RL",
            OfflineSHPI(k="session", value=Constant(0.0)),
            "this visit",
        ),
        ("SHPI, k = 3", OfflineSHPI(k=3), "… and where it leads"),
    )
    learned: list[tuple[str, Policy, str]] = []
    for name, plan, story in plans:
        with console.status(f"learning: {name}"):
            policy = plan.fit(logs)
        learned.append((name, policy, story))
    console.print("How SHPI got there (advantages are in conversions):\n")
    console.print(str(learned[-1][1]), highlight=False)
    console.print()
    return learned


def _reveal(shop: Storefront, policies: list[tuple[str, Policy, str]], console: Console) -> None:
    from rich.table import Table

    rows = [("uniform", shop.uniform(), "by chance")]
    rows += [(name, policy.action_probs(shop.contexts), story) for name, policy, story in policies]
    rows += [("optimum", shop.optimal(), "the whole month")]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("policy", "conversions/month", "visits/month", "looks at"):
        table.add_column(name, justify="right" if "month" in name else "left")
    best = shop.exact_value(shop.optimal())
    for name, chances, story in rows:
        value = shop.exact_value(chances)
        bar = "█" * round(16 * value / best)
        table.add_row(name, f"{value:.3f}", f"{shop.expected_sessions(chances):.2f}", f"{bar} {story}")
    console.print(table)
