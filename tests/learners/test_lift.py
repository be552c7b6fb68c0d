"""Bounds on lifts that are tested one after the other: they hold together, and are no wider than needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from shpi.learners._shpi.candidates import Candidate, Contest
from shpi.learners._shpi.judge import Influence
from shpi.learners._shpi.lift import Lift, beats, lower_bound

USERS = 300


def influence(lift: float, parts: np.ndarray, doubt: float = 0.0) -> Influence:
    return Influence(lifts=np.array([lift]), parts=parts[None, :], off_log=np.array([doubt]))


def sampled(table: np.ndarray, truth: float = 0.0) -> list[Influence]:
    """Means over users of columns [users, tests], as the judge would report them."""
    users = len(table)
    return [
        influence(truth + column.mean(), (column - column.mean()) / users) for column in np.asarray(table).T
    ]


def contested(influences: list[Influence], confidence: float = 0.95) -> Contest:
    """All of them challenge the champion, in order; each is larger than the one before."""
    contest = Contest(confidence=confidence, allowed=1 - confidence)
    for number, one in enumerate(influences):
        contest.challenge(Candidate(words=str(number), influence=one), better=True)
    return contest


def proofs(contest: Contest) -> list[bool]:
    """Which candidates are proven, in order."""
    return [candidate.lift is not None and candidate.lift.proven for candidate in contest.tested]


def lift_of(tested: Influence, level: float = 0.95) -> Lift:
    """The lift of one candidate at a level."""
    return Lift.of(tested, level, 0.95)


def test_one_test_is_a_one_sided_interval() -> None:
    """The variance of sampling counts twice, see `Influence.error`."""
    one = sampled(np.random.default_rng(0).standard_normal((20_000, 1)))[0]
    lift = lift_of(one)
    assert lift.standard_error == pytest.approx(np.sqrt(2 / 20_000), rel=0.03)
    assert lift.lower == pytest.approx(lift.estimate - 1.645 * lift.standard_error, rel=0.03)
    assert (lift.users, lift.confidence) == (20_000, 0.95)


def test_proofs_cost_nothing_and_a_failure_four_fifths_of_what_is_left() -> None:
    clear = influence(1.0, np.random.default_rng(1).standard_normal(USERS) / USERS)
    nothing = influence(0.0, clear.parts[0])
    contest = contested([clear, clear, nothing, clear, nothing, clear])
    assert proofs(contest) == [True, True, False, True, False, True]
    assert contest.champion is contest.tested[-1]
    assert contest.allowed == pytest.approx(0.05 / 25)
    levels = [0.96, 0.96, 0.96, 0.992, 0.992, 0.9984]
    for candidate, level in zip(contest.tested, levels, strict=True):
        assert candidate.lift is not None
        assert candidate.influence is not None
        assert candidate.lift.lower == pytest.approx(lower_bound(candidate.influence, level))


def test_a_candidate_that_is_not_better_is_no_test() -> None:
    clear = influence(1.0, np.random.default_rng(1).standard_normal(USERS) / USERS)
    contest = Contest(confidence=0.95, allowed=0.05)
    assert not contest.challenge(Candidate(words="worse", influence=clear), better=False)
    assert (contest.allowed, proofs(contest)) == (pytest.approx(0.05), [False])
    assert contest.champion.words == "the logging policy"


def test_more_confidence_lowers_the_bound() -> None:
    test = sampled(np.random.default_rng(1).standard_normal((USERS, 1)))[0]
    lowers = [lift_of(test, confidence).lower for confidence in (0.5, 0.8, 0.95, 0.99)]
    assert all(np.diff(lowers) < 0)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("count", [1, 3, 12])
def test_a_lift_of_nothing_is_rarely_called_proven(correlation: float, count: int) -> None:
    rng, false, logs = np.random.default_rng(count), 0, 300
    for _ in range(logs):
        common = rng.standard_normal((USERS, 1))
        table = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * rng.standard_normal((USERS, count))
        false += any(proofs(contested(sampled(np.sqrt(2) * table), 0.9)))
    assert false / logs < 0.10 + 3 * np.sqrt(0.1 * 0.9 / logs)


def test_few_effective_users_widen_the_bound() -> None:
    even = np.random.default_rng(2).standard_normal(USERS)
    few = np.where(np.arange(USERS) < 4, 30.0 * even, 0.01 * even)
    few *= np.linalg.norm(even) / np.linalg.norm(few)
    wide, narrow = (lift_of(influence(1.0, part / USERS)) for part in (few, even))
    assert wide.standard_error == pytest.approx(narrow.standard_error)
    assert 1.0 - wide.lower > 1.3 * (1.0 - narrow.lower)


def test_few_users_with_all_the_variance_are_covered() -> None:
    """Five users of a normal reward, and 95 who bring nothing."""
    rng, false = np.random.default_rng(3), 0
    for _ in range(600):
        table = np.zeros((100, 1))
        table[:5] = rng.standard_normal((5, 1))
        false += lift_of(sampled(table)[0]).lower > 0
    assert false / 600 < 0.075


def test_what_sets_of_features_differ_by_counts_as_error() -> None:
    parts = np.random.default_rng(4).standard_normal(USERS) / USERS
    both, none = np.stack([parts, parts]), np.zeros(2)
    agree = Influence(lifts=np.array([1.0, 1.0]), parts=both, off_log=none)
    differ = Influence(lifts=np.array([0.5, 1.5]), parts=both, off_log=none)
    one, other = lift_of(agree), lift_of(differ)
    assert one.estimate == other.estimate == 1.0
    assert other.standard_error**2 == pytest.approx(one.standard_error**2 + 0.5)
    assert other.lower < one.lower


def test_visits_that_cannot_be_count_as_error() -> None:
    parts = np.random.default_rng(4).standard_normal(USERS) / USERS
    sure, doubtful = influence(1.0, parts), influence(1.0, parts, doubt=0.7)
    assert doubtful.error**2 == pytest.approx(sure.error**2 + 0.49)
    assert proofs(contested([sure, doubtful])) == [True, False]
    assert [lift_of(one).outside for one in (sure, doubtful)] == [0.0, 0.35]
    assert doubtful.less(doubtful).error == 0.0
    assert doubtful.less(sure).error == pytest.approx(0.7)


def test_nothing_is_proven_where_nothing_varies() -> None:
    same = [influence(3.0, np.zeros(USERS)), influence(-3.0, np.zeros(USERS))]
    assert [lift_of(one).lower for one in same] == [0.0, -3.0]
    assert proofs(contested([*same, *sampled(np.ones((USERS, 1)))])) == [False] * 3


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
    lift = Lift(
        estimate=0.25, lower=0.125, standard_error=0.05, confidence=0.95, tests=7, users=1234, proven=True
    )
    assert str(lift) == (
        "lift over the logging policy +0.25 per user, at least +0.125 (95%, 7 tests, 1,234 users)"
    )
    assert lift.proven


def test_a_larger_lift_that_features_may_have_made_up_does_not_pay() -> None:
    parts = np.random.default_rng(0).standard_normal(100) / 100
    careful = Candidate(words="careful", influence=influence(1.0, parts))
    made_up = Candidate(words="made up", influence=influence(1.1, parts, doubt=0.2))
    disputed = Influence(lifts=np.array([0.9, 1.3]), parts=np.stack([parts, parts]), off_log=np.zeros(2))
    noisy = Candidate(words="noisy", influence=influence(1.1, 3 * parts))
    assert not made_up.better_than(careful)
    assert not Candidate(words="disputed", influence=disputed).better_than(careful)
    assert noisy.better_than(careful)  # the noise of users is for the proof
    assert not Candidate(words="mu").better_than(careful)


def test_of_equals_the_careful_candidate_stays() -> None:
    parts = np.random.default_rng(1).standard_normal(100) / 1000
    careful = Candidate(words="careful", influence=influence(1.0, parts))
    assert not Candidate(words="bolder", influence=influence(1.00005, parts)).better_than(careful)


def test_a_failed_proof_uses_error_up_and_a_proof_does_not() -> None:
    parts = np.random.default_rng(1).standard_normal(USERS) / USERS
    contest = Contest(confidence=0.95, allowed=0.05)
    assert contest.proves(influence(1.0, parts))
    assert contest.allowed == 0.05
    assert not contest.proves(influence(0.0, parts))
    assert contest.allowed == pytest.approx(0.01)


def judged_halves(random: np.random.Generator, dimensions: int, signal: float) -> tuple[float, float, float]:
    """Two halves learn f, the mean of their users' gradients, and judge each other's.

    Returns the lift's error (what is estimated less what is true), its standard error, and the lift's t.
    """
    users = 60
    gradients = random.standard_normal((2, users, dimensions))
    gradients[..., 0] += signal
    learned = gradients.mean(axis=1)  # [2, d]
    lengths = np.linalg.norm(learned, axis=1, keepdims=True)
    parts = np.einsum("hud,hd->hu", gradients, (learned / lengths)[::-1]) / (2 * users)
    truth = signal * float((learned / lengths)[:, 0].mean())
    signs = random.choice([-1.0, 1.0], size=(4, 2, users))
    only_noise = np.einsum("khu,hud->khd", signs, gradients) / users
    share = float(np.mean(np.sum(only_noise**2, axis=2) / lengths[:, 0] ** 2))
    centred = parts - parts.mean(axis=1, keepdims=True)
    judged = replace(influence(float(parts.sum()), centred.ravel()), noise=min(share, 1.0))
    return judged.estimate - truth, judged.error, judged.estimate / judged.error


@pytest.mark.parametrize("dimensions", [1, 5, 40])
def test_two_halves_that_teach_each_other_noise_prove_nothing(dimensions: int) -> None:
    """With the variance counted once, 10 to 13 % of these would be proven at 5 %."""
    random = np.random.default_rng(dimensions)
    proven = [judged_halves(random, dimensions, 0.0)[2] > 1.645 for _ in range(3_000)]
    assert 0.02 < np.mean(proven) < 0.065


def test_two_halves_that_agree_are_two_judges() -> None:
    """The error that is stated is the error that is made; counted twice, it would be 1.4 times as large."""
    random = np.random.default_rng(0)
    errors, stated, _ = np.array([judged_halves(random, 5, 2.0) for _ in range(2_000)]).T
    assert np.sqrt(np.mean(stated**2)) == pytest.approx(errors.std(), rel=0.1)
