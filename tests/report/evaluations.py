"""Evaluations made by hand: ordinary, empty, enormous, hostile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shpi.ope.inference.intervals import interval_of
from shpi.ope.results import (
    ActionShift,
    Diagnostic,
    Estimate,
    Evaluation,
    Factor,
    Histogram,
    Interval,
    Overlap,
    Segment,
    Verdict,
    Weights,
)

EVIL = "<script>alert('x')</script> \"quoted\" & 'single' </title></style></svg>"


def an_estimate(name: str = "WDR", lift: float = 0.8, error: float = 0.3, **changes: Any) -> Estimate:
    rng = np.random.default_rng(sum(name.encode()))
    raw = rng.standard_normal(200)
    influence = error * np.sqrt(200) * (raw - raw.mean()) / raw.std(ddof=1)
    fields = {
        "name": name,
        "value": 10 + lift,
        "baseline": 10.0,
        "lift": lift,
        "value_error": error,
        "lift_error": error,
        "value_interval": interval_of(10 + lift, influence),
        "lift_interval": interval_of(lift, influence),
        "effective_users": 84.0,
        "influence_value": influence,
        "influence_lift": influence,
        "weights": Weights(mean=1.02, max=7.5, ess=84.0, top_share=0.09, worst=31.0),
        "notes": ("mu(.|x) was not logged: not paired",),
    }
    return Estimate(**(fields | changes))


def bare(**changes: Any) -> Evaluation:
    """As little as an evaluation can hold."""
    estimate = an_estimate("FQE", weights=None)
    fields: dict[str, Any] = {
        "policy_name": "p",
        "metric": "reward per user",
        "estimates": (estimate,),
        "main": "FQE",
    }
    return Evaluation(**(fields | changes))


def ordinary(**changes: Any) -> Evaluation:
    wide = an_estimate().lift_interval
    fields: dict[str, Any] = {
        "policy_name": "autumn model",
        "metric": "reward per user over 10 decisions",
        "estimates": (an_estimate(), an_estimate("SHPI(k=4)", 0.7, 0.2), an_estimate("IPS", 5.0, 9.0)),
        "main": "WDR",
        "verdict": Verdict(
            decision="need more data",
            reasons=("The lift may be as low as −0.1.",),
            users_needed=1234,
            guards=(Diagnostic(name="click", severity="fine", sentence="click fell by at most 1 %."),),
        ),
        "diagnostics": (
            Diagnostic(name="users", severity="fine", sentence="200 users.", figure=200.0, threshold=100.0),
            Diagnostic(name="weight tails", severity="warning", sentence="Heavy tails.", estimator="WDR"),
            Diagnostic(name="effective users", severity="fatal", sentence="IPS has 3.", estimator="IPS"),
        ),
        "decomposition": (
            Factor(name="reward per recommendation", baseline=0.5, value=0.6),
            Factor(name="recommendations per session", baseline=4.0, value=3.9),
            Factor(name="sessions per user and month", baseline=5.0, value=5.5),
        ),
        "segments": tuple(
            Segment(column="tenure", label=name, users=60, baseline=9.0, lift=0.5, error=0.2, interval=wide)
            for name in ("below 3", "3 to 9", "from 9")
        ),
        "actions_gained_lost": (
            ActionShift(action="item 7", logged=0.1, policy=0.4, reward=0.5),
            ActionShift(action="item 3", logged=0.5, policy=0.2, reward=None),
        ),
        "short_term": an_estimate("next reward", -0.2, 0.05),
        "overlap": Overlap(
            logged=Histogram(edges=(0.1, 0.5, 1.0), counts=(300, 700)),
            policy=Histogram(edges=(0.1, 0.5, 1.0), counts=(600, 400)),
            ratios=Histogram(edges=(0.1, 0.5, 2.0, 10.0), counts=(200, 500, 250)),
            never=50,
            steps=(1, 2, 3),
            effective_users=(150.0, 80.0, 40.0),
        ),
        "configuration": {"settings": {"gamma": 1.0}, "estimators": [{"name": "WDR", "kind": "WDR"}]},
        "fingerprint": "55207b04d10f696c",
        "users": 200,
        "decisions": 1000,
    }  # fmt: skip
    return Evaluation(**(fields | changes))


def hostile() -> Evaluation:
    """Every word that a user could have chosen is an attack."""
    estimate = an_estimate(EVIL, notes=(EVIL,))
    plain = ordinary()
    return ordinary(
        policy_name=EVIL,
        metric=EVIL,
        estimates=(estimate, an_estimate("b" + EVIL)),
        main=EVIL,
        verdict=Verdict(
            decision="hold",
            reasons=(EVIL,),
            guards=(Diagnostic(name=EVIL, severity="fatal", sentence=EVIL, estimator=EVIL),),
        ),
        diagnostics=tuple(
            Diagnostic(name=EVIL, severity="warning", sentence=EVIL, estimator=who)
            for who in (EVIL, "b", None)
        ),
        decomposition=tuple(Factor(name=EVIL + str(i), baseline=1.0, value=2.0) for i in range(3)),
        segments=tuple(Segment(**(vars(s) | {"column": EVIL, "label": EVIL})) for s in plain.segments),
        actions_gained_lost=(ActionShift(action=EVIL, logged=0.1, policy=0.4, reward=0.5),),
        short_term=an_estimate(EVIL),
        configuration={EVIL: {EVIL: EVIL}, "estimators": [{"name": EVIL, "kind": EVIL, EVIL: EVIL}]},
        fingerprint=EVIL,
    )


def enormous(size: float = 1e12, many: int = 2000) -> Evaluation:
    """Thousands of everything, and numbers of any size."""
    wide = Interval(level=0.9, lower=-np.inf, upper=np.inf, lower_bound=-np.inf, method="bernstein")
    plain = ordinary()
    long = "a name that goes on and on " * 40
    return ordinary(
        policy_name=long,
        estimates=(
            an_estimate("WDR", 0.8 * size, 0.3 * size, baseline=-3 * size, value=-2.2 * size),
            replace(an_estimate("wild"), lift_interval=wide, lift=np.nan, effective_users=np.nan),
            *(an_estimate(f"{long}{i}") for i in range(60)),
        ),
        verdict=Verdict(decision="ship", reasons=(long,) * 500),
        diagnostics=tuple(
            Diagnostic(name=f"{i}", severity="warning", sentence=long, estimator=None, figure=np.inf)
            for i in range(many)
        ),
        segments=tuple(
            Segment(**(vars(plain.segments[0]) | {"label": f"{long}{i}", "users": i})) for i in range(many)
        ),
        actions_gained_lost=tuple(
            ActionShift(action=f"{long}{i}", logged=1 / many, policy=i / many**2, reward=-size)
            for i in range(many)
        ),
        configuration={f"key {i}": long for i in range(many)},
        users=10**9,
        decisions=10**12,
    )


CASES = {
    "ordinary": ordinary,
    "bare": bare,
    "hostile": hostile,
    "enormous": enormous,
    "tiny": lambda: enormous(1e-12, 30),
}
