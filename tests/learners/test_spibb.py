"""SPIBB and MBS against dynamic programming, their safety on thin logs, and their composition with SHPI."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.features import Identity
from shpi.learners import MBS, SPIBB, ConstrainedSHPI
from shpi.learners.constrained.baseline import Constraint, limited, limited_means, pseudo_counts
from shpi.oracles import Ridge
from shpi.policies import UniformPolicy
from shpi.testing import check_learner
from shpi.testing.tabular import OneHotPolicy, TabularMDP, random_mdp
from shpi.testing.tastes import Tastes

S, A, GAMMA = 12, 4, 0.9
CONTEXTS = np.eye(S)
FAST = Ridge.exact()


def good_policy(mdp: TabularMDP) -> np.ndarray:
    """Softmax in the optimal Q, and a tenth uniform: what a decent system might do."""
    q = mdp.q(mdp.optimal()[1])
    weights = np.exp((q - q.max(axis=1, keepdims=True)) / 0.4)
    return 0.9 * weights / weights.sum(axis=1, keepdims=True) + 0.1 / A


def value(mdp: TabularMDP, table: np.ndarray) -> float:
    return float(mdp.initial @ mdp.value(table))


def share(mdp: TabularMDP, mu: np.ndarray, table: np.ndarray) -> float:
    """From mu (0) to the optimum (1)."""
    base, best = value(mdp, mu), value(mdp, mdp.optimal()[1])
    return (value(mdp, table) - base) / (best - base)


def case(seed: int, users: int) -> tuple[TabularMDP, np.ndarray, LoggedData]:
    mdp = random_mdp(S, A, seed=seed, gamma=GAMMA, noise=0.5)
    mu = good_policy(mdp)
    return mdp, mu, mdp.log(mu, users, horizon=15, seed=seed, ragged=False)


# ---------------------------------------------------------------------- truth


@pytest.mark.parametrize("learner", [SPIBB(gamma=GAMMA, min_count=0), MBS(gamma=GAMMA, density=0)])
def test_without_a_constraint_it_is_the_optimum_of_a_well_covered_world(learner):
    mdp = random_mdp(S, A, seed=1, gamma=GAMMA, noise=0.1)
    mu = np.full((S, A), 1 / A)
    table = learner.fit(mdp.log(mu, 3000, horizon=10, seed=0)).action_probs(CONTEXTS)
    assert share(mdp, mu, table) > 0.99


def exact_spibb(mdp: TabularMDP, mu: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The best policy that is mu on all (s, a) but the free ones, by policy iteration with the true model."""
    table = mu.copy()
    for _ in range(100):
        q = mdp.q(table)
        better = np.where(free, 0.0, mu)
        best = np.where(free, q, -np.inf).argmax(axis=1)
        better[np.arange(S), best] += 1 - better.sum(axis=1)
        better[~free.any(axis=1)] = mu[~free.any(axis=1)]
        if np.allclose(better, table):
            break
        table = better
    return table


def test_with_many_rows_it_is_exact_spibb():
    mdp, mu, logs = case(2, 1500)
    threshold = np.median(SPIBB().constraint(logs).support.scores(CONTEXTS))
    learner = SPIBB(gamma=GAMMA, min_count=float(threshold), tolerance=1e-5, iterations=150)
    free = learner.constraint(logs).support.scores(CONTEXTS) >= threshold
    wanted = exact_spibb(mdp, mu, free)
    assert 0.3 < free.mean() < 0.7
    assert np.abs(wanted - mu).max() > 0.1
    probs = learner.fit(logs).action_probs(CONTEXTS)
    assert value(mdp, probs) == pytest.approx(value(mdp, wanted), abs=0.01 * abs(value(mdp, wanted)))
    np.testing.assert_allclose(probs[~free], mu[~free], atol=1e-5)


def test_counts_of_a_table_are_counts():
    _, _, logs = case(3, 50)
    counts = np.zeros((S, A))
    np.add.at(counts, (logs.contexts.argmax(axis=1), logs.actions), 1)
    np.testing.assert_array_equal(SPIBB().constraint(logs).support.scores(CONTEXTS), counts)
    pseudo = pseudo_counts(logs, Identity(intercept=False)).scores(CONTEXTS)
    np.testing.assert_allclose(pseudo, counts, atol=1e-9)


def test_mu_is_recovered_from_the_best_that_the_log_has():
    _, mu, logs = case(4, 400)
    whole = SPIBB().constraint(logs).mu.action_probs(CONTEXTS)
    np.testing.assert_allclose(whole, mu, atol=1e-5)  # the log has the distributions
    taken = SPIBB().constraint(replace(logs, behaviour=None)).mu.action_probs(CONTEXTS)
    np.testing.assert_allclose(taken, mu, atol=1e-4)  # every action was taken everywhere
    without = replace(logs, behaviour=None, propensities=None, propensity_mode="absent")
    np.testing.assert_allclose(SPIBB().constraint(without).mu.action_probs(CONTEXTS), mu, atol=0.1)


@pytest.mark.parametrize("mode", ["spibb", "mbs"])
def test_the_policy_that_is_iterated_is_the_one_that_is_returned(mode):
    world = Tastes(masked=True)
    logs = world.log(200, seed=0)
    plan = SPIBB(min_count=3) if mode == "spibb" else MBS(density=1.0)
    constraint: Constraint = plan.constraint(logs)
    scorer = FAST.prepare(logs, seed=0).fit(logs.rewards)
    rows = constraint.on(logs.contexts, logs.candidates)
    assert 0.1 < rows.supported.mean() < 0.9
    scores = scorer.scores(logs.contexts)
    probs = limited(scores, rows, slice(None))
    np.testing.assert_allclose(limited_means(scores, rows, slice(None)), (probs * scores).sum(axis=1))
    wanted = constraint.policy(scorer).action_probs(logs.contexts, logs.candidates)
    np.testing.assert_allclose(probs, wanted, atol=1e-6)


def test_mbs_does_not_go_where_the_log_hardly_was():
    """Two steps: a door that mu never opens more than twice, behind which one lucky reward was logged."""
    # contexts: 0 start, 1 behind the safe door, 2 behind the rare door
    starts, rare = 400, 2
    first = np.zeros(starts, dtype=int)
    first[:rare] = 1  # action 1 opens the rare door
    contexts = np.zeros((2 * starts, 3))
    contexts[0::2, 0] = 1
    contexts[1::2, 1] = first == 0
    contexts[1::2, 2] = first == 1
    actions = np.stack([first, np.zeros(starts, dtype=int)], axis=1).reshape(-1)
    rewards = np.stack([np.zeros(starts), np.where(first == 1, 5.0, 1.0)], axis=1).reshape(-1)
    logs = LoggedData.from_arrays(
        contexts=contexts,
        actions=actions,
        rewards=rewards,
        offsets=np.arange(0, 2 * starts + 1, 2),
        propensities=np.where(contexts[:, 0] == 1, np.where(actions == 1, 0.005, 0.995), 1.0),
        terminated=np.ones(starts, dtype=bool),
        n_actions=2,
    )
    start = np.array([[1.0, 0.0, 0.0]])
    assert MBS(gamma=GAMMA, density=0.0).fit(logs).action_probs(start)[0, 1] == 1
    assert MBS(gamma=GAMMA, density=0.1).fit(logs).action_probs(start)[0, 1] == 0
    spibb = SPIBB(gamma=GAMMA, min_count=5).fit(logs).action_probs(start)[0]
    assert spibb[1] == pytest.approx(0.005, abs=1e-4)  # neither better nor worse than mu there


# ---------------------------------------------------------------------- safety


def test_on_thin_logs_it_is_never_worse_than_mu_where_plain_q_iteration_is():
    noise, plain, safe, mbs = 0.1, [], [], []
    for seed in range(12):
        mdp, mu, logs = case(seed, 12)
        exact = OneHotPolicy(mu)
        for learner, results in (
            (SPIBB(gamma=GAMMA, min_count=0, baseline=exact), plain),
            (SPIBB(gamma=GAMMA, min_count=5, baseline=exact), safe),
            (MBS(gamma=GAMMA, density=1.0, baseline=exact), mbs),
        ):
            results.append(share(mdp, mu, learner.fit(logs).action_probs(CONTEXTS)))
    assert np.mean(np.array(plain) < -noise) > 0.15  # Q iteration alone is sometimes far worse than mu
    assert min(plain) < -0.5
    assert min(safe) > -noise
    assert np.mean(safe) > 0
    assert np.mean(mbs) > np.mean(plain)


def test_the_composition_improves_on_mu_and_on_shpi_without_a_constraint():
    gains: dict[str, list[float]] = {"none": [], "spibb": [], "mbs": []}
    for seed in range(8):
        mdp, mu, logs = case(seed, 30)
        for name, plan in (
            ("none", SPIBB(min_count=0)),
            ("spibb", SPIBB(min_count=5)),
            ("mbs", MBS(density=0.3)),
        ):
            learner = ConstrainedSHPI(constraint=plan, k=5, gamma=GAMMA)
            gains[name].append(share(mdp, mu, learner.fit(logs).action_probs(CONTEXTS)))
    assert np.mean(gains["none"]) < 0  # long products of ratios and few rows
    assert min(gains["spibb"]) > -0.1
    assert np.mean(gains["spibb"]) > 0.08
    assert np.mean(gains["mbs"]) > 0.7


def test_the_composition_approaches_the_optimum_of_a_well_covered_world():
    mdp = random_mdp(S, A, seed=1, gamma=GAMMA, noise=0.1)
    mu = np.full((S, A), 1 / A)
    logs = mdp.log(mu, 2000, horizon=12, seed=0)
    policy = ConstrainedSHPI(k=6, gamma=GAMMA, settings={"weight_clip": (0.0, 100.0)}).fit(logs)
    assert share(mdp, mu, policy.action_probs(CONTEXTS)) > 0.85
    assert policy.chosen > 0
    assert "<- returned" in str(policy)


def test_without_exploration_mu_is_returned():
    _, _, logs = case(1, 60)
    logs = replace(logs, actions=np.zeros_like(logs.actions), propensities=np.ones(len(logs)), behaviour=None)
    for learner in (SPIBB(gamma=GAMMA), MBS(gamma=GAMMA), ConstrainedSHPI(gamma=GAMMA)):
        np.testing.assert_allclose(learner.fit(logs).action_probs(CONTEXTS)[:, 0], 1.0, atol=1e-5)


# ---------------------------------------------------------------------- conformance and bad input


@pytest.mark.parametrize(
    ("learner", "attains"),
    [
        (SPIBB(gamma=GAMMA, min_count=3, oracle=FAST), 0.3),
        (MBS(gamma=GAMMA, oracle=FAST), 0.7),
        (ConstrainedSHPI(gamma=GAMMA, k=2, settings={"oracle": FAST}), 0.3),
        (ConstrainedSHPI.mbs(gamma=GAMMA, k=2, settings={"oracle": FAST}), 0.7),
    ],
    ids=["spibb", "mbs", "spibb-shpi", "mbs-shpi"],
)
def test_they_pass_the_suite(learner, attains):
    check_learner(learner, users=200, attains=attains)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SPIBB(min_count=-1), "min_count of at least 0"),
        (lambda: SPIBB(iterations=0), "at least one iteration"),
        (lambda: SPIBB(gamma=1.0), "gamma in"),
        (lambda: MBS(density=np.nan), "density of at least 0"),
        (lambda: ConstrainedSHPI(settings={"iterations": 0}), "iterations of at least 1"),
        (lambda: ConstrainedSHPI(settings={"tested": True}), "leaves open, found tested"),
        (lambda: ConstrainedSHPI(settings={"held_out": 0.2}), "leave it out: all users are used"),
        (lambda: ConstrainedSHPI(settings={"never_there": 0.2}), "settings of OfflineSHPI"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_baseline_over_other_actions():
    _, _, logs = case(1, 10)
    with pytest.raises(ConfigError, match="a baseline over the log's 4 actions"):
        SPIBB(baseline=UniformPolicy(3)).fit(logs)


def test_logs_that_cannot_be_learned_from():
    _, _, logs = case(1, 10)
    for learner in (SPIBB(), MBS(), ConstrainedSHPI()):
        with pytest.raises(DataError, match="a log with rewards"):
            learner.fit(replace(logs, rewards=None))
    absent = replace(logs, propensities=None, propensity_mode="absent", behaviour=None)
    with pytest.raises(DataError, match="a log with propensities"):
        ConstrainedSHPI().fit(absent)
    assert SPIBB(gamma=GAMMA).fit(absent).n_actions == A  # counts need no propensities
    blind = Tastes().log(20, seed=0).select([0])
    blind = replace(blind, terminated=np.zeros(1, dtype=bool), final_observed=np.zeros(1, dtype=bool))
    single = replace(
        blind,
        **{
            name: getattr(blind, name)[:1]
            for name in ("contexts", "actions", "rewards", "times", "propensities", "behaviour")
        },
        offsets=np.array([0, 1]),
        session_offsets=np.array([0, 1]),
        metrics={},
    )
    with pytest.raises(DataError, match="whose reward and next context are known"):
        SPIBB().fit(single)
