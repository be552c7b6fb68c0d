from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shpi.advantages import StateValues, k_step_advantages
from shpi.data.logged import LoggedData
from shpi.features import ChainMap
from shpi.learners.shape import choose_shape, for_discrete, may_curve
from shpi.oracles import Ridge
from shpi.policies import UniformPolicy
from shpi.protocols import Float64Array

USERS, STEPS = 200, 20


def chosen(
    effect: Callable[[Float64Array], Float64Array],
    worth: Callable[[Float64Array], Float64Array],
    noise: float = 0.3,
) -> bool:
    """Whether curves are chosen for two actions whose rewards differ by ``effect`` of x in [-3, 3]."""
    rng = np.random.default_rng(0)
    n = USERS * STEPS
    x, actions = rng.uniform(-3, 3, n), rng.integers(0, 2, n)
    logs = LoggedData.from_arrays(
        contexts=x[:, None],
        actions=actions,
        offsets=np.arange(USERS + 1) * STEPS,
        rewards=(actions - 0.5) * effect(x) + noise * rng.standard_normal(n),
        propensities=np.full(n, 0.5),
        n_actions=2,
    )
    advantages = k_step_advantages(logs, StateValues.zeros(logs), k=1, gamma=0.9)
    bonus = StateValues(rows=worth(x), final=np.zeros(USERS))
    found = choose_shape(logs, bonus, advantages, UniformPolicy(2), seed=0)
    return not isinstance(found.features, ChainMap)  # lines come fitted, curves as a recipe


def test_lines_where_effects_are_lines() -> None:
    assert not chosen(lambda x: x, lambda x: x)


def test_curves_where_they_tell_what_lines_cannot() -> None:
    assert chosen(lambda x: x**2 - 3, lambda x: np.sin(40 * x))


def test_lines_where_curves_fit_the_log_but_not_its_best_states() -> None:
    assert not chosen(lambda x: x + np.where(x < 1.5, np.sin(3 * x), 0.0), lambda x: x)


def test_lines_where_there_is_only_noise() -> None:
    assert not chosen(lambda x: 0 * x, lambda x: x)


def test_equal_values_leave_nothing_to_judge_on() -> None:
    assert not chosen(lambda x: x**2, lambda x: 0 * x)


def small(contexts: Float64Array, n_actions: int = 2) -> LoggedData:
    n = len(contexts)
    return LoggedData.from_arrays(
        contexts=contexts, actions=np.zeros(n, dtype=int), offsets=[0, n], rewards=np.zeros(n),
        propensities=np.full(n, 0.5), n_actions=n_actions,
    )  # fmt: skip


def test_discrete_contexts_are_left_to_the_oracle_s_own_test() -> None:
    rng = np.random.default_rng(1)
    found = for_discrete(small(rng.integers(0, 4, (300, 3)).astype(float)), seed=0)
    assert isinstance(found, Ridge)
    assert isinstance(found.features, tuple)
    assert for_discrete(small(rng.standard_normal((300, 3))), seed=0) is None


def test_curves_are_for_few_dimensions_and_actions() -> None:
    assert may_curve(small(np.zeros((5, 8))))
    assert not may_curve(small(np.zeros((5, 9))))
    assert not may_curve(small(np.zeros((5, 2)), n_actions=101))
