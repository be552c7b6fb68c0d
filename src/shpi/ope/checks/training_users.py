"""Check whether the policy is evaluated on users that it was trained on.

Any user in common is fatal: the estimates are then biased upwards, by an unknown amount. Ids of real users
are compared directly. If users are merely numbered (simulators, arrays without ids), equal numbers may be
different users; they count as the same only if their first decisions agree more often than by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from shpi._core.distributions import binomial_tail
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Diagnostic, Severity
from shpi.policies.training_users import (
    TrainingUsers,
    are_numbered,
    hash_decisions,
    hash_ids,
    training_users,
)

CHANCE = 1e-4  # significance level at which numbered users with equal decisions count as the same users
NAME = "training users"


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Counts of users that a log shares with the training users; the chunks of a log add up."""

    compared: int = 0  # users of the log whose hash is below the sample's threshold
    same_id: int = 0  # of these, users with the id of a training user
    same_decisions: int = 0  # of those with the same id, users with the same first decisions
    by_chance: int = 0  # of those with the same id, users with the first decisions of another of them
    numbered: bool = True  # ids are mere numbers, in the log and in training

    def __add__(self, other: Shared) -> Shared:
        return Shared(
            compared=self.compared + other.compared,
            same_id=self.same_id + other.same_id,
            same_decisions=self.same_decisions + other.same_decisions,
            by_chance=self.by_chance + other.by_chance,
            numbered=self.numbered and other.numbered,
        )

    @property
    def beyond_chance(self) -> bool:
        """Whether some of these users are the same, beyond chance."""
        if self.same_id == 0:
            return False
        if not self.numbered:
            return True
        chance = min((self.by_chance + 1) / (self.same_id + 1), 1.0)
        return bool(binomial_tail(self.same_decisions - 1, self.same_id, chance) < CHANCE)


def about_training_users(problem: Problem) -> list[Diagnostic]:
    """One diagnostic if the policy carries a sample of its training users, else none."""
    known = training_users(problem.policy)
    if not known:
        return []
    in_common = problem.total(partial(_in_common, known=known), _added)
    shared = max(in_common, key=lambda shared: (shared.beyond_chance, shared.same_id))
    severity: Severity = "fine"
    sentence = f"None of {shared.compared:,} compared users is one that the policy was learned from."
    share = shared.same_id / max(shared.compared, 1)
    if shared.beyond_chance:
        severity = "fatal"
        sentence = (
            f"{share:.1%} of the users of this log are users that the policy was learned from "
            f"({shared.same_id:,} of {shared.compared:,} compared): its estimate is too optimistic. "
            "Learn from some users and evaluate on others (logs.split_users)."
        )
    elif shared.same_id:
        severity = "note"
        sentence = (
            f"{shared.same_id:,} users have the id of a training user but other decisions, and "
            "count as different users."
        )
    return [Diagnostic(name=NAME, severity=severity, sentence=sentence, figure=share, threshold=0.0)]


def _in_common(chunk: Chunk, known: Sequence[TrainingUsers]) -> list[Shared]:
    """Compare the users of a chunk with those of every training log."""
    logs, counts = chunk.raw, []
    ids, first = np.unique(logs.users, return_index=True)
    for trained in known:
        hashes = hash_ids(ids, trained.salt)
        sampled = hashes <= np.uint64(trained.threshold)
        place = np.searchsorted(trained.hashes, hashes[sampled])
        place = np.minimum(place, len(trained.hashes) - 1)
        same = trained.hashes[place] == hashes[sampled]
        contents = hash_decisions(logs, first[sampled][same], trained.salt)
        remembered = trained.contents[place[same]]
        counts.append(
            Shared(
                compared=int(sampled.sum()),
                same_id=int(same.sum()),
                same_decisions=int(np.sum(contents == remembered)),
                by_chance=int(np.sum(contents == np.roll(remembered, 1))) if len(contents) > 1 else 0,
                numbered=trained.numbered and are_numbered(ids),
            )
        )
    return counts


def _added(left: list[Shared], right: list[Shared]) -> list[Shared]:
    return [a + b for a, b in zip(left, right, strict=True)]
