r"""The training users of a policy, stored with it as salted hashes, so that a gate can detect them.

An evaluation on training users is biased upwards, and its interval does not show that. So every learner
attaches a `TrainingUsers` to its policy, `save_policy` writes it, `load_policy` restores it.

*Small.* At most `KEPT` hashes of 8 bytes are kept: those below a threshold, which are a random sample of the
users. With more training users an overlap of m users is found with probability 1 - (1 - KEPT/users)^m.

*Numbered users.* Simulators and arrays without ids number their users from 0, and the same number in another
log is another user. For such logs the users' first decisions are compared too, by hashes.

The salt is in the file. It prevents linking two policies by a table of hashes; someone who knows a user's id
can still test whether that user is among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shpi._core.hashing import hash_each
from shpi.errors import DataError

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

KEPT = 8192  # hashes; 128 KB in a file
FIRST_DECISIONS = 16  # of a user, that are hashed
SPARSE = 100  # ids of numbered users are below this multiple of their count, also after a split

UInt64Array = NDArray[np.uint64]
_ATTRIBUTE = "_training_users"
_PERSON = b"shpi users"


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingUsers:
    """A sample of the users that a policy was learned from, as hashes."""

    count: int  # users in all
    threshold: int  # users with hashes up to this one are kept
    hashes: UInt64Array  # [m] of the users' ids, rising
    contents: UInt64Array  # [m] of the same users' first decisions
    numbered: bool  # the ids are plain numbers, which other logs use for other users
    salt: str

    @classmethod
    def of(cls, logs: LoggedData) -> TrainingUsers:
        """The users of a log."""
        ids, first = np.unique(logs.users, return_index=True)
        salt = blake2b("\n".join(map(str, ids.tolist())).encode(), digest_size=8, person=_PERSON).hexdigest()
        hashes = hash_ids(ids, salt)
        order = np.argsort(hashes)[:KEPT]
        whole = len(order) == len(ids)
        return cls(
            count=len(ids),
            threshold=int(np.iinfo(np.uint64).max if whole else hashes[order[-1]]),
            hashes=hashes[order],
            contents=hash_decisions(logs, first[order], salt),
            numbered=are_numbered(ids),
            salt=salt,
        )


def hash_ids(ids: NDArray[Any], salt: str) -> UInt64Array:
    """A hash of each user id [U]; 7 and "7" are the same id, whatever the table's types."""
    start = blake2b(digest_size=8, salt=bytes.fromhex(salt), person=_PERSON)
    return hash_each(start, (str(user).encode() for user in ids.tolist()))


def hash_decisions(logs: LoggedData, trajectories: NDArray[np.int64], salt: str) -> UInt64Array:
    """A hash of the first decisions, contexts and actions, of each given trajectory [m]."""
    start = blake2b(digest_size=8, salt=bytes.fromhex(salt), person=_PERSON)
    begins, ends = logs.offsets[trajectories], logs.offsets[trajectories + 1]
    first = map(slice, begins, np.minimum(begins + FIRST_DECISIONS, ends))
    return hash_each(start, (logs.contexts[r].tobytes() + logs.actions[r].tobytes() for r in first))


def are_numbered(ids: NDArray[Any]) -> bool:
    """Whether ids are counted up from about 0, or a sample of such."""
    return bool(ids.dtype.kind in "iu" and ids.min() >= 0 and ids.max() < SPARSE * len(ids))


# ---------------------------------------------------------------------- on a policy


def remember(policy: Any, *users: TrainingUsers) -> None:
    """Attach the users to a policy, and to a wrapped policy that was learned from them."""
    learned = getattr(policy, "learned_form", None)
    for thing in (policy, learned):
        if thing is not None and hasattr(thing, "__dict__"):
            object.__setattr__(thing, _ATTRIBUTE, users)


def training_users(policy: Any) -> tuple[TrainingUsers, ...]:
    """The users that a policy, or else its parts, was learned from; empty if unknown."""
    known: list[TrainingUsers] = [*getattr(policy, _ATTRIBUTE, ())]
    if not known and is_dataclass(policy) and not isinstance(policy, type):
        for item in fields(policy):
            value = getattr(policy, item.name, None)
            for part in value if isinstance(value, tuple) else (value,):
                known += training_users(part) if is_dataclass(part) else ()
    return tuple({users.salt: users for users in known}.values())


# ---------------------------------------------------------------------- in a file


def users_to_file(policy: Any) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """The manifest's entry about a policy's training users, and the arrays beside it."""
    described, arrays = [], {}
    for number, users in enumerate(training_users(policy)):
        described.append(
            {
                "users": users.count,
                "threshold": f"{users.threshold:016x}",
                "numbered": users.numbered,
                "salt": users.salt,
            }
        )
        arrays[f"training_users/{number}/hashes"] = users.hashes
        arrays[f"training_users/{number}/contents"] = users.contents
    return described, arrays


def users_from_file(policy: Any, described: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Restore what `users_to_file` wrote; without it the training users are unknown."""
    if not described:
        return
    groups = []
    for number, group in enumerate(described):
        place = f"training_users/{number}"
        try:
            hashes, contents = arrays[f"{place}/hashes"], arrays[f"{place}/contents"]
        except KeyError as error:
            raise DataError(expected="the hashes of the training users", found=f"none: {error}") from None
        try:
            users = TrainingUsers(
                count=int(group["users"]),
                threshold=int(group["threshold"], 16),
                hashes=np.asarray(hashes, dtype=np.uint64),
                contents=np.asarray(contents, dtype=np.uint64),
                numbered=bool(group["numbered"]),
                salt=str(group["salt"]),
            )
            bytes.fromhex(users.salt)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                expected="a description of the training users", found=repr(error), where="manifest"
            ) from None
        if users.hashes.ndim != 1 or users.hashes.shape != users.contents.shape:
            raise DataError(
                expected="one hash of decisions for each hash of a training user",
                found=f"shapes {users.contents.shape} and {users.hashes.shape}",
                where="manifest",
            )
        groups.append(users)
    remember(policy, *groups)
