"""Logs in shards: the same answers as in memory, and memory that does not grow with the number of shards."""

import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from shpi.data._log.sample import draw
from shpi.data.canonical import read_canonical
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
    Gate,
    KStepSHPI,
    Problem,
    Settings,
    evaluate,
)
from shpi.ope._log.facts import raw_chunks
from shpi.ope._log.scratch import PREFIX
from shpi.policies import ConstantPolicy
from tests.ope.worlds import H, small_world

MDP, MU, PI = small_world()
MODEL = {"features": Identity(intercept=False)}
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


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.name)
def test_shards_give_the_answer_of_the_whole(both, estimator):
    of_whole, of_shards = (estimator.estimate(problem) for problem in both)
    assert of_shards.value == pytest.approx(of_whole.value, rel=1e-8)
    assert of_shards.lift == pytest.approx(of_whole.lift, rel=1e-7)
    assert of_shards.lift_error == pytest.approx(of_whole.lift_error, rel=1e-6)
    assert of_shards.effective_users == pytest.approx(of_whole.effective_users, rel=1e-8)
    np.testing.assert_allclose(of_shards.influence_lift, of_whole.influence_lift, rtol=1e-5, atol=1e-8)


def differing(left: Any, right: Any, place: str = "") -> Iterator[str]:
    """What differs between two results, beyond rounding; users may come in another order."""
    if is_dataclass(left):
        for field in fields(left):
            yield from differing(
                getattr(left, field.name), getattr(right, field.name), f"{place}.{field.name}"
            )
    elif isinstance(left, tuple | list):
        if len(left) != len(right):
            yield f"{place}: {len(left)} and {len(right)} entries"
        for a, b in zip(left, right, strict=False):
            yield from differing(a, b, f"{place}[{getattr(a, 'name', '')}]")
    elif isinstance(left, np.ndarray):
        if not np.allclose(np.sort(left), np.sort(right), rtol=1e-8, atol=1e-8 * np.abs(left).max()):
            yield place
    elif isinstance(left, float):
        # Inverses of nearly singular Gram matrices enlarge the rounding of sums, which is 1e-16.
        if right != pytest.approx(left, rel=1e-8, abs=1e-10, nan_ok=True):
            yield f"{place}: {left} and {right}"
    elif left != right and place != ".fingerprint":
        yield f"{place}: {left} and {right}"


def test_an_evaluation_is_the_same_in_memory_and_in_shards_of_any_order(tmp_path):
    """Default features, diagnostics, sentences and verdict: nothing looks at the first shard alone.

    Action 3 is hardly ever taken by the users of the first shard, whose rewards are shifted, too.
    """
    rng, users = np.random.default_rng(4), 400
    n, home = 4 * users, np.repeat(np.arange(users), 4)
    contexts = rng.normal(size=(n, 2)) + (home < 100)[:, None]
    chances = np.where((home < 100)[:, None], (0.3, 0.3, 0.39, 0.01), (0.1, 0.2, 0.3, 0.4))
    actions = (rng.random((n, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    rewards = (contexts[:, 0] > actions - 1.5) + 0.5 * (home < 100) + rng.normal(size=n)
    whole = LoggedData.from_arrays(
        contexts=contexts, actions=actions, rewards=rewards, n_actions=4, behaviour=chances,
        propensities=chances[np.arange(n), actions], offsets=np.arange(users + 1) * 4,
        terminated=np.ones(users, dtype=bool),
    )  # fmt: skip
    parts = [whole.select(np.arange(a, a + 100)) for a in range(0, users, 100)]
    policy = ConstantPolicy((0.2, 0.2, 0.2, 0.4))
    sources = [whole, *(write_shards(order, tmp_path / name) for order, name in
               ((parts, "there"), (parts[::-1], "back")))]  # fmt: skip
    in_memory, there, back = (evaluate(policy, source, gate=Gate(), gamma=0.9) for source in sources)
    assert [*differing(in_memory, there)] == []
    assert [*differing(in_memory, back)] == []


class Counting:
    """A policy that counts the contexts it is asked about."""

    n_actions = 3

    def __init__(self) -> None:
        self.asked = 0

    def action_probs(self, contexts, candidates=None):
        self.asked += len(contexts)
        return np.tile((0.2, 0.3, 0.5), (len(contexts), 1))


def test_shards_are_read_once_and_the_policy_is_asked_once(tmp_path, monkeypatch):
    """Once for each decision and final context, and once more for those in samples."""
    monkeypatch.setattr("shpi.ope.problem.MOST_ROWS", 100)
    monkeypatch.setattr("shpi.ope.models.recipes.ROWS", 100)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    whole, policy = MDP.log(MU, 300, H, seed=5, ragged=True), Counting()
    shards = write_shards([whole.select(np.arange(i, 300, 3)) for i in range(3)], tmp_path / "shards")
    decoded = []
    monkeypatch.setattr(
        "shpi.data._shards.divide.read_canonical",
        lambda file: (decoded.append(file.name), read_canonical(file))[1],
    )
    evaluation = evaluate(policy, shards, gate=Gate(), gamma=0.9)
    assert sorted(decoded) == [file.name for file in shards.files]
    rows = len(whole) + whole.n_trajectories
    assert policy.asked < rows + 500
    assert len(evaluation.estimates) > 8
    gc.collect()
    assert not list(tmp_path.glob(f"{PREFIX}*"))


def test_the_folder_of_a_killed_evaluation_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    left = tmp_path / f"{PREFIX}{int(dead.stdout)}-x"
    running = tmp_path / f"{PREFIX}{os.getpid()}-x"
    for place in (left, running):
        place.mkdir()
    whole = MDP.log(MU, 30, H, seed=5)
    Problem.of(MDP.policy(PI), write_shards([whole], tmp_path / "shards"), Settings())
    assert not left.exists()
    assert running.exists()


def test_samples_do_not_depend_on_the_shards(tmp_path):
    whole = MDP.log(MU, 240, H, seed=3, ragged=True)
    order = np.random.default_rng(0).permutation(whole.n_trajectories)
    shards = write_shards([whole.select(order[i::5]) for i in range(5)], tmp_path / "shards")
    from_whole, from_shards = (draw(raw_chunks(source), 200, seed=7) for source in (whole, shards))
    np.testing.assert_array_equal(from_whole.users, from_shards.users)
    np.testing.assert_array_equal(from_whole.contexts, from_shards.contexts)
    assert 200 <= len(from_whole) < 200 + H
    assert set(draw([from_whole], 50, seed=7, least=2).users) == set(draw([whole], 50, seed=7, least=2).users)
    assert set(from_whole.users) != set(draw([whole], 200, seed=8).users)


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
    of_whole, of_shards = (
        FQE(**MODEL).estimate(Problem.of(policy, source, Settings())) for source in (whole, shards)
    )
    assert of_shards.value == pytest.approx(of_whole.value, rel=1e-9)
    assert of_shards.lift == pytest.approx(of_whole.lift, rel=1e-7)


def wide_log(shard):
    """100 users with 20 decisions and 50 context dimensions: 0.4 MB of contexts."""
    rng = np.random.default_rng(shard)
    actions = rng.integers(2, size=2_000)
    return LoggedData.from_arrays(
        contexts=rng.standard_normal((2_000, 50)), actions=actions, rewards=rng.standard_normal(2_000),
        propensities=np.full(2_000, 0.5), behaviour=np.full((2_000, 2), 0.5), n_actions=2,
        offsets=np.arange(101) * 20, users=np.arange(100) + 100 * shard, final_contexts=np.zeros((100, 50)),
    )  # fmt: skip


def test_memory_is_that_of_one_block(tmp_path, monkeypatch):
    monkeypatch.setattr("shpi.ope._log.blocks.ROWS", 2_000)
    monkeypatch.setattr("shpi.ope.problem.MOST_ROWS", 1_000)  # a sample has 600 decisions of 30 users
    peaks = []
    for count in (2, 6):
        shards = write_shards([wide_log(number) for number in range(count)], tmp_path / str(count))
        problem = Problem.of(ConstantPolicy((0.4, 0.6)), shards, Settings())
        tracemalloc.start()
        KStepSHPI(k=2, **MODEL).estimate(problem)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Four more shards are 8 MB with their features; a few numbers per user may grow, and the largest block
    # is a little larger by chance.
    assert peaks[1] - peaks[0] < 2.5e6
