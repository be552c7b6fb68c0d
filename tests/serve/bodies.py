"""A service with a learned champion, and bodies of any kind to send to it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema
from shpi.policies import save_policy
from shpi.serve.loop.control import Control
from shpi.serve.service import prepare
from tests.serve.policies import policies

ITEMS = ["tea", "coffee", "milk"]
NAMES = ["a", "b", "c", "d", "e"]
CONTEXT = dict(zip(NAMES, [1.0, 2.0, 0.5, 4.0, -1.0], strict=True))


def with_champion(folder: Path, name: str = "tilted") -> None:
    """A service whose champion is a learned policy."""
    folder.mkdir(parents=True, exist_ok=True)
    prepare(folder)
    save_policy(
        policies()[name],
        folder / "policies" / "p1",
        schema=ContextSchema.numeric(NAMES),
        actions=ActionSpace(ids=tuple(f"i{n}" for n in range(7))),
    )
    control = Control.read(folder)
    control.with_canary("p1", "test", 1).promoted("test", 2).write(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = {
    "user": st.text(min_size=1, max_size=5) | JSON,
    "event_id": st.sampled_from(["a", "b", "c"]) | JSON,
    "session": JSON,
    "previous": JSON,
    "time": st.floats() | JSON,
    "context": st.fixed_dictionaries({name: st.floats() | JSON for name in NAMES}) | JSON,
    "candidates": st.lists(st.sampled_from(["i0", "i1", "new"]) | JSON, max_size=4) | JSON,
    "exclude": st.lists(st.sampled_from(["i0", "i1"])) | JSON,
    "defer": st.booleans() | JSON,
    "value": st.floats() | JSON,
    "reward_id": JSON,
    "name": JSON,
    "at": JSON,
}
BODIES = st.fixed_dictionaries({}, optional=FIELDS) | JSON
