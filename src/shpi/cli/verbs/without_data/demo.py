"""``shpi demo``: the storefront of the paper's introduction, from a simulated log to the exact answer."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi._core.progress import progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from shpi.data.logged import LoggedData
    from shpi.envs.storefront import Storefront
    from shpi.ope import Comparison
    from shpi.protocols import Policy

PILOT_USERS, EXPLORATION = 5000, 0.8  # users of the pilot's log; share of random decisions in the demo's log
HELD_OUT = 2 / 3  # evaluation needs more users than learning: few were shown what the new policy would show


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A policy, and in a few words what it maximises."""

    name: str
    policy: Policy
    story: str


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "demo",
        help="all of it in a few minutes, on a simulated shop",
        description="Simulate a shop's log, audit it, learn three policies from a third of the users, judge "
        "them on the others with the gate, then let the simulator reveal the truth.",
    )
    parser.add_argument("--users", type=int, default=60_000, help="simulated users (default: 60,000)")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR",
                        help="where demo-log.parquet and demo-report.html go (default: here)")  # fmt: skip
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Simulate, audit, learn, judge, reveal."""
    from rich.console import Console

    from shpi.envs.storefront import Storefront

    options.out.mkdir(parents=True, exist_ok=True)
    console, shop = Console(), Storefront()
    console.rule("1. A shop that shows what sells, and tries things out")
    console.print(
        "Users visit up to five times a month and see two recommendations per visit. A bestseller sells at "
        "once; functional items sell in the course of a visit; discovery items sell nothing now, but bring "
        "people back. One recommendation in five is what sold best in a pilot, the others are random.\n"
    )
    present = _present_policy(shop)
    logs = shop.rollout(present, options.users, seed=0)
    place = logs.to_parquet(options.out / "demo-log.parquet")
    console.print(f"{len(logs):,} decisions of {logs.n_users:,} users, written to {place}.\n")
    console.rule("2. Is this log fit for learning?  (shpi audit)")
    logs.audit().show(console)
    console.rule("3. Three policies, learned from a third of the users  (shpi fit)")
    train, held_out = logs.split_users(HELD_OUT, seed=0)
    candidates = _learn(train, present, console)
    console.rule("4. May we ship one of them? The other users decide  (shpi evaluate)")
    comparison = _judge(held_out, candidates, console, options.out / "demo-report.html")
    console.rule("5. The simulator reveals the truth: exact values, by dynamic programming")
    _reveal(shop, candidates, comparison, console)
    return 0


def _present_policy(shop: Storefront) -> Policy:
    """The policy that writes the demo's log: what sold best in a random pilot, with much exploration."""
    from shpi.learners import OfflineSHPI
    from shpi.policies import Mixture, UniformPolicy
    from shpi.values import Constant

    random = UniformPolicy(shop.n_actions)
    pilot = OfflineSHPI(k=1, value=Constant(0.0), tested=False, reach=None, progress=False)
    rule = pilot.fit(shop.rollout(random, PILOT_USERS, seed=1)).policy
    return Mixture((rule, random), (1 - EXPLORATION, EXPLORATION))


def _learn(logs: LoggedData, present: Policy, console: Console) -> list[Candidate]:
    from shpi.learners import OfflineSHPI
    from shpi.values import Constant

    plans = (
        ("bandit", OfflineSHPI(k=1, value=Constant(0.0), tested=False), "the next sale"),
        ("session RL", OfflineSHPI(k="session", value=Constant(0.0), tested=False), "this visit"),
        ("SHPI", OfflineSHPI(), "… and where it leads"),
    )
    learned = [Candidate(name="as before", policy=present, story="what sold best")]
    for name, plan, story in plans:
        with progress_bar(f"learning: {name}", None):
            learned.append(Candidate(name=name, policy=plan.fit(logs), story=story))
    console.print(
        "The bandit maximises the next sale, session RL the sales of this visit. SHPI looks a few decisions "
        "ahead too, and adds what the log says about the users' later sales from there on: the termination "
        "bonus. How SHPI got there (advantages are in sales):\n"
    )
    console.print(str(learned[-1].policy), highlight=False)
    console.print()
    return learned


def _judge(logs: LoggedData, candidates: list[Candidate], console: Console, report: Path) -> Comparison:
    """Verdicts from the log alone; "as before" is included to show that the gate can say no."""
    from rich.table import Table

    from shpi.ope import Gate, compare

    comparison = compare({candidate.name: candidate.policy for candidate in candidates}, logs, Gate())
    brought = comparison.evaluations[0].decisive.baseline
    console.print(
        f"{logs.n_users:,} users that no policy has seen brought {brought:.3f} "
        "sales each. What would they have brought under each policy?\n"
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("policy", "estimated sales", "lift, 95 %", "verdict", "by"):
        table.add_column(name, justify="right" if name in ("estimated sales", "lift, 95 %") else "left")
    for evaluation in comparison.evaluations:
        best, interval = evaluation.lead.estimate, evaluation.lead.estimate.lift_interval
        verdict = "" if evaluation.verdict is None else evaluation.verdict.decision
        colour = {"ship": "green", "hold": "red"}.get(verdict, "yellow")
        bounds = f"{interval.lower:+.3f} … {interval.upper:+.3f}"
        judged = f"[{colour}]{verdict}[/]"
        table.add_row(evaluation.policy_name, f"{best.value:.3f}", bounds, judged, best.name)
    console.print(table)
    comparison.write_html(report)
    console.print(f"\nThe whole argument, with pictures: {report} (open it in a browser).\n")
    return comparison


def _reveal(shop: Storefront, candidates: list[Candidate], comparison: Comparison, console: Console) -> None:
    from rich.table import Table

    rows = [
        (candidate.name, candidate.policy.action_probs(shop.contexts), candidate.story)
        for candidate in candidates
    ]
    rows += [("optimum", shop.optimal(), "the whole month")]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("policy", "sales/month", "visits/month", "verdict was", "looks at"):
        table.add_column(name, justify="right" if "month" in name else "left")
    best, before = shop.exact_value(shop.optimal()), shop.exact_value(rows[0][1])
    for name, chances, story in rows:
        value = shop.exact_value(chances)
        judged = "" if name == "optimum" else _judged(comparison, name, value > before + 1e-9)
        bar = "█" * round(10 * value / best)
        table.add_row(
            name, f"{value:.3f}", f"{shop.expected_sessions(chances):.2f}", judged, f"{bar} {story}"
        )
    console.print(table)


def _judged(comparison: Comparison, name: str, better: bool) -> str:
    """The verdict, and whether the truth agrees with it."""
    verdict = comparison[name].verdict
    if verdict is None:
        return ""
    if verdict.decision not in ("ship", "hold"):  # the other verdicts do not say whether the policy is better
        share = "" if verdict.first_step is None else f" in {100 * verdict.first_step.share:.0f} %"
        return f"{verdict.decision}{share}"
    return f"{verdict.decision}, {'rightly' if verdict.ship == better else 'wrongly'}"
