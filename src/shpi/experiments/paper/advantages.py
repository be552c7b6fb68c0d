"""Table 3: SHPI with A_k, with A^mu (k = 1) and with A^pi (k = T) on the synthetic task."""

from __future__ import annotations

from shpi.experiments._page.compare import better, side_by_side, steadier
from shpi.experiments._page.figures import boxes
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Claim, Experiment, Results
from shpi.experiments._run.settings import FEW, READINGS, K, Method, Settings

T = 150  # decisions of a trajectory
KINDS = {"A_k": K, "A^mu": 1, "A^pi": T}
REPORTED = {
    0.3: {"A_k": (8411.0, 32.0), "A^mu": (8097.0, 34.0), "A^pi": (1499.0, 8005.0)},
    0.0: {"A_k": (8346.0, 180.0), "A^mu": (8285.0, 269.0), "A^pi": (4761.0, 6186.0)},
}
CONFIGURATIONS = {label: method.learner for label, method in READINGS.items()}
AS_RUN = {  # the authors' released code: 10 seeds at k = 5 and 0.3, 3 at 0, 2 at other k
    0.3: {
        "A_k, released()": "6,444 ± 2,954",
        "A^mu, released()": "8,428, 8,292",
        "A^pi, released()": "8,428, −221,859",
    },
    0.0: {"A_k, released()": "−4,867 ± 16,280"},
}
METHODS = tuple(
    Method(name=f"{kind}, {label}", learner=learner, k=k)
    for label, learner in CONFIGURATIONS.items()
    for kind, k in KINDS.items()
)
NAMES = tuple(method.name for method in METHODS)


def cells(settings: Settings) -> list[Cell]:
    """Three horizons on both logs; fewer trials of our defaults, which the paper does not have."""
    return [
        method.on(log, settings)
        for epsilon in REPORTED
        for trial, log in enumerate(settings.logs("synthetic", epsilon))
        for method in METHODS
        if method.learner != "shpi" or (trial < FEW and epsilon > 0)
    ]


def show(results: Results) -> list[Block]:
    """The table per behaviour policy, and whether A_k is the best of the three."""
    blocks: list[Block] = []
    for epsilon, reported in REPORTED.items():
        title = f"Synthetic task, epsilon = {epsilon:g}: Y_T - Y_0 by kind of advantage"
        paper = {f"{kind}, {label}": reported[kind] for label in CONFIGURATIONS for kind in KINDS}
        blocks.append(
            boxes(results, f"advantages-{epsilon:g}.svg", title, NAMES, paper=paper, epsilon=epsilon)
        )
        for label in CONFIGURATIONS:
            variants = [f"{kind}, {label}" for kind in KINDS]
            if not any(len(results.values(method=name, epsilon=epsilon)) for name in variants):
                continue
            authors = AS_RUN[epsilon] if label == "released()" else None
            blocks.append(
                side_by_side(
                    results,
                    title,
                    variants,
                    paper=paper,
                    authors=authors,
                    reference=variants[0],
                    epsilon=epsilon,
                )
            )
            trials = results.aligned(variants, epsilon=epsilon)
            for other in variants[1:]:
                if variants[0] in trials and other in trials:
                    text = f"epsilon = {epsilon:g}, {label}: A_k gives better policies than {other[:4]}"
                    names = ("A_k", other[:4])
                    blocks.append(
                        better(
                            text,
                            trials[variants[0]],
                            trials[other],
                            names=names,
                            topic="returns",
                            reading=label,
                        )
                    )
            blocks.append(_wider(results, epsilon, label))
    return blocks


def _wider(results: Results, epsilon: float, label: str) -> Claim:
    """The claim that a larger k raises the variance: k = T against k = 5."""
    long, short = (
        results.trials(method=f"{kind}, {label}", epsilon=epsilon, k=KINDS[kind]) for kind in ("A^pi", "A_k")
    )
    text = f"epsilon = {epsilon:g}, {label}: trials spread more with k = {T} than with k = {K}"
    return steadier(text, long, short, names=(f"k = {T}", f"k = {K}"), topic="variance", reading=label)


EXPERIMENT = Experiment(
    name="advantages",
    title="Returns with A_k, A^mu and A^pi",
    source="Table 3",
    about="The three differ in the horizon alone: k = 5, k = 1 and k = T = 150. With epsilon = 0 the log is "
    "written by a deterministic policy, and says nothing about any other action.",
    cells=cells,
    show=show,
)
