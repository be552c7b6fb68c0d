"""What every policy can do: act with a propensity, and be saved. One function each, shared by all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from shpi.features.base import check_contexts
from shpi.policies.sampling import sample_actions
from shpi.protocols import BoolArray, Float64Array, Int64Array, Policy

if TYPE_CHECKING:
    from shpi.data.actions import ActionSpace
    from shpi.data.schema import ContextSchema
    from shpi.policies.scorers import Scorer


def act(
    policy: Policy,
    contexts: ArrayLike,
    candidates: BoolArray | None = None,
    *,
    seed: int | np.random.SeedSequence,
) -> tuple[Int64Array, Float64Array]:
    """Draw one action per context, and say with which probability each was drawn.

    Decision i uses the i-th number of the seed's stream, so acting on the first rows alone gives the same
    actions for them.

    Returns:
        The actions [n] and their propensities pi(a|x) [n], ready to be logged.
    """
    x = check_contexts(contexts)
    probs = policy.action_probs(x, candidates)
    actions = sample_actions(probs, np.random.default_rng(seed).random(len(x)))
    return actions, probs[np.arange(len(x)), actions]


class PolicyMethods:
    """The methods that follow from ``n_actions`` and ``action_probs``; a mixin without any state."""

    def act(
        self: Policy,
        contexts: ArrayLike,
        candidates: BoolArray | None = None,
        *,
        seed: int | np.random.SeedSequence,
    ) -> tuple[Int64Array, Float64Array]:
        """Actions [n] and their propensities [n]; see `shpi.policies.act`."""
        return act(self, contexts, candidates, seed=seed)

    def save(
        self: Policy,
        path: str | Path,
        *,
        schema: ContextSchema | None = None,
        actions: ActionSpace | None = None,
        notes: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write the policy to a folder; see `shpi.policies.save_policy`."""
        from shpi.policies.files import save_policy

        return save_policy(self, path, schema=schema, actions=actions, notes=notes, overwrite=overwrite)


class ScorerPolicyMethods(PolicyMethods):
    """The same for a policy that acts on one ``scorer``."""

    scorer: Scorer

    @property
    def n_actions(self) -> int:
        """|A|."""
        return self.scorer.n_actions

    @property
    def width(self) -> int | None:
        """The width d of a context."""
        return self.scorer.width
