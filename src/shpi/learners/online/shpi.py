r"""Online SHPI, Algorithm 1 of the paper: improve a policy by acting.

    pi_0 <- mu;  V <- its value                                                      Eq. 3
    for j = 1 .. J:
        collect tau = {(x_t, a_t, r_t)} from new users with pi_{j-1}, exploring
        V    <- its value on tau                                                     optional
        A_k  <- sum_{m<k} gamma^m r_{t+m} + gamma^k V(x_{t+k}) - V(x_t)              Eq. 2
        f    <- argmin_f sum (f(x, a) - A_k)^2
        pi_j <- argmax_a f(x, a)

The policy itself wrote the data, so there are no importance weights. Two configurations:
`OnlineSHPI.paper()` is the above with the paper's parts, each f from the newest round alone. The defaults
differ in four ways, measured in docs/learners/online-shpi.md:

*memory*    f is fitted to all rounds, each with the advantages of its own policy and its own V, so that
            a policy uses all data so far, and changes less from round to round.
*bonus*     V is the value at the present reward rate (`Steady`), which needs little data.
*weights*   Decisions have weight 1 / sigma(x)^2, the precision of their advantages (`local_scale`).
*the end*   Exploration falls to 0. The last round is a test: half of its users get the latest policy
            and half pi_0, without exploration. The latest policy within the noise of the best is returned,
            or pi_0 if none was better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from shpi._core.progress import progress_bar
from shpi.advantages import Advantages, Horizon, StateValues, checked_horizon, k_step_advantages
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError, require_settings
from shpi.features.defaults import curves, lines
from shpi.learners._words import spell_out
from shpi.learners.base import rewards_of
from shpi.learners.improved import ImprovedPolicy
from shpi.learners.online._local_scale import NARROW, local_scale
from shpi.learners.online._steady import Steady
from shpi.learners.online.gym_world import World, as_world
from shpi.learners.online.rounds import Measured, Round, Seen, best_round, pooled, with_measurements
from shpi.oracles import Oracle, PreparedOracle, Ridge
from shpi.policies import Greedy, Mixture, Policy, UniformPolicy
from shpi.policies.scorers import Scorer
from shpi.values import BellmanResidual, FittedValue, ValueModel
from shpi.values.base import checked_gamma

TESTED_ROUNDS = 4  # least number of rounds if the last one is a test
TUNE_ROWS = 20_000  # rows that choose penalties and features in every round
FEATURE_ROWS = 10_000  # rows on which features are fitted
FEW_ACTIONS = 100  # up to here, and up to NARROW dimensions, the default features are nonlinear


@dataclass(frozen=True, kw_only=True)
class OnlineSHPI:
    """Learn a policy that is better in the long term by serving users, round after round.

    Args:
        k: number of steps to look ahead, or "session": to the end of each decision's session.
        gamma: the discount.
        episodes: number of users served in all, each for one trajectory.
        batch_users: number of users in one round; fewer where there would be less than four rounds.
        epsilon: the share of decisions that are random while acting, in the first round and in the last,
            linear in between; or one number for all rounds. The returned policy does not explore.
        update_value: estimate V anew in each round; otherwise the first one serves in all of them.
        value: the termination bonus.
        oracle: the regression; None takes a ridge over curved and linear features, see `curved_oracle`.
        memory: number of latest rounds that f is regressed on; None for all, 1 in the paper.
        value_memory: number of latest rounds that V is estimated on; None for all, as in the paper.
        precision_weights: weigh each decision by 1 / sigma(x)^2 in the regression.
        keep: "best" spends the last round on a test and returns the latest policy within the noise of the
            best, or pi_0 if none measured better; "last" returns the last, as in the paper.
        seed: random seed; the users are not those of a simulator that is reset with the same number.
        progress: show a bar; by default in a terminal.
    """

    k: Horizon = 20
    gamma: float = 0.99
    episodes: int = 1000
    batch_users: int = 50
    epsilon: float | tuple[float, float] = (0.4, 0.0)
    update_value: bool = True
    value: ValueModel = field(default_factory=Steady)
    oracle: Oracle | None = None
    memory: int | None = None
    value_memory: int | None = 1
    precision_weights: bool = True
    keep: Literal["best", "last"] = "best"
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        spell_out(self)
        checked_horizon(self.k)
        checked_gamma(self.gamma)
        least = 2 * TESTED_ROUNDS if self.keep == "best" else self.batch_users
        require_settings("OnlineSHPI", (
            (self.batch_users >= 2, "batch_users of at least 2", self.batch_users),
            (self.episodes >= least, f"at least {least} episodes", self.episodes),
            (all(0 <= share <= 1 for share in self._epsilons), "epsilon in [0, 1]", self.epsilon),
            (self.memory is None or self.memory >= 1, "memory of at least 1, or None", self.memory),
            (self.value_memory is None or self.value_memory >= 1,
             "value_memory of at least 1, or None", self.value_memory),
            (self.keep in ("best", "last"), "keep 'best' or 'last'", self.keep),
        ))  # fmt: skip

    @classmethod
    def paper(cls, **changes: Any) -> OnlineSHPI:
        """Algorithm 1 as printed, with the paper's settings; VW's regression as its exact minimiser.

        The exploration is that of the paper's oracle: VW's ``--cb_explore_adf`` explores with epsilon 0.05.
        """
        printed: dict[str, Any] = {
            "k": 5,
            "epsilon": 0.05,
            "value": BellmanResidual(),
            "oracle": Ridge.exact(weights="mtr"),
            "memory": 1,
            "value_memory": None,
            "precision_weights": False,
            "keep": "last",
        }
        return cls(**(printed | changes))

    def fit(
        self,
        env: Any,
        *,
        start: Policy | None = None,
        value: FittedValue | None = None,
        logs: LoggedData | None = None,
    ) -> ImprovedPolicy:
        """Practise in a world.

        Args:
            env: a batch simulator, or a Gymnasium environment, single or vector.
            start: pi_0; uniform if None. For the hybrid setting, the result of `OfflineSHPI`.
            value: the bonus of the first round, for example the ``.value`` of that result; with
                ``update_value=False`` of all rounds. None estimates it.
            logs: the batch D of Algorithm 1, a log of mu: one more round to learn from, before the first.
        """
        world = as_world(env)
        policy: Policy = UniformPolicy(world.n_actions) if start is None else start
        _check_actions(world, policy, logs)
        users, chance = (int(word) for word in np.random.SeedSequence(self.seed).generate_state(2))
        pi_0, given = policy, value is not None
        batch: list[Seen] = []  # D and the rounds, each with its advantages
        history: list[Round] = []
        measured: list[Measured] = []  # of pi_0, pi_1, …
        if logs is not None:
            value = self._evaluate([logs], chance) if value is None else value
            batch.append(Seen(logs, self._advantages(logs, value)))

        learning = list(self._rounds())
        test = learning.pop() if self.keep == "best" else None
        with progress_bar("practice", self.episodes, self.progress) as advance:
            for j, first, n in learning:
                tau = _collect(world, self._exploring(policy, j), n, users, first)
                measured.append(Measured.of(tau))
                advance(n)
                if value is None or (self.update_value and not (given and j == 1)):
                    value = self._evaluate([*(earlier.logs for earlier in batch), tau], chance)
                advantages = self._advantages(tau, value)
                batch.append(Seen(tau, advantages))
                before, policy = policy, Greedy(self._regress(batch, chance))
                history.append(Round.after(j, advantages, _changed(tau, before, policy), policy))
            if test is not None:
                _, first, n = test
                measured[0] = Measured.of(_collect(world, pi_0, n // 2, users, first))
                measured.append(Measured.of(_collect(world, policy, n - n // 2, users, first + n // 2)))
                advance(n)
        rounds = with_measurements(history, measured)
        chosen = best_round(measured) if test is not None else len(rounds)
        assert value is not None
        return ImprovedPolicy(pi_0 if chosen == 0 else rounds[chosen - 1].policy, rounds, chosen, value)

    # ------------------------------------------------------------------ the steps

    @property
    def _epsilons(self) -> tuple[float, float]:
        """The shares of exploration in the first and in the last round."""
        return self.epsilon if isinstance(self.epsilon, tuple) else (self.epsilon, self.epsilon)

    @property
    def _count(self) -> int:
        """The number of rounds."""
        return max(self.episodes // self.batch_users, TESTED_ROUNDS if self.keep == "best" else 1)

    def _rounds(self) -> Iterator[tuple[int, int, int]]:
        """(j, users served before, users of this round); the rounds are as equal as they can be."""
        count, first = self._count, 0
        for j in range(1, count + 1):
            n = (self.episodes - first) // (count + 1 - j)
            yield j, first, n
            first += n

    def _exploring(self, policy: Policy, j: int) -> Policy:
        """The policy that acts in round j."""
        share = (j - 1) / max(self._count - 1, 1)
        epsilon = (1 - share) * self._epsilons[0] + share * self._epsilons[1]
        if epsilon == 0:
            return policy
        return Mixture((policy, UniformPolicy(policy.n_actions)), (1 - epsilon, epsilon))

    def _evaluate(self, rounds: Sequence[LoggedData], seed: int) -> FittedValue:
        """V of the latest rounds."""
        recent = rounds if self.value_memory is None else rounds[-self.value_memory :]
        return self.value.fit(pooled(recent), gamma=self.gamma, seed=seed)

    def _advantages(self, tau: LoggedData, value: FittedValue) -> Advantages:
        """Eq. 2."""
        return k_step_advantages(tau, StateValues.of(value, tau), k=self.k, gamma=self.gamma)

    def _regress(self, batch: Sequence[Seen], seed: int) -> Scorer:
        """f(x, a), on the rounds that are remembered."""
        recent = batch if self.memory is None else batch[-self.memory :]
        logs = pooled([round_.logs for round_ in recent])
        targets = np.concatenate([round_.advantages.values for round_ in recent])
        valid = np.concatenate([round_.advantages.valid for round_ in recent])
        oracle = self.oracle or curved_oracle(logs, seed)
        prepared: PreparedOracle = oracle.prepare(logs, seed=seed)
        if not self.precision_weights:
            return prepared.tune(targets, valid=valid).fit(targets, valid=valid)
        scale = local_scale(logs.contexts, targets, valid, seed=seed)
        prepared = prepared.tune(targets / scale, valid=valid)  # in these units all rows count alike
        return prepared.fit(targets, weights=scale**-2, valid=valid)


def curved_oracle(logs: LoggedData, seed: int) -> Oracle:
    """A ridge that chooses between curved and linear features where contexts are narrow, else a linear one.

    Curves extrapolate badly, but online the next round adds data there.
    """
    sample = logs.contexts[:: 1 + len(logs) // FEATURE_ROWS]
    plain = lines(intercept=False).fit(sample)
    if logs.schema.width > NARROW or logs.n_actions > FEW_ACTIONS:
        return Ridge(features=plain, tune_rows=TUNE_ROWS)
    curved = (
        curves(n_features, bandwidth, seed, intercept=False, beside_lines=True).fit(sample)
        for bandwidth, n_features in ((2.0, 100), (4.0, 60))
    )
    return Ridge(features=(*curved, plain), tune_rows=TUNE_ROWS)


def _collect(world: World, policy: Policy, n: int, seed: int, first: int) -> LoggedData:
    """Serve n new users; a world that returns NaN is an error that says so."""
    try:
        tau = world.rollout(policy, n, seed, first=first)
    except DataError as error:
        place = f"{type(world).__name__}, users {first}..{first + n - 1}, {error.where}"
        raise DataError(
            expected=error.expected,
            found=error.found,
            where=place,
            remedy="a world must return finite contexts and rewards",
        ) from error
    rewards_of(tau, "OnlineSHPI")
    return tau


def _changed(tau: LoggedData, before: Policy, after: Policy) -> float:
    """The share of tau's decisions that the new policy takes otherwise."""
    old, new = (policy.action_probs(tau.contexts, tau.candidates) for policy in (before, after))
    return float(0.5 * np.abs(old - new).sum(axis=1).mean())


def _check_actions(world: World, policy: Policy, logs: LoggedData | None) -> None:
    for what, given in (("a start policy", policy), ("logs", logs)):
        if given is not None and given.n_actions != world.n_actions:
            raise ConfigError(
                expected=f"{what} over the world's {world.n_actions} actions",
                found=f"{given.n_actions} actions",
                where="OnlineSHPI.fit",
            )
