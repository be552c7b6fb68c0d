r"""The one test: the lift of a policy over mu, estimated from mu's log, with every user's influence on it.

    D(x) = V^pi(x) - V^mu(x)   solves   D = E_{a ~ pi}[ A^mu(x, a) + gamma c D(x') | x ]

by least squares over features phi of the state: D = phi'theta, theta = M^-1 sum phi target, and the lift is
the mean of D over first states. M and the target are those of `states`: with the ratios rho = pi(a|x)/mu(a|x)
of single steps, control variates for their noise, and no more change of the next state than chance leaves.

c = 1 - 1/50: pi is followed for about 50 decisions, then mu's value is paid. That is SHPI's own trade: a
bias of known form, for a system that stays well-conditioned where pi is far from mu. The printed bound
follows pi for 10 decisions only, since states that pi reaches later may lie outside the log. A user's
influence is that user's term of the linearised error of the lift, the estimate of V^mu included, so two
policies can be compared on common users. Two sets of features give two lifts; their difference counts as
error too.

The same system gives the density ratio d_pi / d_mu at every decision ("visits"). Where pi goes to states that
the log does not contain, the features extrapolate, and some visits come out negative. If a share s of them is
negative, beyond mu's own share, then 2 s of the lift rests on extrapolation and counts as error. A table has
no negative visits; in HIV, where bold policies end outside the log, the worst candidates have the most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shpi.data.logged import LoggedData
from shpi.errors import DataError
from shpi.features.cells import CellsMap
from shpi.learners._shpi.states import BOTH, StateMap, Steps, described, solved
from shpi.protocols import Float64Array, FloatArray
from shpi.values.base import FittedValue, StateValues
from shpi.values.lstd import LinearValue
from shpi.values.past import PastValue
from shpi.values.transitions import rewards_of, usable_transitions

FOLLOWED, PROMISED = 50, 10  # decisions for which pi is followed, on average, in tests and in the bound
LEAST = 1e-20  # a smaller ratio counts as 0: products of denormal numbers take a hundred times as long


@dataclass(frozen=True, kw_only=True, eq=False)
class Influence:
    """Lifts over mu by set of features, and every user's influence on them."""

    lifts: Float64Array  # [m]
    parts: Float64Array  # [m, users]
    off_log: Float64Array  # [m] the part of each lift that rests on negative visits
    noise: float = 1.0  # share of f's variance that is noise; 0: f was not learned from these users

    @property
    def estimate(self) -> float:
        """The mean over the sets of features."""
        return float(self.lifts.mean())

    @property
    def conservative(self) -> float:
        """The estimate less its error due to features: what two candidates are compared by."""
        return self.estimate - self.feature_error

    @property
    def outside(self) -> float:
        """The share of negative visits beyond mu's own: how far pi leaves the states of the log."""
        total = float(np.abs(self.lifts).sum())
        return float(np.abs(self.off_log).sum()) / (2 * total) if total > 0 else 0.0

    @property
    def error(self) -> float:
        """The standard error: sampling of users, and the error due to features.

        Each half learns the f that the other half judges. If f is all noise, both judgements are the same
        product of two noises: they are fully correlated, and the variance of their sum is twice the sum of
        their variances. If f is all signal, they are independent. So the variance counts 1 + noise times.
        """
        users = self.parts.shape[1]
        sampling = (1 + self.noise) * users / max(users - 1, 1) * float(np.sum(self.parts.mean(axis=0) ** 2))
        return float(np.sqrt(sampling + self.feature_error**2))

    @property
    def feature_error(self) -> float:
        """The error that more users do not reduce: the spread over sets of features, and negative visits."""
        spread = float(self.lifts.var(ddof=1)) if len(self.lifts) > 1 else 0.0
        return float(np.sqrt(spread + self.off_log.mean() ** 2))

    def less(self, other: Influence) -> Influence:
        """The difference of two lifts, on common users and features."""
        return Influence(
            lifts=self.lifts - other.lifts,
            parts=self.parts - other.parts,
            off_log=self.off_log - other.off_log,
            noise=max(self.noise, other.noise),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """Measures policies on one log."""

    logs: LoggedData
    maps: tuple[StateMap, ...]
    steps: Steps
    unit: float  # rewards are in units of the largest
    realised: bool = False  # whether A^mu is taken from what followed, instead of V^mu at the next state
    _of_mu: dict[float, list[Float64Array]] = field(default_factory=dict, repr=False)  # visits, by `followed`
    _last: list[tuple[Float64Array, list[Float64Array]]] = field(default_factory=list, repr=False)
    # the last ratios and what they change: two judges, a test and a bound ask for the same candidate

    @classmethod
    def of(cls, logs: LoggedData, *, table: CellsMap | None, gamma: float, seed: int) -> Judge:
        """Choose the features, those of the table if there is one, and fit V^mu."""
        usable = usable_transitions(logs)
        if not usable.any():
            raise DataError(
                expected="at least one decision whose reward and next context are known",
                found="none",
                remedy="log the context after the last decision, or mark trajectories as terminated",
            )
        rewards = np.where(usable, rewards_of(logs), 0.0)
        unit = float(np.abs(rewards).max()) or 1.0  # single precision holds rewards up to 1
        steps = Steps.of(logs, usable, rewards / unit, gamma, seed)
        maps = described(logs, table, steps, seed)
        return cls(logs=logs, maps=maps, steps=steps, unit=unit)

    def lift(self, rho: FloatArray, followed: float = FOLLOWED) -> Influence:
        """The lift of the policy with these ratios pi(a_t|x_t) / mu(a_t|x_t) [n]."""
        weights, steps, c = self._weights(rho), self.steps, 1 - 1 / followed
        of_mu, m = self._visits_of_mu(followed), len(self.maps)
        lifts, negative, parts = np.empty(m), np.empty(m), np.empty((m, steps.users))
        for j, (states, sums) in enumerate(zip(self.maps, self._changes(weights), strict=True)):
            pi = states.moved(weights, sums, BOTH, c, states.surprise if self.realised else states.delta)
            theta = solved(pi.system, states.sum_of(pi.target))
            here, visits = states.at_rows(theta, solved(pi.system.T, states.starts))
            unexpected = states.columns.unexpected[:, : len(theta)] @ (pi.kept * theta).astype(np.float32)
            ahead = states.ahead(here, theta) + weights * unexpected.astype(np.float64)
            residual = np.where(steps.usable, pi.target - here + steps.gamma * c * ahead, 0.0)
            parts[j] = steps.by_user(visits * residual)
            if not self.realised:  # the error of V^mu; beside what followed it is the same for pi and mu
                parts[j] += states.error_of_value(visits * weights)
            starts = here[self.logs.offsets[:-1]]
            own = np.bincount(self.logs.user_codes, weights=starts, minlength=steps.users) / steps.users
            lifts[j] = own.sum()
            parts[j] = parts[j] + own - lifts[j] / steps.users
            below, usual = (_negative_share(v[steps.usable]) for v in (visits, of_mu[j]))
            negative[j] = max(below - usual, 0.0)
        return Influence(
            lifts=self.unit * lifts, parts=self.unit * parts, off_log=self.unit * 2 * negative * lifts
        )

    def _weights(self, rho: FloatArray) -> Float64Array:
        """Rho - 1 [n] where the log says what followed, else 0."""
        return np.where(self.steps.usable, np.where(rho > LEAST, rho, 0.0) - 1.0, 0.0)

    def _changes(self, weights: Float64Array) -> list[Float64Array]:
        """`Columns.changes` for every set of features; sets that share their columns share the work."""
        if not self._last or not np.array_equal(self._last[0][0], weights):
            columns = {id(states.columns): states.columns for states in self.maps}
            sums = {key: shared.changes(weights) for key, shared in columns.items()}
            self._last[:] = [(weights, [sums[id(states.columns)] for states in self.maps])]
        return self._last[0][1]

    def _visits_of_mu(self, followed: float) -> list[Float64Array]:
        """The visits of mu itself, by set of features: a negative share here is the features' own."""
        if followed not in self._of_mu:
            self._of_mu[followed] = [
                states.at_rows(solved(states.system(BOTH, 1 - 1 / followed).T, states.starts))[0]
                for states in self.maps
            ]
        return self._of_mu[followed]

    def error_of_return(self) -> float:
        """The standard error of the mean discounted return per user: how well the log knows mu's value."""
        returns = self.steps.summed(self.steps.rewards)[self.logs.offsets[:-1]]
        by_user = np.bincount(self.logs.user_codes, weights=returns, minlength=self.steps.users)
        return self.unit * float(by_user.std(ddof=1)) / float(np.sqrt(self.steps.users))

    def gradient(self) -> Float64Array:
        """D lift / d log pi(a_t|x_t) at pi = mu, [n]: visits times the advantage of the taken action."""
        total = np.zeros(len(self.logs))
        for states, visits in zip(self.maps, self._visits_of_mu(FOLLOWED), strict=True):
            total += visits * (states.surprise if self.realised else states.delta)
        mean: Float64Array = total * (self.unit / len(self.maps))
        return mean

    def value(self, rho: Float64Array | None = None, followed: float = PROMISED) -> FittedValue:
        """V as a function of contexts, and of past rewards where these are part of the state."""
        columns, theta = self.maps[-1].columns, self._theta(rho, BOTH, followed)
        linear = LinearValue(features=columns.features, theta=self.unit * theta)
        return PastValue(value=linear, usual=columns.usual) if len(columns.usual) else linear

    def values(
        self, rho: Float64Array | None, sides: tuple[int, ...], followed: float = PROMISED
    ) -> StateValues:
        """V of the policy with these ratios (None: of mu) on the log, learned from one half of the users."""
        states, theta = self.maps[-1], self._theta(rho, sides, followed)
        (here,) = states.at_rows(theta)
        return StateValues(rows=self.unit * here, final=self.unit * states.at_ends(theta))

    def _theta(self, rho: Float64Array | None, sides: tuple[int, ...], followed: float) -> Float64Array:
        """Theta of V, in the last set of features."""
        states = self.maps[-1]
        theta = states.value(sides)
        if rho is None:
            return theta
        weights = self._weights(rho)
        sums, delta = self._changes(weights)[-1], states.residual(theta)
        pi = states.moved(weights, sums, sides, 1 - 1 / followed, delta)
        return theta + solved(pi.system, states.sum_of(pi.target))


def _negative_share(visits: Float64Array) -> float:
    """The share of visits that are negative, by absolute value."""
    total = float(np.abs(visits).sum())
    return float(-np.minimum(visits, 0.0).sum()) / total if total > 0 else 0.0
