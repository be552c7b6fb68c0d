from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shpi.envs.recogym.replay import NOTHING, replay
from shpi.envs.recogym.world import ClusterWorld, LatentWorld


@pytest.mark.parametrize(("version", "products"), [(1, 10), (1, 100), (0, 10)])
def test_the_replay_is_the_originals_log_row_by_row(golden_dir: Path, version: int, products: int) -> None:
    name = f"recogym_v{version}_streamlog_P{products}_seed42_200users.npz"
    with np.load(golden_dir / name, allow_pickle=False) as golden:
        clicks = np.nan_to_num(golden["c"], nan=NOTHING)
        views, actions = (np.where(golden[key] == 65535, NOTHING, golden[key]) for key in "va")
        expected = np.column_stack([golden["u"], golden["t"], golden["is_bandit"], views, actions, clicks])
    world = (
        LatentWorld.draw(42, n_products=products)
        if version == 1
        else ClusterWorld.draw(42, n_products=products)
    )
    rows = np.array(list(replay(world, 200, 42)), dtype=np.float64)
    np.testing.assert_array_equal(rows, expected)


def test_the_first_interest_repeats_the_first_embedding() -> None:
    """The original makes its generator again from the same seed, so users reuse the world's numbers."""
    world = LatentWorld.draw(7, n_products=10)
    np.testing.assert_array_equal(np.random.RandomState(7).normal(0.0, 1.0, size=5), world.gamma[0])
    users = {event.user for event in replay(world, 3, 7)}
    assert users == {0, 1, 2}
