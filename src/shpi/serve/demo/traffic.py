"""The shop's customers, who send requests to a service over HTTP, day by simulated day."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from shpi.protocols import Float64Array, Int64Array
from shpi.serve.demo.shop import ITEMS, VISIT, Shop

DAY = 86_400.0  # seconds
_BATCH = 500  # customers per request


class Batches(Protocol):
    """What requests are sent to: `shpi.serve.Client`, or anything with the same ``batch``."""

    def batch(self, rank: Any = (), activate: Any = (), reward: Any = ()) -> dict[str, list[dict[str, Any]]]:
        """See `shpi.serve.Client.batch`."""
        ...


@dataclass
class Traffic:
    """Customers who arrive every day, click, and come back depending on their mood.

    Args:
        shop: the simulated shop.
        arrivals: new customers per day.
        start: start of the first day, in seconds since 1970.
        seed: random seed.
        name: prefix of the customers' names.
    """

    shop: Shop
    arrivals: int = 200
    start: float = 1.8e9
    seed: int = 0
    name: str = "c"
    day: int = 0
    clicks: int = 0
    decisions: int = 0
    segments: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    moods: Float64Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def run_day(self, client: Batches) -> int:
        """Send all visits of a day and return the number of clicks."""
        rng = self._rng
        back = self.shop.visits(self.moods, rng.random(len(self.moods)))
        self.segments = np.append(self.segments, rng.integers(0, 3, self.arrivals))
        self.moods = np.append(self.moods, np.full(self.arrivals, 0.4))
        customers = np.flatnonzero(np.append(back, np.ones(self.arrivals, dtype=bool)))
        moments = self.start + self.day * DAY + rng.random(len(customers)) * 0.6 * DAY
        order = np.argsort(moments)
        before, customers, moments = self.clicks, customers[order], moments[order]
        for first in range(0, len(customers), _BATCH):
            batch = slice(first, first + _BATCH)
            self._visit(client, customers[batch], moments[batch])
        self.day += 1
        return self.clicks - before

    def _visit(self, client: Batches, customers: Int64Array, moments: Float64Array) -> None:
        segments, rng = self.segments[customers], self._rng
        for place in range(VISIT):
            times = moments + 30 * place
            contexts = self.shop.contexts(segments, self.moods[customers], place)
            ranks = [
                {"user": f"{self.name}{who}", "context": context, "candidates": list(ITEMS), "time": when}
                for who, context, when in zip(customers.tolist(), contexts, times.tolist(), strict=True)
            ]
            answers = [_answer(answer) for answer in client.batch(rank=ranks)["rank"]]
            actions = np.array([ITEMS.index(answer["action"]) for answer in answers])
            clicked = rng.random(len(actions)) < self.shop.click_chances(segments, actions, self.day)
            rewards = [
                {"event_id": answer["event_id"], "value": 1.0, "at": when + 10}
                for answer, when, hit in zip(answers, times.tolist(), clicked, strict=True)
                if hit
            ]
            if rewards:
                for answer in client.batch(reward=rewards)["reward"]:
                    _answer(answer)
            self.moods[customers] = self.shop.moods_after(segments, self.moods[customers], actions, self.day)
            self.clicks += int(clicked.sum())
            self.decisions += len(actions)


def _answer(entry: dict[str, Any]) -> dict[str, Any]:
    if entry["status"] != 200:
        raise RuntimeError(f"the service refused a request of the shop: {entry}")
    answer: dict[str, Any] = entry["answer"]
    return answer
