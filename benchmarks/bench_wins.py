"""Which method wins where: mu, our defaults, those of version 0.1, BCQ, bandit, SPIBB on every kind of log.

    python -m benchmarks wins                          run what is missing, and print the table
    python -m benchmarks.bench_wins --methods bcq,bandit,mu --worlds hiv --seeds 500-509
    python -m benchmarks.bench_wins --methods new --again        after a change of the learner
    python -m benchmarks.bench_wins --table                      print, write docs/wins.md, run nothing

Results are kept in benchmarks/wins/<method>.jsonl: a killed run resumes where it stopped, and rivals are not
run again. ``--worlds`` takes names or prefixes. The learner is that of the package which Python imports: to
measure another version, check it out elsewhere and give its results another name. Version 0.1 has not the
modules that this command imports, so it is measured with the command of an earlier commit:

    git worktree add --detach ../before aaac9fb
    git worktree add --detach ../then 052f6e4~1
    cd ../then
    PYTHONPATH=../before/src python -m benchmarks.bench_wins --methods new --method-name old   (in build/wins)

KuaiRand's log is left out unless SHPI_DATA names the folder of its files.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import wins_page, wins_store
from benchmarks.report import Row, show
from benchmarks.wins_store import Result
from benchmarks.wins_table import table
from benchmarks.worlds import LOGS, World, names
from benchmarks.worlds.simulated import SimulatedWorld
from shpi.data.logged import LoggedData
from shpi.experiments._run.settings import LONGER, NEURAL
from shpi.learners import registry
from shpi.protocols import Policy

SEEDS = tuple(range(500, 510))
METHODS = ("mu", "new", "bandit", "bcq", "spibb", "constant")
_LEARNERS = {"new": "shpi", "bandit": "bandit", "bcq": "bcq", "spibb": "spibb"}


def applies(method: str, world: World) -> bool:
    """Whether a method is run: SPIBB only with finite contexts, the best constant action only in KuaiRand."""
    if method == "constant":
        return world.name.startswith("kuairand")
    return method != "spibb" or world.finite


def learner_for(method: str, world: World, seed: int) -> Any:
    """The learner with its default configuration and the world's discount."""
    name = _LEARNERS[method]
    options: dict[str, Any] = {"gamma": world.gamma, "progress": False, "seed": seed}
    if name in NEURAL:
        simulator = getattr(world, "simulator", "")
        options["steps"] = LONGER.get((name, simulator), NEURAL[name])
    known = registry.parameters(name)
    return registry.make(name, **{key: option for key, option in options.items() if key in known})


def fitted(method: str, world: World, seed: int, logs: LoggedData) -> tuple[Policy, float]:
    """The method's policy and the CPU seconds of its fit."""
    began = time.process_time()
    if method == "mu":
        policy = world.mu(seed)
    elif method == "constant":
        assert isinstance(world, SimulatedWorld)
        policy = world.best_constant(seed)
    else:
        policy = learner_for(method, world, seed).fit(logs)
    return policy, time.process_time() - began


def measure(methods: Sequence[str], world: World, seed: int, label: str = "new") -> list[Result]:
    """Fit and test the methods on one log; ``label`` is the name of our own learner in the results."""
    logs, mu = world.make_log(seed), world.truth(world.mu(seed), seed)
    results = []
    for method in methods:
        policy, seconds = fitted(method, world, seed, logs)
        truth = world.truth(policy, seed)
        stated, proven = getattr(policy, "lift", None), getattr(policy, "proven", None)
        result = Result(
            world=world.name,
            seed=seed,
            method=label if method == "new" else method,
            users=world.users,
            headline=truth.headline,
            value=truth.value,
            mu_headline=mu.headline,
            mu_value=mu.value,
            optimum=world.optimum(seed),
            lift_error=truth.above(mu).error,
            seconds=seconds,
            code=wins_store.code_digest(),
            proven=None if proven is None else bool(proven),
            lift=None if stated is None else float(stated.estimate),
            lift_lower=None if stated is None else float(stated.lower),
        )
        wins_store.append(result)
        results.append(result)
    return results


def complete(
    methods: Sequence[str],
    worlds: Sequence[World],
    seeds: Sequence[int],
    label: str = "new",
    again: bool = False,
) -> None:
    """Run the missing trials, world by world, with a line of progress per log."""
    labels = {method: label if method == "new" else method for method in methods}
    done = {} if again else {m: {(r.world, r.seed) for r in wins_store.load(labels[m])} for m in methods}
    began, total = time.monotonic(), len(worlds) * len(seeds)
    for number, (world, seed) in enumerate(((w, s) for w in worlds for s in seeds), start=1):
        missing = [m for m in methods if applies(m, world) and (world.name, seed) not in done.get(m, ())]
        if not missing:
            continue
        measure(missing, world, seed, label)
        elapsed = time.monotonic() - began
        print(f"  {number}/{total} {world.name} {seed}: {', '.join(missing)}; {elapsed:.0f} s", flush=True)


def available(prefixes: Sequence[str] = ()) -> list[World]:
    """The logs whose names have one of the prefixes; all if there are none."""
    chosen = [world for world in LOGS if not prefixes or world.name.startswith(tuple(prefixes))]
    if not chosen:
        raise SystemExit(f"no world begins with {', '.join(prefixes)}; known: {', '.join(names())}")
    return [world for world in chosen if "SHPI_DATA" in os.environ or not world.name.startswith("kuairand")]


def run() -> list[Row]:
    complete(METHODS, available(), SEEDS)
    wins_page.write(available(), SEEDS)
    return table(available(), SEEDS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_wins")
    parser.add_argument("--methods", default=",".join(METHODS), help="any of %(default)s")
    parser.add_argument("--worlds", default="", help="names or how they begin, with commas")
    parser.add_argument("--seeds", default=f"{SEEDS[0]}-{SEEDS[-1]}", help="first-last, or with commas")
    parser.add_argument("--method-name", default="new", help="what our own learner's results are called")
    parser.add_argument("--again", action="store_true", help="run again what is there already")
    parser.add_argument("--table", action="store_true", help="print the table, run nothing")
    options = parser.parse_args()
    methods = [name for name in options.methods.split(",") if name]
    if unknown := sorted(set(methods) - set(METHODS)):
        parser.error(f"unknown methods {', '.join(unknown)}; known: {', '.join(METHODS)}")
    worlds = available([name for name in options.worlds.split(",") if name])
    if options.table:
        wins_page.write(worlds, _numbers(options.seeds))
        show("wins", table(worlds, _numbers(options.seeds)))
    else:
        complete(methods, worlds, _numbers(options.seeds), options.method_name, options.again)


def _numbers(text: str) -> tuple[int, ...]:
    """Seeds as "500-509" or "500,503"."""
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last) + 1)) if last else tuple(map(int, text.split(",")))


if __name__ == "__main__":
    main()
