"""The whole way on the command line: raw files, a map, audit, split, fit, evaluate; then the truth."""

from __future__ import annotations

import contextlib
import io
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.strangers.world import Chooser, World, simulate
from shpi.policies import load_policy, read_policy_file
from shpi.protocols import BoolArray, Float64Array

TRUTH_USERS, TRUTH_SEED = 40_000, 1_000_000
MU_BATCHES = 10  # of so many users, for the value of mu: its error must be small against that of twenty logs


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one run on one log learned, and what is true."""

    world: str
    seed: int
    commands: int
    true_mu: float
    true_pi: float
    by_hand: float  # the logging policy's value as evaluate prints it
    estimate: float  # of the lift
    lower: float
    upper: float
    verdict: str
    main: str
    share: float = 1.0  # of the policy in the mixture whose lift leads; 1: the policy itself
    true_lead: float | None = None  # what that mixture is worth; None: the policy itself leads

    @property
    def lift(self) -> float:
        """The true lift."""
        return self.true_pi - self.true_mu

    @property
    def covered(self) -> bool:
        """Whether the interval that leads the report contains the true lift of what it is about."""
        about = self.true_pi if self.true_lead is None else self.true_lead
        return self.lower <= about - self.true_mu <= self.upper


def go(world: World, folder: Path, seed: int, users: int) -> Outcome:
    """Write the log, go the way, and look up the truth."""
    from shpi.cli.main import main

    folder.mkdir(parents=True, exist_ok=True)
    rows = simulate(world, world.behaviour, users, seed, staggered=True).rows
    world.write(rows, folder, np.random.default_rng(seed))
    (folder / "map.toml").write_text(world.columns, encoding="utf-8")
    log = [str(folder / world.log), "--columns", str(folder / "map.toml"), *world.options]
    train, held_out = str(folder / "train.parquet"), str(folder / "held-out.parquet")
    commands = (
        ["audit", *log],
        ["split", *log, "--out", str(folder), "--overwrite"],
        ["fit", train, "--out", str(folder / "policy"), "--overwrite"],
        ["evaluate", str(folder / "policy"), held_out, "--json", str(folder / "evaluation.json")],
    )
    for command in commands:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(command)
        (folder / f"{command[0]}.txt").write_text(said.getvalue(), encoding="utf-8")
        if code in (1, 2):
            raise RuntimeError(
                f"{world.name}, seed {seed}: shpi {command[0]} exits {code}\n{said.getvalue()[-2000:]}"
            )
    evaluation = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    return _outcome(world, seed, len(commands), evaluation, folder)


def _outcome(world: World, seed: int, commands: int, evaluation: dict[str, Any], folder: Path) -> Outcome:
    main = next(estimate for estimate in evaluation["estimates"] if estimate["name"] == evaluation["main"])
    policy = saved(world, folder / "policy")
    learned = simulate(world, policy, TRUTH_USERS, TRUTH_SEED, staggered=False)
    share, true_lead = 1.0, None
    if evaluation["mixture"] is not None:
        main, share = evaluation["mixture"]["estimate"], evaluation["mixture"]["share"]
        led = simulate(world, mixed(world, policy, share), TRUTH_USERS, TRUTH_SEED, staggered=False)
        true_lead = led.value(world.window)
    return Outcome(
        world=world.name,
        seed=seed,
        commands=commands,
        true_mu=_true_mu(world),
        true_pi=learned.value(world.window),
        by_hand=main["baseline"],
        estimate=main["lift"],
        lower=main["lift_interval"]["lower"],
        upper=main["lift_interval"]["upper"],
        verdict=evaluation["verdict"]["decision"],
        main=evaluation["main"],
        share=share,
        true_lead=true_lead,
    )


def mixed(world: World, policy: Chooser, share: float) -> Chooser:
    """``share`` of the decisions by the policy, the others by the logging policy."""

    def choose(contexts: pl.DataFrame, candidates: BoolArray | None) -> Float64Array:
        own, other = policy(contexts, candidates), world.behaviour(contexts, candidates)
        chosen: Float64Array = share * own + (1 - share) * other
        return chosen

    return choose


@cache
def value_of_mu(world: World) -> tuple[float, float]:
    """What the logging policy is worth, with its standard error, from users who are in no other figure."""
    users = [
        simulate(world, world.behaviour, TRUTH_USERS, TRUTH_SEED + 1 + batch, staggered=False).values(
            world.window
        )
        for batch in range(MU_BATCHES)
    ]
    values = np.concatenate(users)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


@cache
def _true_mu(world: World) -> float:
    return simulate(world, world.behaviour, TRUTH_USERS, TRUTH_SEED, staggered=False).value(world.window)


def saved(world: World, place: Path) -> Chooser:
    """A policy folder as the world asks for decisions: tables in, probabilities of its items out."""
    file, policy = read_policy_file(place), load_policy(place)
    assert file.schema is not None
    assert file.actions is not None
    schema, order = file.schema, [world.items.index(str(item)) for item in file.actions.ids]

    def choose(contexts: pl.DataFrame, candidates: BoolArray | None) -> Float64Array:
        mask = None if candidates is None else candidates[:, order]
        probs = np.zeros((contexts.height, len(world.items)))
        probs[:, order] = policy.action_probs(schema.encode_checked(contexts), mask)
        return probs

    return choose


def quiet() -> None:
    """One thread, and plain text."""
    os.environ.setdefault("NO_COLOR", "1")
