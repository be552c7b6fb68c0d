"""Several candidates on one log: simultaneous bounds, and the best candidate that ships."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shpi._core.distributions import normal_cdf
from shpi._core.progress import progress_bar
from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import ConfigError
from shpi.ope.evaluate import evaluate
from shpi.ope.inference.intervals import MAX_GROUPS
from shpi.ope.problem import Problem
from shpi.ope.results import Evaluation
from shpi.protocols import Float64Array, Policy

if TYPE_CHECKING:
    import polars as pl

    from shpi.ope.gate import Gate

REPLICATES = 20_000  # draws of the largest error; they give the level to about 0.1 %


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """The evaluations of all candidates, each with its verdict, and the best of those that ship."""

    evaluations: tuple[Evaluation, ...]
    best: str | None  # the name of the candidate with the largest lower bound among those that ship

    def __getitem__(self, name: str) -> Evaluation:
        for evaluation in self.evaluations:
            if evaluation.policy_name == name:
                return evaluation
        raise ConfigError(
            expected=f"one of the candidates {[evaluation.policy_name for evaluation in self.evaluations]}",
            found=repr(name),
        )

    def write_html(self, path: str | Path) -> Path:
        """Write all candidates side by side as one self-contained HTML file; see `shpi.report.html`."""
        from shpi.report.html import write_comparison

        return write_comparison(self, path)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from shpi.report.cards import comparison_card

        return comparison_card(self)

    def to_polars(self) -> pl.DataFrame:
        """One row per candidate: its verdict, and what leads its report."""
        import polars as pl

        rows = []
        for evaluation in self.evaluations:
            row = next(
                row for row in evaluation.to_polars().to_dicts() if row["mark"] in ("leads", "decides")
            )
            rows.append(
                row | {"verdict": None if evaluation.verdict is None else evaluation.verdict.decision}
            )
        return pl.DataFrame(rows)

    def __repr__(self) -> str:
        verdicts = ((evaluation.policy_name, evaluation.verdict) for evaluation in self.evaluations)
        words = ", ".join(
            f"{name}: {'' if verdict is None else verdict.decision}" for name, verdict in verdicts
        )
        return f"Comparison({words}; best to ship: {self.best})"


def compare(
    policies: Mapping[str, Policy], logs: LoggedData | ShardedLog, gate: Gate, **options: Any
) -> Comparison:
    """Evaluate several policies on one log, and let the gate decide on all of them together.

    Args:
        policies: by name.
        logs: held-out users.
        gate: gives the verdicts, with the correction for several candidates.
        options: options of `shpi.evaluate`.
    """
    if not policies:
        raise ConfigError(expected="at least one policy", found="none", where="compare")
    collector = _KeptProblems()
    bare = []
    with progress_bar("candidates", len(policies) if len(policies) > 1 else None) as advance:
        for name, policy in policies.items():
            bare.append(evaluate(policy, logs, gate=collector, policy_name=name, **options))
            advance(1)
    with progress_bar("the verdict: guards, first steps, cautions", None):
        verdicts = gate.decide_many(bare, collector.problems)
    evaluations = tuple(
        replace(evaluation, verdict=verdict) for evaluation, verdict in zip(bare, verdicts, strict=True)
    )
    ships = [
        evaluation for evaluation in evaluations if evaluation.verdict is not None and evaluation.verdict.ship
    ]
    best = max(ships, key=lambda evaluation: evaluation.decisive.lift_interval.lower_bound, default=None)
    return Comparison(evaluations=evaluations, best=None if best is None else best.policy_name)


@dataclass
class _KeptProblems:
    """The problem of every evaluation, kept for the verdict on all of them together."""

    problems: list[Problem] = field(default_factory=list)

    def decide(self, evaluation: Evaluation, problem: Problem) -> None:
        """No verdict yet."""
        self.problems.append(problem)


def joint_level(
    influences: Float64Array | Sequence[Float64Array], confidence: float, *, seed: int = 0
) -> float:
    """The level of each of m one-sided bounds for which all hold simultaneously at ``confidence``.

    For m copies of one candidate it is ``confidence``; for m independent ones confidence^(1/m). It is never
    below what one candidate needs, nor above Bonferroni's 1 - (1 - confidence)/m.

    Args:
        influences: influences of the users on each candidate's lift, [m, U] or m of [U].
        confidence: confidence level of all together.
        seed: random seed of the multipliers.
    """
    rng = np.random.default_rng(seed)
    users = len(influences[0]) if len(influences) else 0
    # The correlations of sums over random groups are the same, and take no copy of all users' numbers.
    group = rng.permutation(users) % MAX_GROUPS if users > MAX_GROUPS else None
    rows = []
    for influence in influences:
        centred = influence - influence.mean()
        size = float(np.linalg.norm(centred[None], axis=1)[0])
        if size > 0:  # a candidate without any error needs no bound
            centred /= size
            rows.append(centred if group is None else np.bincount(group, weights=centred))
    m = len(rows)
    if m <= 1:
        return confidence
    psi = np.stack(rows)
    if group is not None:
        psi /= np.linalg.norm(psi, axis=1, keepdims=True)
    # Normal multipliers make the sums exactly normal with these correlations: draw those directly.
    values, vectors = np.linalg.eigh(psi @ psi.T)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    largest = (rng.standard_normal((REPLICATES, m)) @ root.T).max(axis=1)
    level = float(normal_cdf(np.quantile(largest, confidence)))
    return float(np.clip(level, confidence, 1 - (1 - confidence) / m))
