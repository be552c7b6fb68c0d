"""Open Bandit Dataset: fashion items shown by a shop, with exact propensities.

The paper: Y. Saito et al., Open Bandit Dataset and Pipeline, arXiv:2008.07146. See docs/datasets.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import polars as pl

from shpi.data._log.ledger import Drop
from shpi.data._read.read import read_log
from shpi.data._read.sources import open_table
from shpi.data.columns import Columns
from shpi.data.datasets.files import Dataset, read_table, with_account
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema
from shpi.errors import ConfigError, DataError

Campaign = Literal["all", "men", "women"]
LoggingPolicy = Literal["random", "bts"]

OBD = Dataset(
    name="the Open Bandit Dataset",
    origin="the project st-tech/zr-obp (Saito et al., arXiv:2008.07146)",
    subfolders=("", "open_bandit_dataset", "obd"),
)
USER_FEATURES = tuple(f"user_feature_{j}" for j in range(4))
POSITIONS = (1, 2, 3)  # left, centre, right


def open_bandit(
    folder: str | Path | None = None,
    *,
    campaign: Campaign = "all",
    policy: LoggingPolicy = "random",
    position: int | None = None,
    affinities: bool = False,
    schema: ContextSchema | None = None,
) -> LoggedData:
    """One campaign under one logging policy. There are no user ids: each row is its own user.

    Args:
        folder: Where the files are; by default the environment variable SHPI_DATA.
        campaign: ``"all"`` (80 items), ``"men"`` (34) or ``"women"`` (46).
        policy: ``"random"`` (uniform) or ``"bts"`` (Bernoulli Thompson sampling).
        position: Keep one of the positions 1, 2, 3. By default all are kept, and the position is part of
            the context, since the propensity is conditional on it.
        affinities: Add the user's affinity to each item as context columns of the action level. They are
            0 in more than 99.8 % of the small version, so they are left out by default.
        schema: Encode contexts as another log did: the values of the user features differ between policies.
    """
    for value, allowed in ((campaign, get_args(Campaign)), (policy, get_args(LoggingPolicy))):
        if value not in allowed:
            raise ConfigError(expected=f"one of {', '.join(allowed)}", found=repr(value))
    if position is not None and position not in POSITIONS:
        raise ConfigError(expected="position 1, 2 or 3", found=repr(position))
    log_path, item_path = _files(OBD.folder(folder), campaign, policy)
    table = _read_log_table(log_path, policy, affinities)
    rows_in = table.height
    if position is not None:
        table = table.filter(pl.col("position") == position)
    if table.height == 0:
        raise DataError(
            expected=f"rows of the policy '{policy}' at position {position}",
            found="none",
            where=str(log_path),
        )
    columns = Columns(
        time="timestamp",
        context=(
            *USER_FEATURES,
            *(() if position else ("position",)),
            *(("affinity_*",) if affinities else ()),
        ),
        categorical=(*USER_FEATURES, "position"),
        action_level=("affinity_*",),
        action="item_id",
        propensity="propensity_score",
        reward="click",
    )
    names = ("item_id", *(f"item_feature_{j}" for j in range(4)))
    logs = read_log(table, columns, action_features=read_table(item_path, names), schema=schema)
    elsewhere = Drop(reason="shown at another position", rows=rows_in - table.height, column="position")
    note = f"read {log_path.name} and {item_path.name}, policy {policy}"
    return with_account(logs, drops=(elsewhere,), notes=(note,))


def _files(folder: Path, campaign: str, policy: str) -> tuple[Path, Path]:
    """The official ``policy/campaign/campaign.csv``, or both policies of a campaign in one file."""
    official = f"{policy}/{campaign}/{campaign}"
    log = OBD.need(folder, [official, f"obd_small_{campaign}"])
    if log.name.startswith("obd_small"):
        return log, OBD.need(folder, [f"obd_small_{campaign}_item_context"])
    return log, OBD.need(log.parent, ["item_context"])


def _read_log_table(path: Path, policy: str, affinities: bool) -> pl.DataFrame:
    source = open_table(path)
    needed = ["timestamp", "item_id", "position", "click", "propensity_score", *USER_FEATURES]
    extra = [name for name in source.columns if affinities and name.startswith("user-item_affinity_")]
    several = ["policy"] if "policy" in source.columns else []
    table = read_table(path, [*needed, *extra, *several])
    if several:
        table = table.filter(pl.col("policy") == policy).drop("policy")
    return table.rename({name: name.replace("user-item_affinity_", "affinity_") for name in extra})
