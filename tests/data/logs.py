"""Small logs for the tests of this room."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

import shpi

COLUMNS = shpi.Columns(
    user="uid", time="ts", time_unit="s", action="item", propensity="p", reward="r", context=("f*",)
)


def table(**changes: Any) -> pl.DataFrame:
    """Six decisions of three users; single columns can be replaced."""
    columns: dict[str, Any] = {
        "uid": ["a", "a", "a", "b", "b", "c"],
        "ts": [0, 10, 4000, 5, 20, 7],
        "item": ["x", "y", "x", "y", "y", "x"],
        "p": [0.5, 0.5, 0.25, 0.75, 0.5, 1.0],
        "r": [0.0, 1.0, 0.0, 1.0, 1.0, 0.0],
        "f1": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "f2": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    }
    return pl.DataFrame(columns | changes)


@st.composite
def ragged_logs(draw: st.DrawFn, max_users: int = 6, max_length: int = 12) -> shpi.LoggedData:
    """Logs of ragged trajectories with sessions, masks, metrics, all endings and repeated contexts."""
    seed = draw(st.integers(0, 2**32 - 1))
    lengths = draw(st.lists(st.integers(1, max_length), min_size=1, max_size=max_users))
    masked, known_final = draw(st.booleans()), draw(st.booleans())
    text_users = draw(st.booleans())
    random = np.random.default_rng(seed)
    total, n_actions, width = sum(lengths), 4, 3
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    actions = random.integers(0, n_actions, total)
    candidates = None
    if masked:
        candidates = random.random((total, n_actions)) < 0.6
        candidates[np.arange(total), actions] = True
    times = np.concatenate([np.cumsum(random.integers(1, 50, length)) for length in lengths])
    starts = random.random(total) < 0.3
    starts[offsets[:-1]] = True
    names = (
        np.array([f"user {i:03d}" for i in range(len(lengths))]) if text_users else np.arange(len(lengths))
    )
    return shpi.LoggedData.from_arrays(
        contexts=random.integers(0, 3, (total, width)),
        actions=actions,
        rewards=random.standard_normal(total),
        propensities=random.uniform(0.05, 1.0, total),
        n_actions=n_actions,
        offsets=offsets,
        session_offsets=np.append(np.flatnonzero(starts), total),
        times=times,
        users=names,
        terminated=random.random(len(lengths)) < 0.3,
        final_contexts=random.integers(0, 3, (len(lengths), width)) if known_final else None,
        candidates=candidates,
        final_candidates=None if candidates is None else np.ones((len(lengths), n_actions), dtype=bool),
        metrics={"click": random.integers(0, 2, total)},
    )


def assert_same(log: shpi.LoggedData, other: shpi.LoggedData) -> None:
    """Equality of every array, bit for bit, types included."""
    for name, value in vars(log).items():
        twin = vars(other).get(name)
        if (
            isinstance(value, np.ndarray)
            and not name.startswith("_")
            and name in type(log).__dataclass_fields__
        ):
            assert isinstance(twin, np.ndarray), name
            assert value.dtype == twin.dtype, name
            assert value.shape == twin.shape, name
            assert value.tobytes() == twin.tobytes(), name
        elif value is None:
            assert twin is None, name
    assert log.metrics.keys() == other.metrics.keys()
    for name, values in log.metrics.items():
        assert values.tobytes() == other.metrics[name].tobytes()
    assert log.schema == other.schema
    assert log.action_space == other.action_space
    assert (log.propensity_mode, log.time_unit) == (other.propensity_mode, other.time_unit)
