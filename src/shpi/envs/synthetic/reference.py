"""Reference policies of the synthetic task: a controller that sees X, and a planner that knows everything.

The process is linear in the action vectors, with one kernel g for all coordinates:

    X_T = F + sum_t g_t v(a_t)        F: where the user's own past leads without actions

so the best plan of a user is a search over a_0 .. a_{T-1} alone. The planner searches by annealed coordinate
ascent on Y(X_T): its plan is attainable, but a slightly better one may exist.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shpi.envs.streams import Streams
from shpi.envs.synthetic.simulator import PEAK, Synthetic, landscape
from shpi.protocols import BoolArray, Float64Array, FloatArray, Int64Array

_PLAN_LABEL = 100  # label of the planner's random numbers; the simulator's labels are smaller


@dataclass(frozen=True, kw_only=True, eq=False)
class SimpleController:
    """Take the action that points best at the optimum: argmin_a |x + gain v(a) - x*|.

    ``gain`` is the assumed effect of an action: the context moves by 2 v(a) when an action is repeated for
    tau + 1 steps. The controller sees X only, knows the action vectors, and attains more than 0.98 at d = 2.
    """

    vectors: Float64Array  # [A, d]
    gain: float = 2.0

    @classmethod
    def of(cls, simulator: Synthetic) -> SimpleController:
        """The controller of a world."""
        return cls(vectors=simulator.action_features)

    @property
    def n_actions(self) -> int:
        """|A|."""
        return len(self.vectors)

    def action_probs(self, contexts: FloatArray, candidates: BoolArray | None = None) -> Float64Array:
        """Probability 1 for the chosen action, [n, A]."""
        towards = PEAK - np.asarray(contexts, dtype=np.float64)  # [n, d]
        # |gain v - towards|^2 without the part that all actions share
        score = 2.0 * self.gain * (towards @ self.vectors.T)  # [n, A]
        score -= self.gain**2 * np.square(self.vectors).sum(axis=1)
        if candidates is not None:
            score = np.where(candidates, score, -np.inf)
        probs = np.zeros_like(score)
        probs[np.arange(len(score)), score.argmax(axis=1)] = 1.0
        return probs


def kernel(simulator: Synthetic) -> Float64Array:
    """g_t, [T]: the weight in X_T of the action vector of decision t."""
    tau, rho, steps = simulator.tau, simulator.rho, simulator.horizon
    w = np.zeros(steps)  # impulse response of W to a unit action at decision 0
    for t in range(steps):
        w[t] = (w[max(t - tau, 0) : t].sum() + (t < tau)) / tau
    x = np.array([w[max(t + 1 - rho, 0) : t + 1].sum() / rho for t in range(steps)])
    return x[::-1].copy()


def plan(
    simulator: Synthetic, n: int, seed: int, *, first: int = 0, sweeps: int = 60, heat: float = 0.5
) -> Int64Array:
    """Actions [T, n] that bring each user as close to the optimum as the search finds.

    The search starts from the actions of `SimpleController`. One sweep revisits every decision of a user and
    takes the best action given all others. ``heat`` times d is the scale of the Gumbel noise on Y in the
    first sweep; it falls a thousandfold over the first four fifths of the sweeps, and is 0 in the rest.
    """
    vectors, weights, steps = simulator.action_features, kernel(simulator), simulator.horizon
    controller = SimpleController.of(simulator)
    contexts: FloatArray = simulator.reset(n, seed, first=first)
    actions = np.empty((steps, n), dtype=np.int64)
    for t in range(steps):
        actions[t] = controller.action_probs(contexts).argmax(axis=1)
        contexts = simulator.step(actions[t]).contexts
    warm = int(0.8 * sweeps)
    for i in range(n):
        streams = Streams(seed, (first + i) * simulator.n_actions + np.arange(simulator.n_actions))
        x = contexts[i]
        for sweep in range(sweeps):
            noise = heat * simulator.d * 1e-3 ** (sweep / warm) if sweep < warm else 0.0
            before = actions[:, i].copy()
            for t in range(steps):
                options = x + weights[t] * (vectors - vectors[actions[t, i]])  # [A, d]
                value = landscape(options)
                if noise:
                    value -= noise * np.log(-np.log(streams.uniform(_PLAN_LABEL, sweep * steps + t)))
                actions[t, i] = value.argmax()
                x = options[actions[t, i]]
            if not noise and (before == actions[:, i]).all():
                break
    return actions


def attained_by(simulator: Synthetic, actions: Int64Array, seed: int, *, first: int = 0) -> Float64Array:
    """The fraction attained, [n], by the decisions ``actions`` [T, n] in the simulator."""
    simulator.reset(actions.shape[1], seed, first=first)
    for decision in actions:
        simulator.step(decision)
    return simulator.fraction_attained()
