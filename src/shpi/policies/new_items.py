"""New items, which the log has never shown: scored by their features (cold start).

A linear scorer has one row of weights per item. These rows are regressed on the features of the known items,
and the regression predicts the row of a new item. So a new item is treated like known items with similar
features; its individual effect is unknown until it has been shown.

Policies that stay close to mu need a mu for the new items too: with probability ``explore`` it picks one of
them at random. An evaluation of such a policy on the old log does not cover the new items.
"""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import numpy as np

from shpi.data.actions import ActionSpace
from shpi.errors import ConfigError
from shpi.features.parts import saveable
from shpi.policies.base import PolicyMethods
from shpi.policies.items import Items, as_table, with_items
from shpi.policies.plain import ConstantPolicy, Mixture, UniformPolicy
from shpi.policies.sampling import check_candidates
from shpi.policies.scorers import LinearScorer
from shpi.policies.training_users import remember, training_users
from shpi.protocols import BoolArray, Float64Array, FloatArray, Policy

RIDGE = 1e-2  # in standardised item features: more features than items must not blow up


@saveable("policies/padded")
@dataclass(frozen=True, eq=False, repr=False)
class Padded(PolicyMethods):
    """A policy with additional actions, which it takes only if nothing else is allowed."""

    policy: Policy
    further: int

    @property
    def n_actions(self) -> int:
        """|A|, with the further ones."""
        return self.policy.n_actions + self.further

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """The policy's probabilities, and zeros; uniform where only further actions are allowed."""
        beside = ((0, 0), (0, self.further))
        allowed = check_candidates(candidates, len(contexts), self.n_actions)
        if allowed is None:
            return np.pad(self.policy.action_probs(contexts), beside)
        mask = allowed[:, : self.policy.n_actions]
        able = mask.any(axis=1, keepdims=True)  # [n, 1]
        padded = np.pad(self.policy.action_probs(contexts, mask | ~able), beside)
        chosen: Float64Array = np.where(able, padded, allowed / allowed.sum(axis=1, keepdims=True))
        return chosen


def add_items(policy: Policy, new: Any, *, explore: float = 0.05, item: str = "item") -> Policy:
    """The policy over its own items and new ones.

    Args:
        policy: one that knows its items and their features (`LoggedData.read(…, action_features=…)`).
        new: a table with one row per new item: its id, and the features that the known items have.
        explore: probability with which mu picks a new item, for policies that stay close to mu.
        item: the column of the id.
    """
    if not 0 <= explore <= 1:
        raise ConfigError(expected="explore in [0, 1]", found=str(explore), where="add_items")
    known = _known(policy)
    space, features = _enlarged(known.actions, as_table(new), item)
    further = len(space) - policy.n_actions
    assert space.features is not None
    rows = _rows(space.features[: policy.n_actions], features)
    larger = _larger(policy, rows, further, explore)
    remember(larger, *training_users(policy))
    return with_items(larger, schema=known.schema, actions=space)


def _known(policy: Policy) -> Items:
    items: Items | None = getattr(policy, "items", None)
    if items is None or items.actions is None or items.actions.features is None:
        raise ConfigError(
            expected="a policy that knows the features of its items",
            found="one that does not",
            where="add_items",
            remedy="name a table of item features when you read the log: action_features in the column map",
        )
    return items


def _enlarged(known: Any, table: Any, item: str) -> tuple[ActionSpace, Float64Array]:
    absent = [name for name in (item, *known.feature_names) if name not in table.columns]
    if absent:
        raise ConfigError(
            expected=f"new items with the columns {', '.join((item, *known.feature_names))}",
            found=f"a table without {', '.join(absent)}",
            where="add_items",
        )
    features = table.select(known.feature_names).to_numpy().astype(np.float64)  # [new, m]
    space = ActionSpace(
        ids=(*known.ids, *table[item].to_list()),
        features=np.concatenate([known.features, features]),
        feature_names=known.feature_names,
    )
    return space, features


def _rows(known: Float64Array, new: Float64Array) -> Float64Array:
    """The weight of each known item's row in that of a new one, [new, A]: ridge regression on features."""
    center, spread = known.mean(axis=0), known.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)

    def design(features: Float64Array) -> Float64Array:
        return np.concatenate([np.ones((len(features), 1)), (features - center) / scale], axis=1)

    z = design(known)
    penalty = RIDGE * np.diag([0.0] + [1.0] * known.shape[1])  # the mean row is not penalised
    counts: Float64Array = design(new) @ np.linalg.solve(z.T @ z + penalty, z.T)
    return counts


def _larger(policy: Any, rows: Float64Array, further: int, explore: float) -> Policy:
    policy = getattr(policy, "saved_form", policy)
    if isinstance(policy, UniformPolicy):
        return UniformPolicy(policy.n_actions + further)
    if isinstance(policy, Mixture):
        return Mixture(
            [_larger(component, rows, further, explore) for component in policy.policies], policy.weights
        )
    scorer = getattr(policy, "scorer", None)
    if scorer is None:
        return _exploring(policy, further, explore)
    if not isinstance(scorer, LinearScorer) or not is_dataclass(policy) or hasattr(policy, "support"):
        raise ConfigError(
            expected="a policy over a linear score, for new items",
            found=f"{type(policy).__name__} over {type(scorer).__name__}",
            where="add_items",
            remedy="learn with SHPI, or with a bandit of support=None, and the oracle 'ridge'",
        )
    weights = np.concatenate([scorer.weights, rows @ scorer.weights])
    changes: dict[str, Any] = {"scorer": LinearScorer(weights, scorer.features)}
    if hasattr(policy, "mu"):
        changes["mu"] = _exploring(policy.mu, further, explore)
    copy: Any = replace
    larger: Policy = copy(policy, **changes)
    return larger


def _exploring(mu: Policy, further: int, explore: float) -> Mixture:
    """mu, which picks one of the new items with a small probability."""
    fresh = np.concatenate([np.zeros(mu.n_actions), np.full(further, 1 / further)])
    return Mixture((Padded(mu, further), ConstantPolicy(fresh)), (1 - explore, explore))
