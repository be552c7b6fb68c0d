from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest

from shpi.envs import tabular
from shpi.envs.rollout import mean_return
from shpi.envs.storefront import (
    BESTSELLER,
    BOUGHT,
    COLD,
    DISCOVERY,
    EVERYDAY,
    FIRST,
    INSPIRED,
    ITEMS,
    SPECIAL,
    WARM,
    Storefront,
)
from shpi.errors import ActionError, ConfigError, EpisodeError
from shpi.policies import TabularPolicy

FIVE = ("uniform", "bandit", "session_rl", "shpi", "optimal")


def month_by_enumeration(world: Storefront, table: np.ndarray) -> tuple[float, float]:
    """(conversions, sessions) by walking through every possible month: the story told again, no matrices."""

    def buys(special: bool, warm: bool, bought: bool, item: int) -> float:
        if bought:
            return world.add_on * (item == BESTSELLER)
        if item == BESTSELLER:
            return world.bestseller_special if special else world.bestseller
        if (item == SPECIAL and special) or (item == EVERYDAY and not special):
            return world.when_warm if warm else 0.0 if special else world.at_once
        return 0.0

    @cache
    def session(slot: int, special: bool) -> np.ndarray:
        total = np.array([0.0, 1.0])
        for item, later_item in itertools.product(range(5), range(5)):
            functional = item == (SPECIAL if special else EVERYDAY)
            p_one = buys(special, False, False, item)
            for bought in (True, False):
                chance = (p_one if bought else 1 - p_one) * table[world.state(slot, special, FIRST), item]
                memory = BOUGHT if bought else WARM if functional else INSPIRED if item == DISCOVERY else COLD
                chance *= table[world.state(slot, special, memory), later_item]
                if chance:
                    gain = bought + buys(special, memory == WARM, bought, later_item)
                    # Who buys at once never bought discovery, so a first discovery is always remembered.
                    later = wait(slot + 1, DISCOVERY in (item, later_item))
                    total = total + chance * (np.array([gain, 0.0]) + later)
        return total

    @cache
    def wait(slot: int, inspired: bool) -> np.ndarray:
        if slot > world.max_sessions:
            return np.zeros(2)
        comes = world.return_inspired if inspired else world.return_plain
        special = world.special_inspired if inspired else world.special_plain
        here = (1 - special) * session(slot, False) + special * session(slot, True)
        return comes * here + (1 - comes) * wait(slot + 1, inspired)

    first = (1 - world.special_plain) * session(1, False) + world.special_plain * session(1, True)
    return float(first[0]), float(first[1])


def test_values_of_the_five_policies_by_enumeration() -> None:
    world = Storefront()
    for name in FIVE:
        table = getattr(world, name)()
        conversions, sessions = month_by_enumeration(world, table)
        assert world.exact_value(table) == pytest.approx(conversions, rel=1e-12), name
        assert world.expected_sessions(table) == pytest.approx(sessions, rel=1e-12), name


def test_random_policies_by_enumeration_and_none_beats_the_optimum() -> None:
    world = Storefront()
    rng = np.random.default_rng(0)
    best = world.exact_value(world.optimal())
    for _ in range(20):
        table = rng.dirichlet(np.full(5, 0.3), world.n_states)
        value = world.exact_value(table)
        assert value == pytest.approx(month_by_enumeration(world, table)[0], rel=1e-12)
        assert value < best


def test_the_ordering_of_the_paper() -> None:
    world = Storefront()
    value = {name: world.exact_value(getattr(world, name)()) for name in FIVE}
    assert value["uniform"] < value["bandit"] < value["session_rl"] < value["shpi"] < value["optimal"]
    expected = {"uniform": 0.6421, "bandit": 1.3210, "session_rl": 2.0480, "shpi": 2.3363, "optimal": 2.4415}
    assert value == pytest.approx(expected, abs=1e-4)


CHANGES: list[dict[str, float]] = [
    {name: factor * default}
    for name, default in (
        ("return_plain", 0.25),
        ("return_inspired", 0.9),
        ("special_plain", 0.2),
        ("special_inspired", 0.4),
        ("bestseller", 0.5),
        ("bestseller_special", 0.05),
        ("at_once", 0.3),
        ("add_on", 0.1),
    )
    for factor in (0.8, 1.1)
] + [{"when_warm": 0.8}, {"max_sessions": 3}, {"max_sessions": 8}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_the_ordering_is_no_accident_of_the_constants(change: dict[str, Any]) -> None:
    world = Storefront(**change)
    value = [world.exact_value(getattr(world, name)()) for name in FIVE[1:]]
    assert value[0] < value[1] - 1e-3
    assert value[1] < value[2] - 1e-3
    assert value[2] <= value[3] + 1e-12


def test_why_it_is_so() -> None:
    world = Storefront()
    bandit, session, shpi, best = (getattr(world, name)() for name in FIVE[1:])
    visited = slice(0, world.n_states - 1)
    # The bandit shows the bestseller unless the user is already warm, where buying is certain.
    warm = np.arange(world.n_states - 1) % 5 == WARM
    assert (bandit[visited].argmax(axis=1)[~warm] == BESTSELLER).all()
    # Neither it nor session RL ever shows discovery, so both see the same sessions: fewer than mu does.
    assert bandit[visited, DISCOVERY].sum() == session[visited, DISCOVERY].sum() == 0
    assert world.expected_sessions(bandit) == pytest.approx(world.expected_sessions(session), rel=1e-12)
    assert world.expected_sessions(session) < world.expected_sessions(world.uniform())
    # Session RL converts every session; SHPI and the optimum spend recommendations on the next one.
    assert world.exact_value(session) >= world.expected_sessions(session)
    assert shpi[world.state(1, 0, BOUGHT), DISCOVERY] == 1
    assert world.expected_sessions(session) < world.expected_sessions(shpi) < world.expected_sessions(best)


def test_session_rl_is_the_best_of_all_policies_of_a_single_session() -> None:
    world = Storefront(max_sessions=1)
    best = 0.0
    for need, share in ((0, 0.8), (1, 0.2)):
        states = [world.state(1, need, place) for place in range(5)]
        values = []
        for choice in itertools.product(range(5), repeat=5):  # every deterministic policy of this need
            actions = np.zeros(world.n_states, dtype=int)
            actions[states] = choice
            value = world.values(tabular.deterministic(actions, 5))
            values.append(value[states[0]])
        best += share * max(values)
    assert world.exact_value(world.session_rl()) == pytest.approx(best, rel=1e-12)
    assert world.exact_value(world.optimal()) == pytest.approx(best, rel=1e-12)


def test_the_special_cases_of_the_look_ahead() -> None:
    world = Storefront()
    mu, nothing = world.uniform(), np.zeros(world.n_states)
    value = world.values(mu)
    q_mu = world.expected_reward + world._leaving @ value
    one_step = tabular.lookahead(world._leaving, world.expected_reward, mu, value, 1)
    assert one_step == pytest.approx(q_mu)  # k = 1 is Q^mu
    assert np.array_equal(
        tabular.lookahead(world._leaving, world.expected_reward, mu, nothing, 1), world.expected_reward
    )
    for k in (2, 5):  # under mu itself, the bonus makes every k agree
        assert tabular.lookahead(world._leaving, world.expected_reward, mu, value, k) == pytest.approx(q_mu)
    # k >= T is policy iteration, whose fixed point is the optimum.
    assert world.exact_value(world.shpi(k=world.horizon)) == pytest.approx(
        world.exact_value(world.optimal()), rel=1e-12
    )
    assert world.exact_value(world.shpi(k=1)) < world.exact_value(world.shpi(k=3))


def test_the_optimum_satisfies_the_bellman_equation() -> None:
    world = Storefront()
    value = world.values(world.optimal())
    assert (world.expected_reward + world._leaving @ value).max(axis=1) == pytest.approx(value, abs=1e-12)


def test_arrays_are_a_decision_process() -> None:
    world = Storefront()
    assert world.transition.shape == world.reward.shape == (51, 5, 51)
    assert world.transition.sum(axis=2) == pytest.approx(np.ones((51, 5)), abs=1e-12)
    assert (world.transition >= 0).all()
    assert ((world.reward >= 0) & (world.reward <= 1)).all()
    assert world.start.sum() == pytest.approx(1)
    assert len(np.unique(world.contexts[:, 1:], axis=0)) == 51
    assert len(ITEMS) == world.n_actions


def test_simulated_months_agree_with_the_exact_values() -> None:
    world, n = Storefront(), 40_000
    for name in ("uniform", "session_rl", "shpi"):
        table = getattr(world, name)()
        result = mean_return(world, TabularPolicy(table), n, seed=0)
        error = result.returns.std() / np.sqrt(n)
        assert abs(result.returns.mean() - world.exact_value(table)) < 4 * error, name
        assert np.array_equal(result.returns, result.scores)


def test_logged_transitions_and_rewards_agree_with_the_arrays() -> None:
    world = Storefront()
    logs = world.rollout(TabularPolicy(world.uniform()), 30_000, seed=1)
    states = logs.contexts[:, 0].astype(int)
    following = logs.next_contexts()[:, 0].astype(int)
    counts = np.zeros_like(world.transition)
    np.add.at(counts, (states, logs.actions, following), 1)
    total = counts.sum(axis=2, keepdims=True)
    expected = total * world.transition
    spread = np.sqrt(expected * (1 - world.transition))
    assert (counts[world.transition == 0] == 0).all()
    big = (expected > 20) & (world.transition < 1)
    assert np.abs((counts - expected)[big] / spread[big]).max() < 5
    sums = np.zeros_like(world.expected_reward)
    assert logs.rewards is not None
    np.add.at(sums, (states, logs.actions), logs.rewards)
    n = total[:, :, 0]
    r = world.expected_reward
    often = n * r * (1 - r) > 20
    assert np.abs((sums - n * r)[often] / np.sqrt(n * r * (1 - r))[often]).max() < 5


def test_sessions_have_two_decisions_and_users_are_gone_at_the_end() -> None:
    world = Storefront()
    logs = world.rollout(TabularPolicy(world.uniform()), 500, seed=3)
    assert (np.diff(logs.session_offsets) == 2).all()
    assert logs.action_space.ids == ITEMS
    assert logs.terminated.all()
    assert (logs.final_contexts[:, 0] == world.n_states - 1).all()
    assert np.diff(logs.offsets).max() <= world.horizon
    assert np.diff(logs.offsets).min() == 2


def test_ten_thousand_at_once_are_ten_times_a_thousand() -> None:
    world = Storefront()
    policy = TabularPolicy(world.uniform())
    whole = world.rollout(policy, 10_000, seed=7)
    parts = [world.rollout(policy, 1_000, seed=7, first=first) for first in range(0, 10_000, 1_000)]
    for name in ("contexts", "actions", "rewards", "propensities", "final_contexts", "users"):
        joined = np.concatenate([getattr(log, name) for log in parts])
        assert getattr(whole, name).tobytes() == joined.tobytes(), name


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_sessions": 0}, "max_sessions to be a whole number >= 1"),
        ({"return_plain": -0.1}, "return_plain to be a finite number >= 0"),
        ({"bestseller": 1.2}, "bestseller to be at most 1, found 1.2"),
        ({"add_on": float("nan")}, "add_on to be a finite number"),
    ],
)
def test_nonsense_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Storefront(**params)


def test_bad_use() -> None:
    world = Storefront(max_sessions=1)
    with pytest.raises(EpisodeError, match="reset before"):
        world.step(np.zeros(1, int))
    with pytest.raises(ConfigError, match="n to be a whole number >= 1"):
        world.reset(0, 0)
    world.reset(2, 0)
    with pytest.raises(ActionError, match=r"0..4, found 5 \(row 1\)"):
        world.step(np.array([0, 5]))
    world.step(np.zeros(2, int))
    assert world.step(np.zeros(2, int)).ended.all()
    with pytest.raises(EpisodeError, match="all 2 have"):
        world.step(np.zeros(2, int))


def test_bad_tables() -> None:
    world = Storefront()
    with pytest.raises(ConfigError, match=r"policy table of shape \(51, 5\)"):
        world.exact_value(np.ones((3, 5)))
    table = world.uniform()
    table[7] = 0.3
    with pytest.raises(ConfigError, match=r"rows that sum to 1.*state 7"):
        world.exact_value(table)
    with pytest.raises(ConfigError, match="k to be a whole number >= 1"):
        world.shpi(k=0)
