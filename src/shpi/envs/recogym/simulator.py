"""RecoGym (Rohde et al., 2018) for many users at once, with the long-term reward of the SHPI experiments.

A user is organic (looks at products), bandit (is shown recommendations) or gone. Each tick draws the next
state, with q_ob = prob_organic_to_bandit, q_bo = prob_bandit_to_organic, and l_o, l_b = the probabilities
prob_leave_organic and prob_leave_bandit:

                organic            bandit            stop
    organic   1 - q_ob - l_o        q_ob              l_o
    bandit        q_bo         1 - q_bo - l_b         l_b

``reset`` lets an organic phase pass, so that every user has seen something. One ``step`` is one
recommendation, a click or not, one tick, and the whole organic phase that follows, if one does. A click
always makes the user organic, even if the tick drew "stop": a click is a visit to the shop. (Interests drift
with a tick that draws organic, and not with the click itself.) Contexts [n, P] count the views of a user so
far. A session ends when the user leaves the bandit phase.

The default is the paper's setting: nobody leaves, T = 200 recommendations, P = 100, K = 5. With
``leaving=True`` users leave as in the original. A share l_o / (q_ob + l_o) of them never sees a
recommendation (`RecoGym.share_never_served`). They cannot be in a log of recommendations, so the users of a
batch are those who see at least one: their first organic phase ends in recommendations.

Only ``as_original=True`` restores what the original does against its own description:

* ``prob_leave_bandit`` is ignored, and ``prob_leave_organic`` used in both rows.
* After a user has left, one more recommendation is made, and logged with click and reward 0
  (``info["phantom"]``). Users who never see a recommendation are in the batch, with this row alone.
* ``number_of_flips`` may be wasted on products that are exchanged with themselves.

The original also draws its users from the generator of its world, one user after the other.
`shpi.envs.recogym.replay` keeps that order; here user i depends on (seed, i) alone. The original's clock with
random increments (``NormalTimeGenerator``) is not part of this simulator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from shpi.data.logged import LoggedData
from shpi.envs.base import check_actions, check_reset, check_running, real_number, whole_number
from shpi.envs.recogym.ltr import LongTermReward, Weights, check_weights
from shpi.envs.recogym.users import ClusterUsers, LatentUsers, Users
from shpi.envs.recogym.world import BANDIT, ORGANIC, STOP, ClusterWorld, LatentWorld, chain
from shpi.envs.rollout import rollout
from shpi.envs.streams import Streams
from shpi.errors import ConfigError
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array, IntArray, Policy, Step

if TYPE_CHECKING:
    from shpi.envs.recogym.release import ReleasedRecoGym

CLICK, TICK, PHASE = 1, 2, 3  # labels of the random numbers; those of the users start at 10


@dataclass(kw_only=True, eq=False)
class RecoGym:
    """A batch simulator of browsing and recommendations. The settings are those of the original.

    Args:
        version: 1, latent interests that drift; 0, clusters of products.
        n_products: P, also the number of actions.
        latent: K, the dimension of the interests (version 1).
        reward: "ltr", the long-term reward Y_t of `shpi.envs.recogym.ltr` (version 1 only), or "click".
        weights: "signed" interests in the long-term reward, or "positive".
        floor: start the running maximum of the long-term reward at 0.
        leaving: users leave with the probabilities below; otherwise nobody does.
        horizon: T, the number of recommendations after which a rollout is truncated.
        world_seed: the seed of the products; the same as in the original gives the same products.
        as_original: reproduce what the original does against its own description, see the module.
        world: a given world of products, which replaces all settings for drawing one.
        prob_organic_to_bandit: the chance that browsing turns to recommendations, per tick.
        prob_bandit_to_organic: the chance that recommendations turn to browsing, per tick.
        prob_leave_organic: the chance to leave while browsing, per tick.
        prob_leave_bandit: the chance to leave while being shown recommendations, per tick.
        sigma_omega_initial: standard deviation of new users' interests.
        sigma_omega: standard deviation of one drift step.
        sigma_mu_organic: standard deviation of the products' popularity.
        number_of_flips: number of pairs of similar products that are exchanged between views and clicks.
        normalize_beta: scale the embeddings of recommendations to length 1.
        change_omega_for_bandits: interests drift with every tick, not only while browsing.
        num_clusters: the number of clusters (version 0).
        phi_var: the variance of the noise between views and clicks (version 0).
    """

    version: int = 1
    n_products: int = 100
    latent: int = 5
    reward: Literal["ltr", "click"] = "ltr"
    weights: Weights = "signed"
    floor: bool = False
    leaving: bool = False
    horizon: int = 200
    world_seed: int = 42
    as_original: bool = False
    world: LatentWorld | ClusterWorld | None = field(default=None, repr=False)
    prob_organic_to_bandit: float = 0.25
    prob_bandit_to_organic: float = 0.05
    prob_leave_organic: float = 0.01
    prob_leave_bandit: float = 0.01
    sigma_omega_initial: float = 1.0
    sigma_omega: float = 0.1
    sigma_mu_organic: float = 3.0
    number_of_flips: int = 0
    normalize_beta: bool = False
    change_omega_for_bandits: bool = False
    num_clusters: int = 2
    phi_var: float = 0.1

    def __post_init__(self) -> None:
        self._check()
        self.world = self._make_world() if self.world is None else self.world
        self.n_products = self.world.n_products
        if isinstance(self.world, LatentWorld):
            self.latent = self.world.latent
        self._chain = self._make_chain()
        self._batch: _Batch | None = None

    @staticmethod
    def released(**changes: Any) -> ReleasedRecoGym:
        """The simulator with the authors' contexts, reward and leaving, see `shpi.envs.recogym.release`."""
        from shpi.envs.recogym.release import ReleasedRecoGym

        return ReleasedRecoGym(**changes)

    # ------------------------------------------------------------------ properties

    @property
    def name(self) -> str:
        """The registered name."""
        return "recogym" if self.version == 1 else "recogym-v0"

    @property
    def n_actions(self) -> int:
        """|A| = P: any product may be recommended."""
        return self.n_products

    @property
    def context_names(self) -> tuple[str, ...]:
        """The number of views of each product so far."""
        return tuple(f"views_{product}" for product in range(self.n_products))

    @property
    def chain(self) -> Float64Array:
        """Transition probabilities [3, 3] between organic, bandit and stop, as they are used."""
        return self._chain.copy()

    @property
    def share_never_served(self) -> float:
        """The share of users who leave before any recommendation; a batch has them only ``as_original``."""
        return float(self._chain[ORGANIC, STOP] / (1.0 - self._chain[ORGANIC, ORGANIC]))

    # ------------------------------------------------------------------ the simulator

    def reset(self, n: int, seed: int, *, first: int = 0) -> Float32Array:
        """Start users first .. first+n-1 with an organic phase, and return their view counts [n, P]."""
        streams = Streams(seed, check_reset(n, seed, first))
        batch = _Batch(users=self._make_users(streams), streams=streams)
        gone = self._browse(batch, batch.rows, phase=0, served=not self.as_original)
        self._batch = batch
        self._leave(batch, gone)
        return batch.users.counts.copy()

    def step(self, actions: IntArray) -> Step:
        """Recommend one product to every user. Actions of users that have ended are ignored."""
        batch = self._running()
        chosen = check_actions(actions, len(batch.ended), self.n_actions, ended=batch.ended)
        users, rows, time = batch.users, batch.rows, batch.time
        phantom = batch.left & ~batch.ended

        clicked = users.clicks(rows, chosen[rows], batch.here.uniform(CLICK, time))
        rewards = {"click": np.zeros(len(chosen))}
        rewards["click"][rows[clicked]] = 1.0
        if users.ltr is not None:
            rewards["ltr"] = users.ltr.value.copy()
        batch.score += rewards["ltr" if users.ltr is not None else "click"]

        organic, stopped = self._tick(batch, clicked)
        gone = self._browse(batch, rows[organic], phase=time + 1)
        session_end = phantom.copy()
        session_end[rows[organic]] = True
        session_end[rows[stopped]] = True

        batch.time += 1
        batch.ended |= batch.left
        info: dict[str, Any] = {"session_end": session_end, **rewards}
        if self.as_original:
            info["phantom"] = phantom
        self._leave(batch, np.concatenate([rows[stopped], gone]))
        return Step(users.counts.copy(), rewards[self.reward].copy(), batch.ended.copy(), info)

    def candidates(self) -> None:
        """Every product may be recommended at any time."""

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        """The log of users first .. first+n-1 under ``policy``, with its propensities."""
        return rollout(self, policy, n, seed, first=first)

    def score(self) -> Float64Array:
        """The mean of Y_t over the decisions made for each user so far, [n] (version 0: of the clicks)."""
        batch = self._started()
        return np.asarray(batch.score / np.maximum(self.decisions, 1), dtype=np.float64)

    # ------------------------------------------------------------------ what happened so far

    @property
    def decisions(self) -> Int64Array:
        """The number of recommendations that each user saw, [n]."""
        batch = self._started()
        return np.where(batch.left, batch.left_at, batch.time)

    @property
    def transitions(self) -> Int64Array:
        """The count of each transition [3, 3] in this batch, before clicks made users organic."""
        return self._started().transitions.copy()

    @property
    def rescued(self) -> int:
        """The number of users of this batch who drew "stop" in the tick of a click, and so stayed."""
        return self._started().rescued

    # ------------------------------------------------------------------ one tick, one organic phase

    def _tick(self, batch: _Batch, clicked: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Positions in ``batch.rows`` of the users who are organic, and those who stop, after the click."""
        rows = batch.rows
        chance = batch.here.uniform(TICK, batch.time)
        organic = chance < self._chain[BANDIT, ORGANIC]
        stopped = chance >= 1.0 - self._chain[BANDIT, STOP]
        drawn_organic, drawn_stop = np.flatnonzero(organic), int(np.count_nonzero(stopped))
        drawn = (len(drawn_organic), len(rows) - len(drawn_organic) - drawn_stop, drawn_stop)
        batch.transitions[BANDIT] += drawn
        batch.users.tick(rows if self.change_omega_for_bandits else rows[drawn_organic], batch.time)
        batch.rescued += int(np.count_nonzero(stopped[clicked]))
        organic[clicked], stopped[clicked] = True, False
        return np.flatnonzero(organic), np.flatnonzero(stopped)

    def _browse(self, batch: _Batch, rows: Int64Array, *, phase: int, served: bool = False) -> Int64Array:
        """Simulate an organic phase of the users ``rows``; return those who leave at its end.

        The number of views is geometric, V = 1 + floor(log u / log P(organic -> organic)). The state
        after the phase does not depend on it; if ``served``, it is the bandit state.
        """
        stay, to_bandit, stop = self._chain[ORGANIC]
        chance = batch.streams.take(rows).uniform(PHASE, phase, 2)
        lengths = np.ones(len(rows), dtype=np.int64)
        if stay > 0.0:
            lengths += np.floor(np.log(chance[:, 0]) / np.log(stay)).astype(np.int64)
        gone = rows[:0] if served else rows[chance[:, 1] >= to_bandit / (to_bandit + stop)]
        batch.users.browse(rows, lengths)
        batch.transitions[ORGANIC] += [int(lengths.sum()) - len(rows), len(rows) - len(gone), len(gone)]
        return gone

    def _leave(self, batch: _Batch, gone: Int64Array) -> None:
        """Let users leave; with ``as_original``, they get one more recommendation before they have ended."""
        if not len(gone):
            return
        batch.left[gone], batch.left_at[gone] = True, batch.time
        if not self.as_original:
            batch.ended[gone] = True
        if batch.users.ltr is not None:
            batch.users.ltr.forget(gone)
        batch.rows = np.flatnonzero(~batch.left)
        batch.here = batch.streams.take(batch.rows)

    def _started(self) -> _Batch:
        if self._batch is None:
            check_running(None)
        assert self._batch is not None
        return self._batch

    def _running(self) -> _Batch:
        batch = self._started()
        check_running(batch.ended, batch.time, self.horizon)
        return batch

    # ------------------------------------------------------------------ settings

    def _check(self) -> None:
        if self.version not in (0, 1):
            raise ConfigError(expected="version 0 or 1", found=repr(self.version))
        if self.reward not in ("ltr", "click"):
            raise ConfigError(expected="reward 'ltr' or 'click'", found=repr(self.reward))
        if self.version == 0 and self.reward == "ltr":
            raise ConfigError(
                expected="reward 'click' in version 0, which has no interests to build 'ltr' from",
                found="'ltr'",
                remedy="pass reward='click', or version=1",
            )
        wanted = LatentWorld if self.version == 1 else ClusterWorld
        if self.world is not None and not isinstance(self.world, wanted):
            raise ConfigError(
                expected=f"a {wanted.__name__} for version {self.version}", found=type(self.world).__name__
            )
        check_weights(self.weights)
        whole_number("horizon", self.horizon, least=1)
        real_number("sigma_omega_initial", self.sigma_omega_initial, least=0.0)
        real_number("sigma_omega", self.sigma_omega, least=0.0)

    def _make_chain(self) -> Float64Array:
        to_bandit = _probability("prob_organic_to_bandit", self.prob_organic_to_bandit)
        to_organic = _probability("prob_bandit_to_organic", self.prob_bandit_to_organic)
        leave_organic = _probability("prob_leave_organic", self.prob_leave_organic)
        leave_bandit = _probability("prob_leave_bandit", self.prob_leave_bandit)
        if self.as_original:
            leave_bandit = leave_organic
        if not self.leaving:
            leave_organic = leave_bandit = 0.0
        for state, total in (("organic", to_bandit + leave_organic), ("bandit", to_organic + leave_bandit)):
            if total > 1.0:
                raise ConfigError(
                    expected=f"probabilities of moving on from '{state}' that sum to at most 1",
                    found=f"{total:g}",
                )
        if to_bandit == 0.0:
            raise ConfigError(
                expected="prob_organic_to_bandit > 0", found="0", remedy="otherwise nobody is recommended to"
            )
        return chain(to_bandit, to_organic, leave_organic, leave_bandit)

    def _make_world(self) -> LatentWorld | ClusterWorld:
        if self.version == 0:
            return ClusterWorld.draw(
                self.world_seed,
                n_products=self.n_products,
                num_clusters=self.num_clusters,
                phi_var=self.phi_var,
            )
        return LatentWorld.draw(
            self.world_seed,
            n_products=self.n_products,
            latent=self.latent,
            sigma_mu_organic=self.sigma_mu_organic,
            number_of_flips=self.number_of_flips,
            normalize_beta=self.normalize_beta,
            as_original=self.as_original,
        )

    def _make_users(self, streams: Streams) -> Users:
        if isinstance(self.world, ClusterWorld):
            return ClusterUsers(self.world, streams)
        assert self.world is not None
        return LatentUsers(
            self.world,
            streams,
            LongTermReward(self.world.beta, len(streams), weights=self.weights, floor=self.floor),
            sigma_initial=self.sigma_omega_initial,
            sigma=self.sigma_omega,
            drift_always=self.change_omega_for_bandits,
        )


class _Batch:
    """The users of one reset, and their state."""

    def __init__(self, *, users: Users, streams: Streams) -> None:
        n = len(streams)
        self.users, self.streams = users, streams
        self.time = 0  # decisions so far
        self.rows: Int64Array = np.arange(n)  # users who have not ended
        self.here: Streams = streams  # their random numbers
        self.left: BoolArray = np.zeros(n, dtype=bool)
        self.left_at: Int64Array = np.zeros(n, dtype=np.int64)
        self.ended: BoolArray = np.zeros(n, dtype=bool)
        self.score: Float64Array = np.zeros(n)  # sum of Y_t
        self.transitions: Int64Array = np.zeros((3, 3), dtype=np.int64)
        self.rescued = 0


def _probability(name: str, value: float) -> float:
    number = real_number(name, value, least=0.0)
    if number > 1.0:
        raise ConfigError(expected=f"{name} to be a probability in [0, 1]", found=repr(value))
    return number
