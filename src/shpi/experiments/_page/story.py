"""A summary of all experiments in ten sentences and one figure; every number is read from the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shpi.experiments._page import topics
from shpi.experiments._page.compare import plain
from shpi.experiments._run.experiment import Claim, Figure, Results
from shpi.experiments._run.settings import BCQ, LOGGING, OURS, PAPER, READINGS, RELEASED, REPAIRED
from shpi.experiments.paper import release
from shpi.report import svg

Page = dict[str, tuple[Results, list[Claim]]]  # rows and claims by experiment


def lessons(page: Page) -> list[str]:
    """The sentences; those whose experiment has no rows are left out."""
    sentences = (
        _print(page),
        _authors(),
        _released(page),
        _repaired(page),
        _counted(page, "rivals", "SHPI is better than the logging policy, bandits and offline RL"),
        _counted(page, "returns", "A_k gives better policies than A^mu and A^pi"),
        _recogym(page),
        _hiv(page),
        _counted(page, "backshift", "Rewards recovered by backshift help"),
        _defaults(page),
    )
    return [sentence for sentence in sentences if sentence]


def figure(page: Page) -> Figure | None:
    """The share of the paper's claims that hold, by reading of SHPI."""
    labels, shares = [], {reading: list[float]() for reading in READINGS}
    for topic, label in topics.SHORT.items():
        counts = [_count(page, topic, reading) for reading in READINGS]
        if sum(decided > 0 for _, decided in counts) < 2:
            continue
        labels.append(label)
        for reading, (holding, decided) in zip(READINGS, counts, strict=True):
            shares[reading].append(100 * holding / decided if decided else float("nan"))
    if not labels:
        return None
    title = "How many of the paper's comparisons hold, by reading of the algorithm"
    drawing = svg.bars(
        labels,
        shares,
        title=title,
        description="; ".join(f"{reading}: {', '.join(map(_percent, v))}" for reading, v in shares.items()),
        show=_percent,
        x_label="% of the comparisons with enough trials",
    )
    return Figure("story.svg", title, drawing)


def _percent(share: float) -> str:
    return f"{share:.0f} %" if np.isfinite(share) else "–"


def _count(page: Page, topic: str, reading: str) -> tuple[int, int]:
    """The number of claims that hold, and of those that are decided."""
    claims = [
        c
        for _, claims_of_page in page.values()
        for c in claims_of_page
        if (c.topic, c.reading) == (topic, reading)
    ]
    decided = [claim for claim in claims if claim.holds is not None]
    return sum(bool(claim.holds) for claim in decided), len(decided)


def _counted(page: Page, topic: str, text: str) -> str:
    counts = {reading: _count(page, topic, reading) for reading in READINGS}
    phrases = [
        f"{holding} of {decided} for {reading}" for reading, (holding, decided) in counts.items() if decided
    ]
    return f"{text}: this holds in {_joined(phrases)}." if phrases else ""


def _print(page: Page) -> str:
    returns = _values(page, "synthetic", PAPER.name, 0.3)
    mu = _values(page, "synthetic", LOGGING.name, 0.3)
    if not len(returns) or not len(mu):
        return ""
    works = "works" if float(np.median(returns)) > float(mu.mean()) else "does not work"
    return (
        f"As printed, the algorithm {works} in our synthetic task: at epsilon = 0.3 paper() has a median "
        f"of {plain(float(np.median(returns)))} (mean {plain(float(returns.mean()))}) where the paper "
        f"reports 8,411 and the logging policy has {plain(float(mu.mean()))}."
    )


def _authors() -> str:
    mean, deviation, middle = release.AS_RUN[release.DIFFERENCES, 0.3]
    assert middle is not None
    return (
        "The authors' released code is another algorithm: its policy does not depend on the context, V gets "
        "five gradient steps, and contexts are logged after the action; run by us it has "
        f"{plain(mean)} ± {plain(deviation)} (median {plain(middle)}), and one constant action scores 8,339."
    )


def _released(page: Page) -> str:
    if "release" not in page:
        return ""
    rows = page["release"][0]
    phrases = []
    for epsilon in release.EPSILONS:
        values = rows.values(f"{release.DIFFERENCES}, {epsilon:g}")
        middle = release.AS_RUN[release.DIFFERENCES, epsilon][2]
        if not len(values) or middle is None:
            return ""
        phrases.append(
            f"a median of {plain(float(np.median(values)))} at epsilon = {epsilon:g} (theirs: "
            f"{plain(middle)}; {int((values < 0).sum())} of {len(values)} runs below 0)"
        )
    return f"Our version of that code, released(), has in its own worlds {_joined(phrases)}."


def _repaired(page: Page) -> str:
    if "synthetic" not in page:
        return ""
    rows = page["synthetic"][0]
    shares = {
        (method.name, epsilon): rows.values("attained", method=method.name, epsilon=epsilon)
        for method in (PAPER, REPAIRED)
        for epsilon in (0.3, 1.0)
    }
    if not all(len(values) for values in shares.values()):
        return ""
    means = {key: f"{values.mean():.1%}" for key, values in shares.items()}
    return (
        "Two repairs of the print are V by temporal differences and weights kept off V: with them, "
        f"repaired() attains {means[REPAIRED.name, 0.3]} and {means[REPAIRED.name, 1.0]} of the possible "
        f"improvement at epsilon = 0.3 and 1, paper() {means[PAPER.name, 0.3]} and {means[PAPER.name, 1.0]}."
    )


def _recogym(page: Page) -> str:
    names = (LOGGING.name, PAPER.name, RELEASED.name, REPAIRED.name, OURS.name)
    values = {name: _values(page, "recogym", name, 0.3) for name in names}
    if not all(len(trials) for trials in values.values()):
        return ""
    means = {name: float(trials.mean()) for name, trials in values.items()}
    readings = [f"{plain(means[name])} ({name[6:]})" for name in names[1:4]]
    return (
        f"RecoGym: Algorithm 2 has {_joined(readings)} where the logging policy has "
        f"{plain(means[LOGGING.name])} (docs/paper-and-release.md says why); our defaults, which tilt mu "
        f"only as far as the log bears them out, have {plain(means[OURS.name])}."
    )


def _hiv(page: Page) -> str:
    phrases = []
    for epsilon in (0.3, 1.0):
        means = [
            _values(page, "hiv", name, epsilon) for name in (LOGGING.name, REPAIRED.name, OURS.name, BCQ.name)
        ]
        if not all(len(trials) for trials in means):
            return ""
        mu, repaired, ours, bcq = (plain(float(trials.mean())) for trials in means)
        phrases.append(
            f"at epsilon = {epsilon:g} logging has {mu}, repaired() {repaired}, our defaults {ours}, "
            f"BCQ {bcq}"
        )
    return f"HIV: {_joined(phrases)}."


def _defaults(page: Page) -> str:
    best, safe = _count(page, "best", "defaults"), _count(page, "safe", "defaults")
    if not best[1]:
        return ""
    return (
        f"Our defaults have the highest mean of all offline methods on {best[0]} of {best[1]} logs, and are "
        f"not worse than the logging policy on {safe[0]} of {safe[1]}."
    )


def _values(page: Page, experiment: str, method: str, epsilon: float) -> np.ndarray:
    if experiment not in page:
        return np.zeros(0)
    return page[experiment][0].values(method=method, epsilon=epsilon)


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
