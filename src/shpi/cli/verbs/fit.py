"""``shpi fit``: learn a policy from a log, and write it to a folder."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi._core.progress import progress_bar
from shpi.cli._shell.params import parse_param
from shpi.cli._shell.reading import add_reading_options, read_logs
from shpi.cli._shell.shards import add_passes_options, forget, open_shards, sampled
from shpi.cli._shell.tables import print_table
from shpi.errors import ConfigError

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    from shpi.protocols import Policy

DESCRIPTION = """Learn a policy from a log, and write it to a folder.

LOG is read as by `shpi audit`, or is a folder of shards. The folder holds the policy, the context columns and
the action ids that it was learned from, and how it was made; `shpi.load_policy` opens it.
"""

EXAMPLES = """examples:
  shpi fit --list
  shpi fit log.parquet --out policies/today
  shpi fit log.parquet --learner bandit -o target=dr --out policies/bandit
  shpi fit log.parquet --learner shpi -o k=5 -o gamma=0.95 -o value=lstd --out policies/k5
  shpi fit shards --jobs 2 --out policies/today
  shpi fit events.csv.gz --columns map.toml --estimate-propensities --out policies/today

then:
  shpi simulate ENV --policy policies/today --out what-it-does.parquet
"""


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "fit",
        help="log -> policy",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_reading_options(parser, required=False)
    add_passes_options(parser)
    parser.add_argument("--learner", default="shpi", metavar="NAME", help="the learner (default: shpi)")
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the learner; may be repeated",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the policy folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a policy that is there already")
    parser.add_argument("--list", action="store_true", help="list the learners")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb; of a policy with a history, only what it wraps is saved."""
    from shpi.policies import save_policy

    if options.list:
        show_learners()
        return 0
    if not options.log or options.out is None:
        raise ConfigError(
            expected="a log and --out DIR",
            found="no log" if not options.log else "no --out",
            remedy="shpi fit --help shows some examples, shpi fit --list the learners",
        )
    check_target(options.out, overwrite=options.overwrite)
    learner = offline_learner(options.learner, dict(parse_option(o) for o in options.option), options.seed)
    shards = open_shards(options)
    logs = read_logs(options, "fit") if shards is None else sampled(shards, options)
    if logs is None:
        return 2
    print(f"question: {logs.question}")
    began = time.process_time()
    with progress_bar(f"learning from {len(logs):,} decisions", None):
        policy: Policy = learner.fit(logs)
    seconds = time.process_time() - began
    notes = {
        "learner": options.learner,
        "options": list(options.option),
        "seed": options.seed,
        "log": logs.fingerprint(),
        "question": logs.question,
        "decisions": len(logs),
        "cpu_seconds": round(seconds, 3),
    }
    out, overwrite = options.out, options.overwrite
    save_policy(policy, out, schema=logs.schema, actions=logs.action_space, notes=notes, overwrite=overwrite)
    if shards is not None:
        forget(options)
    if "__str__" in vars(type(policy)):  # the policy tells how it was learned
        print(policy)
    print(
        f"wrote {options.out}: a policy over {policy.n_actions} actions, learned by '{options.learner}' from"
    )
    print(f"  {logs} in {seconds:.1f} s")
    return 0


def offline_learner(name: str, options: dict[str, Any], seed: int) -> Any:
    """The learner of that name, if it learns from a log."""
    from shpi.learners import registry

    if registry.entry(name).kind == "online":
        raise ConfigError(
            expected="a learner that learns from a log",
            found=f"'{name}', which learns by acting in a simulator",
            remedy="shpi compare runs it in one",
        )
    if "seed" in registry.parameters(name):
        options = {"seed": seed} | options
    return registry.make(name, **options)


def parse_option(text: str) -> tuple[str, Any]:
    """``key=value`` of -o; the value is JSON if it can be, and else a string."""
    try:
        return parse_param(text)
    except ConfigError as error:
        raise ConfigError(expected="-o KEY=VALUE", found=error.found) from None


def check_target(path: Path, *, overwrite: bool) -> None:
    """Check the output path before minutes of work, not after."""
    from shpi.files.bundle import MANIFEST

    if path.exists() and not (overwrite and (path / MANIFEST).is_file()):
        raise ConfigError(
            expected="a folder that does not exist yet",
            found=f"'{path}'",
            where="--out",
            remedy="--overwrite replaces a policy folder" if not overwrite else "only policies are replaced",
        )


def show_learners() -> None:
    """Print the learners, what they are, and whether they can run here."""
    from rich.markup import escape
    from rich.table import Table

    from shpi.learners import registry

    table = Table(title="learners", title_justify="left")
    for column in ("name", "what it is", "learns from", "here"):
        table.add_column(column, overflow="fold")
    for name in registry.names():
        learner = registry.entry(name)
        source = "a log" if learner.kind == "offline" else "a simulator"
        table.add_row(name, learner.about, source, escape(registry.missing(name) or "yes"))
    print_table(table)
