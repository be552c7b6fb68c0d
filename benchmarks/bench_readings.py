"""The effect of each difference between the readings of Algorithm 2, one change at a time.

    paper() to repaired()     the synthetic task of this package, 2,000 trajectories, epsilon 0.3 and 1
    released() to paper()     the worlds of the authors' release, 10 trajectories, epsilon 0.3 and 1

Seeds 200 to 202 were used for choices. Writes docs/readings.md. Training an agent of the release takes half a
CPU-minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.report import Row
from benchmarks.synthetic_task import log_of, logging_policy
from shpi.data._log.release import ReleasedRows, reward_differences
from shpi.data.logged import LoggedData
from shpi.envs.logging import LoggingPolicy, with_q_shares
from shpi.envs.rollout import mean_return
from shpi.envs.synthetic.simulator import Synthetic
from shpi.learners import OfflineSHPI
from shpi.learners._shpi.readings import repaired_settings
from shpi.learners.online.released_sarsa import OnlineSARSA
from shpi.oracles import CoinBetting, Ridge
from shpi.policies import Greedy
from shpi.protocols import Policy, Simulator
from shpi.values import BellmanResidual, Constant, FittedValue, ValueModel

SEEDS, WORLD_SEEDS, EPSILONS = range(600, 610), range(10), (0.3, 1.0)
NEW_USERS = 10_007  # added to the seed of a log for the seed of the new users
USERS, FEW, ROLLOUTS = 2000, 10, 100
PAGE = Path(__file__).resolve().parents[1] / "docs" / "readings.md"
Learn = Callable[[int], OfflineSHPI]


class Shared(NamedTuple):
    """A value model that is fitted once for all readings of a log."""

    model: ValueModel
    fitted: dict[tuple[int, int], tuple[LoggedData, FittedValue]]

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> FittedValue:
        """The value function that the model fits; the last one is cached."""
        if (id(logs), seed) not in self.fitted:
            self.fitted.clear()
            self.fitted[id(logs), seed] = logs, self.model.fit(logs, gamma=gamma, seed=seed)
        return self.fitted[id(logs), seed][1]


TD, RESIDUAL = Shared(repaired_settings()["value"], {}), Shared(BellmanResidual(), {})
REPAIRS: Mapping[str, Learn] = {
    "`paper()`": lambda seed: OfflineSHPI.paper(seed=seed, progress=False, value=RESIDUAL),
    "V by temporal differences": lambda seed: OfflineSHPI.paper(seed=seed, progress=False, value=TD),
    "weights kept off V": lambda seed: OfflineSHPI.paper(
        seed=seed, progress=False, form="residual", value=RESIDUAL
    ),
    "both: `repaired()`": lambda seed: OfflineSHPI.repaired(seed=seed, progress=False, value=TD),
    "V = 0": lambda seed: OfflineSHPI.paper(seed=seed, progress=False, value=Constant(0.0)),
    "differences of rewards": lambda seed: OfflineSHPI.paper(
        seed=seed, progress=False, view=reward_differences
    ),
    "both: V = 0 and differences": lambda seed: OfflineSHPI.paper(
        seed=seed, progress=False, view=reward_differences, value=Constant(0.0)
    ),
}


def _released(**changes: object) -> Learn:
    return lambda seed: OfflineSHPI.released(seed=seed, progress=False, **changes)


UNDONE: Mapping[str, Learn] = {
    "`released()`": _released(),
    "r = Y in place of differences": _released(view=ReleasedRows(rewards="level")),
    "context before the action": _released(view=ReleasedRows(after=False)),
    "true propensities, one product clipped": _released(clip="product"),
    "bonus without the ratio at t + k": _released(bonus_ratio=False),
    "V by the Bellman residual, 5,000 steps": _released(value=BellmanResidual()),
    "V = 0": _released(value=Constant(0.0)),
    "each round starts afresh": _released(oracle=CoinBetting(keep=False)),
    "f linear per action, least squares": _released(oracle=Ridge.exact()),
    "argmax": _released(explore=0.0),
    "k = 1": _released(k=1),
    "k = 150": _released(k=150),
}
WORLDS = ("true propensities", "2,000 trajectories", "scored in the train world")


class Score(NamedTuple):
    """One policy on new users."""

    epsilon: float
    seed: int
    reading: str
    value: float


# ---------------------------------------------------------------------- paper() to repaired()


def repairs(seeds: Iterable[int], readings: Sequence[str] = tuple(REPAIRS)) -> list[Score]:
    """The attained share on new users of this package's synthetic task."""
    scores = []
    for epsilon in EPSILONS:
        for seed in seeds:
            logs, world = log_of(epsilon, seed, USERS), Synthetic.small()
            tried: dict[str, Policy] = {"mu": logging_policy(epsilon)}
            for name in readings:
                tried[name] = REPAIRS[name](seed).fit(logs)
            for name, policy in tried.items():
                mean_return(world, policy, 2 * ROLLOUTS, seed + NEW_USERS)
                scores.append(Score(epsilon, seed, name, float(world.fraction_attained().mean())))
                print(f"  {scores[-1]}", flush=True)
    return scores


# ---------------------------------------------------------------------- released() to paper()


@cache
def agent_of(seed: int) -> Greedy:
    """The online agent of a run of the release."""
    return OnlineSARSA(seed=seed, progress=False).fit(Synthetic.released(seed=seed)[0])


def releases(
    seeds: Iterable[int],
    readings: Sequence[str] = (*UNDONE, *WORLDS),
    agent: Callable[[int], Greedy] = agent_of,
) -> list[Score]:
    """Y_T - Y_1 on new users of the test world."""
    scores = []
    for seed in seeds:
        train, test = Synthetic.released(seed=seed)
        for epsilon in EPSILONS:
            mu = LoggingPolicy(epsilon=epsilon, agent=agent(seed))
            scores.append(Score(epsilon, seed, "mu", _tried(test, mu, seed)))
            plain = train.rollout(mu, FEW, seed)
            logs = with_q_shares(plain, agent(seed), epsilon, seed=seed)
            for name in readings:
                where, data, learn = test, logs, UNDONE.get(name, UNDONE["`released()`"])
                if name.startswith("true propensities"):  # products of negative ratios cannot be clipped
                    data = plain
                elif name == "2,000 trajectories":
                    data = _many(train, mu, agent(seed), epsilon, seed)
                elif name == "scored in the train world":
                    where = train
                policy = learn(seed).fit(data)
                scores.append(Score(epsilon, seed, name, _tried(where, policy, seed)))
                print(f"  {scores[-1]}", flush=True)
    return scores


def _many(train: Simulator, mu: LoggingPolicy, agent: Greedy, epsilon: float, seed: int) -> LoggedData:
    return with_q_shares(train.rollout(mu, USERS, seed), agent, epsilon, seed=seed)


def _tried(world: Simulator, policy: Policy, seed: int) -> float:
    return mean_return(world, policy, ROLLOUTS, seed + NEW_USERS).mean


# ---------------------------------------------------------------------- the page


def run() -> list[Row]:
    first, second = repairs(SEEDS), releases(WORLD_SEEDS)
    PAGE.write_text(page(first, second), encoding="utf-8")
    rows = []
    for epsilon in EPSILONS:
        share = np.mean(_values(first, epsilon, "both: `repaired()`"))
        rows.append(Row(f"repaired(), epsilon {epsilon:g}", float(share), "share", "attained", ">= 0.985"))
        middle = np.median(_values(second, epsilon, "`released()`"))
        note = "the authors' code: 7,953" if epsilon < 1 else "the authors' code: 8,318"
        rows.append(Row(f"released(), epsilon {epsilon:g}", float(middle), "median", note))
    return rows


def page(first: Sequence[Score], second: Sequence[Score]) -> str:
    """docs/readings.md."""
    lines = [
        "# The readings, one change at a time",
        "",
        "`python -m benchmarks readings` writes this page. What the readings are: [paper and release]"
        "(paper-and-release.md).",
        "",
        "## From `paper()` to `repaired()`",
        "",
        f"The synthetic task of this package, {USERS:,} trajectories, seeds {_seeds(first)}: the attained",
        "share of the possible improvement, mean ± deviation over seeds (lowest). Every row below `paper()`",
        "is `paper()` with this change alone, or with the two that are named.",
        "",
        *_table(first, lambda v: f"{np.mean(v):.4f} ± {np.std(v, ddof=1):.4f} ({min(v):.4f})"),
        "",
        "## From `released()` to `paper()`",
        "",
        f"The worlds of the release, {FEW} trajectories, seeds {_seeds(second)}: Y_T - Y_1 in the test",
        "world, median, mean ± deviation over seeds (lowest). Every row is `released()` with one change.",
        "",
        *_table(
            second,
            lambda v: f"{np.median(v):,.0f}; {np.mean(v):,.0f} ± {np.std(v, ddof=1):,.0f} ({min(v):,.0f})",
        ),
    ]
    return "\n".join(lines) + "\n"


def _table(scores: Sequence[Score], text: Callable[[list[float]], str]) -> list[str]:
    names = list(dict.fromkeys(score.reading for score in scores))
    head = "| | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " |"
    rows = [
        f"| {name} | " + " | ".join(text(_values(scores, epsilon, name)) for epsilon in EPSILONS) + " |"
        for name in names
    ]
    return [head, "|---" * (1 + len(EPSILONS)) + "|", *rows]


def _values(scores: Sequence[Score], epsilon: float, name: str) -> list[float]:
    return [score.value for score in scores if (score.epsilon, score.reading) == (epsilon, name)]


def _seeds(scores: Sequence[Score]) -> str:
    seeds = sorted({score.seed for score in scores})
    return f"{seeds[0]} to {seeds[-1]}"
