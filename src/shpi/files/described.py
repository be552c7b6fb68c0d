"""Schemas (`shpi.files.schema`) of the parts of a log, as manifests and headers store them in JSON."""

from __future__ import annotations

from shpi.files.schema import Record, one_of, whole

CONTEXT_SCHEMA = [
    Record(
        {"name": str},
        {
            "kind": one_of("numeric", "boolean", "categorical"),
            "level": one_of("session", "user", "action"),
            "missing": one_of("error", "drop", "mean", "zero", "indicator"),
            "fill": float,
            "categories": [str],
        },
    )
]

ACTION_SPACE = Record(
    {"ids": [(int, str)]},
    {"feature_names": [str], "features": (None, [[float]])},
)

LEDGER = Record(
    {"rows_in": whole(), "rows_used": whole()},
    {
        "final_rows": whole(),
        "drops": [
            Record(
                {"reason": str, "rows": whole()},
                {"column": str, "example": (None, whole()), "remedy": str, "asked": bool},
            )
        ],
        "notes": [str],
        "changing": [str],
    },
)

COUNTED = Record(
    {
        "metric": {str: (None, bool, int, float, str)},
        "users": whole(),
        "observed_less": float,
        "by_hand": float,
        "by_hand_error": float,
        "by_hand_users": whole(),
    }
)
