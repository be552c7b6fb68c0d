"""Several learners as candidates of one test: who is clearly better wins, and nobody else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.learners import Best, ContextualBandit, OfflineSHPI
from shpi.oracles import Ridge
from shpi.protocols import Policy
from shpi.testing import check_learner
from shpi.testing.tabular import OneHotPolicy, TabularMDP, random_mdp
from shpi.values import Constant

GAMMA = 0.9
MYOPIC = OfflineSHPI(k=1, value=Constant(0.0), gamma=GAMMA, iterations=1)


@dataclass
class Fixed:
    """A learner that knows its policy without looking; it keeps the logs that it was shown."""

    table: np.ndarray
    fitted_logs: list[LoggedData] = field(default_factory=list)

    def fit(self, logs: LoggedData) -> Policy:
        self.fitted_logs.append(logs)
        return OneHotPolicy(self.table)


def patience() -> TabularMDP:
    """Two states: action 0 pays 1 and leads to the poor one; action 1 pays 0.9 and leads to the rich one."""
    transition = np.zeros((2, 2, 2))
    transition[:, 0, 0] = transition[:, 1, 1] = 1.0
    reward = np.array([[1.0, 0.9], [2.0, 1.9]])  # state 1 is the rich one
    return TabularMDP(
        transition=transition, reward=reward, gamma=GAMMA, initial=np.array([0.5, 0.5]),
        terminal=np.zeros(2, dtype=bool), noise=0.1,
    )  # fmt: skip


MU = np.full((2, 2), 0.5)
PATIENT, GREEDY = np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])


@pytest.fixture(scope="module")
def logs() -> LoggedData:
    return patience().log(MU, 300, 10, seed=0, ragged=False)


def best(learners: dict[str, Any], logs: LoggedData, shpi: OfflineSHPI = MYOPIC) -> Any:
    return Best(learners=learners, shpi=shpi, gamma=GAMMA).fit(logs)


def test_a_rival_that_is_clearly_better_wins(logs: LoggedData) -> None:
    assert MYOPIC.fit(logs).chosen == 0  # the next reward alone says action 0, which is worse than mu
    policy = best({"worse": Fixed(GREEDY), "patient": Fixed(PATIENT)}, logs)
    assert [t.words for t in policy.trials if t.returned] == ["patient"]
    np.testing.assert_array_equal(policy.action_probs(np.eye(2)), PATIENT)
    assert policy.proven
    worse = next(t for t in policy.trials if t.words == "worse")
    assert worse.lift.estimate < -worse.lift.standard_error


def test_a_rival_must_beat_what_shpi_has_proven(logs: LoggedData) -> None:
    """Half of the way to the best policy is proven better than mu, and worse than what SHPI has learned."""
    own = OfflineSHPI(k=1, gamma=GAMMA, iterations=1)
    halfway = 0.5 * MU + 0.5 * PATIENT
    proven = own.fit(logs)
    assert proven.proven
    kept = best({"halfway": Fixed(halfway)}, logs, own)
    assert kept.chosen == proven.chosen
    assert kept.trials[-1].lift.lower > 0
    np.testing.assert_array_equal(kept.action_probs(np.eye(2)), proven.action_probs(np.eye(2)))


@pytest.mark.parametrize("table", [GREEDY, MU, 0.9 * MU + 0.1 * GREEDY], ids=["worse", "mu", "a bit worse"])
def test_a_rival_that_is_not_better_never_wins(table: np.ndarray) -> None:
    for seed in range(10):
        logs = patience().log(MU, 100, 10, seed=seed, ragged=False)
        policy = best({"rival": Fixed(table)}, logs)
        assert not policy.trials[-1].returned
        assert policy.chosen == 0
        np.testing.assert_allclose(policy.action_probs(np.eye(2)), MU, atol=0.06)


def test_a_rival_that_is_no_better_than_shpi_s_optimum_hardly_ever_wins() -> None:
    """Both are close to optimal: the rival may win by a hair, if it is the better one by a hair."""
    wrong_wins, better_than_mu = 0, 0
    for seed in range(12):
        mdp = random_mdp(4, 3, seed=seed, gamma=GAMMA, noise=0.3)
        uniform, shpi = np.full((4, 3), 1 / 3), OfflineSHPI(gamma=GAMMA)
        table = shpi.fit(mdp.log(uniform, 150, 10, seed=seed, ragged=False)).action_probs(np.eye(4))
        other_log = mdp.log(uniform, 150, 10, seed=seed + 100)
        rival = best({"the same": Fixed(table)}, other_log, shpi).trials[-1]
        own_table = shpi.fit(other_log).action_probs(np.eye(4))
        better = mdp.initial @ mdp.value(table) > mdp.initial @ mdp.value(own_table)
        wrong_wins += rival.returned and not better
        better_than_mu += rival.lift.lower > 0
    assert better_than_mu >= 6
    assert wrong_wins <= 2


def test_many_rivals_do_not_win_for_being_many() -> None:
    """Five of six actions are equally good: at 95 % one of 20 logs, not one of 20 rivals, finds a winner.

    Twelve logs: more than two winners come by chance once in 50 times, and without a correction in all.
    """
    s, a, wins, cases = 8, 6, 0, 0
    mdp = TabularMDP(
        transition=np.full((s, a, s), 1 / s), reward=np.tile(np.minimum(np.arange(a), 1.0), (s, 1)),
        gamma=GAMMA, initial=np.full(s, 1 / s), terminal=np.zeros(s, dtype=bool), noise=1.0,
    )  # fmt: skip
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rivals = {f"rival {i}": Fixed(np.eye(a)[rng.integers(1, a, s)]) for i in range(20)}
        logs, shpi = (
            mdp.log(np.full((s, a), 1 / a), 600, 10, seed=seed, ragged=False),
            OfflineSHPI(gamma=GAMMA),
        )
        policy = best(rivals, logs, shpi)
        won = any(trial.returned for trial in policy.trials[-20:])
        own = shpi.fit(logs) if won else policy  # where no rival wins, SHPI's own policy is what is returned
        optimal = own.action_probs(np.eye(s))[:, 0].mean() < 0.001
        cases += optimal
        wins += optimal and won
    assert cases >= 6
    assert wins <= 2


def test_no_user_judges_what_it_taught(logs: LoggedData) -> None:
    rival = Fixed(PATIENT)
    best({"rival": rival}, logs)
    *halves, everybody = (set(log.users.tolist()) for log in rival.fitted_logs)
    assert len(everybody) == 300  # of whom the winner learns
    assert halves[0] | halves[1] == everybody
    assert not halves[0] & halves[1]
    assert len(halves[0]) == len(halves[1]) == 150


def test_every_rival_is_among_the_tests(logs: LoggedData) -> None:
    alone = MYOPIC.fit(logs)
    policy = best({"one": Fixed(PATIENT), "two": Fixed(GREEDY)}, logs)
    assert [t.words for t in policy.trials] == [t.words for t in alone.trials] + ["one", "two"]
    assert {t.lift.tests for t in policy.trials} == {len(policy.trials)}
    for line in ("one ", "two "):
        assert any(row.startswith(line) for row in str(policy).splitlines())


def test_gamma_and_seed_are_those_of_the_test(logs: LoggedData) -> None:
    """With no future, the greedy policy is the better one, and SHPI's own settings give way."""
    now = Best(learners={"greedy": Fixed(GREEDY)}, shpi=MYOPIC, gamma=0.01, seed=1).fit(logs)
    assert now.action_probs(np.eye(2))[0, 0] > 0.9
    assert now.proven


def test_it_passes_the_suite() -> None:
    learner = Best(learners={"bandit": ContextualBandit(oracle=Ridge.exact())}, gamma=GAMMA)
    check_learner(learner, users=200, attains=0.5)


def test_logs_that_cannot_be_learned_from(logs: LoggedData) -> None:
    with pytest.raises(DataError, match="a log with rewards"):
        best({"rival": Fixed(PATIENT)}, replace(logs, rewards=None))
    with pytest.raises(DataError, match="a log with propensities"):
        best({"rival": Fixed(PATIENT)}, replace(logs, propensities=None, propensity_mode="absent"))


def test_without_tests_there_is_nothing_to_win_by(logs: LoggedData) -> None:
    with pytest.raises(ConfigError, match="tested=True where rivals are given"):
        best({"rival": Fixed(PATIENT)}, logs, OfflineSHPI(tested=False))
