r"""The k-step SHPI estimator: k steps of weights, then the termination bonus V^mu, as in SHPI learning.

With delta_t = r_t + gamma V(x_{t+1}) - V(x_t) and any V with V_H = 0, exactly,

    J(pi) - J(mu) = sum_t gamma^t E_mu[ (w_{0:t} - 1) delta_t ]

because J(pi) = E V(x_0) + sum_t gamma^t E[w_{0:t} delta_t], and the same with w = 1 is J(mu). The variance of
the product of t+1 ratios is prohibitive for long horizons. For V = V^mu the last k ratios are nearly enough:

    lift_k = sum_t gamma^t E_mu[ (w_{t-k+1:t} - 1) delta_t ],        self-normalised at each step

**What it estimates**: sum_t gamma^t E[A^mu(x_t, a_t)], where mu acts until x_{t-k+1} and pi from there on.
This is the performance-difference lemma with the contexts of pi replaced by those of k - 1 steps of pi after
mu.

    k = 1     each decision changed alone, all others by mu: the first-order gain, E_{d_mu}[A^mu(x, pi)]
    k >= H    exact, and unbiased for any V: PDIS with V as a control variate
    between   leaves out the effects of pi's decisions more than k steps back: a bias of second order in
              pi - mu, which grows with the memory of the contexts and falls as k grows

``form="start"`` follows pi for the first k decisions of each trajectory and mu afterwards: the value of a
policy that one could run. It leaves out what pi would do after k decisions. In the paper's terms it is
E A^pi_(k)(x_0, a_0) with a_0 ~ pi. k = "session" restarts the product at each session, whose first contexts
are those of mu.

**When it is biased**: for k < H, as above; and if V is not V^mu, by the difference in the error of V between
the contexts that k steps of pi lead to and those of mu. V comes from linear backups on states, fitted without
the user's fold (`shpi.ope.models.backups`); the influences include the noise of that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from shpi.advantages.windows import Horizon, checked_horizon
from shpi.errors import ConfigError
from shpi.features import FeatureMap, Recipe
from shpi.ope._log.sessions import as_sessions, session_discounts
from shpi.ope.estimators.base import finish
from shpi.ope.estimators.baseline import on_policy
from shpi.ope.estimators.importance import window_weights
from shpi.ope.estimators.robust import CrossFits, cross_fits
from shpi.ope.inference.steps import StepSummed, floored, summed
from shpi.ope.inference.weighting import StepWeights, Terms
from shpi.ope.models.backups import adjoint, contributions, value_gradients
from shpi.ope.models.columns import note_of
from shpi.ope.problem import Chunk, Problem
from shpi.ope.results import Estimate
from shpi.protocols import Float64Array

Form = Literal["sliding", "start"]


@dataclass(frozen=True, kw_only=True)
class KStepSHPI:
    """The k-step estimator.

    Args:
        k: number of ratios in a product, or "session".
        form: "sliding" (the default) or "start"; see the top of this file.
        features: features of a context, for V; None: linear ones with squares, or smooth Fourier features.
        ridge: ridge penalty, in decisions; None: the default.
        name: name of the estimator; empty: "SHPI(k=…)".
    """

    k: Horizon = "session"
    form: Form = "sliding"
    features: Recipe | FeatureMap | None = None
    ridge: float | None = None
    name: str = ""

    def __post_init__(self) -> None:
        checked_horizon(self.k)
        if self.form not in ("sliding", "start") or (self.form == "start" and self.k == "session"):
            raise ConfigError(
                expected="form 'sliding', or 'start' with a number k", found=f"{self.form!r}, k={self.k!r}"
            )
        if not self.name:
            start = ", start" if self.form == "start" else ""
            object.__setattr__(self, "name", f"SHPI(k={self.k}{start})")

    def estimate(self, problem: Problem) -> Estimate:
        """See the top of this file."""
        steps = min(self.k, problem.horizon) if self.form == "start" and self.k != "session" else None
        follows = None if self.k == "session" else self.k
        if self.k == "session" and problem.sessions > problem.trajectories:  # a session's mean length
            follows = max(1, round(problem.decisions / problem.sessions))
        return self.weighted(problem).estimate(self.name, steps=steps, follows=follows)

    def weighted(self, problem: Problem) -> WeightedDeltas:
        """The deltas with the weights of this k."""
        window = None if self.k == "session" or self.form == "start" else self.k
        window = None if window is None or window >= problem.horizon else window
        return WeightedDeltas(
            fits=cross_fits(problem, "state", self.features, self.ridge),
            counted=as_sessions(problem) if self.k == "session" else problem,
            weigh=partial(window_weights, k=window),
            key=("window", window),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedDeltas:
    """J(mu) plus the weighted sum of the deltas minus their unweighted sum."""

    fits: CrossFits  # of V^mu
    counted: Problem  # the problem itself, or its view by sessions
    weigh: Callable[[Chunk], StepWeights]
    key: Hashable  # identifies these weights

    def summed(self) -> tuple[StepSummed, StepSummed]:
        """The first pass, with these weights and with equal ones: gives the lift and the effective users."""
        problem, counted = self.fits.problem, self.counted
        key = ("summed", self.fits.key, counted is problem)
        of_pi, of_mu = problem.all_of(
            [
                partial(
                    problem.memo,
                    (*key, name),
                    partial(summed, counted, weigh, self._terms, normalise=True),
                )
                for name, weigh in ((self.key, self.weigh), ("equal", StepWeights.equal))
            ]
        )
        return of_pi, of_mu

    def estimate(
        self, name: str, *, steps: int | None = None, follows: int | None = None, consistent: bool = False
    ) -> Estimate:
        """The estimate with its influences, which need two more passes.

        Args:
            name: name of the estimate.
            steps: number of first decisions whose deltas count; None: all.
            follows: number of decisions for which the weights follow the effects of a decision; None: all.
            consistent: see `Estimate.consistent`.
        """
        problem, counted = self.fits.problem, self.counted
        with_pi, with_mu = self.summed()
        key = ("of mu", self.fits.key, counted is problem, steps)
        (of_pi,), (of_mu,), noise, base = problem.all_of(
            [
                partial(with_pi.means, (steps,)),
                partial(problem.memo, key, partial(with_mu.means, (steps,))),
                partial(self._noise_of_fit, with_pi, with_mu, steps),
                partial(on_policy, problem),
            ]
        )
        of_pi, moved = floored(of_pi, of_mu), problem.users * noise
        return finish(
            name,
            problem,
            base.value + of_pi.value - of_mu.value,
            base.influence + of_pi.influence - of_mu.influence + moved - moved.mean(),
            of_pi.weights,
            note_of(self.fits.by_fold[0].design.features),
            steps=follows,
            consistent=consistent,
        )

    def _terms(self, counted: Problem, chunk: Chunk) -> Terms:
        """The deltas. Chunks of a session view have the same rows as those of the problem itself."""
        problem, own = self.fits.problem, chunk.whole or chunk
        values = self.fits.predicted(own)
        z = own.rewards + problem.gamma * values.following(own) - values.value
        if own is not chunk:
            z = z * session_discounts(problem, own)
        return Terms(values=z, counts=problem.known_weights(own, "return"))

    def _noise_of_fit(self, of_pi: StepSummed, of_mu: StepSummed, steps: int | None) -> Float64Array:
        """The contribution of each user to the lift through V [U]; times U it is the influence.

        Args:
            of_pi: sums with the weights of the policy, over the chunks of ``counted``.
            of_mu: the same with equal weights.
            steps: number of first decisions whose deltas count; None: all.
        """
        problem, fits = self.fits.problem, self.fits.by_fold
        if problem.values_only:
            return np.zeros(problem.users)
        gradients = self.counted.total(partial(self._gradients, of_pi=of_pi, of_mu=of_mu, steps=steps))
        return contributions(problem, fits[0].design, [*map(adjoint, fits, gradients)])

    def _gradients(
        self, chunk: Chunk, of_pi: StepSummed, of_mu: StepSummed, steps: int | None
    ) -> Float64Array:
        """The derivative of the lift by theta_h of every fold's fit [K, H + 1, p].

        For given denominators the lift is sum_i slope_i delta_i.
        """
        problem, counted = self.fits.problem, self.counted
        terms = self._terms(counted, chunk)
        with_pi, with_mu = (
            sums.normaliser.shares(chunk, sums.weigh(chunk), terms) for sums in (of_pi, of_mu)
        )
        discounts = counted.per_user * counted.discounts[chunk.steps]
        if steps is not None:
            discounts = np.where(chunk.steps < steps, discounts, 0.0)
        slopes, own = discounts * (with_pi - with_mu), chunk.whole or chunk
        if own is not chunk:
            slopes = slopes * session_discounts(problem, own)
        return value_gradients(problem, own, self.fits.by_fold[0].design, slopes, here=slopes)
