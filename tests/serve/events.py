"""Records for tests."""

from __future__ import annotations

import numpy as np

from shpi.serve.store import Decision, Reward
from shpi.serve.store.records import digest_of


def decision(number: int, *, user: str = "u", body: bytes = b"{}") -> Decision:
    return Decision(
        event_id=f"e{number}",
        digest=digest_of(body),
        user=user,
        session=None,
        previous=None,
        time=1_700_000_000_000_000 + number,
        seq=number,
        context=body,
        items=["a", "b"],
        probs=np.array([0.25, 0.75]).tobytes(),
        place=1,
        policy="p",
        arm="champion",
        uniform=0.5,
    )


def reward(number: int, *, value: float = 1.0, reward_id: str = "r", name: str = "reward") -> Reward:
    return Reward(
        event_id=f"e{number}",
        name=name,
        reward_id=reward_id,
        value=value,
        time=1_700_000_000_000_500 + number,
        digest=digest_of(str(value).encode()),
    )
