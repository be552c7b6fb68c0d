"""Users who come, see, come back or leave: in calendar time, vectorised over users.

A world says what a context looks like, what its logging policy does, what a decision brings and whether the
user comes back. The engine lets users enter over the span of the log, and writes down every decision. The
truth of a policy is the mean of the metric over fresh users who are all observed for the whole window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from shpi.protocols import BoolArray, Float64Array, Int64Array

DAY = 86_400_000_000
START = 1_767_225_600_000_000  # 2026-01-01

Chooser = Callable[[pl.DataFrame, BoolArray | None], Float64Array]  # contexts, candidates -> probabilities


class World(Protocol):
    """One stranger's product."""

    name: str
    items: tuple[str, ...]
    window: int  # days that count after entry
    span: int  # days of the log
    logged: int  # users in it
    columns: str  # the column map, as text
    options: tuple[str, ...]  # of every verb that reads the table
    log: str  # the file of decisions

    def __hash__(self) -> int: ...

    def users(self, n: int, rng: np.random.Generator) -> dict[str, Any]:
        """Fresh users: state arrays [n]."""
        ...

    def contexts(self, state: dict[str, Any], who: Int64Array) -> pl.DataFrame:
        """What is known before a decision."""
        ...

    def candidates(self, n: int, rng: np.random.Generator) -> BoolArray | None:
        """Which items could be shown [n, A]; None: all."""
        ...

    def behaviour(self, contexts: pl.DataFrame, candidates: BoolArray | None) -> Float64Array:
        """The logging policy [n, A]."""
        ...

    def decide(
        self, state: dict[str, Any], who: Int64Array, actions: Int64Array, rng: np.random.Generator
    ) -> dict[str, Any]:
        """What the decisions bring (``reward`` and further columns); the state moves on."""
        ...

    def comes_back(self, state: dict[str, Any], who: Int64Array, rng: np.random.Generator) -> BoolArray:
        """Who comes back after a visit."""
        ...

    def pause(self, n: int, rng: np.random.Generator) -> Float64Array:
        """Days until the next visit [n]."""
        ...

    def visit_length(self, n: int, rng: np.random.Generator) -> Int64Array:
        """Decisions of a visit [n]."""
        ...

    def write(self, rows: pl.DataFrame, folder: Path, rng: np.random.Generator) -> None:
        """The raw files."""
        ...


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """All decisions of a simulation, in no particular order."""

    rows: pl.DataFrame  # user, day (float), entry (float), action, p, reward, the context and further columns
    users: int

    def value(self, window: float) -> float:
        """The metric by hand: rewards within the window after entry, per user."""
        counted = self.rows.filter(pl.col("day") - pl.col("entry") < window)
        return float(counted["reward"].sum()) / self.users

    def values(self, window: float) -> Float64Array:
        """The same for every user [users]."""
        counted = self.rows.filter(pl.col("day") - pl.col("entry") < window)
        users, rewards = counted["user"].to_numpy(), counted["reward"].to_numpy()
        return np.bincount(users, weights=rewards, minlength=self.users).astype(np.float64)


def simulate(world: World, choose: Chooser, users: int, seed: int, *, staggered: bool) -> Decisions:
    """Let users live under a policy.

    Args:
        world: the product.
        choose: the policy.
        users: how many enter.
        seed: of everything that is drawn.
        staggered: users enter over the span of the log, and it ends for all at the same time; otherwise all
            are observed for the whole window.
    """
    rng = np.random.default_rng(seed)
    state = world.users(users, rng)
    entry = rng.uniform(0, world.span, users) if staggered else np.zeros(users)
    now, end = entry.copy(), np.full(users, float(world.span)) if staggered else entry + world.window
    here = np.arange(users)
    parts: list[pl.DataFrame] = []
    while len(here):
        length = world.visit_length(len(here), rng)
        for step in range(int(length.max())):
            who = here[length > step]
            contexts = world.contexts(state, who)
            candidates = world.candidates(len(who), rng)
            probs = choose(contexts, candidates)
            actions = (probs.cumsum(axis=1) > rng.random((len(who), 1))).argmax(axis=1)
            brought = world.decide(state, who, actions, rng)
            listed = {} if candidates is None else {"candidates": _listed(world.items, candidates)}
            parts.append(
                contexts.with_columns(
                    user=pl.Series(who),
                    day=pl.Series(now[who] + step / (24 * 60)),
                    entry=pl.Series(entry[who]),
                    action=pl.Series([world.items[a] for a in actions]),
                    p=pl.Series(probs[np.arange(len(who)), actions]),
                    **{name: pl.Series(values) for name, values in (brought | listed).items()},
                )
            )
        back = world.comes_back(state, here, rng)
        now[here] += world.pause(len(here), rng)
        here = here[back & (now[here] < end[here])]
    rows = pl.concat(parts).filter(pl.col("day") < pl.col("entry") + (end - entry).max())
    return Decisions(rows=rows, users=users)


def _listed(items: tuple[str, ...], candidates: BoolArray) -> list[list[str]]:
    names = np.array(items)
    return [names[mask].tolist() for mask in candidates]


def timestamps(rows: pl.DataFrame) -> pl.Expr:
    """The time of a decision."""
    return (START + (pl.col("day") * DAY)).cast(pl.Int64).cast(pl.Datetime("us"))
