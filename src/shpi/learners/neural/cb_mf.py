r"""CB + MF: a bandit that is greedy in a neural matrix factorisation of the rewards.

    f(x, a) = c_a + u_0(x) + u(x) . v_a            least squares on the logged (x, a, r), by Adam
    pi(x)   = argmax over the allowed actions of f(x, a)

A matrix factorisation usually learns a vector per user. A policy here sees a context and no user id, and must
serve users who are not in the log. So the context stands for the user: u(x) in R^rank is a perceptron of it
(a linear map if ``hidden`` is empty), v_a is the vector of a product, and c_a its popularity. In RecoGym's
agent, which the paper adapts, the user is the product viewed last.

Rewards may be any real numbers: the loss is squared, on standardised rewards. Training stops where the error
on held-out users is lowest. `fit` factorises a log once; `fit_online` alternates as in the paper:
factorise, serve new users greedily, add their log, repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shpi._torch.layers import Layers, export, forward, make_layers
from shpi._torch.networks import one_thread
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError
from shpi.features import FeatureMap, Standardise
from shpi.features.base import Recipe
from shpi.learners.base import from_log, greedy_among_seen
from shpi.learners.neural._descent import Decisions, check_settings, descend
from shpi.policies import Greedy, MlpScorer, SupportLimited, UniformPolicy
from shpi.protocols import Policy, Simulator


@dataclass(frozen=True, kw_only=True)
class CBMF:
    """Contextual bandit by matrix factorisation.

    Args:
        rank: the length of u(x) and v_a; RecoGym's is 5.
        decay: weight of the squared lengths |u(x)|^2 + |v_a|^2 in the loss, per decision.
        features: features of the contexts.
        hidden: the sizes of the hidden layers of u; none makes u linear in the features.
        learning_rate: learning rate of Adam.
        steps: largest number of gradient steps.
        batch: decisions per step.
        held_out: the share of the users that decide when to stop; 0 makes all steps.
        patience: number of checks without improvement after which training stops.
        seed: random seed of the parameters, the split and the samples.
        progress: show a bar; None shows it in a terminal.
    """

    rank: int = 8
    decay: float = 1e-3
    features: Recipe | FeatureMap = field(default_factory=Standardise)
    hidden: tuple[int, ...] = (64,)
    learning_rate: float = 1e-3
    steps: int = 5_000
    batch: int = 1024
    held_out: float = 0.2
    patience: int = 10
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        if self.rank < 1 or not 0 <= self.decay < np.inf:
            raise ConfigError(
                expected="a rank of at least 1 and a decay of at least 0",
                found=f"{self.rank} and {self.decay}",
                where="CBMF",
            )

    @from_log
    def fit(self, logs: LoggedData) -> Greedy | SupportLimited:
        """Factorise the rewards of a log; propensities are not used.

        Of a log in shards the networks see a sample of its users (`learners.base.learned_from`).
        """
        with one_thread() as torch:
            rng = np.random.default_rng(self.seed)
            data = Decisions.of(torch, logs, self.features, self.held_out, rng, "CBMF")
            users = make_layers(torch, (data.features.width, *self.hidden, 1 + self.rank), rng)
            products = make_layers(torch, (self.rank, logs.n_actions), rng)  # v [rank, A] and c [A]

            def loss(rows: Any) -> Any:
                user = forward(torch, users, data.inputs[rows])
                action = data.actions[rows, 0]
                product = products[0].t()[action]
                score = products[1][action] + user[:, 0] + (user[:, 1:] * product).sum(dim=1)
                lengths = (user[:, 1:] ** 2).sum(dim=1) + (product**2).sum(dim=1)
                return ((score - data.rewards[rows]) ** 2 + self.decay * lengths).mean()

            descend(torch, self, data, [*users, *products], rng, loss)
            return greedy_among_seen(_scorer(users, products, data), logs)

    def fit_online(
        self, simulator: Simulator, *, users: int, rounds: int, start: Policy | None = None
    ) -> Policy:
        """Alternate in a simulator: factorise all that was seen, then serve ``users`` new users greedily.

        Args:
            simulator: the world.
            users: number of users served in each round.
            rounds: number of rounds; the first follows ``start``.
            start: the first policy; None decides uniformly.
        """
        if users < 1 or rounds < 1:
            raise ConfigError(expected="users and rounds of at least 1", found=f"{users} and {rounds}")
        policy: Policy = start or UniformPolicy(simulator.n_actions)
        logs: list[LoggedData] = []
        for number in range(rounds):
            logs.append(simulator.rollout(policy, users, self.seed, first=number * users))
            policy = self.fit(LoggedData.concat(logs))
        return policy


def _scorer(users: Layers, products: Layers, data: Decisions) -> MlpScorer:
    """The function f as a perceptron: u ends without a relu, so its last layer merges with the products."""
    (*weights, to_user), (*biases, user_bias) = export(users)
    vectors, popularity = (tensor.detach().numpy().astype(np.float64) for tensor in products)
    product = np.concatenate([np.ones((1, vectors.shape[1])), vectors]) * data.spread  # [1 + rank, A]
    last = to_user.astype(np.float64) @ product
    offset = user_bias @ product + popularity * data.spread + data.mean
    return MlpScorer([*weights, last], [*biases, offset], data.features)
