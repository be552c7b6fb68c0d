"""Tables and claims that most experiments share: methods side by side, with the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shpi.experiments._page.stats import paired, probability_of_best, summarise
from shpi.experiments._run.experiment import Claim, Results, Table
from shpi.experiments._run.settings import READINGS, reading_of
from shpi.protocols import Float64Array
from shpi.report.numbers import MINUS, number

LEVEL = 0.05  # level of the one-sided paired test behind a claim
ROUNDING = 1e-12  # a smaller deviation, relative to the mean, is rounding error
FEWEST = 5  # trials that a claim needs: with 5, the smallest p is 1/32

Paper = Mapping[str, tuple[float, float]]  # mean and standard deviation by method


def side_by_side(
    results: Results,
    title: str,
    methods: Sequence[str],
    *,
    paper: Paper | None = None,
    authors: Mapping[str, str] | None = None,
    reference: str | None = None,
    metric: str = "score",
    **where: Any,
) -> Table:
    """A table of methods: the paper's mean ± sd, ours, the interquartile mean, P(best) and a p-value.

    Args:
        results: the rows of the experiment.
        title: title of the table.
        methods: the methods, in the order of the table.
        paper: the paper's results, by method.
        authors: results of the authors' released code when we ran it, by method.
        reference: the method that is tested against each of the others.
        metric: metric of the rows.
        where: further fields that the rows must have.
    """
    by_method = {name: results.trials(metric, method=name, **where) for name in methods}
    best = _probabilities(by_method)
    columns = ["method"] + (["paper"] if paper is not None else [])
    columns += ["authors' code, as run"] if authors is not None else []
    columns += ["ours, mean ± sd", "interquartile mean [95 %]", "P(best)"]
    columns += [f"p that {reference} is better"] if reference is not None else []
    most = max((len(trials) for trials in by_method.values()), default=0)
    rows = []
    for name, trials in by_method.items():
        cells = [name] + ([spread(paper.get(name))] if paper is not None else [])
        cells += [authors.get(name, "–")] if authors is not None else []
        if not trials:
            rows.append(
                (*cells, *["failed" if _failed(results, name) else "–"] * (len(columns) - len(cells)))
            )
            continue
        summary = summarise(list(trials.values()))
        cells += [
            spread((summary.mean, summary.deviation)) + (f" ({summary.n} trials)" if summary.n < most else "")
        ]
        cells += [f"{plain(summary.interquartile_mean)} [{plain(summary.low)}, {plain(summary.high)}]"]
        cells += [f"{best[name]:.2f}" if name in best else "–"]
        if reference is not None:
            shared = sorted(set(trials) & set(by_method.get(reference, {})))
            tested = name != reference and len(shared) > 1
            pair = (
                [np.array([by_method[who][s] for s in shared]) for who in (reference, name)] if tested else []
            )
            cells += [f"{paired(*pair).p:.3f}" if tested else "–"]
        rows.append(tuple(cells))
    return Table(title, tuple(columns), tuple(rows))


def _probabilities(by_method: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """P(best) among the methods that have all trials."""
    most = max((len(trials) for trials in by_method.values()), default=0)
    complete = {
        name: np.array(list(trials.values())) for name, trials in by_method.items() if len(trials) == most
    }
    return probability_of_best(complete) if most > 1 and len(complete) > 1 else {}


def better(
    text: str,
    a: Float64Array,
    b: Float64Array,
    *,
    names: tuple[str, str] = ("a", "b"),
    topic: str = "",
    reading: str = "",
) -> Claim:
    """The claim that a > b: the mean of the paired differences is above 0, with p <= 0.05."""
    if not len(a) or len(a) != len(b):
        return Claim(text, None, "no pairs of trials", topic, reading)
    test = paired(a, b)
    evidence = (
        f"{names[0]} {plain(float(a.mean()))}, {names[1]} {plain(float(b.mean()))}; "
        f"difference {plain(test.difference)}, {test.wins:.0%} of the pairs won"
    )
    holds = test.difference > 0 and test.p <= LEVEL if test.n >= FEWEST else None
    return Claim(text, holds, evidence, topic, reading, test.n, test.p)


def steadier(
    text: str,
    wide: Mapping[int, float],
    narrow: Mapping[int, float],
    *,
    names: tuple[str, str],
    topic: str = "",
    reading: str = "",
) -> Claim:
    """The claim that trials (by seed) spread more in ``wide``, by paired distances from the mean."""
    shared = sorted(set(wide) & set(narrow))
    if not shared:
        return Claim(text, None, "no pairs of trials", topic, reading)
    pair = [np.array([side[seed] for seed in shared]) for side in (wide, narrow)]
    test = paired(*(np.abs(values - values.mean()) for values in pair))
    first, second = (summarise(values).deviation for values in pair)
    evidence = (
        f"sd {plain(first)} with {names[0]}, {plain(second)} with {names[1]}; "
        "paired test of the distances from the mean"
    )
    holds = None if test.n < FEWEST else test.difference > 0 and test.p <= LEVEL
    return Claim(text, holds, evidence, topic, reading, test.n, test.p)


def for_readings(reported: Paper) -> dict[str, tuple[float, float]]:
    """The paper's results, with those of "SHPI" repeated for every reading of it."""
    figures = {name: value for name, value in reported.items() if name != "SHPI"}
    return figures | {method.name: reported["SHPI"] for method in READINGS.values()}


def shpi_beats(results: Results, rivals: Mapping[str, str], label: str = "", **where: Any) -> list[Claim]:
    """The claims that each reading of SHPI beats each rival (name in the rows: name in the claim)."""
    claims = []
    for method in sorted({row.method for row in results.rows if row.method.startswith("SHPI, ")}, key=_order):
        reading = reading_of(method)
        for rival, called in rivals.items():
            trials = results.aligned((method, rival), **where)
            if method in trials and rival in trials:
                text, names = f"{label}{method} > {called}", (method, rival)
                claims.append(
                    better(text, trials[method], trials[rival], names=names, topic="rivals", reading=reading)
                )
    return claims


def _order(name: str) -> int:
    return list(READINGS).index(reading_of(name)) if reading_of(name) else len(READINGS)


def spread(value: tuple[float, float] | None) -> str:
    """Mean ± sd, or a dash."""
    if value is None:
        return "–"
    mean, deviation = value
    return f"{plain(mean)} ± {plain(deviation if deviation > ROUNDING * abs(mean) else 0.0)}"


def plain(value: float) -> str:
    """A number with a readable number of digits."""
    size = abs(value)
    if 1e6 <= size < 1e300:  # sums of rewards in HIV: the same format throughout a table
        return f"{value:.2e}".replace("e+0", "e").replace("e+", "e").replace("-", MINUS)
    if 0.001 <= size < 10:
        return f"{value:.3f}".replace("-", MINUS)
    return number(value, digits=4 if size >= 1000 else 3)


def _failed(results: Results, name: str) -> bool:
    return any(row.method == name for row in results.failures())
