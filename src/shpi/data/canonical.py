"""The canonical file: one Parquet file that opens without a column map, bit for bit as it was written.

Decisions are rows in order. The last context of each trajectory is a further row with ``shpi_row = 1``.
Everything else (schema, action ids, ledger, modes) is JSON in the file's own metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from shpi.data._log import ragged
from shpi.data._log.checks import check_arrays
from shpi.data._log.ledger import Ledger
from shpi.data.actions import ActionSpace
from shpi.data.logged import LoggedData
from shpi.data.question import Counted
from shpi.data.schema import ContextSchema
from shpi.errors import DataError, ShpiError
from shpi.files.atomic import new_file, writing
from shpi.files.described import ACTION_SPACE, CONTEXT_SCHEMA, COUNTED, LEDGER
from shpi.files.engines import engine_errors
from shpi.files.reading import parse_json
from shpi.files.schema import Record, check, one_of, whole
from shpi.files.seal import BLANK, DAMAGED, check_seal, read_seal, seal
from shpi.protocols import Int64Array

KEY = "shpi"  # of the header in the Parquet metadata
VERSION = 1  # of the file format
DECISION, FINAL = 0, 1  # kinds of rows: a decision; the context after a trajectory's last one

_HEADER = Record(
    {
        "version": whole(1),
        "schema": CONTEXT_SCHEMA,
        "actions": ACTION_SPACE,
        "ledger": LEDGER,
        "propensity_mode": one_of("logged", "estimated", "absent"),
        "time_unit": one_of("us", "step"),
        "metrics": [str],
    },
    {"checksum": str, "endings": (None, str), "counted": (None, COUNTED)},  # absent from files of 0.1
)


def write_canonical(logs: LoggedData, path: Path) -> Path:
    """Write the file completely or not at all."""
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
    header["checksum"] = BLANK
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path) as file, engine_errors(str(path)):
        table.write_parquet(file, metadata={KEY: json.dumps(header)}, compression="zstd")
        seal(file)
    return path


def read_header(path: Path, *, verify: bool = True) -> dict[str, Any]:
    """The header of a canonical file, read without its rows; ``verify`` checks the checksum first."""
    if verify and path.is_file():
        check_seal(path)
    text = _header(path)
    if text is None:
        raise DataError(
            expected="a log written by shpi",
            found="another file",
            where=str(path),
            remedy="read any other table with a column map: LoggedData.read(path, columns)",
        )
    header = parse_json(text, str(path), finite=False)  # a standard error over one user may be NaN
    if isinstance(header, dict) and type(header.get("version")) is int and header["version"] > VERSION:
        raise DataError(
            expected=f"a file of version {VERSION} or older",
            found=f"version {header['version']}",
            where=str(path),
            remedy="upgrade shpi",
        )
    check(header, _HEADER, str(path))
    if "checksum" in header and read_seal(path) is None:
        raise DataError(expected="a file with its checksum", found="none", where=str(path), remedy=DAMAGED)
    return dict(header)


def is_canonical(path: str | Path) -> bool:
    """Whether a path is one Parquet file that carries shpi's header."""
    place = Path(path)
    return place.is_file() and (read_seal(place) is not None or _header(place) is not None)


def read_canonical(path: Path) -> LoggedData:
    """Open a file written by `write_canonical`, and check every value in it."""
    header = read_header(path)
    with engine_errors(str(path), remedy=DAMAGED):
        table = pl.read_parquet(path)
    _check_table(table, header, str(path))
    try:
        logs = from_table(table, header)
        check_arrays(logs)
    except ShpiError as error:
        where = f"{error.where} of {path}" if error.where else str(path)
        raise DataError(
            expected=error.expected, found=error.found, where=where, remedy=error.remedy or DAMAGED
        ) from None
    return logs


def _header(path: Path) -> str | None:
    """The text of shpi's header; None for any other file."""
    if not path.is_file() or path.stat().st_size < 12:
        return None
    try:
        with engine_errors(str(path)):
            return pl.read_parquet_metadata(path).get(KEY)
    except ShpiError:
        return None


def _check_table(table: pl.DataFrame, header: dict[str, Any], where: str) -> None:
    """Check that the header's columns are complete and typed and each trajectory ends in its last context."""
    for name, kind in _columns(header, table.columns).items():
        if name not in table.columns:
            problem = "none"
        elif table[name].null_count():
            problem = f"{table[name].null_count()} empty values"
        elif not kind(table[name].dtype):
            problem = str(table[name].dtype)
        else:
            continue
        raise DataError(
            expected=f"the column '{name}', complete and of its type",
            found=problem,
            where=where,
            remedy=DAMAGED,
        )
    final = table["shpi_row"].to_numpy()
    trajectory = table["trajectory"].to_numpy()
    ends = np.append(trajectory[1:] != trajectory[:-1], True)
    if (
        table.height == 0
        or not np.array_equal(final == FINAL, ends)
        or not np.isin(final, (DECISION, FINAL)).all()
        or not np.array_equal(trajectory[ends], np.arange(int(ends.sum())))
    ):
        raise DataError(
            expected="trajectories 0, 1, …, each ending with its last context",
            found="rows in another order",
            where=where,
            remedy=DAMAGED,
        )


def _columns(header: dict[str, Any], present: list[str]) -> dict[str, Callable[[Any], bool]]:
    """The columns of a file, each with a test of its type."""
    flag: Callable[[Any], bool] = lambda dtype: dtype == pl.Boolean  # noqa: E731
    real: Callable[[Any], bool] = lambda dtype: dtype == pl.Float64  # noqa: E731
    whole_number: Callable[[Any], bool] = lambda dtype: dtype.is_integer()  # noqa: E731
    columns = dict.fromkeys(("shpi_row", "trajectory", "session"), whole_number)
    columns |= {
        "action": lambda dtype: dtype == pl.Int32,
        "user": lambda dtype: dtype.is_integer() or dtype == pl.String,
        "time": lambda dtype: dtype.is_numeric(),
        "terminated": flag,
        "final_observed": flag,
    }
    if header["propensity_mode"] != "absent":
        columns["propensities"] = real
    columns |= {name: real for name in ("rewards", "propensities", "immediate") if name in present}
    columns |= {f"metric:{name}": real for name in header["metrics"]}
    if "reward_observed" in present:
        columns["reward_observed"] = flag
    dimensions = ContextSchema.from_json(header["schema"]).dimensions
    columns |= {f"x:{name}": lambda dtype: dtype == pl.Float32 for name in dimensions}
    count = len(header["actions"]["ids"])
    for name, kind in (("candidate", flag), ("behaviour", real)):
        if any(column.startswith(f"{name}:") for column in present):
            columns |= {f"{name}:{j}": kind for j in range(count)}
    return columns


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
        if not names:  # polars 1.36 cannot turn zero columns into an array
            return np.empty((len(frame), 0), dtype=dtype)
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
