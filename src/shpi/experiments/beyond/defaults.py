"""Beyond the paper: our defaults, one configuration for all worlds, against paper() and offline rivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shpi.experiments._page.compare import FEWEST, LEVEL, plain, side_by_side
from shpi.experiments._page.stats import interquartile_mean, middle_interval, paired, probability_of_best
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Claim, Experiment, Figure, Note, Results, Table
from shpi.experiments._run.settings import (
    BCQ,
    CB,
    FEW,
    LOGGING,
    OURS,
    PAPER,
    REPAIRED,
    SCREEN,
    Method,
    Settings,
)
from shpi.experiments.paper import private
from shpi.experiments.paper.appendix.synthetic_large import PROXIMAL
from shpi.protocols import Float64Array
from shpi.report import svg

CQL = Method(name="CQL", learner="cql")
RIVALS = (CB, BCQ)
LOGS: tuple[tuple[str, float, Mapping[str, Any], str], ...] = (  # world, epsilon, parameters, variant
    ("synthetic", 0.3, {}, ""),
    ("synthetic", 0.0, {}, ""),
    ("synthetic", 1.0, {}, ""),
    ("synthetic-large", 0.3, {}, ""),
    ("recogym", 0.3, {}, ""),
    ("hiv", 0.3, {}, ""),
    ("hiv", 1.0, {}, ""),
    *(("kuairand", private.EPSILON, private.params(a), variant) for variant, a in private.WORLDS.items()),
)
LARGEST = "with an assumed effect"  # the log of 40,000 users
NAMES = (LOGGING.name, OURS.name, REPAIRED.name, PAPER.name, *(m.name for m in (*RIVALS, CQL)))


def cells(settings: Settings) -> list[Cell]:
    """All offline methods on all logs; on KuaiRand's only if its files are available."""
    planned: list[Cell] = []
    for world, epsilon, params, variant in LOGS:
        if world == "kuairand" and not settings.data:
            continue
        paper = PROXIMAL if world == "synthetic-large" else PAPER
        logs = (
            private.logs(settings, variant)
            if world == "kuairand"
            else settings.logs(world, epsilon, params, variant=variant)
        )
        for trial, log in enumerate(logs):
            methods = [LOGGING, OURS, *RIVALS]
            methods += [] if variant == LARGEST else [replace(paper, name=PAPER.name)]
            methods += [REPAIRED] if _is_repaired(world, epsilon, variant, trial) else []
            methods += [CQL] if trial < SCREEN and world in ("hiv", "recogym") else []
            planned += [method.on(log, settings) for method in methods]
    return planned


def _is_repaired(world: str, epsilon: float, variant: str, trial: int) -> bool:
    """Whether repaired() is run: not on logs without exploration, nor on the largest log."""
    if (world, epsilon) == ("synthetic", 0.0) or variant == LARGEST:
        return False
    return trial < FEW or world == "synthetic"


def show(results: Results) -> list[Block]:
    """One line per log, with the distance to mu and to the best rival, and a summary over all logs."""
    rows, claims, tables = [], [], []
    gains: dict[str, list[Float64Array]] = {}
    for world, epsilon, _, variant in LOGS:
        where: dict[str, Any] = {"world": f"{world}, {variant}" if variant else world, "epsilon": epsilon}
        trials, few = _complete(results, where)
        if LOGGING.name not in trials or OURS.name not in trials:
            continue
        label = f"{where['world']}, epsilon = {epsilon:g}"
        rows.append(_line(label, trials))
        claims += _claims(label, trials, few)
        tables.append(side_by_side(results, label, NAMES, reference=OURS.name, **where))
        for name, values in _normalised(trials).items():
            gains.setdefault(name, []).append(values)
    columns = ("log", "logging", "SHPI, defaults", "P(best)", "best rival", "its score", "p, SHPI better")
    blocks: list[Block] = [Table("Our defaults in every world", columns, tuple(rows))]
    if rows:
        shared = {name: groups for name, groups in gains.items() if len(groups) == len(rows)}
        blocks.append(_forest(shared))
    return [*blocks, *claims, *tables, Note(NORMALISED)]


Few = dict[str, tuple[Float64Array, Float64Array]]  # a rival with fewer trials, and ours at the same seeds


def _complete(results: Results, where: Mapping[str, Any]) -> tuple[dict[str, Float64Array], Few]:
    """The methods that have as many trials as our defaults, and those that have fewer."""
    ours = results.trials(method=OURS.name, **where)
    by_method = {name: results.trials(method=name, **where) for name in NAMES}
    full = [name for name, trials in by_method.items() if trials and set(trials) >= set(ours)]
    few = {}
    for name, trials in by_method.items():
        shared = sorted(set(trials) & set(ours))
        if shared and name not in full:
            few[name] = np.array([trials[s] for s in shared]), np.array([ours[s] for s in shared])
    return (results.aligned(full, **where) if ours else {}), few


NORMALISED = (
    "In the figure, scores of a log are scaled so that the logging policy's mean is 0 and the best "
    "method's is 1, and cut at -1; then the interquartile mean over all worlds and seeds is taken, with "
    "an interval from a bootstrap that resamples the seeds of each world."
)


def _line(label: str, trials: Mapping[str, Float64Array]) -> tuple[str, ...]:
    best = probability_of_best(trials)[OURS.name] if len(trials[OURS.name]) > 1 else float("nan")
    rival = _best_rival(trials)
    return (
        label,
        plain(float(trials[LOGGING.name].mean())),
        plain(float(trials[OURS.name].mean())),
        plain(best),
        rival,
        plain(float(trials[rival].mean())),
        f"{paired(trials[OURS.name], trials[rival]).p:.3f}",
    )


def _claims(label: str, trials: Mapping[str, Float64Array], few: Few) -> list[Claim]:
    """The claims that our defaults have the highest mean, and are not worse than the logging policy."""
    ahead = [name for name, (theirs, own) in few.items() if theirs.mean() > own.mean()]
    ours, mu = trials[OURS.name], trials[LOGGING.name]
    rival = _best_rival(trials)
    lead = float(ours.mean() - trials[rival].mean())
    best = probability_of_best(trials)[OURS.name] if len(ours) > 1 else float("nan")
    harm = paired(mu, ours)
    enough = len(ours) >= FEWEST
    return [
        Claim(
            f"{label}: SHPI's defaults have the highest mean of all offline methods",
            lead >= 0 and not ahead if enough else None,
            f"SHPI {plain(float(ours.mean()))}, best rival {rival} {plain(float(trials[rival].mean()))}; "
            f"P(best) = {plain(best)}"
            + (f"; ahead at the few seeds that they ran: {', '.join(ahead)}" if ahead else ""),
            "best",
            "defaults",
        ),
        Claim(
            f"{label}: SHPI's defaults are not worse than the logging policy",
            harm.p > LEVEL if enough else None,
            f"SHPI {plain(float(ours.mean()))}, logging {plain(float(mu.mean()))}; "
            f"p = {harm.p:.3f} that logging is better",
            "safe",
            "defaults",
        ),
    ]


def _best_rival(trials: Mapping[str, Float64Array]) -> str:
    rivals = [name for name in trials if name not in (OURS.name, LOGGING.name)] or [LOGGING.name]
    return max(rivals, key=lambda name: float(trials[name].mean()))


def _normalised(trials: Mapping[str, Float64Array]) -> dict[str, Float64Array]:
    """Scores scaled so that the logging policy's mean is 0 and the best method's 1; cut off below -1."""
    of_mu = float(trials[LOGGING.name].mean())
    highest = max(float(values.mean()) for values in trials.values())
    width = (highest - of_mu) or 1.0
    return {name: np.maximum((values - of_mu) / width, -1.0) for name, values in trials.items()}


def _forest(gains: Mapping[str, list[Float64Array]]) -> Figure:
    middles = {name: interquartile_mean(np.concatenate(groups)) for name, groups in gains.items()}
    order = sorted(middles, key=lambda name: -middles[name])
    ends = {name: middle_interval(gains[name]) for name in order}
    title = "All worlds together: 0 is the logging policy, 1 the best method of each log"
    drawing = svg.forest(
        order,
        [middles[name] for name in order],
        [ends[name][0] for name in order],
        [ends[name][1] for name in order],
        title=title,
        description="; ".join(f"{name}: {plain(middles[name])}" for name in order),
        main=order.index(OURS.name),
        names=svg.ForestNames(row="interquartile mean and 95 % interval", main="our defaults"),
    )
    return Figure("defaults.svg", title, drawing)


EXPERIMENT = Experiment(
    name="defaults",
    title="One configuration for all worlds",
    source="beyond the paper",
    about="OfflineSHPI() as it comes, against repaired(), paper(), bandits, BCQ and CQL, each with one "
    "configuration for all worlds. Cells that other experiments have run are not run again. In the large "
    "task paper() has the paper's penalty, Lambda = 10. Left out for their time at this size: SPIBB, MBS and "
    "the doubly robust bandit; boosted trees and VW as bandits, which the extras bring; and the clone, which "
    "is the logging policy again. CQL has three trials, in RecoGym and HIV. `python -m benchmarks wins` has "
    "SPIBB where contexts are few.",
    cells=cells,
    show=show,
)
