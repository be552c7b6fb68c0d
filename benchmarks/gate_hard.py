"""One judgement of the gate in a hard world, as a record that can be stored and counted."""

from __future__ import annotations

import os
from dataclasses import dataclass

from shpi.errors import ShpiError
from shpi.ope import SNPDIS, WDR, Gate, KStepSHPI, evaluate
from shpi.ope.checks.cautions import AT_THEIR_WORD
from shpi.ope.diagnostics.diagnose import fatal_for
from shpi.testing.hard_worlds import WORLDS

K = 4  # k of the k-step estimator


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One policy, its true lift, and the gate's verdict."""

    world: str
    seed: int
    users: int
    wanted: float  # true lift as a share of the baseline
    told: bool  # whether the evaluation got the owner's knowledge of how trajectories end
    truth: float
    lift: float
    error: float
    lower: float  # lower end of the two-sided interval
    upper: float
    bound: float  # one-sided lower bound
    decision: str
    main: str
    needed: int | None
    step: float | None  # share of a proven first step
    step_truth: float | None  # true lift of that mixture
    fatal: tuple[str, ...]
    warned: tuple[str, ...]
    share: float = 1.0  # share of the policy in the mixture that the report leads with; 1: the policy itself
    lead_truth: float | None = None  # true lift of that mixture; None: the policy itself
    recent_truth: float | None = None  # true lift over mu of the last third of the log

    at_their_word: bool | None = None  # whether the verdict says how few wrong propensities would undo it

    @property
    def led(self) -> float:
        """The true value of the lift that the report leads with."""
        return self.truth if self.lead_truth is None else self.lead_truth


def judge(task: tuple[str, int, int | None, float, bool]) -> Judged | None:
    """Judge (world, seed, users, true lift, whether the evaluation is told how trajectories end).

    None if the policy of that seed cannot have such a lift, or if evaluate refuses the log.
    """
    name, seed, users, wanted, told = task
    try:
        case = WORLDS[name].make(seed, users, lift=wanted)
        options = dict(case.options) if told else {"horizon": case.horizon}
        logs = case.told_logs if told else case.logs
        evaluation = evaluate(
            case.policy,
            logs,
            estimators=[WDR(), KStepSHPI(k=min(K, case.horizon)), SNPDIS()],
            gate=Gate(),
            details=False,
            seed=seed,
            **options,
        )
    except ShpiError:
        return None
    verdict, estimate, lead = evaluation.verdict, evaluation.decisive, evaluation.lead
    assert verdict is not None
    reach = lead.estimate.lift_interval
    first = getattr(verdict, "first_step", None)
    share = None if first is None else float(first.share)
    return Judged(
        world=name,
        seed=seed,
        users=logs.n_users,
        wanted=wanted,
        told=told,
        truth=case.lift,
        lift=lead.estimate.lift,
        error=lead.estimate.lift_error,
        lower=reach.lower,
        upper=reach.upper,
        bound=reach.lower_bound,
        decision=verdict.decision,
        main=estimate.name,
        needed=verdict.users_needed,
        step=share,
        step_truth=None if share is None else case.mixture_lift(share),
        fatal=tuple(d.name for d in fatal_for(evaluation.diagnostics, estimate.name)),
        warned=tuple(
            d.name
            for d in evaluation.diagnostics
            if d.severity == "warning" and d.estimator in (None, estimate.name)
        ),
        share=lead.share,
        lead_truth=None if lead.share == 1 else case.mixture_lift(lead.share),
        recent_truth=case.recent_lift,
        at_their_word=any(AT_THEIR_WORD in reason for reason in verdict.reasons),
    )


def size(name: str, fallback: int) -> int:
    """A number from the environment."""
    return int(os.environ.get(name, fallback))
