"""The two small interfaces that every room agrees on: a policy, and a simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # the data room stands above this one, and is only needed for annotations
    from shpi.data.logged import LoggedData

FloatArray = NDArray[np.floating[Any]]
Float64Array = NDArray[np.float64]
Float32Array = NDArray[np.float32]
IntArray = NDArray[np.integer[Any]]
Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@runtime_checkable
class Policy(Protocol):
    """A map from contexts to distributions over actions."""

    @property
    def n_actions(self) -> int:
        """|A|, the number of actions."""
        ...

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """pi(a|x): contexts [n, d] and a mask [n, A] (True = allowed) to probabilities [n, A]."""
        ...


class Step(NamedTuple):
    """What one decision for each of n users brings."""

    contexts: FloatArray  # [n, d] what the next decision sees
    rewards: Float64Array  # [n]
    ended: BoolArray  # [n] the user is gone for good (terminated); stays True from then on
    info: dict[str, Any]  # arrays [n] by name: "session_end" (bool), further metrics such as "click"


class Simulator(Protocol):
    """Many users that advance together. User i depends on (seed, first + i) alone, not on the batch."""

    @property
    def name(self) -> str:
        """The registered name, e.g. ``synthetic``."""
        ...

    @property
    def n_actions(self) -> int:
        """|A|, the number of actions."""
        ...

    @property
    def context_names(self) -> tuple[str, ...]:
        """One name per context dimension."""
        ...

    @property
    def horizon(self) -> int:
        """T, the number of decisions after which a rollout is truncated."""
        ...

    def reset(self, n: int, seed: int, *, first: int = 0) -> FloatArray:
        """Start users first .. first+n-1 and return their contexts [n, d]."""
        ...

    def step(self, actions: IntArray) -> Step:
        """Let one decision [n] take effect for every user."""
        ...

    def candidates(self) -> BoolArray | None:
        """The mask [n, A] of the actions allowed now, or None when all always are."""
        ...

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        """The log of n users under ``policy``, with its propensities."""
        ...
