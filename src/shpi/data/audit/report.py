"""Is this log fit for learning, what is wrong with it, and what can be done about it?

`audit` computes the facts (`facts`, `propensity`, `columns`, `horizon`) and judges
them (`checks`, `overlap`; `findings` has the table of all thresholds). The `AuditReport`
prints as text (`text`) and turns into JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from shpi.data._log.ledger import Ledger
from shpi.data.audit.checks import find
from shpi.data.audit.columns import ColumnFacts, column_facts
from shpi.data.audit.endings import EndingFacts, ending_facts
from shpi.data.audit.facts import (
    ActionFacts,
    RewardFacts,
    Structure,
    Timing,
    action_facts,
    reward_facts,
    structure,
    timing,
)
from shpi.data.audit.findings import LEAK_WARNING, Finding, Severity
from shpi.data.audit.horizon import Horizon, horizon_advice
from shpi.data.audit.propensity import PropensityFacts, propensity_facts
from shpi.data.decomposition import Decomposition, decompose
from shpi.data.logged import LoggedData

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All facts of an audit."""

    ledger: Ledger
    structure: Structure
    time: Timing
    actions: ActionFacts
    reward: RewardFacts | None  # None: no reward, or none observed
    propensity: PropensityFacts | None  # None: absent, or there was never a choice
    columns: ColumnFacts
    horizon: Horizon
    endings: EndingFacts
    decomposition: Decomposition

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description."""
        names = ("structure", "time", "actions", "columns", "horizon", "endings")
        rows = self.ledger.to_json() | {
            "rows_dropped": self.ledger.rows_dropped,
            "balanced": self.ledger.balanced(),
        }
        return {
            "rows": rows,
            **{name: asdict(getattr(self, name)) for name in names},
            "reward": None if self.reward is None else asdict(self.reward),
            "propensity": None if self.propensity is None else asdict(self.propensity),
            "decomposition": self.decomposition.to_json(),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class AuditReport:
    """Facts and findings. ``print(report)`` to read it; ``report.fit`` is the verdict."""

    facts: Facts
    findings: tuple[Finding, ...]  # the worst first
    propensity_mode: str
    question: str = ""  # what is counted, over which time, and how users end
    source: str = ""

    @property
    def fit(self) -> bool:
        """Whether the log can be learned from: no finding is an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    def has(self, code: str) -> bool:
        """Whether there is a finding with this code."""
        return any(finding.code == code for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {
            "fit": self.fit,
            "source": self.source,
            "propensity_mode": self.propensity_mode,
            "question": self.question,
            "findings": [finding.to_json() for finding in self.findings],
            "facts": self.facts.to_json(),
        }

    def count(self, severity: Severity) -> int:
        """The number of findings with this severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def show(self, console: Console | None = None) -> None:
        """Print the report to a rich console (standard output by default)."""
        from shpi.data.audit.text import show

        show(self, console)

    def __str__(self) -> str:
        from shpi.data.audit.text import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        """The card that notebooks show."""
        from shpi.report.cards import audit_card

        return audit_card(self)

    def to_polars(self) -> pl.DataFrame:
        """One row per finding, the worst first."""
        import polars as pl

        return pl.DataFrame(
            [{"severity": f.severity, "code": f.code, "message": f.message} for f in self.findings]
        )

    def __repr__(self) -> str:
        counts = f"{self.count('error')} errors, {self.count('warning')} warnings"
        return f"AuditReport({'fit' if self.fit else 'unfit'}, {counts}; print it)"


def audit(logs: LoggedData) -> AuditReport:
    """Count, check and judge a log. Nothing is changed."""
    facts = Facts(
        ledger=logs.ledger,
        structure=structure(logs),
        time=timing(logs),
        actions=action_facts(logs),
        reward=reward_facts(logs),
        propensity=propensity_facts(logs),
        columns=column_facts(logs, suspicious=LEAK_WARNING),
        horizon=horizon_advice(logs),
        endings=ending_facts(logs),
        decomposition=decompose(logs),
    )
    return AuditReport(
        facts=facts,
        findings=find(logs, facts),
        propensity_mode=logs.propensity_mode,
        question=logs.question,
    )
