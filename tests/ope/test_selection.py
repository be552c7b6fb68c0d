from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.ope import SNIPS, Gate, select, variants
from shpi.ope.selection import Trial, best
from shpi.policies import ConstantPolicy

ACTIONS = 8


@dataclass(frozen=True, kw_only=True)
class Favourite:
    """Takes one action in half of all cases, whatever the log says; remembers who was in the log."""

    action: int = 0
    share: float = 0.5
    fitted_users: tuple[set, ...] = ()

    def fit(self, logs):
        for users in self.fitted_users:
            users.update(logs.users.tolist())
        probs = np.full(ACTIONS, (1 - self.share) / (ACTIONS - 1))
        probs[self.action] = self.share
        return ConstantPolicy(tuple(probs))


@dataclass(frozen=True, kw_only=True)
class Failing:
    def fit(self, logs):
        raise DataError(expected="another log", found="this one")


def bandit(seed: int, users: int = 240, effects: tuple[float, ...] = (0.0,) * ACTIONS) -> LoggedData:
    rng = np.random.default_rng(seed)
    actions = rng.integers(ACTIONS, size=users)
    return LoggedData.from_arrays(
        contexts=np.zeros((users, 1)), actions=actions,
        rewards=np.asarray(effects)[actions] + rng.standard_normal(users),
        propensities=np.full(users, 1 / ACTIONS), behaviour=np.full((users, ACTIONS), 1 / ACTIONS),
        offsets=np.arange(users + 1), n_actions=ACTIONS,
    )  # fmt: skip


FAVOURITES = {f"action {a}": Favourite(action=a) for a in range(ACTIONS)}
OPTIONS = {"estimators": [SNIPS()], "details": False}


def test_the_naive_winner_is_optimistic_and_ours_is_not():
    """No action earns more than another, so the true lift of every candidate is exactly 0.

    The best of eight estimates is 1.4 of their errors too high, and its own spread is 0.6 of them: over ten
    logs the naive mean stands 7 of its errors above 0, and so would ours if it used the users of the choice.
    """
    naive, ours = [], []
    for seed in range(10):
        selection = select(FAVOURITES, bandit(seed), folds=2, confirm=0.4, seed=seed, **OPTIONS)
        naive.append(next(trial.lift for trial in selection.trials if trial.name == selection.winner))
        ours.append(selection.evaluation.decisive.lift)
    error = np.std(ours, ddof=1) / np.sqrt(len(ours))
    assert abs(np.mean(ours)) < 3 * error
    assert np.mean(naive) > 4 * np.std(naive, ddof=1) / np.sqrt(len(naive))
    assert np.mean(naive) > 0.1


def test_the_best_candidate_wins():
    effects = (0.0, 0.0, 0.0, 1.5, 0.0, 0.0, 0.0, 0.0)
    selection = select(FAVOURITES, bandit(0, 600, effects), gate=Gate(), **OPTIONS)
    assert selection.winner == "action 3"
    assert selection.evaluation.policy_name == "action 3"
    assert selection.evaluation.verdict.ship
    truth = 1.5 * (0.5 - 1 / ACTIONS)
    assert selection.evaluation.decisive.lift == pytest.approx(
        truth, abs=4 * selection.evaluation.decisive.lift_error
    )
    assert selection.policy.action_probs(np.zeros((1, 1)))[0, 3] == 0.5
    text = str(selection)
    assert "action 3 *" in text
    assert "not used to choose it" in text


def test_the_users_that_confirm_are_seen_by_no_fit():
    users: set = set()
    logs = bandit(1)
    learners = {"a": Favourite(fitted_users=(users,)), "b": Favourite(action=1, fitted_users=(users,))}
    selection = select(learners, logs, confirm=0.25, **OPTIONS)
    assert selection.evaluation.users == 60
    assert len(users) == 180


def test_lower_bounds_decide_and_not_estimates():
    trials = [
        Trial(name="lucky", lift=2.0, error=2.0, lower_bound=-1.3),
        Trial(name="sure", lift=1.0, error=0.1, lower_bound=0.8),
        Trial(name="broken", lift=9.0, error=0.1, lower_bound=8.8, problem="no support"),
        Trial(name="failed", problem="no fit"),
    ]
    assert best(trials) == "sure"
    assert best(trials[2:]) == "broken"
    with pytest.raises(DataError, match="a candidate that can be judged"):
        best(trials[3:])


def test_the_error_is_that_of_all_inner_users():
    selection = select({"only": Favourite()}, bandit(2, 400), folds=4, confirm=0.5, **OPTIONS)
    (trial,) = selection.trials
    assert trial.error == pytest.approx(selection.evaluation.decisive.lift_error, rel=0.35)  # as many users
    assert trial.lower_bound < trial.lift


def test_a_learner_that_fails_is_named():
    selection = select({"bad": Failing(), "good": Favourite()}, bandit(3), **OPTIONS)
    assert selection.winner == "good"
    assert "another log" in selection.trials[0].problem
    assert "bad: " in str(selection)
    with pytest.raises(DataError, match="a candidate that can be judged"):
        select({"bad": Failing()}, bandit(3), **OPTIONS)


def test_default_estimators_and_ragged_trajectories():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 4, size=150)
    n = int(lengths.sum())
    logs = LoggedData.from_arrays(
        contexts=np.zeros((n, 1)), actions=rng.integers(ACTIONS, size=n), rewards=rng.random(n),
        propensities=np.full(n, 1 / ACTIONS), behaviour=np.full((n, ACTIONS), 1 / ACTIONS),
        offsets=np.append(0, np.cumsum(lengths)), n_actions=ACTIONS,
    )  # fmt: skip
    selection = select(variants(Favourite(), action=(0, 1), share=(0.2,)), logs, folds=2, details=False)
    assert selection.winner in ("action=0, share=0.2", "action=1, share=0.2")
    assert "over 3 decisions" in selection.evaluation.metric


def test_variants_are_all_combinations():
    made = variants(Favourite(), action=(0, 3), share=(0.5, 0.9))
    assert len(made) == 4
    assert made["action=3, share=0.9"] == Favourite(action=3, share=0.9)
    with pytest.raises(ConfigError, match="settings among action, share"):
        variants(Favourite(), colour=(1,))
    with pytest.raises(ConfigError, match="at least one value"):
        variants(Favourite())
    with pytest.raises(ConfigError, match="a learner made of settings"):
        variants(Favourite, action=(1,))


def test_bad_input_is_refused():
    for options in ({"folds": 1}, {"confirm": 0.0}, {"confirm": 1.0}):
        with pytest.raises(ConfigError, match="at least one learner, at least 2 folds"):
            select(FAVOURITES, bandit(0), **options)
    with pytest.raises(ConfigError, match="0 learners"):
        select({}, bandit(0))
    with pytest.raises(DataError, match="at least two users for each of 3 folds"):
        select(FAVOURITES, bandit(0, users=6))
