"""A report that explains itself: names in full, marks, one lower bound, all candidates, a glossary."""

from __future__ import annotations

import re

import pytest

from shpi.envs.storefront import Storefront
from shpi.ope import SLOPE, OracleFQE, default_estimators
from shpi.ope.candidates import Comparison
from shpi.ope.problem import Problem, Settings
from shpi.ope.results import Diagnostic, Verdict
from shpi.policies import UniformPolicy
from shpi.report.estimators import ABOUT, UNKNOWN, about, mark
from shpi.report.html import render, render_comparison
from shpi.report.sections.glossary import TERMS
from tests.report.evaluations import EVIL, an_estimate, hostile, ordinary
from tests.report.test_html import read, text

PROVEN = "Proven: the lift. WDR estimates +0.8 on 10, at least +0.31 with 95 % confidence."


def shipped(**changes):
    return ordinary(verdict=Verdict(decision="ship", reasons=(PROVEN,)), **changes)


@pytest.mark.parametrize("name", [name for name in ABOUT if name != "SHPI"])
def test_every_name_is_expanded_with_a_sentence(name):
    evaluation = ordinary(estimates=(an_estimate(), an_estimate(name + " ")), configuration={})
    shown = text(render(evaluation))
    assert ABOUT[name].full in shown
    assert ABOUT[name].sentence in shown


def test_every_default_estimator_is_known():
    shop = Storefront()
    logs = shop.rollout(UniformPolicy(shop.n_actions), 20, seed=0)
    problem = Problem.of(UniformPolicy(shop.n_actions), logs, Settings())
    for estimator in (*default_estimators(problem), SLOPE(), OracleFQE()):
        evaluation = ordinary(
            configuration={"estimators": [{"name": estimator.name, "kind": type(estimator).__name__}]}
        )
        assert about(evaluation, estimator.name) is not UNKNOWN, estimator.name


def test_marks_say_what_an_estimate_is_to_the_verdict():
    evaluation = ordinary(
        estimates=(
            an_estimate(),
            an_estimate("SNPDIS", 0.7),
            an_estimate("DR", 99.0, 0.1),
            an_estimate("FQE", 0.8),
            an_estimate("SHPI(k=4)", 0.8, steps=4),
            an_estimate("IPS"),
        ),
        diagnostics=(Diagnostic(name="w", severity="fatal", sentence="No.", estimator="IPS"),),
    )
    marks = {estimate.name: mark(evaluation, estimate) for estimate in evaluation.estimates}
    assert marks == {
        "WDR": "decides", "SNPDIS": "agrees", "DR": "disagrees", "FQE": "may be biased",
        "SHPI(k=4)": "may be biased", "IPS": "failed a check",
    }  # fmt: skip
    page = text(render(evaluation))
    assert "Round signs may be biased" in page
    for word in set(marks.values()):
        assert word in page


def test_what_needs_a_model_looks_different_and_stands_below():
    plain = render(ordinary(estimates=(an_estimate(), an_estimate("SNIPS"))))
    modelled = render(ordinary(estimates=(an_estimate(), an_estimate("FQE"), an_estimate("SNIPS"))))
    assert "Round signs" not in plain
    rows = re.findall(r"<td><b>(\w+)</b>", modelled)
    assert rows[:3] == ["WDR", "SNIPS", "FQE"]
    assert "FQE ~" in str(ordinary(estimates=(an_estimate(), an_estimate("FQE"))))


def test_there_is_one_lower_bound():
    """The verdict's own; the interval of the estimate ends elsewhere, and is called an interval."""
    shown = text(render(shipped()))
    assert shown.count("at least +") == 1
    assert "lift at least" not in shown


def test_the_metric_is_said_in_words_where_there_are_words():
    evaluation = ordinary(question="Counts each user's purchases in 30 days.")
    assert "Counts each user's purchases in 30 days: reward per user" in text(render(evaluation))


def test_users_needed_are_a_range_where_one_is_known():
    def said(most: int | None) -> tuple[str, str]:
        verdict = Verdict(decision="need more data", users_needed=1200, users_range=(700, most))
        evaluation = ordinary(verdict=verdict)
        return text(render(evaluation)), " ".join(str(evaluation).split())

    for shown in said(5000):
        assert "About 1,200 users in all" in shown
        assert "700 if the lift is one standard error above its estimate, 5,000 if it is one below." in shown
    for shown in said(None):
        assert "no number would do if it is one below" in shown
    for shown in said(700):
        assert "users in all would be needed to decide." in shown
    first = Verdict(decision="need more data", users_needed=1200, users_range=(1200, 5000), users_prove=False)
    assert "1,200 users in all would be needed to judge it at all" in " ".join(
        str(ordinary(verdict=first)).split()
    )
    least = Verdict(decision="need more data", users_needed=1200, users_range=(1200, 5000))
    assert "1,200 to 5,000 users in all would be needed to decide." in " ".join(
        str(ordinary(verdict=least)).split()
    )


def test_a_first_step_has_its_own_words():
    shown = text(render(ordinary(verdict=Verdict(decision="first step", reasons=("Because.",)))))
    assert "First step" in shown
    assert "part of the traffic" in shown


def test_the_glossary_has_every_mark():
    shown = text(render(ordinary()))
    for word in TERMS:
        assert word in shown
    for word in ("decides", "agrees", "disagrees", "may be biased"):
        assert word in TERMS


# ---------------------------------------------------------------------- several candidates


def several() -> Comparison:
    wide = ordinary(policy_name="bold", verdict=Verdict(decision="hold", reasons=("No.",)))
    return Comparison(evaluations=(shipped(policy_name="careful"), wide), best="careful")


def test_all_candidates_stand_side_by_side():
    page = render_comparison(several())
    shown = text(page)
    assert "Ship careful" in shown
    assert shown.index("side by side") < shown.index("careful: ship")
    assert "bold: hold" in shown
    assert page.count("Lift over the logging policy") >= 2
    reader = read(page)
    places = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(set(places)) == len(places)
    assert {attrs["href"][1:] for tag, attrs in reader.tags if tag == "a"} <= set(places)


def test_names_of_candidates_are_shown_not_obeyed():
    page = render_comparison(Comparison(evaluations=(hostile(), ordinary()), best=EVIL))
    assert "<script" not in page
    assert not {"script", "iframe", "img"} & {tag for tag, _ in read(page).tags}


def test_a_comparison_is_written(tmp_path):
    place = several().write_html(tmp_path / "report.html")
    assert "2 candidates" in place.read_text()


def test_candidates_that_can_take_a_first_step_are_named():
    steps = ordinary(policy_name="bold", verdict=Verdict(decision="first step", reasons=("70 %.",)))
    shown = text(render_comparison(Comparison(evaluations=(steps, steps), best=None)))
    assert "First step" in shown
    assert "in part of the traffic: bold" in shown
