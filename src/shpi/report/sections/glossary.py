"""Explanations of the terms that the report uses."""

from __future__ import annotations

from shpi.report.page import Section, esc

TERMS = {
    "logging policy": "what decided while the log was written: the present system, with its exploration.",
    "this policy": "the candidate that is judged here. It has not decided anything yet.",
    "metric": "what is counted per user; the line below the title says it in words.",
    "lift": "how much more this policy would earn than the logging policy did, in the unit of the metric.",
    "interval": "in 95 of 100 logs like this one it contains the truth (if it says 95 %). Users are the "
    "independent units: decisions of one user are never counted as independent.",
    "lower bound": "the truth is above it with the stated confidence. The verdict rests on this number.",
    "propensity": "the probability with which the logging policy chose what it chose.",
    "weight": "how much likelier this policy makes a logged decision than the logging policy did. Decisions "
    "that it would make more often count more.",
    "effective users": "the effective sample size: so many equally weighted users are as informative as the "
    "weighted ones. Below 30 nothing is decided.",
    "decides": "the estimator that the verdict rests on. It is chosen by its weights, never by its estimate.",
    "agrees": "another estimator that needs no model, and whose interval overlaps with that of the one that "
    "decides.",
    "disagrees": "the same, but the intervals do not overlap: find out why before you ship.",
    "may be biased": "it rests on a model, or follows the policy for some decisions only. More users make it "
    "precise, not right. It never ships a policy.",
    "censored": "the log ends before the user leaves: later rewards are unknown, estimated from others.",
    "session": "a burst of decisions of one user, a visit.",
    "first step": "the policy in a part of the traffic, the logging policy in the rest: little risk, "
    "and a more informative log.",
    "ship / first step / need more data / hold": "proven better; proven in part of the traffic; "
    "promising, not "
    "yet proven; not supported by this log.",
}


def glossary() -> Section:
    """The terms in the order in which the report uses them."""
    items = "".join(f"<dt>{esc(word)}</dt><dd>{esc(meaning)}</dd>" for word, meaning in TERMS.items())
    return Section(
        key="glossary",
        title="Glossary",
        how="The words of this report.",
        body=f'<dl class="glossary">{items}</dl>',
    )
