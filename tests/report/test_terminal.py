"""The printed evaluation: sentences about what decides, one line per check for the others."""

from __future__ import annotations

from shpi.ope.results import Diagnostic
from tests.report.evaluations import ordinary


def test_other_estimators_share_a_line_per_check() -> None:
    """Failed before: seven estimators without users made seven sentences that said the same."""

    def check(name: str | None) -> Diagnostic:
        return Diagnostic(
            name="effective users", severity="fatal", sentence=f"{name} rests on 5 users.", estimator=name
        )

    evaluation = ordinary(
        diagnostics=tuple(check(name) for name in ("WDR", "SNIPS", "IPS", None)), main="WDR"
    )
    shown = str(evaluation)
    assert "fatal: WDR rests on 5 users." in shown
    assert "fatal: None rests on 5 users." in shown
    assert "fatal, effective users: SNIPS, IPS" in shown
    assert "SNIPS rests on" not in shown


def test_nothing_is_said_of_others_where_all_is_well() -> None:
    assert "do not decide (whole" not in str(ordinary(diagnostics=()))
