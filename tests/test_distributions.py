"""The same bits as scipy.stats, and no import of it on the way to an evaluation."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from scipy import stats

from shpi._core import distributions as ours
from shpi._core.ranks import mid_ranks

LEVELS = np.array([1e-12, 1e-4, 0.025, 0.3, 0.5, 0.9, 0.95, 0.975, 0.999, 1 - 1e-9])
POINTS = np.array([0.0, 1e-8, 0.3, 1.0, 1.96, 5.0, 30.0])
FREEDOM = np.array([1, 2, 3.7, 29, 400, 1e6])[:, None]


def test_quantiles_and_tails_have_the_bits_of_scipy_stats() -> None:
    for mine, theirs in (
        (ours.normal_quantile(LEVELS), stats.norm.ppf(LEVELS)),
        (ours.normal_upper_quantile(LEVELS), stats.norm.isf(LEVELS)),
        (ours.normal_cdf(POINTS), stats.norm.cdf(POINTS)),
        (ours.normal_tail(POINTS), stats.norm.sf(POINTS)),
        (ours.t_quantile(LEVELS, FREEDOM), stats.t.ppf(LEVELS, FREEDOM)),
        (ours.t_tail(POINTS, FREEDOM), stats.t.sf(POINTS, FREEDOM)),
        (ours.chi_square_quantile(LEVELS, FREEDOM), stats.chi2.ppf(LEVELS, FREEDOM)),
        (ours.chi_square_tail(POINTS, FREEDOM), stats.chi2.sf(POINTS, FREEDOM)),
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_the_tail_of_successes() -> None:
    draws, count = np.array([1, 10, 3_000])[:, None], np.array([-1, 0, 1])
    for chance in (1e-6, 0.2, 0.97):
        np.testing.assert_allclose(
            ours.binomial_tail(count, draws, chance), stats.binom.sf(count, draws, chance), rtol=1e-10
        )


def test_ranks_are_those_of_scipy_stats() -> None:
    random = np.random.default_rng(0)
    indicator = (random.random(99) < 0.2).astype(np.float32)
    for values in (random.random(99), random.integers(5, size=99), indicator, np.ones(7), np.array([3.0])):
        np.testing.assert_array_equal(mid_ranks(values), stats.rankdata(values))


def test_neither_evaluations_nor_saved_policies_import_what_they_do_not_need() -> None:
    """Half of the import of `shpi.evaluate` was scipy.stats, two thirds of `load_policy` an optimiser."""
    code = (
        "import sys, shpi\n"
        "shpi.load_policy\n"
        "assert 'scipy.optimize' not in sys.modules\n"
        "shpi.evaluate, shpi.OfflineSHPI, shpi.LoggedData\n"
        "shpi.LoggedData.from_arrays(contexts=[[x] for x in range(50)], actions=[0, 1] * 25,\n"
        "    rewards=[0, 1] * 25, propensities=[0.5] * 50, offsets=range(51), n_actions=2).audit()\n"
        "assert 'scipy.stats' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
