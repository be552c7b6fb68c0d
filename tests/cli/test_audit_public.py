"""``shpi audit`` on the public logs: right on the facts of their documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shpi.cli import main
from shpi.data.logged import LoggedData
from tests.public_logs import public_audit, public_log


@pytest.fixture
def audit(data_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("shpi.data.datasets.load", lambda name, folder: public_log(name, Path(folder)))

    def run(name: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(LoggedData, "audit", lambda logs: public_audit(name, data_dir))
        code = main(["audit", name, "--data", str(data_dir), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def codes(report: dict[str, Any], severity: str) -> set[str]:
    return {finding["code"] for finding in report["findings"] if finding["severity"] == severity}


def test_kuairand_random(audit: Any) -> None:
    code, report = audit("kuairand-random")
    rows = report["facts"]["rows"]
    assert code == 0
    assert (rows["rows_in"], rows["rows_used"]) == (43_028, 43_027)  # one duplicated row
    assert report["facts"]["structure"]["users"] == 1000
    per_user = report["facts"]["structure"]["decisions_per_user"]
    assert (per_user["min"], per_user["median"], per_user["max"]) == (10, 22, 650)
    assert report["facts"]["reward"]["spread"]["mean"] == pytest.approx(0.174, abs=5e-4)
    assert report["facts"]["actions"]["chosen"] == 31


def test_kuairand_standard(audit: Any) -> None:
    code, report = audit("kuairand-standard")
    rows = report["facts"]["rows"]
    assert code == 0
    assert (rows["rows_in"], rows["rows_used"]) == (228_329, 228_329 - 5_885)
    assert report["facts"]["structure"]["users"] == 25_156
    assert report["facts"]["structure"]["sessions_per_user"]["mean"] == pytest.approx(7.5, abs=0.05)
    assert report["facts"]["structure"]["session_length"]["mean"] == pytest.approx(1.2, abs=0.05)
    assert "propensities_absent" in codes(report, "warning")


def test_heartsteps(audit: Any) -> None:
    code, report = audit("heartsteps")
    assert code == 0
    assert report["facts"]["rows"]["rows_used"] == 7540
    assert report["facts"]["structure"]["users"] == 37
    (sent,) = [
        row["observed"]
        for row in report["facts"]["propensity"]["calibration"]["bins"]
        if row["predicted"] == pytest.approx(0.6)
    ]
    assert sent == pytest.approx(0.593, abs=5e-4)  # the mean send rate when available


def test_open_bandit_women_bts_is_unfit(audit: Any) -> None:
    code, report = audit("open-bandit-women-bts")
    assert code == 1
    assert codes(report, "error") == {"uniform_ess"}
    assert report["facts"]["propensity"]["uniform_ess"] == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("campaign", ["all", "men", "women"])
def test_open_bandit_random_is_fit(audit: Any, campaign: str) -> None:
    code, report = audit(f"open-bandit-{campaign}-random")
    assert code == 0
    assert report["facts"]["rows"]["rows_used"] == 10_000
    assert report["facts"]["structure"]["actions"] == {"all": 80, "men": 34, "women": 46}[campaign]


def test_a_missing_folder_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["audit", "heartsteps", "--data", str(tmp_path / "nowhere")]) == 2
    assert "which is no folder" in capsys.readouterr().err
