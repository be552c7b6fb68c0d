"""A first guess of the column map from the names of the columns, for a user to correct."""

from __future__ import annotations

from collections.abc import Sequence

_HINTS: dict[str, tuple[str, ...]] = {
    "user": ("user", "user_id", "userid", "uid", "customer", "customer_id", "visitor", "member_id", "mdp_id"),
    "time": ("time", "timestamp", "ts", "time_ms", "event_time", "date", "datetime", "created_at"),
    "order": ("order", "seq", "sequence_number", "event_seq", "step", "decision_id", "t"),
    "session": ("session", "session_id", "sid"),
    "action": ("action", "item", "item_id", "action_id", "arm", "product_id", "video_id", "article_id", "a"),
    "propensity": ("propensity", "p", "prob", "pscore", "propensity_score", "action_probability", "ps"),
    "reward": ("reward", "r", "click", "clicked", "is_click", "ltr", "conversion", "label", "y"),
    "candidates": ("candidates", "eligible", "possible_actions", "available"),
    "terminated": ("terminated", "terminal", "churned"),
    "truncated": ("truncated", "timeout"),
}


def guess_columns(names: Sequence[str]) -> str:
    """A TOML text: roles whose column could be guessed, the rest as context."""
    by_lower = {name.lower(): name for name in names}
    lines: list[str] = []
    taken: set[str] = set()
    for role, hints in _HINTS.items():
        hit = next(
            (by_lower[hint] for hint in hints if hint in by_lower and by_lower[hint] not in taken), None
        )
        if hit is not None:
            taken.add(hit)
            lines.append(f'{role} = "{hit}"')
        elif role in ("user", "time", "action"):
            lines.append(f'# {role} = "…"')
    rest = [name for name in names if name not in taken]
    lines.append("context = [" + ", ".join(f'"{name}"' for name in rest) + "]")
    return "\n".join(lines)
