"""``shpi agents``: the trained online agents of the simulators: list, check, train."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    from shpi.learners.online.deep_sarsa import Round

EXIT_OK, EXIT_BROKEN = 0, 1  # exit codes: every agent is fine; one has a problem

EXAMPLES = """examples:
  shpi agents list
  shpi agents check
  shpi agents train synthetic --seed 0 --out my-agents/synthetic

An agent logs with: shpi simulate synthetic --policy agent --epsilon 0.3 --out log.parquet
"""


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "agents",
        help="the trained online agents of the simulators",
        description="The trained online agents of the simulators: deep SARSA, as in the paper.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="the agents that come with shpi, and what they score")
    actions.add_parser("check", help="compare the agents with the checksums in their manifests")
    train = actions.add_parser("train", help="train the agent of a world again")
    train.add_argument("world", metavar="WORLD", help="the name of the simulator")
    train.add_argument("--seed", type=int, default=0, help="of everything (default: 0)")
    train.add_argument("--episodes", type=int, metavar="N", help="trajectories (default: as in the paper)")
    train.add_argument("--out", type=Path, metavar="DIR", help="the folder to write (default: agents/WORLD)")
    train.add_argument("--overwrite", action="store_true", help="replace an agent that is there already")


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    actions = {"list": show_agents, "check": check, "train": train}
    return actions[options.action](options)


def show_agents(options: argparse.Namespace) -> int:
    """Print the agents, their scores on 200 new users, and the command that retrains each."""
    from rich.table import Table

    from shpi.cli._shell.tables import print_table
    from shpi.envs.agents import describe, shipped

    table = Table(title="trained agents", title_justify="left")
    for column in ("world", "agent", "with 30 % noise", "uniform", "made by", "torch"):
        table.add_column(column, overflow="fold")
    for world in shipped():
        notes = describe(world).notes
        scores = [notes["evaluation"][f"epsilon={epsilon}"] for epsilon in ("0", "0.3", "1")]
        cells = [f"{score['mean']:,.4g} ± {score['standard_error']:.2g}" for score in scores]
        table.add_row(world, *cells, notes["command"], notes["versions"]["torch"])
    print_table(table)
    return EXIT_OK


def check(options: argparse.Namespace) -> int:
    """Check each agent against its manifest; exit code 1 if one differs."""
    from shpi.envs.agents import check_agents

    results = list(check_agents())
    for result in results:
        verdict = f"ok, sha256 {result.sha256[:16]}…" if not result.problem else f"BROKEN: {result.problem}"
        print(f"{result.world}: {verdict}, {result.bytes:,} bytes")
    return EXIT_BROKEN if any(result.problem for result in results) else EXIT_OK


def train(options: argparse.Namespace) -> int:
    """Train one agent, write it, and print its score and whether it equals the shipped one."""
    from shpi.envs.agents import describe, shipped, train_agent

    known = describe(options.world).sha256 if options.world in shipped() else None
    began = time.process_time()
    place = options.out if options.out is not None else Path("agents") / options.world
    described = train_agent(
        options.world,
        place,
        seed=options.seed,
        episodes=options.episodes,
        overwrite=options.overwrite,
        on_round=_say if sys.stderr.isatty() else None,
    )
    print(f"wrote {place} in {time.process_time() - began:.0f} CPU seconds, sha256 {described.sha256[:16]}…")
    evaluation = described.notes["evaluation"]
    for name in ("epsilon=0", "epsilon=0.3", "epsilon=1"):
        score = evaluation[name]
        print(f"  {name}: {score['mean']:,.6g} ± {score['standard_error']:.3g} ({evaluation['users']} users)")
    if known is not None:
        verdict = "identical to" if known == described.sha256 else "different from"
        print(f"  {verdict} the agent that came with shpi")
    return EXIT_OK


def _say(report: Round) -> None:
    if report.number % max(report.rounds // 10, 1) == 0:
        print(
            f"round {report.number + 1}/{report.rounds}: epsilon {report.epsilon:.2f}, "
            f"return {report.mean_return:,.5g}, loss {report.loss:.3g}",
            file=sys.stderr,
        )
