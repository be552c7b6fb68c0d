"""Figure 4: how well advantages are estimated from the log, for A_k, A^mu and A^pi.

The synthetic task is deterministic given the actions, so a user can be replayed to a logged state. From
there, with the logged action a, pi for k - 1 steps and mu from then on,

    truth    A_k(x, a) = E[ sum_m gamma^m r_{t+m} ] - V_mu(x)       V_mu: mu from x on; means over 30 replays

for k = 1 (A^mu), k = 5 and k = T (A^pi, up to what all actions share). The estimates are the targets of
SHPI's regression, Eq. 5, for the policy pi that it learned. Two errors are reported: against the estimate's
own truth, and against the truth of A^pi, which is what counts for pi.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shpi.advantages import StateValues, importance_ratios, k_step_advantages
from shpi.envs import make
from shpi.experiments._page.compare import better, plain, spread
from shpi.experiments._page.stats import summarise
from shpi.experiments._run import work as plain_work
from shpi.experiments._run import worlds
from shpi.experiments._run.cells import Cell, Outcome
from shpi.experiments._run.experiment import Block, Experiment, Figure, Note, Results, Table
from shpi.experiments._run.settings import FEW, OURS, PAPER, REPAIRED, Settings, reading_of
from shpi.policies.sampling import sample_actions
from shpi.protocols import BoolArray, Float64Array, Int64Array, IntArray, Policy
from shpi.report import svg

T, K, GAMMA = 150, 5, 0.99  # decisions of a trajectory; horizon k; discount
KINDS = {"A^mu": 1, "A_k": K, "A^pi": T}
EPSILONS = (0.3, 1.0)  # exploration of mu
OWN, PI = "truth of its own", "truth of A^pi"
METHODS = (PAPER, REPAIRED, OURS)  # released() learns from other rows, windows of the log
LATEST, AHEAD = (
    75,
    200,
)  # latest time of a state; steps that the truth looks ahead: gamma^200 = 0.13


def work(cell: Cell) -> Outcome:
    """The mean squared errors of three estimates."""
    states, replays = int(cell.options["states"]), int(cell.options["replays"])
    logs = worlds.simulate(cell.log)
    learner: Any = plain_work.make_learner(_bare(cell))
    fitted, seconds = plain_work.fit_cached(_bare(cell), logs)
    policy: Any = fitted
    bonus, ratios = StateValues.of(policy.value, logs), importance_ratios(logs, policy)
    rng = np.random.default_rng(cell.log.seed)
    times = rng.integers(0, LATEST, size=min(states, logs.n_trajectories))  # a time for each of users 0, 1, …
    rows = logs.offsets[: len(times)] + times
    estimates = {
        kind: k_step_advantages(
            logs,
            bonus,
            k=k,
            gamma=GAMMA,
            ratios=ratios,
            weight_clip=learner.weight_clip,
            form=learner.form,
            clip=learner.clip,
        ).values[rows]
        for kind, k in KINDS.items()
    }
    replay = Replay(cell, logs.actions, logs.offsets, times, replays)
    level = replay.value_of_mu(logged_first=False)  # V_mu
    truth = {"A^mu": replay.value_of_mu() - level}
    truth |= {kind: replay.value(policy, k) - level for kind, k in KINDS.items() if k > 1}
    errors = {f"{kind}, {OWN}": _mse(estimates[kind], truth[kind]) for kind in KINDS}
    errors |= {f"{kind}, {PI}": _mse(estimates[kind], truth["A^pi"]) for kind in KINDS}
    return Outcome(values=errors, seconds=seconds)


class Replay:
    """Replays logged users: their logged actions up to a state, then the actions of policies.

    All replays run side by side, each in a simulator of its own, so that policies decide for all at once.
    """

    def __init__(
        self, cell: Cell, actions: IntArray, offsets: Int64Array, times: Int64Array, replays: int
    ) -> None:
        params = {**cell.log.params, "horizon": LATEST + AHEAD}
        self.worlds = [make(cell.log.world, **params) for _ in range(replays)]
        self.mu = worlds.logging_policy(cell.log.world, params, cell.log.epsilon)
        self.seed, self.times = cell.log.seed, times
        self.key = f"{cell.log.key} {len(times)} {replays}"  # cache key of what does not depend on a policy
        logged = np.stack([actions[first : first + T] for first in offsets[: len(times)]])  # [n, T]
        self.logged = np.tile(logged, (replays, 1))  # [R n, T]

    def value_of_mu(self, *, logged_first: bool = True) -> Float64Array:
        """`value` [n] of mu, after the logged action or at once; cached for all cells of the log."""
        steps = int(logged_first)  # none by another policy
        return worlds.cached(
            f"value of mu {self.key} {steps}", lambda: self.value(self.mu, steps, logged_first=logged_first)
        )

    def value(self, policy: Policy, steps: int, *, logged_first: bool = True) -> Float64Array:
        """The mean discounted sum [n]: the logged action, ``steps`` - 1 of the policy, then mu."""
        n, times = len(self.times), np.tile(self.times, len(self.worlds))  # [R n]
        rng = np.random.default_rng(self.seed)  # common random numbers: differences are less noisy
        total = np.zeros(len(times))
        contexts = np.concatenate([world.reset(n, self.seed) for world in self.worlds])
        for t in range(LATEST + AHEAD):
            since = t - times  # negative: before the state
            draws = rng.random(len(times))
            replayed = (since < 0) | ((since == 0) & logged_first)
            decides = ~replayed & (since < AHEAD)  # later rewards do not count
            by_pi = decides & (since < steps)
            actions = self.logged[:, min(t, T - 1)].astype(np.int64)
            _decide(actions, by_pi, policy, contexts, draws)
            _decide(actions, decides & ~by_pi, self.mu, contexts, draws)
            each = [w.step(a) for w, a in zip(self.worlds, actions.reshape(-1, n), strict=True)]
            contexts = np.concatenate([step.contexts for step in each])
            rewards = np.concatenate([step.rewards for step in each])
            counts = (since >= 0) & (since < AHEAD)
            total += np.where(counts, GAMMA ** np.maximum(since, 0) * rewards, 0.0)
        means: Float64Array = total.reshape(-1, n).mean(axis=0)
        return means


def _decide(actions: Int64Array, who: BoolArray, policy: Policy, contexts: Any, draws: Float64Array) -> None:
    """Let a policy decide for some of the users, in place."""
    if who.any():
        probs = policy.action_probs(contexts[who].astype(np.float32))
        actions[who] = sample_actions(probs, draws[who])


def _mse(estimate: Float64Array, truth: Float64Array) -> float:
    return float(np.mean((estimate - truth) ** 2))


def _bare(cell: Cell) -> Cell:
    """The cell with the options of its learner only."""
    options = {key: value for key, value in cell.options.items() if key not in ("states", "replays")}
    return replace(cell, options=options)


def cells(settings: Settings) -> list[Cell]:
    """Both configurations on both logs: 200 states and 30 replays."""
    planned = []
    for epsilon in EPSILONS:
        for log in settings.first(FEW).logs("synthetic", epsilon):
            for method in METHODS:
                cell = method.on(log, settings)
                sizes = {"states": 40, "replays": 3} if settings.quick else {"states": 200, "replays": 30}
                planned.append(replace(cell, work="mse", options={**cell.options, **sizes}))
    return planned


def show(results: Results) -> list[Block]:
    """Errors as multiples of those of A_k, tables, and the claims."""
    return [
        block
        for method in METHODS
        for against in (OWN, PI)
        for block in _against(results, method.name, against, reading_of(method.name))
    ]


def _against(results: Results, method: str, against: str, who: str) -> list[Block]:
    """Errors of one reading against one truth."""
    rows: list[tuple[str, ...]] = []
    ratios: dict[str, list[float]] = {}
    claims: list[Block] = []
    for epsilon in EPSILONS:
        trials = {
            kind: results.values(f"{kind}, {against}", method=method, epsilon=epsilon) for kind in KINDS
        }
        if not all(len(values) for values in trials.values()):
            continue
        summaries = {kind: summarise(values) for kind, values in trials.items()}
        rows.append(
            (f"{epsilon:g}", *(spread((summary.mean, summary.deviation)) for summary in summaries.values()))
        )
        ratios[f"epsilon = {epsilon:g}"] = [
            np.log10(summary.mean / summaries["A_k"].mean) for summary in summaries.values()
        ]
        for other in ("A^mu", "A^pi"):
            text = f"{method}, epsilon = {epsilon:g}, {against}: A_k has a lower error than {other}"
            pair = np.sqrt(trials[other]), np.sqrt(trials["A_k"])
            names = (f"root MSE of {other}", "of A_k")
            claims.append(better(text, *pair, names=names, topic="errors", reading=who))
    title = f"{method}: mean squared error against the {against}"
    if not rows:
        return [Note(f"{title}: no trials yet.")]
    drawing = svg.bars(
        list(KINDS),
        ratios,
        title=f"{title}, divided by that of A_k",
        description="; ".join(f"{e}: {', '.join(map(_times, r))}" for e, r in ratios.items()),
        show=_times,
        x_label="powers of ten",
    )
    file = f"mse-{who.strip('()')}-{'own' if against == OWN else 'pi'}.svg"
    figure = Figure(file, f"{title}, divided by that of A_k", drawing)
    return [figure, Table(title, ("epsilon", *KINDS), tuple(rows)), *claims]


def _times(power: float) -> str:
    return f"{plain(10.0**power)} ×"


EXPERIMENT = Experiment(
    name="mse",
    title="The error of the advantage estimates",
    source="Figure 4",
    about="200 logged states of the synthetic task and 30 replays of each. The paper does not say against "
    "which truth the three are measured: each against its own is the literal reading of its caption, and "
    "against the truth of A^pi the one behind its argument on bias and variance. Both are shown.",
    cells=cells,
    show=show,
)
