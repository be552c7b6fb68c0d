from __future__ import annotations

import argparse
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shpi.cli.main import main
from shpi.cli.verbs import audit
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, ShpiError

COLUMNS = """
user = "uid"
time = "ts"
action = "item"
reward = "click"
propensity = "p"
context = ["x", "tenure"]
"""


def call(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser(prog="shpi")
    audit.add_parser(parser.add_subparsers())
    options = parser.parse_args(["audit", *map(str, arguments)])
    return int(options.run(options))


def table(n: int = 400) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    start = np.datetime64("2026-01-01T00:00:00", "us")
    return pl.DataFrame(
        {
            "uid": [f"u{i // 10}" for i in range(n)],
            "ts": start + (np.arange(n) % 10 * 45).astype("timedelta64[m]"),
            "item": rng.choice(["shoes", "hats", "bags"], n),
            "click": (rng.random(n) < 0.3).astype(int),
            "p": np.full(n, 1 / 3),
            "x": rng.normal(size=n),
            "tenure": rng.integers(0, 9, n),
        }
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    table().write_parquet(tmp_path / "events.parquet")
    table().write_csv(tmp_path / "events.csv")
    (tmp_path / "map.toml").write_text(COLUMNS)
    return tmp_path


@pytest.mark.parametrize("name", ["events.parquet", "events.csv", "event*.parquet"])
def test_a_fit_log(place: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(place / name, "--columns", place / "map.toml") == 0
    text = capsys.readouterr().out
    assert "✓ fit for learning: 0 errors" in text
    assert "400 = 400 used + 0 dropped   ✓ adds up" in text
    assert "400 decisions of 40 users in 40 sessions" in text


def test_an_unfit_log(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table().with_columns(click=pl.lit(0)).write_parquet(place / "events.parquet")
    assert call(place / "events.parquet", "--columns", place / "map.toml") == 1
    assert "Every reward is 0" in capsys.readouterr().out


def test_json_has_the_verdict_and_the_findings(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(place / "events.parquet", "--columns", place / "map.toml", "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert content["fit"] is True
    assert content["facts"]["structure"]["sessions"] == 40
    assert content["facts"]["actions"]["chosen"] == 3


def test_the_session_gap_overrides_the_map(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(place / "events.parquet", "--columns", place / "map.toml", "--session-gap", "30m", "--json")
    assert json.loads(capsys.readouterr().out)["facts"]["structure"]["sessions"] == 400


def test_propensities_are_estimated_on_request(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "map.toml").write_text(COLUMNS.replace('propensity = "p"\n', ""))
    where = (place / "events.parquet", "--columns", place / "map.toml")
    assert call(*where) == 0
    assert "propensities_absent" in capsys.readouterr().out
    assert call(*where, "--estimate-propensities") == 0
    text = capsys.readouterr().out
    assert "propensities_estimated" in text
    assert "calibration" in text


def test_logged_propensities_are_not_replaced(place: Path) -> None:
    with pytest.raises(ConfigError, match="better than any estimate"):
        call(place / "events.parquet", "--columns", place / "map.toml", "--estimate-propensities")


def test_a_canonical_file_needs_no_map(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = LoggedData.read(place / "events.parquet", place / "map.toml")
    file = logs.to_parquet(place / "log.parquet")
    assert call(file) == 0
    assert "40 users" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="read the original table"):
        call(file, "--session-gap", "30m")


def test_without_a_map_a_guess_is_shown_that_can_be_copied(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(place / "events.csv") == 2
    text = capsys.readouterr().err
    assert "needs a column map" in text
    guess = tomllib.loads(text.partition("\n\n")[2])
    assert guess["user"] == "uid"
    assert guess["propensity"] == "p"
    assert "tenure" in guess["context"]


def test_bad_rows_are_named_and_the_option_is_the_commands(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = table().with_columns(p=pl.when(pl.int_range(pl.len()) == 17).then(0.0).otherwise("p"))
    bad.write_parquet(place / "events.parquet")
    where = (place / "events.parquet", "--columns", place / "map.toml")
    assert main(["audit", *map(str, where)]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert re.search(r"'p', row 17.*--invalid drop", error)
    assert call(*where, "--invalid", "drop") == 0
    text = " ".join(capsys.readouterr().out.split())  # wherever the lines were broken
    assert "400 = 399 used + 1 dropped" in text
    assert "source row 17" in text


def test_filled_values_are_reported(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gaps = table().with_columns(x=pl.when(pl.int_range(pl.len()) < 25).then(None).otherwise("x"))
    gaps.write_parquet(place / "events.parquet")
    (place / "map.toml").write_text(COLUMNS + 'missing = { x = "mean" }\n')
    assert call(place / "events.parquet", "--columns", place / "map.toml") == 0
    assert "column 'x': 25 missing values filled (policy 'mean')" in capsys.readouterr().out


def test_the_report_goes_to_a_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = (place / "events.parquet", "--columns", place / "map.toml")
    assert call(*where, "--out", place / "audit.json") == 0
    assert call(*where, "--out", place / "audit.txt") == 0
    assert json.loads((place / "audit.json").read_text())["fit"] is True
    assert "fit for learning" in (place / "audit.txt").read_text(encoding="utf-8")
    assert "the report is in" in capsys.readouterr().out
    assert sorted(file.name for file in place.iterdir() if file.name.startswith(".")) == []


def test_a_target_that_cannot_be_written_is_refused_before_the_work(place: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        call(place / "absent.parquet", "--out", place / "nowhere" / "audit.json")
    with pytest.raises(ConfigError, match="a folder"):
        call(place / "absent.parquet", "--out", place)


@pytest.mark.parametrize(
    "arguments",
    [
        ("absent.parquet", "--columns", "map.toml"),
        ("events.parquet", "--columns", "absent.toml"),
        ("events.parquet", "--columns", "map.toml", "--session-gap", "soon"),
    ],
)
def test_errors_are_shpis_own(
    place: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with pytest.raises(ShpiError):
        call(*arguments)


def test_exit_codes_of_the_command(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shpi.cli

    monkeypatch.chdir(place)
    assert shpi.cli.main(["audit", "events.parquet", "--columns", "map.toml"]) == 0
    assert shpi.cli.main(["audit", "absent.parquet", "--columns", "map.toml"]) == 2
    with pytest.raises(SystemExit) as end:
        shpi.cli.main(["audit", "events.parquet", "--invalid", "maybe"])
    assert end.value.code == 2
