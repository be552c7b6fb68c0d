"""The authors' released code in its own worlds: the synthetic task as released, and `released()` in it.

One cell is one run of the release: an online agent is trained, its epsilon-greedy versions write ten
trajectories each, `released()` learns from them, and all are scored in the test world, where six of the ten
actions have another effect than in the train world.
"""

from __future__ import annotations

import time

import numpy as np

from shpi.data._log.release import ReleasedRows
from shpi.envs.logging import LoggingPolicy, with_q_shares
from shpi.envs.rollout import mean_return
from shpi.envs.synthetic.simulator import Synthetic
from shpi.experiments._page.compare import plain
from shpi.experiments._page.stats import summarise
from shpi.experiments._run.cells import Cell, Log, Outcome
from shpi.experiments._run.experiment import Block, Claim, Experiment, Note, Results, Table
from shpi.experiments._run.settings import Settings
from shpi.experiments._run.worlds import NEW_USERS
from shpi.learners import OfflineSHPI

METHOD, TRAJECTORIES, EPISODES, QUICK_EPISODES = "one run of the release", 10, 1000, 30
EPSILONS = (0.3, 1.0)  # exploration of mu
MU, DIFFERENCES, LEVEL, AGENT = "mu", "released()", "released(), r = Y", "online agent"
CLOSE = 0.1  # relative distance of two medians that counts as the same
# The authors' code as we ran it (10 seeds at 0.3, 8 at 1): mean, standard deviation, median if known.
AS_RUN: dict[tuple[str, float], tuple[float, float, float | None]] = {
    (MU, 0.3): (7564.0, 1138.0, 8196.0),
    (DIFFERENCES, 0.3): (6444.0, 2954.0, 7953.0),
    (LEVEL, 0.3): (-2026.0, 11650.0, -67.0),
    (AGENT, 0.3): (6683.0, 3361.0, 8090.0),
    (MU, 1.0): (-241.0, 373.0, None),
    (DIFFERENCES, 1.0): (5471.0, 6107.0, 8318.0),
    (LEVEL, 1.0): (-458.0, 733.0, None),
    (AGENT, 1.0): (6267.0, 3667.0, 7467.0),
}
PRINTED = {
    (MU, 0.3): 5125.0,
    (DIFFERENCES, 0.3): 8411.0,
    (AGENT, 0.3): 8144.0,
    (LEVEL, 0.3): 8077.0,
    (MU, 1.0): 77.0,
    (DIFFERENCES, 1.0): 8346.0,
    (AGENT, 1.0): 8144.0,
}


def work(cell: Cell) -> Outcome:
    """Y_T - Y_1 of new users in the test world, by policy and epsilon."""
    from shpi.learners.online.released_sarsa import OnlineSARSA

    began, seed = time.process_time(), cell.log.seed
    train, test = Synthetic.released(seed=seed)
    agent = OnlineSARSA(episodes=int(cell.options["episodes"]), seed=seed, progress=False).fit(train)
    policies = {f"{AGENT}, 1": LoggingPolicy(epsilon=0.01, agent=agent)}
    for epsilon in EPSILONS:
        mu = LoggingPolicy(epsilon=epsilon, agent=agent)
        logs = with_q_shares(train.rollout(mu, TRAJECTORIES, seed), agent, epsilon, seed=seed)
        policies[f"{MU}, {epsilon:g}"] = mu
        for name, rewards in ((DIFFERENCES, "difference"), (LEVEL, "level")):
            view = ReleasedRows(rewards=rewards)  # type: ignore[arg-type]
            learner = OfflineSHPI.released(seed=seed, progress=False, view=view)
            policies[f"{name}, {epsilon:g}"] = learner.fit(logs)  # type: ignore[assignment]
    values = {
        name: mean_return(test, policy, cell.rollouts, seed + NEW_USERS).mean
        for name, policy in policies.items()
    }
    values[f"{AGENT}, 0.3"] = values[f"{AGENT}, 1"]
    return Outcome(values=values, seconds=time.process_time() - began)


def cells(settings: Settings) -> list[Cell]:
    """Two runs of the release per seed: outcomes are bimodal, and the median of ten is not reliable."""
    episodes = QUICK_EPISODES if settings.quick else EPISODES
    more = tuple(seed + len(settings.seeds) for seed in settings.seeds)
    return [
        Cell(
            method=METHOD,
            log=Log(world="synthetic-released", epsilon=EPSILONS[0], users=TRAJECTORIES, seed=seed),
            work="release",
            learner="shpi-released",
            options={"episodes": episodes},
            rollouts=settings.rollouts,
        )
        for seed in (*settings.seeds, *more)
    ]


def show(results: Results) -> list[Block]:
    """The paper, the authors' code as run, and ours; whether the medians agree."""
    rows, claims = [], []
    for (name, epsilon), (mean, deviation, middle) in AS_RUN.items():
        values = results.values(f"{name}, {epsilon:g}")
        if not len(values):
            continue
        summary, median = summarise(values), float(np.median(values))
        printed = PRINTED.get((name, epsilon))
        rows.append(
            (
                f"{name}, epsilon = {epsilon:g}",
                "–" if printed is None else plain(printed),
                _words(mean, deviation, middle),
                _words(summary.mean, summary.deviation, median),
                f"{int((values < 0).sum())} of {len(values)}",
            )
        )
        if name == DIFFERENCES and middle is not None:
            text = f"epsilon = {epsilon:g}: the median is within 10 % of that of the authors' code"
            evidence = f"{plain(median)} over {len(values)} seeds, the authors' code {plain(middle)}"
            same = abs(median - middle) <= CLOSE * abs(middle)
            claims.append(Claim(text, same, evidence, "as-released", "released()"))
    columns = ("policy", "paper", "authors' code, as run", "ours", "runs below 0")
    title = "The released worlds: Y_T - Y_1 of new users in the test world"
    return [Table(title, columns, tuple(rows)), *claims, Note(WHY)]


def as_run(name: str, epsilon: float) -> str:
    """The results of the authors' code as text."""
    return _words(*AS_RUN[name, epsilon])


def _words(mean: float, deviation: float, median: float | None) -> str:
    return f"{plain(mean)} ± {plain(deviation)}" + ("" if median is None else f", median {plain(median)}")


WHY = (
    "A released policy is one action, whatever the context, or uniform where scores tie. One action, +e_2, "
    "scores 8,339 in the released worlds; others score near -25,000, -111,000 or -223,000. So a run is "
    "either near 8,350 or a disaster, and what ten runs have in the middle depends on how many are which."
)


EXPERIMENT = Experiment(
    name="release",
    title="The authors' released code in its own worlds",
    source="Appendix, the table of behaviour policies; the authors' release",
    about="The released settings: ten trajectories of 150 decisions, windows of 30, contexts logged after "
    "the action, propensities Q / sum Q, five gradient steps for V. The authors' code was run by us with 10 "
    "seeds at epsilon = 0.3 and 8 at 1; docs/paper-and-release.md says what it does.",
    cells=cells,
    show=show,
)
