"""Every estimator in words: its full name, one sentence, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from shpi.ope.results import Estimate, Evaluation

Mark = Literal["decides", "agrees", "disagrees", "may be biased", "failed a check"]


@dataclass(frozen=True, kw_only=True)
class About:
    """The explanation of an estimator for readers who do not know its abbreviation."""

    full: str
    sentence: str
    model: bool = False  # rests on a model; if that is wrong, more users do not help


ABOUT = {
    "WDR": About(
        full="weighted doubly robust",
        sentence="A model predicts what follows a decision, and the weighted log corrects the model's "
        "mistakes: "
        "a wrong model costs precision, not validity.",
    ),
    "SHPI": About(
        full="k-step short-horizon estimator",
        sentence="Follows the policy for k decisions with weights, then adds the logging policy's value "
        "from there on. Leaves out what the policy changes later than that.",
    ),
    "SNPDIS": About(
        full="self-normalised per-decision importance sampling",
        sentence="Weights every reward by how much likelier the policy makes the decisions up to it; the "
        "weights are divided by their mean.",
    ),
    "SNIPS": About(
        full="self-normalised importance sampling",
        sentence="Weights every user by how much likelier the policy makes all of the user's decisions; the "
        "weights are divided by their mean.",
    ),
    "PDIS": About(
        full="per-decision importance sampling",
        sentence="Like SNPDIS without normalised weights: unbiased, but a few large weights make its "
        "interval too narrow.",
    ),
    "IPS": About(
        full="inverse propensity scoring",
        sentence="Like SNIPS without normalised weights: unbiased, but a few large weights make its "
        "interval too narrow.",
    ),
    "DR": About(
        full="doubly robust",
        sentence="Like WDR without normalised weights: unbiased, but a few large weights make its "
        "interval too narrow.",
    ),
    "MAGIC": About(
        full="model and guided importance sampling combined",
        sentence="Blends weighted steps with a model of the rest, as many steps as seems best: as far as it "
        "relies on the model, the model must be right.",
        model=True,
    ),
    "FQE": About(
        full="fitted Q evaluation",
        sentence="A model alone, learned backwards from the last decision. Where the model is wrong, the "
        "estimate stays wrong, however many users there are.",
        model=True,
    ),
    "DM": About(
        full="direct method",
        sentence="A model alone, of what follows each decision. Where the model is wrong, the estimate "
        "stays wrong, however many users there are.",
        model=True,
    ),
    "MIS": About(
        full="marginalised importance sampling",
        sentence="Weights situations rather than sequences of decisions; how often the policy meets a "
        "situation comes from a model.",
        model=True,
    ),
    "SLOPE": About(
        full="SLOPE, a choice among k-step estimators",
        sentence="Takes the shortest k whose answer still agrees with those of all larger k. What a short k "
        "leaves out stays left out.",
        model=True,
    ),
}
UNKNOWN = About(
    full="an estimator of your own", sentence="Not one of shpi's: what it assumes is yours to say."
)
_KINDS = {"KStepSHPI": "SHPI", "DirectMethod": "DM", "OracleFQE": "FQE"}


def about(evaluation: Evaluation, name: str) -> About:
    """The explanation of an estimator, by its class if the evaluation records it, else by its name."""
    for described in evaluation.configuration.get("estimators", ()):
        kind = (
            described.get("kind", "") if isinstance(described, dict) and described.get("name") == name else ""
        )
        if _KINDS.get(kind, kind) in ABOUT:
            return ABOUT[_KINDS.get(kind, kind)]
    return ABOUT.get(name.partition("(")[0].partition(",")[0].strip(), UNKNOWN)


def may_be_biased(evaluation: Evaluation, estimate: Estimate) -> bool:
    """Whether an estimate rests on a model, or follows the policy for a limited number of decisions."""
    return about(evaluation, estimate.name).model or estimate.steps is not None


def mark(evaluation: Evaluation, estimate: Estimate) -> Mark:
    """The role of an estimate in the verdict."""
    if estimate.name == evaluation.main:
        return "decides"
    if any(
        diagnostic.severity == "fatal" and diagnostic.estimator == estimate.name
        for diagnostic in evaluation.diagnostics
    ):
        return "failed a check"
    if may_be_biased(evaluation, estimate):
        return "may be biased"
    own, main = estimate.lift_interval, evaluation.decisive.lift_interval
    return "agrees" if own.lower <= main.upper and main.lower <= own.upper else "disagrees"
