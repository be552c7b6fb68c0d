"""A policy for the simulated shop, made by hand: every segment its own article."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema, Feature
from shpi.features import Identity
from shpi.policies import LinearScorer, Softmax, save_policy
from shpi.serve.demo.shop import ITEMS, SEGMENTS


def save_shop_policy(path: Path, *, worst: bool = False) -> None:
    """Show the own article, or with ``worst`` what nobody wants."""
    kinds = tuple(sorted(SEGMENTS))
    schema = ContextSchema(
        features=(
            Feature(name="segment", kind="categorical", categories=kinds),
            Feature(name="mood"),
            Feature(name="place"),
        )
    )
    features = Identity().fit(np.zeros((1, schema.width)))
    weights = np.zeros((len(ITEMS), features.width))
    for column, segment in enumerate(kinds):
        weights[ITEMS.index("news" if worst else segment), 1 + column] = 4.0
    save_policy(Softmax(LinearScorer(weights, features)), path, schema=schema, actions=ActionSpace(ids=ITEMS))
