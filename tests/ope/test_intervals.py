import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shpi.errors import ConfigError, DataError
from shpi.ope.inference.intervals import (
    bootstrap_pivots,
    degrees_of_freedom,
    interval_of,
    skewness,
    standard_error,
    unskewed,
    with_unseen,
)

METHODS = ["skewed", "t", "heavy", "normal", "bootstrap", "bernstein"]


def centred(values):
    return np.asarray(values) - np.mean(values)


def test_student_t_is_that_of_the_textbook():
    x = np.random.default_rng(0).standard_normal(30)
    interval = interval_of(x.mean(), centred(x), level=0.9)
    lower, upper = stats.t.interval(0.9, 29, loc=x.mean(), scale=stats.sem(x))
    assert (interval.lower, interval.upper) == (pytest.approx(lower), pytest.approx(upper))
    one_sided = x.mean() - stats.t.ppf(0.9, 29) * stats.sem(x)
    assert interval.lower_bound == pytest.approx(one_sided)


@pytest.mark.parametrize("method", METHODS)
def test_a_two_sided_interval_is_wider_than_the_one_sided_bound(method):
    x = np.random.default_rng(1).exponential(size=200)
    interval = interval_of(x.mean(), centred(x), method=method)
    assert interval.lower < interval.lower_bound < x.mean() < interval.upper
    wider = interval_of(x.mean(), centred(x), method=method, level=0.99)
    assert wider.lower < interval.lower
    assert wider.upper > interval.upper


def test_bernstein_is_maurer_and_pontil():
    x = np.random.default_rng(2).random(100)
    interval = interval_of(x.mean(), centred(x), method="bernstein", value_range=1.0)
    log = np.log(2 / 0.05)
    bound = x.mean() - np.sqrt(2 * x.var(ddof=1) * log / 100) - 7 * log / (3 * 99)
    assert interval.lower_bound == pytest.approx(bound)


def test_the_bootstrap_leans_away_from_the_tail():
    """Of a right-skewed sample the mean may be far too low, so the interval reaches up."""
    x = np.random.default_rng(3).lognormal(sigma=1.2, size=80)
    interval = interval_of(x.mean(), centred(x), method="bootstrap", seed=0)
    assert interval.upper - x.mean() > 1.2 * (x.mean() - interval.lower)
    assert interval == interval_of(x.mean(), centred(x), method="bootstrap", seed=0)


def test_the_bootstrap_of_many_normal_users_is_normal():
    pivots = bootstrap_pivots(np.random.default_rng(4).standard_normal(30_000), seed=1, replicates=400)
    assert abs(pivots.std() - 1) < 0.15
    assert abs(pivots.mean()) < 0.2


@given(st.floats(-0.8, 0.8), st.floats(-2.5, 2.5))
def test_the_correction_inverts_halls_transformation(lean, quantile):
    pivot = unskewed(quantile, lean)
    back = pivot + lean * pivot**2 / 3 + lean**2 * pivot**3 / 27 + lean / 6
    assert back == pytest.approx(quantile, abs=1e-6)


def test_skewness_is_the_third_moment_whatever_the_unit():
    x = np.random.default_rng(6).exponential(size=500)
    assert skewness(1e-150 * x) == pytest.approx(stats.skew(x))
    assert skewness(np.ones(5)) == 0


def test_losses_of_a_few_users_lengthen_the_lower_side_alone():
    x = -np.random.default_rng(7).lognormal(sigma=1.2, size=200)
    skewed, plain = (interval_of(x.mean(), centred(x), method=method) for method in ("skewed", "t"))
    assert skewed.lower_bound < plain.lower_bound
    assert skewed.lower < plain.lower
    quantile = stats.t.ppf(0.975, 3 * degrees_of_freedom(centred(x)))
    assert skewed.upper - x.mean() == pytest.approx(with_unseen(-centred(x), quantile))
    assert skewed.upper - x.mean() < 1.01 * quantile * stats.sem(x)


def test_a_quarter_of_one_more_user_is_what_four_copies_of_the_log_and_one_user_say():
    x = np.random.default_rng(9).exponential(size=50)
    more = np.append(np.repeat(x, 4), x.min())  # every user four times, and the lowest once more
    length = with_unseen(centred(x), 2.0)
    assert length == pytest.approx(x.mean() - more.mean() + 2.0 * more.std() / np.sqrt(49.25))


def test_one_more_user_is_nothing_to_many():
    x = centred(np.random.default_rng(10).standard_normal(100_000))
    skewed, plain = (interval_of(0.0, x, method=method) for method in ("skewed", "t"))
    assert skewed.lower_bound == pytest.approx(plain.lower_bound, rel=0.005)


def test_lower_bounds_of_skewed_losses_hold_more_often():
    """Users lose a lognormal amount: t is wrong in nearly twice as many logs as it says."""
    rng = np.random.default_rng(8)
    hits = {"t": 0, "skewed": 0}
    for _ in range(1_000):
        x = -rng.lognormal(sigma=0.8, size=60)
        for method in hits:
            hits[method] += interval_of(x.mean(), centred(x), method=method).lower_bound <= -np.exp(0.32)
    assert hits["t"] < 920
    assert 935 <= hits["skewed"] <= 970


def test_heavy_tails_cost_degrees_of_freedom():
    rng = np.random.default_rng(5)
    assert degrees_of_freedom(rng.standard_normal(20_000)) == pytest.approx(20_000, rel=0.1)
    few = np.zeros(1_000)
    few[:3] = 1.0
    assert degrees_of_freedom(centred(few)) < 10
    wide, narrow = (interval_of(0.0, centred(few), method=method) for method in ("heavy", "t"))
    assert wide.lower < narrow.lower


@pytest.mark.parametrize("method", METHODS)
def test_nothing_to_be_unsure_about(method):
    interval = interval_of(2.0, np.zeros(10), method=method)
    assert interval.lower == interval.upper == interval.lower_bound == 2.0


@given(st.floats(1e-6, 1e6), st.floats(-1e6, 1e6), st.sampled_from(["t", "normal", "heavy", "bernstein"]))
def test_intervals_follow_units(scale, shift, method):
    x = centred(np.random.default_rng(6).exponential(size=40))
    unit, scaled = interval_of(0.0, x, method=method), interval_of(shift, scale * x, method=method)
    assert scaled.width == pytest.approx(scale * unit.width, rel=1e-6, abs=1e-9 * abs(shift))
    assert scaled.lower - shift == pytest.approx(scale * unit.lower, rel=1e-4, abs=1e-9 * abs(shift))


def test_bad_input_is_refused():
    with pytest.raises(DataError, match="at least two users"):
        interval_of(0.0, np.zeros(1))
    with pytest.raises(DataError, match="finite influences"):
        interval_of(0.0, np.array([0.0, np.nan]))
    with pytest.raises(ConfigError, match="a level in"):
        interval_of(0.0, np.zeros(3), level=1.0)
    with pytest.raises(ConfigError, match="a method among"):
        interval_of(0.0, np.zeros(3), method="hoeffding")


@pytest.mark.parametrize("method", ["t", "heavy", "bootstrap"])
def test_nominal_coverage_of_a_plain_mean(method):
    rng, hits, above = np.random.default_rng(7), 0, 0
    for trial in range(200):
        x = rng.standard_normal(40) + rng.random(40)
        interval = interval_of(x.mean(), centred(x), method=method, seed=trial)
        hits += interval.lower <= 0.5 <= interval.upper
        above += interval.lower_bound <= 0.5
    assert 180 <= hits <= 199  # 190 are expected, with a standard deviation of 3
    assert 180 <= above <= 199


def test_standard_error_of_a_mean():
    x = np.random.default_rng(8).random(50)
    assert standard_error(centred(x)) == pytest.approx(stats.sem(x))
