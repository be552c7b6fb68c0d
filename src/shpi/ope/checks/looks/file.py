"""A small JSON file that records each evaluation ("look") of a policy on a log, and the lift that it found.

    {"format": "shpi-looks", "version": 1, "planned_users": 2000, "confidence": 0.95,
     "looks": [{"policy": "…", "log": "…", "fingerprint": "…", "users": 312, "lift": 0.01}]}

A growing log is recognised by its first time, its actions and its columns. Evaluating the same table twice is
one look.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import ConfigError, DataError
from shpi.files.atomic import write_text
from shpi.ope.results import Diagnostic, Evaluation, Severity
from shpi.protocols import Policy

if TYPE_CHECKING:
    from shpi.ope.gate import Gate

FORMAT, VERSION = "shpi-looks", 1


@dataclass(frozen=True, kw_only=True)
class Look:
    """One evaluation."""

    policy: str  # digest of the policy
    log: str  # digest of what stays the same while a log grows
    fingerprint: str  # digest of the log at this look
    users: int
    lift: float


@dataclass(frozen=True, kw_only=True)
class Looks:
    """All looks in a file. Immutable."""

    looks: tuple[Look, ...] = ()
    planned_users: int | None = None  # plan of the anytime bounds; None: no anytime look yet
    confidence: float | None = None  # confidence of the anytime bounds

    @classmethod
    def read(cls, path: Path) -> Looks:
        """Read the file; no looks if it does not exist yet."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        except (UnicodeDecodeError, json.JSONDecodeError, OSError) as error:
            raise DataError(expected="a file of looks in JSON", found=str(error), where=str(path)) from None
        fine = isinstance(content, Mapping) and (content.get("format"), content.get("version")) == (
            FORMAT,
            VERSION,
        )
        try:
            if not fine:
                raise ValueError(f"no file of format {FORMAT}, version {VERSION}")
            looks = tuple(Look(**look) for look in content["looks"])
            planned, confidence = content["planned_users"], content["confidence"]
            numbers = [
                planned,
                confidence,
                *(number for look in looks for number in (look.users, look.lift)),
            ]
            if not all(number is None or isinstance(number, int | float) for number in numbers):
                raise TypeError("numbers that are none")
            return cls(looks=looks, planned_users=planned, confidence=confidence)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                expected="a file that shpi evaluate wrote",
                found=f"{type(error).__name__}: {error}",
                where=str(path),
                remedy="give another file, or remove this one: the looks then start anew",
            ) from None


def digest_of(policy: Any) -> str:
    """A digest of a policy's parameters; for a policy of a foreign class, the name of the class."""
    from shpi.features.parts import take_apart

    digest = hashlib.blake2b(digest_size=8)
    try:
        stack = [take_apart(policy)]
    except ConfigError:  # a policy class that this package cannot take apart
        return f"{type(policy).__module__}.{type(policy).__qualname__}"
    while stack:
        parts = stack.pop()
        digest.update(repr((parts.kind, sorted(parts.settings.items()))).encode())
        for name in sorted(parts.arrays):
            digest.update(name.encode() + np.ascontiguousarray(parts.arrays[name]).tobytes())
        stack += [parts.children[name] for name in sorted(parts.children)]
    return digest.hexdigest()


# ---------------------------------------------------------------------- record an evaluation as a look


def count_look(
    evaluation: Evaluation,
    policy: Policy,
    logs: LoggedData | ShardedLog,
    path: str | Path,
    *,
    gate: Gate | None = None,
) -> Evaluation:
    """Record an evaluation in a file of looks; its diagnostics then say how many looks there have been.

    Args:
        evaluation: evaluation of this policy on this log.
        policy: policy that was evaluated.
        logs: log that it was evaluated on.
        path: file of looks, created at the first look.
        gate: gate that judged; with ``anytime``, its plan must be that of the first such look.
    """
    place, head = Path(path), logs if isinstance(logs, LoggedData) else next(iter(logs))
    known = Looks.read(place)
    first = int(head.times.min()) if head.time_unit == "us" else 0
    same = repr((head.action_space.ids, head.schema.dimensions, first))  # while the log grows
    look = Look(
        policy=digest_of(policy),
        log=hashlib.blake2b(same.encode(), digest_size=8).hexdigest(),
        fingerprint=evaluation.fingerprint or f"{evaluation.users} users, {evaluation.decisions} decisions",
        users=evaluation.users,
        lift=evaluation.decisive.lift,
    )
    anytime = gate is not None and bool(gate.anytime)
    if gate is not None and anytime:
        known = _planned(known, gate, place)
    looks = (*known.looks, look)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "planned_users": known.planned_users,
        "confidence": known.confidence,
        "looks": [asdict(each) for each in looks],
    }
    write_text(place, json.dumps(content, indent=1, allow_nan=False) + "\n")
    # Looks at the same state of a log count once.
    count = len({each.fingerprint for each in looks if (each.policy, each.log) == (look.policy, look.log)})
    times = "once" if count == 1 else f"{count} times"
    sentence = f"This policy has been evaluated {times} on this log, according to the file of looks."
    severity: Severity = "fine"
    if anytime:
        sentence += " The anytime bound holds for all looks together."
    elif count > 1:
        severity = "note" if count == 2 else "warning"
        chance = min(1.0, count * (1 - (0.95 if gate is None else gate.confidence)))
        sentence += (
            f" Each look has its own chance of a false ship, together up to {chance:.0%}: use anytime=True "
            "(--anytime) to look as often as you like."
        )
    diagnostic = Diagnostic(name="looks", severity=severity, sentence=sentence, figure=float(count))
    return replace(evaluation, diagnostics=(*evaluation.diagnostics, diagnostic))


def _planned(known: Looks, gate: Gate, place: Path) -> Looks:
    """Fix the plan at the first anytime look, and refuse another plan later."""
    plan = (gate.planned_users, gate.confidence)
    if known.planned_users is None:
        return replace(known, planned_users=plan[0], confidence=plan[1])
    if (known.planned_users, known.confidence) != plan:
        raise ConfigError(
            expected=f"the plan of the first look: {known.planned_users} users at {known.confidence}",
            found=f"{plan[0]} users and confidence {plan[1]}",
            where=str(place),
            remedy="keep the plan, or start a new file with users that were never evaluated",
        )
    return known
