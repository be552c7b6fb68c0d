"""The canonical file: one Parquet file that opens without a column map, bit for bit as it was written.

Decisions are rows in order. The last context of each trajectory is a further row with ``shpi_row = 1``. What
is not per row (schema, action ids, ledger, modes) is JSON in the file's own metadata.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shpi.data import ragged
from shpi.data.actions import ActionSpace
from shpi.data.ledger import Ledger
from shpi.data.logged import LoggedData
from shpi.data.question import Counted
from shpi.data.schema import ContextSchema
from shpi.errors import DataError
from shpi.protocols import Int64Array

KEY = "shpi"
VERSION = 1
DECISION, FINAL = 0, 1


def write_canonical(logs: LoggedData, path: Path) -> Path:
    """Write the file under a temporary name, then move it into place."""
    table = to_table(logs)
    header = {
        "version": VERSION,
        "schema": logs.schema.to_json(),
        "actions": logs.action_space.to_json(),
        "ledger": logs.ledger.to_json(),
        "propensity_mode": logs.propensity_mode,
        "time_unit": logs.time_unit,
        "metrics": list(logs.metrics),
        "endings": logs.endings,
        "counted": None if logs.counted is None else logs.counted.to_json(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        table.write_parquet(draft, metadata={KEY: json.dumps(header)}, compression="zstd")
        os.replace(draft, path)  # noqa: PTH105
    finally:
        draft.unlink(missing_ok=True)
    return path


def is_canonical(path: str | Path) -> bool:
    """Whether a path is one Parquet file that carries shpi's header."""
    return _header(Path(path)) is not None


def read_canonical(path: Path) -> LoggedData:
    """Open a file written by `write_canonical`."""
    header = _header(path)
    if header is None:
        raise DataError(expected="a log written by shpi", found="another file", where=str(path))
    if header["version"] > VERSION:
        raise DataError(
            expected=f"a file of version {VERSION} or older",
            found=f"version {header['version']}",
            where=str(path),
            remedy="upgrade shpi",
        )
    try:
        table = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise DataError(
            expected="a complete Parquet file", found=f"one that cannot be read ({error})", where=str(path)
        ) from None
    return from_table(table, header)


def _header(path: Path) -> dict[str, Any] | None:
    if not path.is_file() or path.stat().st_size < 12:
        return None
    try:
        text = pl.read_parquet_metadata(path).get(KEY)
    except (pl.exceptions.PolarsError, OSError):
        return None
    header: dict[str, Any] | None = None if text is None else json.loads(text)
    return header


def to_table(logs: LoggedData) -> pl.DataFrame:
    """All rows of a log as a table: the decisions, and after each trajectory its last context."""
    counts = ragged.lengths(logs.offsets) + 1
    is_final = np.zeros(int(counts.sum()), dtype=bool)
    is_final[np.cumsum(counts) - 1] = True

    def spread(values: Any, final: Any) -> Any:
        whole = np.empty((len(is_final), *values.shape[1:]), dtype=values.dtype)
        whole[~is_final] = values
        whole[is_final] = final
        return whole

    trajectory = ragged.group_of_row(ragged.offsets_from_lengths(counts))
    session = spread(logs.session_of_row, np.int64(-1))
    series: dict[str, Any] = {
        "shpi_row": is_final.astype(np.int8),
        "trajectory": trajectory,
        "user": logs.users[trajectory],
        "session": session,
        "time": spread(logs.times, logs.times[logs.offsets[1:] - 1]),
        "action": spread(logs.actions, np.int32(-1)),
        "terminated": spread(np.zeros(len(logs), dtype=bool), logs.terminated),
        "final_observed": spread(np.zeros(len(logs), dtype=bool), logs.final_observed),
    }
    for name in ("rewards", "propensities", "immediate"):
        values = getattr(logs, name)
        if values is not None:
            series[name] = spread(values, 0.0)
    if logs.reward_observed is not None:
        series["reward_observed"] = spread(logs.reward_observed, False)
    for name, values in logs.metrics.items():
        series[f"metric:{name}"] = spread(values, 0.0)
    columns = [pl.Series(name, values) for name, values in series.items()]
    contexts = spread(logs.contexts, logs.final_contexts)
    columns += [pl.Series(f"x:{name}", contexts[:, j]) for j, name in enumerate(logs.schema.dimensions)]
    columns += _matrix("candidate", logs.candidates, logs.final_candidates, spread, True)
    columns += _matrix("behaviour", logs.behaviour, None, spread, 0.0)
    return pl.DataFrame(columns)


def _matrix(name: str, values: Any, final: Any, spread: Any, default: Any) -> list[pl.Series]:
    if values is None:
        return []
    whole = spread(values, default if final is None else final)
    return [pl.Series(f"{name}:{j}", whole[:, j]) for j in range(whole.shape[1])]


def from_table(table: pl.DataFrame, header: dict[str, Any]) -> LoggedData:
    """The inverse of `to_table`."""
    final = table["shpi_row"].to_numpy() == FINAL
    decisions = table.filter(~pl.Series(final))
    finals = table.filter(pl.Series(final))
    schema = ContextSchema.from_json(header["schema"])
    actions = ActionSpace.from_json(header["actions"])

    def matrix(frame: pl.DataFrame, names: list[str], dtype: Any) -> Any:
        return np.ascontiguousarray(
            frame.select(names).to_numpy().astype(dtype, copy=False).reshape(len(frame), -1)
        )

    def column(name: str) -> Any:
        return decisions[name].to_numpy() if name in decisions.columns else None

    dims = [f"x:{name}" for name in schema.dimensions]
    masks = [f"candidate:{j}" for j in range(len(actions))]
    has_masks, has_behaviour = masks[0] in table.columns, "behaviour:0" in table.columns
    users = finals["user"]
    return LoggedData(
        contexts=matrix(decisions, dims, np.float32),
        actions=decisions["action"].to_numpy(),
        rewards=column("rewards"),
        offsets=_offsets(decisions["trajectory"].to_numpy()),
        session_offsets=_offsets(decisions["session"].to_numpy()),
        users=users.to_numpy() if users.dtype.is_numeric() else np.asarray(users.to_list(), dtype=np.str_),
        times=decisions["time"].to_numpy(),
        time_unit=header["time_unit"],
        terminated=finals["terminated"].to_numpy(),
        final_contexts=matrix(finals, dims, np.float32),
        final_observed=finals["final_observed"].to_numpy(),
        schema=schema,
        action_space=actions,
        ledger=Ledger.from_json(header["ledger"]),
        propensities=column("propensities"),
        propensity_mode=header["propensity_mode"],
        behaviour=matrix(decisions, [f"behaviour:{j}" for j in range(len(actions))], np.float64)
        if has_behaviour
        else None,
        candidates=matrix(decisions, masks, np.bool_) if has_masks else None,
        final_candidates=matrix(finals, masks, np.bool_) if has_masks else None,
        reward_observed=column("reward_observed"),
        immediate=column("immediate"),
        metrics={name: column(f"metric:{name}") for name in header["metrics"]},
        endings=header.get("endings", "marked"),
        counted=None if header.get("counted") is None else Counted.from_json(header["counted"]),
    )


def _offsets(group: Int64Array) -> Int64Array:
    starts = np.append(True, group[1:] != group[:-1])
    return ragged.offsets_from_starts(starts)
