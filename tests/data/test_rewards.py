from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi.data._log.ragged import offsets_from_lengths
from shpi.data.decomposition import decompose
from shpi.data.durations import MICROSECONDS
from shpi.data.logged import LoggedData
from shpi.data.rewards import DiscountedSum, ReturnWithin, RewardDefinition, SessionsWithin, SumWithin
from shpi.errors import ConfigError, DataError

DAY = MICROSECONDS["d"]


def log_of(
    days: list[list[float]],
    *,
    sessions: list[list[int]] | None = None,
    values: list[list[float]] | None = None,
    terminated: list[bool] | None = None,
    unit: str = "us",
) -> LoggedData:
    """One list of days per user; ``sessions`` numbers each decision's session inside its user."""
    lengths = [len(user) for user in days]
    offsets = offsets_from_lengths(np.array(lengths))
    numbers = sessions or [list(range(length)) for length in lengths]
    starts = [
        offsets[i] + j
        for i, user in enumerate(numbers)
        for j, number in enumerate(user)
        if j == 0 or number != user[j - 1]
    ]
    flat = np.concatenate([np.asarray(user, dtype=np.float64) for user in days])
    times: Any = np.round(flat * DAY).astype(np.int64) if unit == "us" else flat
    n = int(offsets[-1])
    metric = np.zeros(n) if values is None else np.concatenate([np.asarray(v, float) for v in values])
    return LoggedData.from_arrays(
        contexts=np.arange(n, dtype=float)[:, None],
        actions=np.arange(n) % 2,
        n_actions=2,
        offsets=offsets,
        session_offsets=[*starts, n],
        times=times,
        time_unit=unit,  # type: ignore[arg-type]
        terminated=terminated,
        candidates=np.ones((n, 2), bool),
        final_candidates=np.ones((len(lengths), 2), bool),
        metrics={"sale": metric},
    )


@st.composite
def logs(draw: st.DrawFn) -> LoggedData:
    """Small logs with ties in time, long gaps, shared sessions and some terminated users."""
    days, sessions, values, terminated = [], [], [], []
    for _ in range(draw(st.integers(1, 5))):
        length = draw(st.integers(1, 9))
        gaps = draw(st.lists(st.integers(0, 6), min_size=length, max_size=length))
        new = draw(st.lists(st.booleans(), min_size=length, max_size=length))
        days.append(np.cumsum(gaps).tolist())
        sessions.append(np.cumsum(new).tolist())
        values.append(draw(st.lists(st.integers(-3, 3), min_size=length, max_size=length)))
        terminated.append(draw(st.booleans()))
    unit = draw(st.sampled_from(["us", "step"]))
    return log_of(days, sessions=sessions, values=values, terminated=terminated, unit=unit)


def naive(log: LoggedData, definition: RewardDefinition) -> tuple[np.ndarray, np.ndarray]:
    """The definitions of the module's text, as two nested loops."""
    per_day = DAY if log.time_unit == "us" else 1
    whole = 1 if log.time_unit == "us" else 0  # timestamps are whole microseconds
    end = log.times.max()
    rewards, observed = np.zeros(len(log)), np.zeros(len(log), bool)
    gone = np.repeat(log.terminated, np.diff(log.offsets))
    lengths = np.diff(log.offsets)
    counted = isinstance(definition, DiscountedSum) and definition.per == "step"
    common = not counted or bool((lengths[~log.terminated] == lengths.max()).all())
    for i in range(log.n_trajectories):
        a, b = log.offsets[i], log.offsets[i + 1]
        for t in range(a, b):
            session = log.session_of_row[t]
            close = log.times[log.session_offsets[session + 1] - 1]
            if isinstance(definition, ReturnWithin | SessionsWithin):
                window = float(definition.horizon) * per_day
                later = {
                    s
                    for s in log.session_of_row[t:b]
                    if s > session and log.times[log.session_offsets[s]] <= close + window
                }
                rewards[t] = len(later)
                if isinstance(definition, ReturnWithin):
                    paid = definition.pays == "decision" or t == log.session_offsets[session + 1] - 1
                    rewards[t] = min(len(later), 1) * paid
                complete = close + window <= end
            elif isinstance(definition, SumWithin):
                window = float(definition.horizon) * per_day
                rewards[t] = sum(
                    log.metrics["sale"][j] for j in range(t, b) if log.times[j] < log.times[t] + window
                )
                complete = log.times[t] + window - whole <= end
            else:
                assert isinstance(definition, DiscountedSum)
                steps = definition.per == "step"
                for j in range(t, b):
                    ahead = j - t if steps else (log.times[j] - log.times[t]) / per_day
                    if definition.horizon is None or ahead < float(definition.horizon):
                        rewards[t] += definition.gamma**ahead * log.metrics["sale"][j]
                reach = definition.horizon or np.log(definition.tail) / np.log(definition.gamma)
                window = float(reach) * (1 if steps else per_day)
                stop = a + lengths.max() if common else b
                complete = t + window <= stop if steps else log.times[t] + window - whole <= end
            observed[t] = complete
    if (observed | gone).all():  # nothing is missing
        return rewards, np.ones(len(log), bool)
    return rewards, observed if common else observed | gone


DEFINITIONS = [
    ReturnWithin(horizon=3),
    ReturnWithin(horizon=3, pays="decision"),
    SessionsWithin(horizon=5),
    SumWithin(metric="sale", horizon=4),
    DiscountedSum(metric="sale", gamma=0.8, horizon=3),
    DiscountedSum(metric="sale", gamma=0.3),
    DiscountedSum(metric="sale", gamma=0.7, per=1, horizon=6),
    DiscountedSum(metric="sale", gamma=0.2, per=1),
]


def in_days(definition: Any, unit: str) -> Any:
    """The same definition with durations as a log of timestamps wants them."""
    if unit == "step":
        return definition
    steps = isinstance(definition, DiscountedSum) and definition.per == "step"
    changes = {} if steps or definition.horizon is None else {"horizon": f"{definition.horizon}d"}
    return replace(definition, **changes, **({"per": "1d"} if getattr(definition, "per", None) == 1 else {}))


@given(logs(), st.sampled_from(DEFINITIONS))
@settings(max_examples=120, deadline=None)
def test_a_derived_reward_is_what_two_nested_loops_find(log: LoggedData, definition: Any) -> None:
    # A counter 0, 1, 2, … is no clock; the naive loop knows clocks only.
    log = replace(log, times=log.times + 1)
    rewards, known = naive(log, definition)
    if not known.any():
        with pytest.raises(DataError, match="shorter horizon"):
            log.with_rewards(in_days(definition, log.time_unit))
        return
    marked = log.with_rewards(in_days(definition, log.time_unit), censored="mark")
    np.testing.assert_allclose(marked.rewards, rewards, rtol=1e-9, atol=1e-12)
    observed = np.ones(len(log), bool) if marked.reward_observed is None else marked.reward_observed
    np.testing.assert_array_equal(observed, known)


@given(logs(), st.sampled_from(DEFINITIONS))
@settings(max_examples=80, deadline=None)
def test_dropping_keeps_the_observed_decisions_and_the_next_context(log: LoggedData, definition: Any) -> None:
    definition = in_days(definition, log.time_unit)
    try:
        marked = log.with_rewards(definition, censored="mark")
    except DataError:
        return
    observed = np.ones(len(log), bool) if marked.reward_observed is None else marked.reward_observed
    kept = log.with_rewards(definition)
    rows = np.flatnonzero(observed)  # contexts are row numbers
    np.testing.assert_array_equal(kept.contexts[:, 0], rows)
    np.testing.assert_array_equal(kept.rewards, np.asarray(marked.rewards)[rows])
    np.testing.assert_array_equal(kept.metrics["sale"], log.metrics["sale"][rows])
    np.testing.assert_array_equal(np.unique(kept.trajectory_of_row), np.arange(kept.n_trajectories))
    np.testing.assert_array_equal(kept.users, np.unique(log.trajectory_of_row[rows]))
    assert kept.ledger.balanced()
    assert kept.ledger.rows_used == len(kept)
    assert kept.ledger.rows_dropped == len(log) - len(rows)
    last = rows[kept.offsets[1:] - 1]
    cut = last + 1 < log.offsets[1:][kept.users]
    np.testing.assert_array_equal(kept.final_observed, cut)
    np.testing.assert_array_equal(kept.final_contexts[cut, 0], last[cut] + 1)
    same_session = np.diff(log.session_of_row[rows]) == 0
    np.testing.assert_array_equal(np.diff(kept.session_of_row) == 0, same_session)


def test_return_within_seven_days_by_hand() -> None:
    log = log_of([[0, 5, 30], [0, 10, 20]])
    derived = log.with_rewards(ReturnWithin(horizon="7d"))
    # User 0: back after 5 days; not back within 7 of day 5; day 30 is the end of the log. User 1: never
    # back within 7 days; day 20 + 7 lies inside the log, so this is a seen failure.
    np.testing.assert_array_equal(derived.rewards, [1, 0, 0, 0, 0])
    assert derived.ledger.drops[0].rows == 1
    assert "shorten the horizon" in derived.ledger.drops[0].remedy


def test_a_success_just_before_the_end_is_dropped_like_a_failure() -> None:
    log = log_of([[0, 27, 28], [0, 27, 30]])
    derived = log.with_rewards(ReturnWithin(horizon="7d"))
    np.testing.assert_array_equal(derived.contexts[:, 0], [0, 3])


def test_sessions_end_before_their_window_starts() -> None:
    log = log_of([[0, 2, 8, 20]], sessions=[[0, 0, 1, 2]])
    derived = log.with_rewards(ReturnWithin(horizon="7d"), censored="mark")
    np.testing.assert_array_equal(derived.rewards, [0, 1, 0, 0])  # 6 days after the session's end
    np.testing.assert_array_equal(derived.reward_observed, [True, True, True, False])


def test_a_return_is_paid_once() -> None:
    """Failed before: a return after a session of three decisions counted three times."""
    log = log_of([[0, 0.1, 0.2, 5, 5.1, 30]], sessions=[[0, 0, 0, 1, 1, 2]])
    once = log.with_rewards(ReturnWithin(horizon="7d"), censored="mark")
    np.testing.assert_array_equal(once.rewards, [0, 0, 1, 0, 0, 0])
    every = log.with_rewards(ReturnWithin(horizon="7d", pays="decision"), censored="mark")
    np.testing.assert_array_equal(every.rewards, [1, 1, 1, 0, 0, 0])


def test_terminated_users_go_by_their_time_like_the_others() -> None:
    log = log_of([[0, 20], [0, 20]], terminated=[True, False])
    derived = log.with_rewards(SessionsWithin(horizon="14d"))
    np.testing.assert_array_equal(
        derived.offsets, [0, 1, 2]
    )  # else only those who left would be seen on day 20
    np.testing.assert_array_equal(derived.terminated, [False, False])
    marked = log.with_rewards(SessionsWithin(horizon="14d"), censored="mark")
    np.testing.assert_array_equal(marked.reward_observed, [True, False, True, False])


def test_nothing_is_dropped_where_all_futures_are_known() -> None:
    log = log_of([[0, 20], [0, 3]], terminated=[True, True])
    derived = log.with_rewards(SessionsWithin(horizon="14d"))
    np.testing.assert_array_equal(derived.rewards, [0, 0, 1, 0])
    assert derived.reward_observed is None
    # User 0 stays, but all windows of theirs are closed: day 3 of user 1 is known, and nothing is lost.
    log = log_of([[0, 1, 30], [28]], values=[[1, 1, 1], [5]], terminated=[True, True])
    assert len(log.with_rewards(SumWithin(metric="sale", horizon="7d"))) == 4


def test_counters_that_all_end_at_the_same_step_are_a_common_clock() -> None:
    days, values = [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1]], [[1] * 4, [1] * 4, [1] * 2]
    log = log_of(days, unit="step", values=values, terminated=[False, False, True])
    derived = log.with_rewards(SumWithin(metric="sale", horizon=3))
    np.testing.assert_array_equal(np.diff(derived.offsets), [2, 2, 2])  # steps 0 and 1, whoever terminated
    log = log_of([[0, 1, 2, 3], [0, 1, 2], [0, 1]], unit="step", terminated=[False, False, True])
    derived = log.with_rewards(SumWithin(metric="sale", horizon=3))
    np.testing.assert_array_equal(np.diff(derived.offsets), [2, 1, 2])


def test_what_was_known_at_once_stays_beside_a_reward_that_looks_ahead(tmp_path: Path) -> None:
    log = log_of([[0, 1, 2, 40]], values=[[1, 2, 4, 8]])
    assert log.immediate is None
    derived = log.with_rewards(SumWithin(metric="sale", horizon="2d"))
    np.testing.assert_array_equal(derived.rewards, [3, 6, 4])
    np.testing.assert_array_equal(derived.immediate, [1, 2, 4])
    back = LoggedData.read(derived.to_parquet(tmp_path / "log.parquet"))
    np.testing.assert_array_equal(back.immediate, [1, 2, 4])
    np.testing.assert_array_equal(LoggedData.concat([derived.select([0])]).immediate, [1, 2, 4])
    np.testing.assert_array_equal(log.with_rewards(ReturnWithin(horizon="2d")).immediate, [0, 0, 0])
    np.testing.assert_array_equal(log.with_rewards("sale", delayed=True).immediate, [0, 0, 0, 0])
    assert derived.with_rewards("sale").immediate is None
    assert derived.with_rewards(np.zeros(3)).immediate is None


def test_whole_trajectories_may_vanish() -> None:
    log = log_of([[0, 1], [28, 29]])
    derived = log.with_rewards(SumWithin(metric="sale", horizon="7d"))
    np.testing.assert_array_equal(derived.users, [0])
    assert derived.ledger.rows_dropped == 2


def test_a_rate_per_month() -> None:
    log = log_of([[0, 30, 60, 200]], values=[[1, 2, 4, 0]])
    derived = log.with_rewards(SumWithin(metric="sale", horizon="90d", per="30d"))
    np.testing.assert_allclose(np.asarray(derived.rewards)[:3], [7 / 3, 6 / 3, 4 / 3])


def test_a_discounted_sum_is_the_geometric_series() -> None:
    log = log_of([list(range(40))], values=[[1.0] * 40], terminated=[True])
    derived = log.with_rewards(DiscountedSum(metric="sale", gamma=0.9))
    left = 40 - np.arange(40)
    np.testing.assert_allclose(derived.rewards, (1 - 0.9**left) / 0.1, rtol=1e-12)


def test_sums_are_exact_beside_a_huge_value() -> None:
    log = log_of([[0, 1, 2, 40], [0, 1, 2, 40]], values=[[1e17, 1e17, 1e17, 1e17], [0.1, 0.2, 0.4, 0]])
    derived = log.with_rewards(SumWithin(metric="sale", horizon="5d"))
    np.testing.assert_allclose(np.asarray(derived.rewards)[3:], [0.7, 0.6, 0.4], rtol=1e-15)


def test_counters_are_no_common_clock() -> None:
    log = log_of([[0, 1, 2], [0, 1, 2, 3, 4, 5]], unit="step", values=[[1] * 3, [1] * 6])
    derived = log.with_rewards(SumWithin(metric="sale", horizon=2))
    np.testing.assert_array_equal(np.diff(derived.offsets), [2, 5])
    whole = LoggedData.from_arrays(
        contexts=np.zeros((5, 1)), actions=np.zeros(5, int), offsets=[0, 5], rewards=np.ones(5)
    )
    assert len(whole.with_rewards(SumWithin(metric="reward", horizon=2))) == 4


def test_the_end_of_the_log_can_be_given() -> None:
    log = log_of([[0, 1, 2]])
    assert len(log.with_rewards(ReturnWithin(horizon="7d"), log_end=9 * DAY)) == 3
    assert len(log.with_rewards(ReturnWithin(horizon="7d"), log_end="1970-01-09")) == 2
    assert len(log.with_rewards(ReturnWithin(horizon="7d"), log_end="1970-01-09T02:00+02:00")) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda log: log.with_rewards(SumWithin(metric="clicks", horizon="1d")), "sale"),
        (lambda log: log.with_rewards(ReturnWithin(horizon="7 days")), "'30m'"),
        (lambda log: log.with_rewards(ReturnWithin(horizon="1d"), censored="zero"), "'drop' or 'mark'"),
        (
            lambda log: log.with_rewards(ReturnWithin(horizon="1d"), censored="complete"),
            r"shpi\.Complete\(\)",
        ),
        (lambda log: log.with_rewards("sale", censored="mark"), "options with a definition only"),
        (lambda log: log.with_rewards(ReturnWithin(horizon="1d"), log_end="May"), "ISO date"),
        (lambda log: DiscountedSum(metric="sale", gamma=1.0), "gamma = 1"),
        (lambda log: DiscountedSum(metric="sale", gamma=1.5), "gamma in"),
        (lambda log: DiscountedSum(metric="sale", gamma=0.5, tail=0.0), "tail in"),
    ],
)
def test_bad_definitions(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(log_of([[0, 1, 2, 30]]))


def test_a_censored_reward_cannot_be_summed() -> None:
    log = log_of([[0, 1, 2, 30]]).with_rewards(ReturnWithin(horizon="7d"), censored="mark")
    with pytest.raises(DataError, match="censored"):
        log.with_rewards(SumWithin(metric="reward", horizon="1d"))


def test_arrays_and_tables_are_not_definitions() -> None:
    import polars as pl

    assert isinstance(ReturnWithin(), RewardDefinition)
    assert not isinstance(np.zeros(3), RewardDefinition)
    assert not isinstance(pl.Series([1.0]), RewardDefinition)


@given(logs(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_three_factors_multiply_to_the_total(log: LoggedData, with_reward: bool) -> None:
    log = log.with_rewards("sale") if with_reward else log
    parts = decompose(log)
    if not with_reward:
        assert parts.reward_per_decision is parts.ltr is None
        return
    days = (log.times.max() - log.times.min()) / DAY if log.time_unit == "us" else 0
    months = days / 30 if days else 1
    total = log.metrics["sale"].sum() / log.n_users / months
    product = np.prod([parts.reward_per_decision, parts.decisions_per_session, parts.sessions_per_period])
    assert parts.ltr == pytest.approx(total, rel=1e-14, abs=1e-14)
    assert product == pytest.approx(total, rel=1e-14, abs=1e-14)
    assert parts.period == ("month" if days else "log")


def test_the_decomposition_by_hand() -> None:
    # Two users, 15 days, three sessions of 2, 1 and 1 decisions, 6 sales.
    log = log_of([[0, 0.01, 15], [3]], sessions=[[0, 0, 1], [0]], values=[[1, 2, 3], [0]])
    parts = decompose(log.with_rewards("sale"))
    assert parts.reward_per_decision == pytest.approx(1.5)
    assert parts.decisions_per_session == pytest.approx(4 / 3)
    assert parts.sessions_per_period == pytest.approx(3.0)
    assert parts.ltr == pytest.approx(6.0)
