"""Estimators that follow the policy's effects for some decisions only: they say so, and have a witness."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shpi.envs.rollout import rollout
from shpi.envs.storefront import Storefront
from shpi.ope import (
    DR,
    FQE,
    IPS,
    MAGIC,
    PDIS,
    SLOPE,
    SNIPS,
    SNPDIS,
    WDR,
    DirectMethod,
    Gate,
    KStepSHPI,
    Problem,
    Settings,
    diagnose,
    evaluate,
)
from shpi.ope.diagnostics.diagnose import fatal_for
from shpi.ope.inference.per import PerDecision
from shpi.ope.verdict.longer import LEAST_WITNESS, k_step, longest
from shpi.policies import TabularPolicy
from tests.ope.worlds import H, small_world

MDP, MU, PI = small_world()
SHOP = Storefront()


@pytest.fixture(scope="module")
def problem():
    return Problem.of(MDP.policy(PI), MDP.log(MU, 400, H, seed=1), Settings(gamma=0.9))


def shop(share: float, users: int, seed: int) -> Problem:
    """The best policy of a visit, mixed into uniform choices, on a log of uniform choices."""
    mixed = TabularPolicy((1 - share) * SHOP.uniform() + share * SHOP.session_rl())
    log = rollout(SHOP, TabularPolicy(SHOP.uniform()), users, seed, keep_behaviour=True)
    return Problem.of(mixed, log, Settings())


@pytest.mark.parametrize(
    ("estimator", "steps"),
    [
        (WDR(), None), (DR(), None), (SNIPS(), None), (IPS(), None), (FQE(), None), (MAGIC(), None),
        (SNPDIS(), None), (SNPDIS(k=2), 2), (PDIS(k=3), 3), (DirectMethod(), 1),
        (KStepSHPI(k=2, name="a name of its own"), 2), (KStepSHPI(k=2, form="start"), 2),
        (KStepSHPI(k=H), None), (KStepSHPI(k=H + 3), None),
        (SLOPE(candidates=(KStepSHPI(k=1),)), 1), (PerDecision(KStepSHPI(k=2)), 2),
    ],
    ids=lambda argument: getattr(argument, "name", str(argument)),
)  # fmt: skip
def test_an_estimate_says_how_many_decisions_it_follows(problem, estimator, steps):
    assert estimator.estimate(problem).steps == steps


def test_a_session_has_its_mean_length():
    visits = shop(0.3, 60, 0)
    assert KStepSHPI(k="session").estimate(visits).steps == 2  # every visit has two decisions
    log = visits.source
    single = replace(log, session_offsets=log.offsets)  # all visits of a user as one session
    assert KStepSHPI(k="session").estimate(Problem.of(visits.policy, single, Settings())).steps is None


def test_witnesses_are_known_by_what_they_are_not_by_their_names(problem):
    for estimator in (WDR(name="a"), SNPDIS(name="b"), SNIPS(name="c")):
        assert estimator.estimate(problem).consistent
    for estimator in (KStepSHPI(k=2, name="WDR"), SNPDIS(k=2), PDIS(), DR(), FQE(name="SNIPS")):
        assert not estimator.estimate(problem).consistent


def test_the_longest_has_as_many_decisions_as_effective_users_allow(problem):
    shortest = KStepSHPI(k=1).estimate(problem)
    witness = longest(problem, shortest)
    exact = KStepSHPI(k=H).estimate(problem)  # 1, 2, 4, then all of them
    assert witness is not None
    assert (witness.lift, witness.steps) == (exact.lift, None)
    assert longest(problem, exact) is None
    assert longest(problem, WDR().estimate(problem)) is None


def test_the_longest_stops_where_effective_users_run_out():
    far = shop(1.0, 2_000, 3)
    session = KStepSHPI(k="session").estimate(far)
    witness = longest(far, session)
    assert witness is not None
    assert witness.steps is not None
    twice = k_step(far, min(2 * witness.steps, far.horizon), session.per)
    assert witness.effective_users >= LEAST_WITNESS > twice.effective_users
    few = shop(1.0, 200, 3)
    assert longest(few, KStepSHPI(k=3).estimate(few)) is None


def test_the_witness_is_per_decision_where_the_estimate_is(problem):
    estimate = PerDecision(KStepSHPI(k=1)).estimate(problem)
    assert longest(problem, estimate).lift == PerDecision(KStepSHPI(k=H)).estimate(problem).lift


def test_a_name_of_its_own_escapes_no_check(problem):
    """The same estimator under two names: the same diagnostics, the same verdict."""
    said = []
    for name in ("", "mine"):
        short = KStepSHPI(k=1, name=name).estimate(problem)
        up = replace(short, lift=short.lift + 12 * short.lift_error)
        diagnostics = diagnose(problem, [up, WDR().estimate(problem)], up.name)
        said.append({d.name: d.severity for d in diagnostics if d.estimator == up.name})
        assert {"drift with k", "disagreement"} <= {d.name for d in fatal_for(diagnostics, up.name)}
    assert said[0] == said[1]


def test_what_is_left_out_is_flagged_unless_it_is_small(problem):
    short = KStepSHPI(k=1).estimate(problem)
    left_out = {d.name: d for d in diagnose(problem, [short], short.name)}["steps left out"]
    assert left_out.severity == "warning"
    assert f"1 of {H} decisions" in left_out.sentence
    exact = KStepSHPI(k=H).estimate(problem)
    same = replace(exact, name="nearly all", steps=H - 1)  # as if the last decision changed nothing
    assert {d.name: d for d in diagnose(problem, [same], same.name)}["steps left out"].severity == "fine"
    assert "steps left out" not in {d.name for d in diagnose(problem, [exact], exact.name)}


def test_a_k_step_bound_never_ships():
    """Two decisions promise too much, and more, of which fewer users know, do not show as much."""
    far = shop(1.0, 2_000, 3)
    evaluation = evaluate(
        far.policy, far.source, estimators=[KStepSHPI(k="session", name="mine")], details=False
    )
    own, witness = evaluation.decisive, evaluation.longer
    assert witness is not None
    assert witness.lift_interval.lower_bound < own.lift_interval.lower_bound
    truth = SHOP.exact_value(SHOP.session_rl()) - SHOP.exact_value(SHOP.uniform())
    assert own.lift_interval.lower_bound > truth
    verdict = Gate().decide(replace(evaluation, diagnostics=()))
    assert not verdict.ship
    assert "mine leaves out" in verdict.reasons[0]


def test_not_even_a_sure_one_ships_if_it_leaves_decisions_out(problem):
    short = KStepSHPI(k=1).estimate(problem)
    evaluation = evaluate(
        MDP.policy(PI), MDP.log(MU, 400, H, seed=1), estimators=[KStepSHPI(k=1)], gamma=0.9, details=False
    )
    sure = replace(short, lift=10 * short.lift_error)
    for longer in (replace(sure, steps=2), replace(sure, steps=None), None):
        assert not Gate().decide(replace(evaluation, estimates=(sure,), longer=longer, diagnostics=())).ship


def test_without_a_witness_more_data_are_needed():
    few = shop(1.0, 200, 3)
    evaluation = evaluate(
        few.policy, few.source, estimators=[KStepSHPI(k=3)], gate=Gate(patience=1_000), details=False
    )
    fatal = {d.name: d for d in fatal_for(evaluation.diagnostics, evaluation.main)}
    assert evaluation.longer is None
    assert fatal["steps left out"].figure < fatal["steps left out"].threshold == LEAST_WITNESS
    assert not evaluation.verdict.ship
