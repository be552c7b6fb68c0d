"""The HTML of several candidates shows all of them."""

from shpi.cli.main import main
from shpi.policies import ConstantPolicy, save_policy
from tests.cli.test_evaluate import bandit


def test_the_report_of_several_candidates_shows_all(tmp_path):
    bandit(0, 300, 1.0).to_parquet(tmp_path / "log.parquet")
    names = ("good", "bad", "bold")
    for name, probs in zip(names, ((0.2, 0.8), (0.8, 0.2), (0.05, 0.95)), strict=True):
        save_policy(ConstantPolicy(probs), tmp_path / name)
    places = [str(tmp_path / name) for name in names]
    report = tmp_path / "report.html"
    main(["evaluate", places[0], str(tmp_path / "log.parquet"), "--against", *places[1:],
          "--estimators", "snips", "--out", str(report)])  # fmt: skip
    page = report.read_text()
    assert all(f"{name}: " in page for name in names)
    assert "The candidates side by side" in page
