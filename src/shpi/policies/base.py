"""Methods that every policy shares: act with a propensity, and save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shpi.features.base import check_contexts
from shpi.policies.items import Items, is_table
from shpi.policies.sampling import sample_actions
from shpi.protocols import BoolArray, Float64Array, Policy

if TYPE_CHECKING:
    from shpi.data.actions import ActionSpace
    from shpi.data.schema import ContextSchema
    from shpi.policies.scorers import Scorer


def act(
    policy: Policy,
    contexts: ArrayLike | Any,
    candidates: BoolArray | Sequence[Sequence[int | str]] | None = None,
    *,
    seed: int | np.random.SeedSequence,
) -> tuple[NDArray[Any], Float64Array]:
    """Draw one action per context, and return its propensity.

    Decision i uses the i-th number of the seed's stream, so acting on the first rows alone gives the same
    actions for them.

    Args:
        policy: the policy that acts.
        contexts: numbers [n, d]; or rows with named columns (a polars or pandas table, a list of records),
            where the policy knows the columns of its log.
        candidates: the allowed actions: a mask [n, A], or with a table a list of item ids per row.
        seed: random seed.

    Returns:
        The actions [n] and their propensities pi(a|x) [n], ready to be logged. Numbers give positions 0..A-1,
        rows give item ids.
    """
    items = getattr(policy, "items", None) or Items()
    rows = is_table(contexts)
    x = check_contexts(items.contexts(contexts) if rows else contexts)
    mask = candidates if candidates is None else items.mask(candidates, len(x), policy.n_actions)
    probs = policy.action_probs(x, mask)
    actions = sample_actions(probs, np.random.default_rng(seed).random(len(x)))
    return items.ids(actions) if rows else actions, probs[np.arange(len(x)), actions]


class PolicyMethods:
    """The methods that follow from ``n_actions`` and ``action_probs``."""

    items: Items | None = None  # what it knows of the log that it was learned from, see `with_items`

    def act(
        self: Policy,
        contexts: ArrayLike | Any,
        candidates: BoolArray | Sequence[Sequence[int | str]] | None = None,
        *,
        seed: int | np.random.SeedSequence,
    ) -> tuple[NDArray[Any], Float64Array]:
        """Actions [n] and their propensities [n]: item ids for a table; see `shpi.policies.act`."""
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

    def to_onnx(self: Policy, path: str | Path) -> float:
        """Write the policy as an ONNX file; see `shpi.policies.onnx.to_onnx`."""
        from shpi.policies.onnx import to_onnx

        return to_onnx(self, path)

    def __repr__(self: Policy) -> str:
        return short_repr(self)

    def _repr_html_(self: Policy) -> str:
        """The card that notebooks show."""
        from shpi.report.cards import policy_card

        return policy_card(self, short_repr(self))


def context_width(policy: Any) -> int | None:
    """The width d of a policy's contexts, its own or that of its parts; None where any will do."""
    own: int | None = getattr(policy, "width", None)
    if own is not None:
        return own
    components = [*getattr(policy, "policies", ()), getattr(policy, "policy", None)]
    widths = (context_width(component) for component in components if component is not None)
    return next((width for width in widths if width is not None), None)


def short_repr(policy: Policy) -> str:
    """One line: the kind of policy, its actions, its contexts."""
    width = getattr(policy, "width", None)
    sizes = f"{policy.n_actions} actions" + (f", {width} context dimensions" if width is not None else "")
    return f"{type(policy).__name__}({sizes})"


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
