"""One choice among candidates: mix a policy with an exploration floor, and draw an item.

    p(a|x) = (1 - floor) pi(a|x) + floor / |C|          over the candidates C of the request

The floor keeps the next log usable: every candidate has a known probability of at least floor / |C|, so the
log supports the evaluation of any other policy. An item that the policy has not learned gets its share of the
floor only; if the policy knows none of the candidates, all are equally likely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from shpi.errors import ActionError
from shpi.protocols import Float64Array
from shpi.serve.decide.batch import Batch
from shpi.serve.decide.compiled import CompiledPolicy
from shpi.serve.decide.context import ContextEncoder

Item = int | str
FLOOR = 0.05  # share of each decision that is uniform over the candidates


class Catalogue(list[Item]):
    """All items of a policy. Every record repeats them, so they are encoded for the disk only once."""

    def __init__(self, items: Sequence[Item]) -> None:
        super().__init__(items)
        self.packed = msgspec.Raw(msgspec.msgpack.encode(list(items)))


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The chosen item, and the probabilities of all candidates."""

    items: Sequence[Item]  # the candidates
    probs: Float64Array  # [C] probability of each candidate
    place: int  # index of the chosen candidate

    @property
    def action(self) -> Item:
        """The chosen item."""
        return self.items[self.place]

    @property
    def propensity(self) -> float:
        """The probability of the chosen item."""
        return float(self.probs[self.place])


def allowed(items: Sequence[Item], exclude: Sequence[Item]) -> list[Item]:
    """The candidates without the excluded ones; raises an error if none is left."""
    gone = set(exclude)
    remaining = [item for item in items if item not in gone]
    if not remaining:
        raise ActionError(
            expected="at least one candidate that is not excluded",
            found="none",
            where="candidates, exclude",
            remedy="exclude fewer items",
        )
    return remaining


def draw(probs: Float64Array, uniform: float) -> int:
    """The smallest a with u < F(a), as `shpi.policies.sample_actions`."""
    cumulative = probs.cumsum()
    cumulative /= cumulative[-1]
    return int(cumulative.searchsorted(uniform, side="right"))


def uniform_choice(items: Sequence[Item], uniform: float) -> Choice:
    """A choice in which all candidates are equally likely."""
    probs = np.full(len(items), 1.0 / len(items))
    return Choice(items, probs, draw(probs, uniform))


def first_choice(items: Sequence[Item], uniform: float, floor: float) -> Choice:
    """The caller's first candidate, mixed with the floor: the policy "apprentice"."""
    probs = np.full(len(items), floor / len(items))
    probs[0] += 1.0 - floor
    return Choice(items, probs, draw(probs, uniform))


def mixed(first: Choice, second: Choice, share: float, uniform: float) -> Choice:
    """A draw from the mixture ``share * first + (1 - share) * second`` over the same items."""
    probs = share * first.probs
    probs += (1.0 - share) * second.probs
    return Choice(first.items, probs, draw(probs, uniform))


class Chooser:
    """A policy that can be asked with item ids and a context from JSON."""

    def __init__(
        self,
        name: str,
        policy: CompiledPolicy,
        encoder: ContextEncoder | None,
        ids: Sequence[Item],
        floor: float = FLOOR,
        batch: Batch | None = None,
    ) -> None:
        """Prepare a policy.

        Args:
            name: name of the policy, for the log.
            policy: the compiled policy.
            encoder: encodes contexts; None for a policy that ignores them.
            ids: item ids of the actions 0..A-1.
            floor: exploration floor.
            batch: the same policy for several contexts at once, if it has such a form.
        """
        self.name, self.policy, self.encoder, self.floor = name, policy, encoder, floor
        self.ids = Catalogue(ids)
        self.batch = None if encoder is None else batch
        # A caller may spell the id 7 as "7".
        places: dict[Item, int] = {str(item): place for place, item in enumerate(self.ids)}
        places |= {item: place for place, item in enumerate(self.ids)}
        self._places = places

    def encode(self, context: Mapping[str, Any]) -> Float64Array:
        """The context as the policy sees it."""
        return _NOTHING if self.encoder is None else self.encoder.encode(context)

    def choose(
        self,
        context: Mapping[str, Any],
        items: Sequence[Item] | None,
        uniform: float,
        floor: float | None = None,
    ) -> Choice:
        """A choice among the items, or among all items of the policy if None."""
        floor = self.floor if floor is None else floor
        x = self.encode(context)
        if items is None:
            probs = self.policy.probs_at(x, None) * (1.0 - floor)
            probs += floor / len(probs)
            return Choice(self.ids, probs, draw(probs, uniform))
        places = self._places
        known = [(place, places[item]) for place, item in enumerate(items) if item in places]
        if not known:
            return uniform_choice(items, uniform)
        mask = np.zeros(self.policy.n_actions, dtype=bool)
        here, there = (list(places) for places in zip(*known, strict=True))
        mask[there] = True
        probs = np.full(len(items), floor / len(items))
        probs[here] += (1.0 - floor) * self.policy.probs_at(x, mask)[there]
        return Choice(items, probs, draw(probs, uniform))

    def choose_each(
        self, contexts: Sequence[bytes], uniforms: Sequence[float]
    ) -> tuple[Float64Array, list[int]] | None:
        """For each context in JSON, the probabilities of all items [n, A] and the index of the drawn one.

        None if the contexts must be decided one by one.
        """
        if self.batch is None or self.encoder is None:
            return None
        x = self.encoder.encode_each(contexts)
        if x is None:
            return None
        probs = self.batch(x)
        probs *= 1.0 - self.floor
        probs += self.floor / probs.shape[1]
        cumulative = probs.cumsum(axis=1)
        bounds = np.array(uniforms)[:, None] * cumulative[:, -1:]
        return probs, np.add.reduce(cumulative <= bounds, axis=1).tolist()


_NOTHING = np.zeros(1)
