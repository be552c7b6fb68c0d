from __future__ import annotations

import numpy as np
import pytest

from shpi.advantages import Advantages, StateValues, k_step_advantages
from shpi.data.logged import LoggedData
from shpi.features import Identity
from shpi.learners.evidence import CLEAR, Tunings, clarity, crossed_effects
from shpi.learners.gain import Gain
from shpi.learners.horizon import HorizonChoice
from shpi.learners.improved import ImprovedPolicy, Iteration
from shpi.learners.on_log import Improvement
from shpi.oracles import Ridge
from shpi.policies import LinearScorer, UniformPolicy
from shpi.policies.logistic import LogisticPolicy
from shpi.protocols import Float64Array
from shpi.values import Constant

A, STEPS = 3, 10
MU = UniformPolicy(A)
PREFERS = LinearScorer(np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]), Identity().fit(np.zeros((1, 1))))


def log_of(seed: int, effect: float, users: int = 60) -> LoggedData:
    """Rewards that persist within a user, with an effect of the action as `PREFERS` says."""
    rng = np.random.default_rng(seed)
    n = users * STEPS
    actions = rng.integers(0, A, n)
    level = np.repeat(rng.standard_normal(users), STEPS)
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((n, 1)),
        actions=actions,
        offsets=np.arange(users + 1) * STEPS,
        rewards=effect * (1.0 - actions) + level + rng.standard_normal(n),
        propensities=np.full(n, 1 / A),
        n_actions=A,
    )


def rewards_as_advantages(logs: LoggedData) -> Advantages:
    return k_step_advantages(logs, StateValues.zeros(logs), k=1, gamma=0.9)


def t_of(logs: LoggedData) -> float:
    return clarity(logs, rewards_as_advantages(logs), effects_of(logs))


def effects_of(logs: LoggedData) -> Float64Array:
    return Improvement(logs=logs, mu=MU, reach=None).expected_effects(PREFERS)


def test_effects_are_scores_beyond_mu_s_average() -> None:
    logs = log_of(0, 0.0)
    np.testing.assert_allclose(effects_of(logs), 1.0 - logs.actions, atol=1e-6)


@pytest.mark.parametrize("reach", [None, 1.2])
def test_effects_by_hand_with_candidates_and_large_scores(reach: float | None) -> None:
    rng = np.random.default_rng(5)
    contexts, masks = rng.standard_normal((40, 2)), rng.random((40, A)) < 0.6
    actions = rng.integers(0, A, 40)
    masks[np.arange(40), actions] = True
    logs = LoggedData.from_arrays(
        contexts=contexts, actions=actions, offsets=np.array([0, 40]), candidates=masks, n_actions=A
    )
    features = Identity().fit(contexts)
    scorer = LinearScorer(1e9 * rng.standard_normal((A, 3)), features)
    mu = LogisticPolicy(rng.standard_normal((A, 3)), features, np.ones(A, dtype=bool), 0.1)
    scores, probs = scorer.scores(contexts), mu.action_probs(contexts, masks)
    by_hand = scores[np.arange(40), actions] - (probs * scores).sum(axis=1)
    found = Improvement(logs=logs, mu=mu, reach=reach).expected_effects(scorer)
    np.testing.assert_allclose(found, by_hand, atol=1e4)  # of 1e9


def test_an_oracle_is_tuned_once_for_each_k() -> None:
    logs, asked = log_of(4, 0.5), []

    def seen(k: int) -> Advantages:
        asked.append(k)
        return k_step_advantages(logs, StateValues.zeros(logs), k=k, gamma=0.9)

    tuned = Tunings(prepared=Ridge(features=Identity()).prepare(logs, seed=0), seen=seen)
    first, second, again = tuned.each((1, 3, 1))
    assert first is again is tuned(1)
    assert second is tuned(3)
    assert asked == [1, 3]
    for oracle, k in ((first, 1), (second, 3)):  # the decisions known at 1 and at 3 steps differ
        alone = tuned.prepared.tune(seen(k).values, valid=seen(k).valid)
        assert oracle.penalty == alone.penalty


def test_it_is_the_sum_over_users_by_hand() -> None:
    logs = log_of(1, 0.3)
    found = rewards_as_advantages(logs)
    known, y, g = found.valid, found.values, 1.0 - logs.actions
    assert 0.5 < known.mean() < 1.0  # what comes after the last decision of a user is not
    products = np.where(known, (y - y[known].mean()) * (g - g[known].mean()), 0.0)
    products = products.reshape(-1, STEPS).sum(axis=1)
    assert t_of(logs) == pytest.approx(products.sum() / np.sqrt((products**2).sum()))


def test_without_an_effect_it_is_about_standard_normal() -> None:
    found = np.array([t_of(log_of(seed, 0.0)) for seed in range(300)])
    assert abs(found.mean()) < 0.2
    assert 0.85 < found.std() < 1.15
    assert (found > CLEAR).mean() < 0.03


def test_an_effect_is_seen_and_a_wrong_sign_too() -> None:
    assert t_of(log_of(2, 0.5)) > CLEAR
    assert t_of(log_of(2, -0.5)) < -CLEAR


def crossed_t(seed: int, effect: float) -> float:
    logs = log_of(seed, effect)
    found = rewards_as_advantages(logs)
    prepared = Ridge(features=Identity()).prepare(logs, seed=0)
    train = Improvement(logs=logs, mu=MU, reach=None)
    return clarity(logs, found, crossed_effects([prepared], [found], train, seed=seed)[0])


def test_two_halves_that_judge_each_other_do_not_flatter_themselves() -> None:
    found = np.array([crossed_t(seed, 0.0) for seed in range(150)])
    assert found.mean() < 0.2
    assert (found > CLEAR).mean() < 0.03


def test_two_halves_see_an_effect() -> None:
    assert crossed_t(2, 0.5) > CLEAR


def test_nothing_to_see_is_zero() -> None:
    logs = log_of(3, 0.0)
    assert clarity(logs, rewards_as_advantages(logs), np.zeros(len(logs))) == 0.0


CHOICE = HorizonChoice(k=5, horizons=(3, 5, 10), gains=(1.0, 1.1, 1.2), errors=(0.1, 0.1, 0.2))


def test_a_horizon_whose_f_is_clear_stays() -> None:
    asked: list[int] = []

    def seen(k: int) -> float:
        asked.append(k)
        return 4.0

    found = CHOICE.seen_through(seen, lambda ks: {k: seen(k) for k in ks})
    assert (found.k, found.clarity, asked) == (5, 4.0, [5])
    assert "no larger one contradicts" in str(found)


def test_a_horizon_that_is_noise_gives_way_to_the_clearest() -> None:
    found = CHOICE.seen_through({5: 1.0}.__getitem__, lambda ks: dict(zip(ks, (3.5, 2.0, 0.5), strict=True)))
    assert (found.k, found.clarity) == (1, 3.5)
    assert "t by k: 1: 3.5" in str(found)


def rounds(estimate: float, lower: float) -> list[Iteration]:
    gain = Gain(estimate=estimate, lower=lower, standard_error=1.0, effective_decisions=9.0, users=9)
    return [Iteration(number=1, policy=MU, advantage_mean=0.0, advantage_deviation=1.0, changed=1.0,
                      effective_share=1.0, gain=gain)]  # fmt: skip


@pytest.mark.parametrize(
    ("estimate", "lower", "t", "explored", "chosen"),
    [
        (2.0, 0.5, 0.0, 1.0, 1),  # the gain is shown
        (0.5, -1.0, 0.0, 1.0, 0),  # nothing is
        (0.5, -1.0, 3.0, 1.0, 1),  # f is clear, and the gain does not speak against it
        (-2.0, -3.0, 3.0, 1.0, 0),  # f is clear, but the gain is below 0 with confidence
        (2.0, 0.5, 3.0, 0.0, 0),  # mu never explored
    ],
)
def test_what_is_returned(estimate: float, lower: float, t: float, explored: float, chosen: int) -> None:
    found = ImprovedPolicy.choose(
        rounds(estimate, lower), behaviour=UniformPolicy(A), value=Constant(0.0), explored=explored, clarity=t
    )
    assert found.chosen == chosen
