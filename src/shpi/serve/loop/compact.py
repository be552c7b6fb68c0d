"""Writes events as the canonical log: decisions with their rewards, for `shpi audit` and `shpi fit`.

*Which decisions.* All that were shown; a deferred decision counts only if it was activated.
*Which reward.* All rewards of a decision named "reward", combined by ``rewards.aggregate``; other names
become metrics of the log. A reward whose decision is unknown is left out until the decision arrives.
*Pending rewards.* A decision younger than ``rewards.wait`` may still be rewarded, so it is no row of the log.
The context of a user's first such decision becomes the user's final state, at which V_mu estimates the
rewards still to come.
*Propensities* are the probabilities in the server's answers, for the chosen item and for all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from shpi.data.durations import parse_duration
from shpi.errors import DataError
from shpi.serve.decide.context import flat, label
from shpi.serve.settings import Aggregate, Settings
from shpi.serve.store.records import MAIN, Activation, Decision, Record, Reward

if TYPE_CHECKING:
    import polars as pl

    from shpi.data.logged import LoggedData

LOG = "log.parquet"
USER, TIME, ORDER, SESSION, ACTION, PROPENSITY, CANDIDATES, BEHAVIOUR = (
    *("shpi_user", "shpi_time", "shpi_seq", "shpi_session"),
    *("shpi_action", "shpi_propensity", "shpi_candidates", "shpi_behaviour"),
)
_MOST_CELLS = 50_000_000  # largest matrix of all propensities, decisions x items


def compact(folder: Path, *, now: int | None = None, path: Path | None = None) -> tuple[LoggedData, Path]:
    """Write the events of a service as a log.

    Args:
        folder: folder of the service.
        now: time up to which rewards are known; None: the latest event or the clock, by server.clock.
        path: where to write; None: log.parquet in the folder.
    """
    settings = Settings.read(folder)
    logs = logged(records_of(folder, settings), settings, now=now)
    target = folder / LOG if path is None else path
    logs.to_parquet(target)
    return logs, target


def records_of(folder: Path, settings: Settings) -> Iterable[Record]:
    """The records of a service; its server may be running."""
    if settings.store.kind == "postgres":
        from shpi.serve.service import open_store

        return open_store(folder, settings).scan()
    from shpi.serve.service import EVENTS
    from shpi.serve.store.files import read_records

    return read_records(folder / EVENTS)


def logged(
    records: Iterable[Record], settings: Settings, *, now: int | None = None, since: int = 0
) -> LoggedData:
    """Build the log from records.

    Args:
        records: records of a store.
        settings: settings of the service.
        now: time up to which rewards are known.
        since: decisions before this time are left out.
    """
    from shpi.data._read.read import read_log
    from shpi.data.columns import Columns

    decisions, rewards = gather(records)
    decisions = [decision for decision in decisions if decision.time >= since]
    if not decisions:
        raise DataError(
            expected="at least one decision", found="none", where="the events", remedy="send some requests"
        )
    now = _now(settings, decisions) if now is None else now
    known_until = now - parse_duration(settings.rewards.wait)
    rows = _rows(decisions, known_until)
    if not any(known for _, known in rows):
        raise DataError(
            expected=f"decisions that are older than {settings.rewards.wait}, the time that rewards may take",
            found="only younger ones",
            where="rewards.wait",
            remedy="wait, or shorten rewards.wait",
        )
    table, extras = _table(rows, rewards, settings)
    columns = Columns(
        user=USER,
        time=TIME,
        time_unit="us",
        order=ORDER,
        action=ACTION,
        propensity=PROPENSITY,
        reward=MAIN,
        **extras,
    )
    return read_log(table, columns, metric=settings.log.metric or None, duplicates="keep", progress=False)


def gather(records: Iterable[Record]) -> tuple[list[Decision], dict[str, list[Reward]]]:
    """The decisions that were shown, in order, and the rewards by event id."""
    decisions: list[Decision] = []
    rewards: dict[str, list[Reward]] = {}
    active: set[str] = set()
    for record in records:
        if isinstance(record, Decision):
            decisions.append(record)
        elif isinstance(record, Reward):
            rewards.setdefault(record.event_id, []).append(record)
        elif isinstance(record, Activation):
            active.add(record.event_id)
    return [
        decision for decision in decisions if not decision.deferred or decision.event_id in active
    ], rewards


def joined(rewards: list[Reward], how: Aggregate) -> float:
    """Combine several rewards into one number."""
    values = [reward.value for reward in sorted(rewards, key=lambda reward: reward.time)]
    if how == "sum":
        return float(sum(values))
    return {"earliest": values[0], "last": values[-1], "max": max(values)}[how]


def _now(settings: Settings, decisions: list[Decision]) -> int:
    from shpi.serve.loop.control import now_us

    latest = max(decision.time for decision in decisions)
    return latest if settings.server.clock == "events" else max(latest, now_us())


def _rows(decisions: list[Decision], known_until: int) -> list[tuple[Decision, bool]]:
    """The decisions whose rewards are known, and each user's first decision whose reward is pending."""
    rows, left = [], set()
    for decision in sorted(decisions, key=lambda decision: (decision.time, decision.seq)):
        known = decision.time <= known_until
        if known or decision.user not in left:
            rows.append((decision, known))
        if not known:
            left.add(decision.user)
    before = {decision.user for decision, known in rows if known}
    return [(decision, known) for decision, known in rows if decision.user in before]


def _table(
    rows: list[tuple[Decision, bool]], rewards: dict[str, list[Reward]], settings: Settings
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The table, and further entries of its column map."""
    import polars as pl

    decisions = [decision for decision, _ in rows]
    plain = {type(item) for decision in decisions for item in decision.items} == {int}
    spell: Any = int if plain else str
    columns: dict[str, Any] = {
        USER: [decision.user for decision in decisions],
        TIME: [decision.time for decision in decisions],
        ORDER: [decision.seq for decision in decisions],
        ACTION: pl.Series(
            [spell(decision.action) if known else None for decision, known in rows],
            dtype=pl.Int64 if plain else pl.String,
        ),
        PROPENSITY: [decision.propensity if known else None for decision, known in rows],
    }
    extras: dict[str, Any] = {}
    if all(decision.session is not None for decision in decisions):
        columns[SESSION] = [decision.session for decision in decisions]
        extras["session"] = SESSION
    else:
        extras["session_gap"] = settings.log.session_gap
    outcomes = _outcomes(decisions, rewards, settings)
    extras["metrics"] = tuple(name for name in outcomes if name != MAIN)
    contexts = _contexts(decisions, outcomes)
    _add_items(decisions, spell, columns, extras)
    missing = {name: "indicator" for name, series in contexts.items() if series.null_count()}
    extras |= {"context": tuple(contexts), "missing": missing}
    return pl.DataFrame({**columns, **outcomes, **contexts}), extras


def _outcomes(
    decisions: list[Decision], rewards: dict[str, list[Reward]], settings: Settings
) -> dict[str, list[float]]:
    how, default = settings.rewards.aggregate, settings.rewards.default
    names = {MAIN: None} | {reward.name: None for many in rewards.values() for reward in many}
    by_name: dict[str, list[float]] = {name: [] for name in names}
    for decision in decisions:
        mine: dict[str, list[Reward]] = {}
        for reward in rewards.get(decision.event_id, ()):
            mine.setdefault(reward.name, []).append(reward)
        for name, values in by_name.items():
            values.append(joined(mine[name], how) if name in mine else default if name == MAIN else 0.0)
    return by_name


def _contexts(decisions: list[Decision], outcomes: dict[str, Any]) -> dict[str, pl.Series]:
    """One column for every key that appears in any context: numbers, booleans or text."""
    import polars as pl

    decode = msgspec.json.Decoder(dict[str, Any]).decode
    contexts = [flat(decode(decision.context)) for decision in decisions]
    names = dict.fromkeys(name for context in contexts for name in context)
    clash = [name for name in names if name in outcomes or name.startswith("shpi_")]
    if clash:
        raise DataError(
            expected="context features and rewards of different names",
            found=f"'{clash[0]}' for both",
            where="the events",
            remedy="name the reward differently; names that start with shpi_ are taken",
        )
    columns: dict[str, pl.Series] = {}
    for name in names:
        values = [context.get(name) for context in contexts]
        kinds = {type(value) for value in values} - {type(None)}
        if kinds <= {bool}:
            columns[name] = pl.Series(name, values, dtype=pl.Boolean)
        elif kinds <= {int, float, bool}:
            columns[name] = pl.Series(
                name, [None if v is None else float(v) for v in values], dtype=pl.Float64
            )
        else:
            columns[name] = pl.Series(
                name, [None if v is None else label(v) for v in values], dtype=pl.String
            )
    return {name: series for name, series in columns.items() if series.null_count() < len(series)}


def _add_items(
    decisions: list[Decision], spell: Any, columns: dict[str, Any], extras: dict[str, Any]
) -> None:
    """Add candidates if they differ, and the probabilities of all items if they fit into memory."""
    import polars as pl

    items = [tuple(map(spell, decision.items)) for decision in decisions]
    ids = sorted({item for some in set(items) for item in some})
    taken = {item for item in columns[ACTION] if item is not None}
    # An item that was never chosen appears in the log only as a candidate.
    if len({frozenset(some) for some in set(items)}) > 1 or taken != set(ids):
        columns[CANDIDATES] = [list(some) for some in items]
        extras["candidates"] = CANDIDATES
    everywhere = all(decision.distribution.min() > 0 for decision in decisions)  # as the log requires
    if everywhere and len(ids) * len(decisions) <= _MOST_CELLS:
        place = {item: number for number, item in enumerate(ids)}
        matrix = np.zeros((len(decisions), len(ids)))
        for row, (decision, some) in enumerate(zip(decisions, items, strict=True)):
            matrix[row, [place[item] for item in some]] = decision.distribution
        columns[BEHAVIOUR] = pl.Series(matrix).cast(pl.List(pl.Float64))
        extras["behaviour"] = BEHAVIOUR
