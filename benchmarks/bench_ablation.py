"""Every choice inside OfflineSHPI: form × value × pi_0 × k without tests, and changes to the defaults.

Two worlds: the synthetic task (1,000 trajectories; the attained share of the possible improvement) and the
storefront (6,000 users of a uniform policy; exact value as a share of the optimum). Without tests, each value
and the clone of mu are fitted once per log and shared by all rows. Seeds 100 and 101. Writes
docs/ablation.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import Row
from benchmarks.synthetic_task import log_of, outcome
from shpi.data.logged import LoggedData
from shpi.envs.storefront import Storefront
from shpi.features import Chain, Identity, Standardise
from shpi.features.defaults import curves
from shpi.learners import BehaviourCloning, OfflineSHPI
from shpi.learners._shpi.shapes import BANDWIDTH, CURVES
from shpi.oracles import Ridge
from shpi.policies import UniformPolicy
from shpi.protocols import Policy
from shpi.values import LSTD, BellmanResidual, FittedTD, FittedValue, ValueModel, WithPast

PAGE = Path(__file__).resolve().parents[1] / "docs" / "ablation.md"
SEEDS, ROUNDS, GAMMA = (100, 101), 5, 0.99
FORMS, STARTS = ("residual", "raw"), ("behaviour", "random")
PAST, DEFAULTS = "LSTD, past", "the defaults"
VALUES: dict[str, ValueModel] = {
    PAST: WithPast(),
    "LSTD": LSTD(),
    "fitted TD": FittedTD(),
    "Bellman residual": BellmanResidual(),
}
HORIZONS: tuple[Any, ...] = (1, 3, 5, 10, 20, 150)
OPTIONS: dict[str, dict[str, Any]] = {
    DEFAULTS: {},
    "k = 1": {"k": 1},
    "k = 5": {"k": 5},
    "the value of mu in every round (value=WithPast())": {"value": WithPast()},
    "form='raw'": {"form": "raw"},
    "products clipped once (clip='product')": {"clip": "product"},
    "no clipping": {"weight_clip": None},
    "f linear": {"oracle": Ridge(features=Chain((Standardise(), Identity(intercept=False))))},
    "f linear and Fourier": {
        "oracle": Ridge(features=curves(CURVES, BANDWIDTH, 0, intercept=False, beside_lines=True))
    },
}
UNTESTED: dict[str, dict[str, Any]] = {
    "no tests, k = 5": {},
    "no tests, greedy without bounds (reach=None)": {"reach": None},
    "no tests, reach=1": {"reach": 1.0},
    "no tests, reach=1.5": {"reach": 1.5},
    "no tests, LSTD of one step": {"value": WithPast(model=LSTD(lookahead=1))},
}


class Fitted(NamedTuple):
    """A value model that returns a value fitted before, to all users of a log."""

    value: FittedValue

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> FittedValue:
        """The value that was fitted before."""
        del logs, gamma, seed
        return self.value


class World(NamedTuple):
    """A world in which learners are tried: its logs, score and horizons."""

    logs: Callable[[int], LoggedData]
    score: Callable[[Policy, int], float]  # as a share of the best
    horizons: tuple[Any, ...]


def _shop_score(policy: Policy, seed: int) -> float:
    del seed
    shop = Storefront()
    return shop.exact_value(policy.action_probs(shop.contexts)) / shop.exact_value(shop.optimal())


def _attained(policy: Policy, seed: int) -> float:
    return float(outcome(policy, seed).attained.mean())


def worlds() -> dict[str, World]:
    shop = Storefront()
    return {
        "synthetic, epsilon 0.3": World(lambda s: log_of(0.3, s, 1000), _attained, HORIZONS),
        "synthetic, epsilon 1": World(lambda s: log_of(1.0, s, 1000), _attained, HORIZONS),
        "storefront": World(
            lambda s: shop.rollout(UniformPolicy(shop.n_actions), 6000, seed=s), _shop_score,
            (*HORIZONS[:4], "session"),
        ),
    }  # fmt: skip


Key = tuple[str, ...]


def trial(case: tuple[str, int]) -> dict[Key, float]:
    """Scores of all rows, for one world and seed."""
    name, seed = case
    world = worlds()[name]
    logs = world.logs(seed)
    mu = BehaviourCloning(seed=seed).fit(logs)
    fitted = {key: Fitted(value.fit(logs, gamma=GAMMA, seed=seed)) for key, value in VALUES.items()}
    scores: dict[Key, float] = {}
    untested: dict[str, Any] = {"tested": False, "behaviour": mu, "iterations": ROUNDS}
    for key, changes in _cases(world, fitted):
        settings = changes if key[0] == "option" else untested | changes
        scores[key] = world.score(OfflineSHPI(**settings, seed=seed, progress=False).fit(logs), seed)
    return scores


def _cases(world: World, fitted: dict[str, Fitted]) -> Iterator[tuple[Key, dict[str, Any]]]:
    for form, value, start, k in itertools.product(FORMS, VALUES, STARTS, world.horizons):
        yield (form, value, start, str(k)), {"form": form, "value": fitted[value], "start": start, "k": k}
    for label, changes in OPTIONS.items():
        yield ("option", label), changes
    for label, changes in UNTESTED.items():
        yield ("untested", label), {"k": 5, "value": fitted[PAST]} | changes


def run() -> list[Row]:
    cases = [(name, seed) for name in worlds() for seed in SEEDS]
    by_world: dict[str, list[dict[Key, float]]] = {}
    with ProcessPoolExecutor(2) as pool:
        for (name, seed), scores in zip(cases, pool.map(trial, cases), strict=True):
            by_world.setdefault(name, []).append(scores)
            print(f"  {name}, seed {seed}: {len(scores)} configurations", flush=True)
    means = {name: _means(some) for name, some in by_world.items()}
    write_page(means)
    return [
        Row(f"{name}: {DEFAULTS}", scores["option", DEFAULTS], "share", _note(scores))
        for name, scores in means.items()
    ]


def _means(trials: list[dict[Key, float]]) -> dict[Key, float]:
    return {key: float(np.mean([scores[key] for scores in trials])) for key in trials[0]}


def _note(scores: dict[Key, float]) -> str:
    printed = scores["raw", "Bellman residual", "random", "5"]
    best = max(scores.values())
    return f"best of the grid {best:.3f}; raw, Bellman residual, random pi_0, 5: {printed:.3f}"


def write_page(means: dict[str, dict[Key, float]]) -> None:
    lines = [
        "# Ablation of OfflineSHPI",
        "",
        "`python -m benchmarks ablation` writes this page (seeds 100 and 101). Synthetic: the attained share",
        "of the possible improvement, 1,000 trajectories. Storefront: the exact value as a share of the",
        "optimum, 6,000 users. The grids are without tests (`tested=False`).",
        "*LSTD, past* sees the rewards before a decision beside its context (`shpi.values.WithPast`).",
    ]
    for name, scores in means.items():
        lines += [
            "",
            f"## {name}",
            "",
            *_grid(name, scores),
            "",
            "| one change to the defaults, or no tests | |",
            "|---|---|",
        ]
        lines += [f"| {label} | {scores['option', label]:.3f} |" for label in OPTIONS]
        lines += [f"| {label} | {scores['untested', label]:.3f} |" for label in UNTESTED]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _grid(name: str, scores: dict[Key, float]) -> list[str]:
    horizons = [str(k) for k in worlds()[name].horizons]
    lines = [
        "| form | value | pi_0 | " + " | ".join(f"k = {k}" for k in horizons) + " |",
        "|---" * (3 + len(horizons)) + "|",
    ]
    for form, value, start in itertools.product(FORMS, VALUES, STARTS):
        cells = [f"{scores[form, value, start, k]:.3f}" for k in horizons]
        lines.append(f"| {form} | {value} | {start} | " + " | ".join(cells) + " |")
    return lines
