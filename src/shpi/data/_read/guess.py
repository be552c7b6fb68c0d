"""A first guess of the column map from the names of the columns, for a user to correct.

A context may only hold what was known before the decision. A column named like an outcome (`purchased`,
`opened_at`) reveals the future, and a column named like an id reveals nothing: neither goes into the context.
An outcome becomes a metric, which a gate can guard; a name with a word for the past (`hist_clicks`,
`days_since_purchase`, `clicks_7d`) is a feature after all.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

_HINTS: dict[str, tuple[str, ...]] = {
    "user": ("userid", "uid", "u id", "mdp id"),
    "time": (
        "time", "timestamp", "ts", "time ms", "event time", "event timestamp", "sent at", "shown at",
        "served at", "displayed at", "decided at", "impression time", "date", "datetime", "created at",
        "day", "logged at", "occurred at", "at", "utime", "unix time",
    ),
    "order": ("order", "seq", "sequence", "sequence number", "event seq", "step", "decision id", "t"),
    "session": ("session", "session id", "sid", "visit", "visit id"),
    "action": (
        "action", "item", "item id", "itemid", "action id", "arm", "arm id", "product", "product id", "sku",
        "video id", "article", "article id", "news id", "content id", "template", "template id", "variant",
        "message", "message id", "campaign", "campaign id", "creative", "offer", "offer id", "treatment",
        "chosen action", "reward action id", "recommendation", "recommended item", "shown item", "shown",
        "subject", "banner", "ad", "ad id", "creative id", "coupon", "promotion", "song", "track", "track id",
        "movie", "movie id", "video", "a",
    ),
    "propensity": (
        "propensity", "p", "prob", "probability", "pscore", "propensity score", "action probability", "ps",
        "logged probability", "action prob", "prob chosen",
    ),
    "reward": (
        "reward", "r", "ltr", "click", "clicked", "is click", "clicks", "conversion", "converted", "purchase",
        "purchased", "label", "y", "revenue", "outcome", "response", "rating",
    ),
    "candidates": ("candidates", "eligible", "possible actions", "available", "slate", "candidate ids"),
    "terminated": ("terminated", "terminal", "churned", "left"),
    "truncated": ("truncated", "timeout"),
}  # fmt: skip


def _vocabulary(words: str) -> frozenset[str]:
    return frozenset(words.split())


OUTCOMES = _vocabulary(
    "click clicks clicked clickthrough purchase purchases purchased bought buy buys ordered open "
    "opens opened close closed convert converted conversion conversions revenue sale sales sold "
    "spend spent reward rewards label like liked likes share shared follow followed dwell watch "
    "watched watchtime play played complete completed completion finish finished returned churn "
    "churned unsubscribe unsubscribed dismiss dismissed bounce bounced rating rated response "
    "responded outcome outcomes target ltv ltr read added checkout paid signup subscribed installed "
    "uninstalled complained complaint complaints"
)
PAST = _vocabulary(
    "hist history historical prev previous past last before prior ago avg average mean median rate "
    "ratio ctr cvr since lifetime total count num n cum cumulative days weeks months recent ever "
    "first usual typical far already"
)
PEOPLE = _vocabulary(
    "user users customer visitor member account client subscriber player patient shopper guest viewer "
    "listener reader buyer student learner driver passenger household cookie participant person"
)
_SPAN = re.compile(r"\d+(d|h|m|w|day|days|week|weeks|month|months)?$")
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+[a-z]*")
_IDS = frozenset(("id", "ids", "uuid", "guid", "hash", "key", "email", "url", "token", "ip", "phone"))
_NUMBERS = frozenset(("no", "nr", "number", "num"))
_TIMES = frozenset(("at", "time", "timestamp", "ts", "date", "datetime", "on"))


def words_of(name: str) -> list[str]:
    """The words of a name: ``purchasedAt``, ``purchased_at`` and ``Purchased at`` are the same."""
    return [word.lower() for word in _WORDS.findall(name)]


def is_outcome(name: str) -> bool:
    """Whether a column is named like something that is known only after the decision."""
    words = words_of(name)
    past = any(word in PAST or _SPAN.fullmatch(word) for word in words)
    return not past and any(word in OUTCOMES for word in words)


def is_id(name: str) -> bool:
    """Whether a column is named like an id, whose values hardly repeat and teach nothing."""
    words = words_of(name)
    return bool(words) and (words[-1] in _IDS or words[0] in ("uuid", "guid"))


def is_person(name: str) -> bool:
    """Whether a column is named after people: ``Player``, ``customer_no``, ``context.user.id``."""
    words = [
        word for word in words_of(name) if word not in _IDS and word not in ("no", "nr", "number", "num")
    ]
    return bool(words) and words[-1] in PEOPLE


def guess_columns(
    names: Sequence[str], types: Mapping[str, Any] | None = None, scattered: Container[str] = ()
) -> str:
    """The map as TOML text: roles that could be guessed, outcomes as metrics, other columns as context.

    Args:
        names: names of the columns.
        types: polars types of the columns by name, if known: a metric must be a number.
        scattered: text columns whose values hardly repeat; they are ids whatever their name.
    """
    spelt: dict[str, str] = {}
    for name in names:
        for form in _forms(name):
            spelt.setdefault(form, name)
    lines: list[str] = []
    taken: set[str] = set()
    for role, hints in _HINTS.items():
        hit = next((spelt[hint] for hint in hints if hint in spelt and spelt[hint] not in taken), None)
        if hit is None and role in ("time", "user"):
            hit = _by_ending(role, [name for name in names if name not in taken])
        if hit is not None:
            taken.add(hit)
            lines.append(f'{role} = "{_escaped(hit)}"')
        elif role in ("user", "time", "action"):
            lines.append(f'# {role} = "…"')
    rest = [name for name in names if name not in taken]
    outcomes = [name for name in rest if is_outcome(name)]
    metrics = [name for name in outcomes if _countable(name, types)]
    useless = [name for name in rest if is_id(name) or name in scattered]
    left_out = [name for name in rest if name not in metrics and (name in outcomes or name in useless)]
    if metrics:
        lines.append(f"metrics = {_listed(metrics)}")
    if left_out:
        lines.append(f"# left out, since they look like ids or like what came later: {', '.join(left_out)}")
    context = [name for name in rest if name not in metrics and name not in left_out]
    lines.append(f"context = {_listed(context)}")
    return "\n".join(lines)


def _forms(name: str) -> tuple[str, ...]:
    """The spellings of a name that hints are compared with: ``User.id`` matches a user id."""
    words = words_of(name)
    return (name.lower(), " ".join(words), "".join(words))


def _by_ending(role: str, names: Sequence[str]) -> str | None:
    """Names such as ``push_sent_at`` or ``Player``, if no hint fits exactly."""
    for name in names:
        words = words_of(name)
        if not words or is_outcome(name):
            continue
        if role == "time" and words[-1] in _TIMES and not any(word in PAST for word in words):
            return name
        if role == "user" and is_person(name):
            return name
    return None


def _countable(name: str, types: Mapping[str, Any] | None) -> bool:
    if types is None:
        return words_of(name)[-1] not in _TIMES
    dtype = types[name]
    return bool(dtype.is_numeric()) or str(dtype) == "Boolean"


def _listed(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{_escaped(name)}"' for name in names) + "]"


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')
