"""The online contextual bandit: serves users epsilon-greedily and learns the immediate reward.

    round 0         every allowed action with the same probability
    round i         epsilon-greedy in f_{i-1};  f_i is fitted to all rows so far

Each round fits the rows of all rounds again, in closed form; VW's ``cb_explore`` takes gradient steps on the
latest rows instead. The returned policy is greedy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from shpi._core.progress import progress_bar
from shpi.data.logged import LoggedData
from shpi.errors import DataError, require_settings
from shpi.learners._words import spell_out
from shpi.learners.bandit import regress
from shpi.oracles import Oracle, Ridge, VowpalWabbit
from shpi.policies import EpsilonGreedy, Greedy, UniformPolicy
from shpi.policies.scorers import Scorer
from shpi.protocols import Policy, Simulator

Target = Literal["direct", "mtr"]


@dataclass(frozen=True, kw_only=True)
class OnlineBandit:
    """Learn the immediate reward by acting.

    Args:
        users: number of users served in all.
        rounds: number of equal rounds of users; the policy is learned again after each.
        epsilon: the share of random actions; 0.05 is VW's default.
        oracle: the regression.
        target: "direct", or "mtr" to weigh rows by inverse propensities.
        seed: random seed; the users are not those of a simulator that is reset with the same number.
        progress: show a bar; None shows it on a terminal.
    """

    users: int = 1000
    rounds: int = 10
    epsilon: float = 0.05
    oracle: Oracle = field(default_factory=Ridge)
    target: Target = "direct"
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        spell_out(self)
        require_settings("OnlineBandit", (
            (self.rounds >= 1, "rounds of at least 1", self.rounds),
            (self.users >= self.rounds, f"at least one user per round, {self.rounds} in all", self.users),
            (0 <= self.epsilon <= 1, "epsilon in [0, 1]", self.epsilon),
            (self.target in get_args(Target), f"target among {', '.join(get_args(Target))}", self.target),
        ))  # fmt: skip

    @classmethod
    def paper(cls, **changes: Any) -> OnlineBandit:
        """The paper's: VW with coin betting, mtr and its exploration (needs the extra ``vw``)."""
        printed: dict[str, Any] = {"oracle": VowpalWabbit(), "target": "mtr", "epsilon": 0.05}
        return cls(**(printed | changes))

    def fit(self, simulator: Simulator) -> Greedy:
        """Serve the users, round by round, and return the greedy policy of what was learned."""
        words = np.random.SeedSequence(self.seed).spawn(2)
        users_seed, oracle_seed = (int(w.generate_state(1, np.uint64)[0] >> np.uint64(1)) for w in words)
        bounds = np.linspace(0, self.users, self.rounds + 1).astype(int)
        policy: Policy = UniformPolicy(simulator.n_actions)
        scorer: Scorer | None = None
        parts: list[LoggedData] = []
        with progress_bar(f"online bandit on {simulator.name}", self.rounds, self.progress) as advance:
            for first, stop in zip(bounds[:-1], bounds[1:], strict=True):
                parts.append(simulator.rollout(policy, int(stop - first), users_seed, first=int(first)))
                scorer = self._learn(LoggedData.concat(parts), oracle_seed, simulator.name)
                policy = EpsilonGreedy(scorer, self.epsilon)
                advance(1)
        assert scorer is not None  # there is at least one round
        return Greedy(scorer)

    def _learn(self, logs: LoggedData, seed: int, name: str) -> Scorer:
        if logs.rewards is None or not np.isfinite(logs.rewards).all():
            raise DataError(
                expected="finite rewards from the simulator",
                found="none" if logs.rewards is None else "NaN or infinity",
                where=f"simulator '{name}'",
            )
        kind: Literal["mtr", "none"] = "mtr" if self.target == "mtr" else "none"
        return regress(self.oracle, logs, logs.rewards, None, kind, seed % 2**32)
