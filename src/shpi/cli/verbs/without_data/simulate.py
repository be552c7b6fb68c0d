"""``shpi simulate``: roll out a policy in a simulator and write a log, to try everything without data."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi.cli._shell.params import parse_param
from shpi.cli._shell.tables import print_table
from shpi.errors import ConfigError

if TYPE_CHECKING:  # the simulators are imported when the verb runs, so that `shpi --help` is quick
    from shpi.data.logged import LoggedData
    from shpi.protocols import Policy, Simulator

DESCRIPTION = """Let simulated users meet a policy, and write what happens as a log with exact propensities.

The log is one Parquet file that every other verb opens without a column map. The same seed gives the same
log, user by user: a run with --users 1000 is the beginning of one with --users 2000.
"""

EXAMPLES = """policies:
  uniform      every allowed action with the same probability
  controller   synthetic worlds: the action that points best at the optimum
  agent        the trained online agent of the world (see: shpi agents --help)
  bandit, session_rl, shpi, optimal
               storefront: the exact policies of the paper's introduction
  PATH         a policy saved by shpi

examples:
  shpi simulate --list
  shpi simulate storefront --users 10000 --out log.parquet
  shpi simulate synthetic --policy controller --epsilon 0.3 --users 2000 --seed 1 --out log.parquet
  shpi simulate synthetic --param d=5 --param tau=3 --horizon 50 --out short.parquet
  shpi simulate synthetic --param 'reward_offset=[1e5, 1e4]' --out biased.parquet

then:
  shpi audit log.parquet
"""

STOREFRONT_TABLES = ("bandit", "session_rl", "shpi", "optimal")


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "simulate",
        help="a log from a simulator, to try everything without data of one's own",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("env", nargs="?", metavar="ENV", help="the simulator, see --list")
    parser.add_argument("--policy", default="uniform", help="the policy (default: uniform), see below")
    parser.add_argument(
        "--epsilon", type=float, metavar="E", help="decide uniformly at random with this probability"
    )
    parser.add_argument("--users", type=int, default=1000, metavar="N", help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    parser.add_argument("--first", type=int, default=0, metavar="I", help="number of the first user")
    parser.add_argument("--horizon", type=int, metavar="T", help="decisions per user (default: the world's)")
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter of the simulator; may be repeated",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the log (Parquet)")
    parser.add_argument(
        "--batch", type=int, default=4000, metavar="N", help="users advanced together (default: 4000)"
    )
    parser.add_argument("--list", action="store_true", help="list the simulators and their parameters")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    if options.list:
        show_worlds(options.env)
        return 0
    if options.env is None or options.out is None:
        raise ConfigError(
            expected="the name of a simulator and --out FILE",
            found="no simulator" if options.env is None else "no --out",
            remedy="shpi simulate --list shows the simulators, shpi simulate --help some examples",
        )
    if options.out.is_dir():
        raise ConfigError(expected="--out to be a file", found=f"the folder {options.out}")
    from shpi.envs import registry
    from shpi.envs.rollout import rollout

    params = dict(parse_param(text) for text in options.param)
    if options.horizon is not None and "horizon" in registry.parameters(options.env):
        params["horizon"] = options.horizon
    simulator = registry.make(options.env, **params)
    policy = find_policy(options.policy, simulator, options.epsilon)
    began = time.perf_counter()
    logs = rollout(
        simulator,
        policy,
        options.users,
        options.seed,
        first=options.first,
        horizon=options.horizon,
        batch=options.batch,
        progress=None,
    )
    path = logs.to_parquet(options.out)
    say_what_was_written(logs, path, time.perf_counter() - began)
    return 0


def say_what_was_written(logs: LoggedData, path: Path, seconds: float) -> None:
    """Print the size of the log, the mean return, and what to type next."""
    import numpy as np

    print(f"wrote {path} ({path.stat().st_size / 1e6:,.1f} MB in {seconds:.1f} s)")
    print(f"  {logs}")
    if logs.rewards is not None:
        returns = np.add.reduceat(logs.rewards, logs.offsets[:-1])
        print(f"  sum of rewards per user: mean {returns.mean():,.4g}, deviation {returns.std():,.4g}")
    print(f"next: shpi audit {path}")


def find_policy(name: str, simulator: Simulator, epsilon: float | None) -> Policy:
    """The policy of that name for a simulator, mixed with the uniform one."""
    from shpi.policies import Mixture, UniformPolicy

    uniform = UniformPolicy(simulator.n_actions)
    if epsilon is not None and not 0 <= epsilon <= 1:
        raise ConfigError(expected="--epsilon in [0, 1]", found=str(epsilon))
    if name == "uniform":
        if epsilon is not None:
            raise ConfigError(
                expected="--epsilon together with another policy than uniform",
                found="uniform, which is random already",
                remedy="leave --epsilon out, or choose --policy controller or agent",
            )
        return uniform
    if name == "agent":
        return _agent(simulator, 0.0 if epsilon is None else epsilon)
    policy = _named(name, simulator)
    return policy if epsilon is None else Mixture([policy, uniform], [1.0 - epsilon, epsilon])


def _agent(simulator: Simulator, epsilon: float) -> Policy:
    """The trained online agent of a world, which decides uniformly at random with probability epsilon."""
    from shpi.envs.logging import LoggingPolicy

    return LoggingPolicy(simulator, epsilon)


def _named(name: str, simulator: Simulator) -> Policy:
    from shpi.envs.storefront import Storefront
    from shpi.envs.synthetic.reference import SimpleController
    from shpi.envs.synthetic.simulator import Synthetic
    from shpi.policies import TabularPolicy, load_policy

    if name == "controller" and isinstance(simulator, Synthetic):
        return SimpleController.of(simulator)
    if name in STOREFRONT_TABLES and isinstance(simulator, Storefront):
        return TabularPolicy(getattr(simulator, name)())
    if Path(name).exists():
        return load_policy(Path(name))
    special = {Synthetic: ("controller",), Storefront: STOREFRONT_TABLES}
    known = ("uniform", *special.get(type(simulator), ()), "agent")
    raise ConfigError(
        expected=f"a policy for '{simulator.name}': {', '.join(known)}, or the path of a saved policy",
        found=repr(name),
    )


def show_worlds(only: str | None) -> None:
    """Print the simulators with their parameters and defaults."""
    from rich.table import Table

    from shpi.envs import registry

    table = Table(title="simulators", title_justify="left")
    for column in ("name", "what it is", "parameters (defaults)"):
        table.add_column(column, overflow="fold")
    for name in registry.names() if only is None else (only,):
        defaults = ", ".join(f"{key}={value!r}" for key, value in registry.parameters(name).items())
        table.add_row(name, registry.about(name), defaults)
    print_table(table)
