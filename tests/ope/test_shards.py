"""Logs in shards: the same answers as in memory, and memory that does not grow with the number of shards."""

import tracemalloc

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.data.shards import write_shards
from shpi.features import Identity
from shpi.ope import (
    DR,
    FQE,
    IPS,
    MAGIC,
    MIS,
    PDIS,
    SLOPE,
    SNIPS,
    SNPDIS,
    WDR,
    DirectMethod,
    KStepSHPI,
    Problem,
    Settings,
)
from shpi.policies import ConstantPolicy
from tests.ope.worlds import H, small_world

MDP, MU, PI = small_world()
MODEL = {"features": Identity(intercept=False)}  # the default features are fitted on the first shard only
ESTIMATORS = [
    IPS(), SNIPS(), PDIS(), SNPDIS(), SNPDIS(k=2, name="window"), WDR(**MODEL), DR(**MODEL), MAGIC(**MODEL),
    FQE(**MODEL), DirectMethod(**MODEL), MIS(**MODEL), KStepSHPI(k=1, **MODEL), KStepSHPI(k=3, **MODEL),
    KStepSHPI(**MODEL), SLOPE(candidates=(KStepSHPI(k=H, **MODEL), KStepSHPI(k=1, **MODEL))),
]  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same problem in memory and in three shards of unequal size."""
    whole = MDP.log(MU, 240, H, seed=3, ragged=True)
    cuts = [whole.select((whole.user_codes >= a) & (whole.user_codes < b)) for a, b in
            ((0, 40), (40, 150), (150, 240))]  # fmt: skip
    shards = write_shards(cuts, tmp_path_factory.mktemp("logs") / "shards")
    settings = Settings(gamma=0.9)
    return tuple(Problem.of(MDP.policy(PI), source, settings) for source in (whole, shards))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: one.name)
def test_shards_give_the_answer_of_the_whole(both, estimator):
    one, two = (estimator.estimate(problem) for problem in both)
    assert two.value == pytest.approx(one.value, rel=1e-8)
    assert two.lift == pytest.approx(one.lift, rel=1e-7)
    assert two.lift_error == pytest.approx(one.lift_error, rel=1e-6)
    assert two.effective_users == pytest.approx(one.effective_users, rel=1e-8)
    np.testing.assert_allclose(two.influence_lift, one.influence_lift, rtol=1e-5, atol=1e-8)


def test_codes_of_many_actions_are_those_of_the_whole_log(tmp_path):
    """The first shard takes other actions than the rest; the codes count all of them."""
    rng, n_actions, users = np.random.default_rng(0), 80, 300
    early = np.arange(users) < 60
    actions = np.where(early, rng.integers(0, 10, users), rng.integers(0, n_actions, users))
    whole = LoggedData.from_arrays(
        contexts=rng.normal(size=(users, 2)), actions=actions, rewards=rng.normal(size=users) + actions / 10,
        propensities=np.where(early, 0.1, 1 / n_actions), offsets=np.arange(users + 1), n_actions=n_actions,
        terminated=np.ones(users, dtype=bool),
    )  # fmt: skip
    shards = write_shards([whole.select(early), whole.select(~early)], tmp_path / "shards")
    policy = ConstantPolicy(np.full(n_actions, 1 / n_actions))
    one, two = (FQE(**MODEL).estimate(Problem.of(policy, source, Settings())) for source in (whole, shards))
    assert two.value == pytest.approx(one.value, rel=1e-9)
    assert two.lift == pytest.approx(one.lift, rel=1e-7)


def wide_log(shard):
    """100 users with 20 decisions and 50 context dimensions: 0.4 MB of contexts."""
    rng = np.random.default_rng(shard)
    actions = rng.integers(2, size=2_000)
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((2_000, 50)), actions=actions, rewards=rng.standard_normal(2_000),
        propensities=np.full(2_000, 0.5), behaviour=np.full((2_000, 2), 0.5), n_actions=2,
        offsets=np.arange(101) * 20, users=np.arange(100) + 100 * shard, final_contexts=np.zeros((100, 50)),
    )  # fmt: skip


def test_memory_is_that_of_one_shard(tmp_path):
    peaks = []
    for count in (2, 6):
        shards = write_shards([wide_log(number) for number in range(count)], tmp_path / str(count))
        problem = Problem.of(ConstantPolicy((0.4, 0.6)), shards, Settings())
        tracemalloc.start()
        KStepSHPI(k=2, **MODEL).estimate(problem)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Four more shards are 1.6 MB of contexts; what may grow is a few numbers per user.
    assert peaks[1] - peaks[0] < 0.4e6
