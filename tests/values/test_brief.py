"""V with a few gradient steps, as the authors' release trains it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shpi.data._log.release import windowed
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.values import BriefTD, StateValues
from shpi.values.neural.brief import minibatches

pytest.importorskip("torch", reason="needs the extra neural")


def log(windows: int, length: int = 30, reward: float = -8000.0) -> LoggedData:
    rng = np.random.default_rng(0)
    n = windows * length
    return windowed(
        LoggedData.from_arrays(
            contexts=rng.standard_normal((n, 2)), actions=np.zeros(n, int), rewards=np.full(n, reward),
            offsets=np.arange(0, n + 1, length), n_actions=2,
        ),
        length, length,
    )  # fmt: skip


def test_the_order_of_rows_is_that_of_the_release(golden_dir: Path) -> None:
    place = golden_dir / "release" / "minibatches.npz"
    if not place.is_file():
        pytest.skip(f"needs data of the authors' release: no file {place}")
    with np.load(place, allow_pickle=False) as file:
        golden = {name: file[name] for name in file.files}
    offsets = np.arange(0, 140 * 30 + 1, 30)
    batches = list(minibatches(offsets, 64, np.random.RandomState(int(golden["seed"]))))
    assert len(batches) == golden["n_batches"]
    for number, (rows, following, done) in enumerate(batches):
        np.testing.assert_array_equal(rows, golden["state"][number])
        np.testing.assert_array_equal(following, golden["next_state"][number])
        np.testing.assert_array_equal(done, golden["done"][number] == 1)


@pytest.mark.parametrize(("windows", "steps"), [(70, 5), (700, 50), (14_000, 1090)])
def test_gradient_steps_by_windows(windows: int, steps: int) -> None:
    """README: 10 trajectories of 7 windows; the paper's 2,000 trajectories have 14,000."""
    short = log(windows, length=1)
    assert BriefTD().steps(short) == steps


def test_five_steps_leave_v_at_its_start() -> None:
    """The release had about -8 where rewards are -8,000, whose sum is -800,000."""
    logs = log(70)
    values = StateValues.of(BriefTD().fit(logs, gamma=0.99, seed=0), logs).rows
    assert -40 < values.mean() < 0
    again = StateValues.of(BriefTD().fit(logs, gamma=0.99, seed=0), logs).rows
    np.testing.assert_array_equal(values, again)


def test_many_steps_learn_the_value_of_a_window() -> None:
    """With gamma = 0 the target is the reward: it is reached, so the gradient has the right sign and size."""
    logs = log(64, length=2, reward=2.0)
    value = BriefTD(calls=800).fit(logs, gamma=0.0, seed=1)
    np.testing.assert_allclose(value(logs.contexts), 2.0, atol=0.1)


def test_too_few_windows_and_bad_settings() -> None:
    with pytest.raises(DataError, match="at least 64 windows"):
        BriefTD().fit(log(63), gamma=0.99, seed=0)
    with pytest.raises(ConfigError, match="positive sizes"):
        BriefTD(calls=0)
