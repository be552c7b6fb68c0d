"""``shpi compare``: every learner on one log, side by side: the value of its policy, seconds, memory."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi._core.progress import begin, expect, stages
from shpi.cli._compare.held_out import judge
from shpi.cli._compare.kept import FACTS, Kept, forget_learned, read_facts
from shpi.cli._shell.params import parse_param
from shpi.cli._shell.reading import add_reading_options, read_logs
from shpi.cli._shell.shards import add_passes_options, executor, forget, open_shards, passing, sampled
from shpi.cli._shell.tables import print_table
from shpi.cli.verbs.fit import parse_option
from shpi.errors import ConfigError
from shpi.files.atomic import write_text

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    from shpi.data.logged import LoggedData
    from shpi.data.shards import ShardedLog
    from shpi.protocols import Policy, Simulator

DESCRIPTION = """Run every learner on one log, and compare their policies.

With a LOG, read as by `shpi audit`, every learner sees one part of the users, and its policy is evaluated on
the others: the lift over the logging policy with its interval, and the gate's verdict, with bounds for all
policies together. With the name of a simulator, its trained agent writes the log (uniformly at random with
probability epsilon), and each policy is tried on new users of that world, the same for all; with a LOG --env
does that. Each learner runs in a process of its own. Online learners meet as many users as the log has.
"""

EXAMPLES = """examples:
  shpi compare log.parquet
  shpi compare events.csv --columns map.toml --learners shpi,bandit,session-rl,best --held-out 0.6
  shpi compare storefront --epsilon 1 --users 4000
  shpi compare synthetic --learners clone,bandit,session-rl,shpi,bcq -o k=5 --json table.json
  shpi compare log.parquet --env recogym --learners shpi,bandit -o shpi.gamma=0.95
  shpi fit --list                                   the learners
"""

NO_SESSIONS_K = 5  # the paper's k, used in place of "session" if trajectories have no sessions
EVALUATION = 10_007  # added to the seed of the log for the seed of new users


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table: the results of one learner."""

    learner: str
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    online: float | None = None  # mean per user of the simulator's own metric, or of the return
    online_error: float | None = None  # its standard error
    attained: float | None = None  # as a share of the best attainable value, if the simulator knows it
    lift: float | None = None  # over the logging policy, on held-out users
    lift_lower: float | None = None  # interval of the lift
    lift_upper: float | None = None
    estimator: str | None = None  # the estimator that decides
    verdict: str | None = None
    problem: str | None = None  # an error, or why it was skipped
    story: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """A simulator with its name and parameters, from which another process can rebuild it."""

    name: str
    params: Mapping[str, Any]
    simulator: Simulator


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "compare",
        help="every learner on one log: its policy's value, seconds, memory",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_reading_options(parser)
    add_passes_options(parser)
    add = parser.add_argument
    add("--learners", metavar="A,B,C", help="default: all that can run")
    add("-o", "--option", action="append", default=[], metavar="[LEARNER.]KEY=VALUE", help="may be repeated")
    add("--held-out", type=float, default=0.5, metavar="S",
        help="with a LOG: the share of held-out users (0.5); 0: seconds and memory alone")  # fmt: skip
    add("--env", metavar="ENV", help="with a LOG: the simulator in which policies are tried")
    add("--param", action="append", default=[], metavar="KEY=VALUE", help="a parameter of the simulator")
    add("--epsilon", type=float, default=0.3, metavar="E", help="share of random decisions (default: 0.3)")
    add("--users", type=int, default=2000, metavar="N", help="simulated users in the log (default: 2000)")
    add("--rollouts", type=int, default=200, metavar="N", help="users that try a policy (default: 200)")
    add("--timeout", type=float, metavar="S", help="end a learner after so many seconds")
    add("--json", type=Path, metavar="FILE", help="also write the table as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb: 0 if at least one learner finished, else 1."""
    if options.json is not None and (options.json.is_dir() or not options.json.parent.is_dir()):
        raise ConfigError(expected="--json to be a file in a folder that exists", found=str(options.json))
    if options.rollouts < 1:
        raise ConfigError(expected="--rollouts of at least 1", found=str(options.rollouts))
    world, whole, mu = find_log(options)
    if whole is None:
        return 2
    chosen = find_learners(options.learners, online=world is not None)
    with tempfile.TemporaryDirectory(prefix="shpi-compare-") as folder:
        logs, judged_on = divided(whole, Path(folder), world, options)
        code = table_of(chosen, logs, judged_on, (world, mu), options)
    forget_learned(options.resume)
    forget(options)
    return code


def divided(
    whole: LoggedData | ShardedLog, folder: Path, world: World | None, options: argparse.Namespace
) -> tuple[LoggedData, LoggedData | ShardedLog | None]:
    """Users to learn from and, without a simulator, held-out users; those of shards go to new shards."""
    from shpi.data.logged import LoggedData
    from shpi.data.shards import split_shards

    apart = world is None and options.held_out > 0
    if isinstance(whole, LoggedData):
        return whole.split_users(options.held_out, seed=options.seed) if apart else (whole, None)
    if not apart:
        return sampled(whole, options), None
    places = (folder / "train", folder / "held-out")
    who = executor(options)
    train, judged_on = split_shards(whole, options.held_out, places, seed=options.seed, executor=who)
    return sampled(train, options), judged_on


def table_of(
    chosen: Sequence[str],
    logs: LoggedData,
    judged_on: LoggedData | ShardedLog | None,
    where: tuple[World | None, Policy | None],
    options: argparse.Namespace,
) -> int:
    """Learn, evaluate and print: 0 if at least one learner finished, else 1."""
    world, mu = where
    settings = find_settings(options.option, chosen, logs, options.seed)
    print(f"learned from {logs}", file=sys.stderr)
    print(f"judged on {judged_on}\n" if judged_on is not None else "", file=sys.stderr)
    rows: list[Row] = []
    policies: dict[str, Policy] = {}
    if world is not None and mu is not None:
        rows.append(evaluate(Row(learner="(logging)"), mu, world, options))
    with tempfile.TemporaryDirectory() as folder, stages("learning"):
        expect(dict.fromkeys(chosen, 1.0))
        place = Path(folder) / "log.parquet"
        logs.to_parquet(place)
        kept = Kept(folder=options.resume, log=logs.fingerprint())
        for name in chosen:
            begin(name)
            row, policy = compare_one(name, settings.get(name, {}), place, world, options, kept)
            rows.append(row)
            if policy is not None:
                policies[name] = policy
    if judged_on is not None and policies:
        judged = judge(policies, judged_on, options.seed, **passing(options))
        rows = [Row(**(asdict(row) | judged.get(row.learner, {}))) for row in rows]
    show(rows, world)
    if options.json is not None:
        write_json(options.json, rows, logs, world, options)
    return 0 if any(row.cpu_seconds is not None for row in rows) else 1


# ---------------------------------------------------------------------- log, learners and their options


def find_log(
    options: argparse.Namespace,
) -> tuple[World | None, LoggedData | ShardedLog | None, Policy | None]:
    """The simulator, the log and its logging policy, each None if there is none."""
    from shpi.envs import registry

    name, params = options.log[0], dict(parse_param(text) for text in options.param)
    if len(options.log) == 1 and name in registry.names() and not Path(name).exists():
        from shpi.envs.logging import LoggingPolicy
        from shpi.envs.rollout import rollout

        world = World(name=name, params=params, simulator=registry.make(name, **params))
        mu = LoggingPolicy(world.simulator, options.epsilon)
        return world, rollout(world.simulator, mu, options.users, options.seed, progress=None), mu
    shards = open_shards(options)
    logs = read_logs(options, "compare") if shards is None else shards
    if options.env is None:
        return None, logs, None
    return World(name=options.env, params=params, simulator=registry.make(options.env, **params)), logs, None


def find_learners(names: str | None, *, online: bool) -> list[str]:
    """The learners to compare; those that need a simulator only if there is one."""
    from shpi.learners import registry

    if names is None:
        return list(registry.names(None if online else "offline"))
    chosen = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for name in chosen:
        if registry.entry(name).kind == "online" and not online:
            raise ConfigError(
                expected=f"a simulator for '{name}', which learns by acting",
                found="none",
                remedy="name one with --env, or leave the learner out",
            )
    if not chosen:
        raise ConfigError(expected="at least one learner after --learners", found=repr(names))
    return chosen


def find_settings(
    texts: Sequence[str], chosen: Sequence[str], logs: LoggedData, seed: int
) -> dict[str, dict[str, Any]]:
    """The options of each learner: those given for it, and those given for all that it has."""
    from shpi.learners import registry

    usable = [name for name in chosen if registry.missing(name) is None]
    known = {name: registry.parameters(name) for name in usable}
    settings: dict[str, dict[str, Any]] = {
        name: {"seed": seed} if "seed" in known[name] else {} for name in usable
    }
    for name in usable:
        whole = logs.n_sessions == logs.n_trajectories
        if whole and getattr(registry.make(name), "k", None) == "session":
            settings[name]["k"] = NO_SESSIONS_K
        budget = registry.entry(name).budget
        if budget is not None:
            settings[name][budget] = logs.n_users
    for text in texts:
        key, value = parse_option(text)
        owner, dot, own = key.partition(".")
        targets = [owner] if dot and owner in usable else [n for n in usable if key in known[n]]
        wanted = own if dot and owner in usable else key
        if not targets or wanted not in known[targets[0]]:
            raise ConfigError(expected="-o with an option of a learner in the table", found=repr(text))
        for name in targets:
            settings[name][wanted] = value
    return settings


# ---------------------------------------------------------------------- one learner


def compare_one(
    name: str,
    settings: Mapping[str, Any],
    log: Path,
    world: World | None,
    options: argparse.Namespace,
    kept: Kept,
) -> tuple[Row, Policy | None]:
    """Learn in a separate process, then try the policy in the simulator if there is one."""
    from shpi.learners import registry
    from shpi.policies import load_policy

    problem = registry.missing(name)
    if problem is not None:
        return Row(learner=name, problem=f"skipped: {problem}"), None
    with kept.place(name, settings, world) as folder:
        facts = read_facts(folder) or learn(name, settings, log, world, folder, options.timeout)
        if "error" in facts:
            return Row(learner=name, problem=facts["error"]), None
        row = Row(
            learner=name,
            cpu_seconds=facts["cpu_seconds"],
            peak_bytes=facts["peak_bytes"],
            story=facts.get("story"),
        )
        policy = load_policy(folder / "policy")
        return row if world is None else evaluate(row, policy, world, options), policy


def learn(
    name: str,
    settings: Mapping[str, Any],
    log: Path,
    world: World | None,
    folder: Path,
    timeout: float | None,
) -> dict[str, Any]:
    """The facts that `shpi.cli._compare.learn_job` reports, or an error in their place."""
    job = {
        "learner": name,
        "options": dict(settings),
        "log": str(log),
        "world": None if world is None else {"name": world.name, "params": dict(world.params)},
        "policy": str(folder / "policy"),
        "facts": str(folder / FACTS),
    }
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "shpi.cli._compare.learn_job", str(folder / "job.json")],
            env=one_thread | dict(os.environ),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"ended after {timeout:g} seconds (--timeout)"}
    facts = read_facts(folder)
    if facts is not None:
        return facts
    last = ended.stderr.strip().splitlines()[-1:] or ["no message"]
    why = "ended by the system, perhaps for want of memory" if ended.returncode < 0 else last[0]
    return {"error": f"exit code {ended.returncode}: {why}"}


def evaluate(row: Row, policy: Policy, world: World, options: argparse.Namespace) -> Row:
    """Roll out the policy on new users of the simulator, the same users for every policy."""
    import numpy as np

    from shpi.envs.rollout import mean_return

    try:
        rollouts = mean_return(world.simulator, policy, options.rollouts, options.seed + EVALUATION)
    except Exception as error:  # a policy that fails becomes a note in its row
        return Row(**(asdict(row) | {"problem": f"online: {error}"}))
    users = rollouts.returns if rollouts.scores is None else rollouts.scores
    attained: Any = getattr(world.simulator, "fraction_attained", None)
    figures = {
        "online": float(users.mean()),
        "online_error": float(users.std(ddof=1) / np.sqrt(len(users))) if len(users) > 1 else None,
        "attained": None if attained is None else float(attained().mean()),
    }
    return Row(**(asdict(row) | figures))


# ---------------------------------------------------------------------- the table


def show(rows: Sequence[Row], world: World | None) -> None:
    """Print the table, with the best row in bold."""
    from rich.table import Table

    table = Table(title=None if world is None else f"online on {world.name}", title_justify="left")
    columns = [(title, cell) for title, cell in COLUMNS.items() if any(cell(row) for row in rows)]
    for title, _ in columns:
        left = title in ("learner", "verdict", "by")
        # On a narrow terminal, wrap the estimator's name rather than cut off numbers.
        table.add_column(title, justify="left" if left else "right", no_wrap=title != "by")
    best = best_row(rows)
    for row in rows:
        table.add_row(*(cell(row) for _, cell in columns), style="bold" if row is best else "")
    print_table(table)
    for row in rows:
        if row.problem is not None:
            print(f"{row.learner}: {row.problem}")
    if any(row.lift is not None for row in rows):
        print(
            "lift: over the logging policy, on users who were held out; 95 % intervals, one by one. "
            "The verdicts' bounds hold for all rows together."
        )


COLUMNS: dict[str, Callable[[Row], str]] = {
    "learner": lambda row: row.learner,
    "lift": lambda row: _text(row.lift, "+,.4g"),
    "interval": lambda row: (
        "" if row.lift is None else f"{_text(row.lift_lower, '+,.3g')} … {_text(row.lift_upper, '+,.3g')}"
    ),
    "verdict": lambda row: row.verdict or "",
    "by": lambda row: row.estimator or "",
    "online": lambda row: _text(row.online, ",.5g"),
    "± s.e.": lambda row: _text(row.online_error, ".2g"),
    "attained": lambda row: _text(row.attained, ".1%"),
    "CPU s": lambda row: _text(row.cpu_seconds, ".1f"),
    "peak MB": lambda row: _text(_megabytes(row.peak_bytes), ",.0f"),
}


def best_row(rows: Sequence[Row]) -> Row | None:
    """The row with the largest online return, or the largest lower bound of the lift if it is above 0."""
    online = [row for row in rows if row.online is not None]
    if online:
        return max(online, key=lambda row: row.online or 0.0)
    sure = [row for row in rows if row.lift_lower is not None and row.lift_lower > 0]
    return max(sure, key=lambda row: row.lift_lower or 0.0, default=None)


def write_json(
    path: Path, rows: Sequence[Row], logs: LoggedData, world: World | None, options: argparse.Namespace
) -> None:
    """Write the table as JSON, with everything needed to reproduce it."""
    from shpi import __version__

    content = {
        "shpi": __version__,
        "log": {"source": list(options.log), "fingerprint": logs.fingerprint(), "decisions": len(logs)},
        "world": None if world is None else {"name": world.name, "params": dict(world.params)},
        "settings": {
            name: getattr(options, name)
            for name in ("epsilon", "users", "rollouts", "seed", "option", "held_out")
        },
        "rows": [asdict(row) for row in rows],
    }
    write_text(path, json.dumps(content, indent=2) + "\n")


def _text(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _megabytes(size: int | None) -> float | None:
    return None if size is None else size / 1e6
