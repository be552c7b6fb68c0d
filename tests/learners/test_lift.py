"""Bounds on many lifts at once: they hold together, and they are no wider than they must be."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.learners._shpi.judge import Influence
from shpi.learners._shpi.lift import Lift, beats, simultaneous_lifts

USERS = 300


def influence(lift: float, parts: np.ndarray) -> Influence:
    return Influence(lifts=np.array([lift]), parts=parts[None, :], mean_ratio=1.0)


def sampled(table: np.ndarray, truth: float = 0.0) -> list[Influence]:
    """Means over users of columns [users, tests], as the judge would report them."""
    users = len(table)
    return [
        influence(truth + column.mean(), (column - column.mean()) / users) for column in np.asarray(table).T
    ]


def test_one_test_is_a_one_sided_interval() -> None:
    one = sampled(np.random.default_rng(0).standard_normal((20_000, 1)))[0]
    found = simultaneous_lifts([one], 0.95, 0)[0]
    assert found.standard_error == pytest.approx(1 / np.sqrt(20_000), rel=0.03)
    assert found.lower == pytest.approx(found.estimate - 1.645 * found.standard_error, rel=0.03)
    assert (found.tests, found.users, found.confidence) == (1, 20_000, 0.95)


def test_more_tests_lower_the_bound_unless_they_are_the_same() -> None:
    tests = sampled(np.random.default_rng(1).standard_normal((USERS, 20)))
    lowers = [simultaneous_lifts(tests[:count], 0.95, 0)[0].lower for count in (1, 2, 5, 20)]
    assert all(np.diff(lowers) < -0.1 * tests[0].error)
    alone = simultaneous_lifts(tests[:1], 0.95, 0)[0]
    again = simultaneous_lifts(tests[:1] * 20, 0.95, 0)[0]
    assert again.lower == pytest.approx(alone.lower, abs=0.1 * alone.standard_error)
    assert again.tests == 20


def test_more_confidence_lowers_the_bound() -> None:
    tests = sampled(np.random.default_rng(1).standard_normal((USERS, 5)))
    lowers = [simultaneous_lifts(tests, c, 0)[0].lower for c in (0.5, 0.8, 0.95, 0.99)]
    assert all(np.diff(lowers) < 0)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("count", [1, 3, 12])
def test_all_bounds_hold_together_as_often_as_they_say(correlation: float, count: int) -> None:
    """One of several true lifts of 0 is called proven in 10 % of the logs, not more and not less."""
    rng, false = np.random.default_rng(count), 0
    logs = 400
    for seed in range(logs):
        common = rng.standard_normal((USERS, 1))
        table = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * rng.standard_normal((USERS, count))
        false += any(one.lower > 0 for one in simultaneous_lifts(sampled(table), 0.9, seed))
    assert pytest.approx(false / logs, abs=3.5 * np.sqrt(0.1 * 0.9 / logs)) == 0.10


def test_few_effective_users_widen_the_bound() -> None:
    even = np.random.default_rng(2).standard_normal(USERS)
    few = np.where(np.arange(USERS) < 4, 30.0 * even, 0.01 * even)
    few *= np.linalg.norm(even) / np.linalg.norm(few)
    wide, narrow = (simultaneous_lifts([influence(1.0, part / USERS)], 0.95, 0)[0] for part in (few, even))
    assert wide.standard_error == pytest.approx(narrow.standard_error)
    assert 1.0 - wide.lower > 1.3 * (1.0 - narrow.lower)


def test_few_users_with_all_the_variance_are_covered() -> None:
    """Five users of a normal reward, and 95 who bring nothing."""
    rng, false = np.random.default_rng(3), 0
    for seed in range(600):
        table = np.zeros((100, 1))
        table[:5] = rng.standard_normal((5, 1))
        false += simultaneous_lifts(sampled(table), 0.95, seed)[0].proven
    assert false / 600 < 0.075


def test_what_sets_of_features_differ_by_counts_as_error() -> None:
    parts = np.random.default_rng(4).standard_normal(USERS) / USERS
    agree = Influence(lifts=np.array([1.0, 1.0]), parts=np.stack([parts, parts]), mean_ratio=1.0)
    differ = Influence(lifts=np.array([0.5, 1.5]), parts=np.stack([parts, parts]), mean_ratio=1.0)
    one, other = (simultaneous_lifts([i], 0.95, 0)[0] for i in (agree, differ))
    assert one.estimate == other.estimate == 1.0
    assert other.standard_error**2 == pytest.approx(one.standard_error**2 + 0.5)
    assert other.lower < one.lower


def test_nothing_is_proven_where_nothing_varies() -> None:
    found = simultaneous_lifts([influence(3.0, np.zeros(USERS)), influence(-3.0, np.zeros(USERS))], 0.95, 0)
    assert [one.lower for one in found] == [0.0, -3.0]
    assert not any(one.proven for one in found)
    mixed = simultaneous_lifts([influence(3.0, np.zeros(USERS)), *sampled(np.ones((USERS, 1)))], 0.95, 0)
    assert np.isfinite([one.lower for one in mixed]).all()


def test_no_tests_at_all() -> None:
    assert simultaneous_lifts([], 0.95, 0) == []


def test_the_same_seed_gives_the_same_bounds() -> None:
    tests = sampled(np.random.default_rng(5).standard_normal((USERS, 6)))
    assert simultaneous_lifts(tests, 0.95, 3) == simultaneous_lifts(tests, 0.95, 3)


def test_pairs_are_compared_on_common_users() -> None:
    rng = np.random.default_rng(6)
    noise, own = rng.standard_normal(USERS), 0.05 * rng.standard_normal(USERS)
    champion = influence(0.10, (noise - noise.mean()) / USERS)
    challenger = influence(0.13, (noise + own - (noise + own).mean()) / USERS)
    assert challenger.error > 0.05  # alone it could not be told from the champion
    assert beats(challenger, champion, 0.95)
    assert not beats(champion, challenger, 0.95)
    assert not beats(champion, champion, 0.95)
    stranger = influence(0.13, rng.permutation(noise - noise.mean()) / USERS)
    assert not beats(stranger, champion, 0.95)


def test_in_words() -> None:
    lift = Lift(estimate=0.25, lower=0.125, standard_error=0.05, confidence=0.95, tests=7, users=1234)
    assert str(lift) == (
        "lift over the logging policy +0.25 per user, at least +0.125 (95%, 7 tests, 1,234 users)"
    )
    assert lift.proven
