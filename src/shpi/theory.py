r"""The paper's analysis as small functions: what is true of it, in the form in which it is true.

docs/theory.md sets the printed statements beside these, with counterexamples. Conventions: decisions are made
at t = 0 .. T-1 and V_T = 0; V^pi_t and A^pi_(k),t are those of `shpi.testing.tabular.TabularMDP`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shpi.errors import ConfigError
from shpi.protocols import Float64Array

if TYPE_CHECKING:
    from shpi.testing.tabular import TabularMDP


def geometric(gamma: float, steps: float) -> float:
    """1 + gamma + … + gamma^(steps-1); ``steps`` may be infinite when gamma < 1."""
    if not 0 <= gamma <= 1 or steps < 0 or (gamma == 1 and np.isinf(steps)):
        raise ConfigError(expected="gamma in [0, 1] and a finite sum", found=f"gamma={gamma}, {steps} steps")
    return float(steps) if gamma == 1 else float((1 - gamma**steps) / (1 - gamma))


# ---------------------------------------------------------------------- Theorem 1


@dataclass(frozen=True, kw_only=True, eq=False)
class ImprovementTerms:
    r"""The terms of Theorem 1 at every t, where D_t = E_{P^mu_t}[V^pi_t - V^mu_t].

        gamma D_{t+1} = E_{P^mu_t, a~mu}[A^pi_(k),t] + gamma^k E_{P^mu_t, a~mu} E_pi[V^pi_{t+k} - V^mu_{t+k}]

    Summed over t this is gamma sum_{t=1}^{T-1} D_t; with weights gamma^t, sum_{t=1}^{T-1} gamma^t D_t.
    """

    lead: Float64Array  # [T + 1] D_t, with D_0 = eta^pi - eta^mu and D_T = 0
    advantage: Float64Array  # [T] E[A_(k),t]
    remainder: Float64Array  # [T] gamma^k E E_pi[V^pi_{t+k} - V^mu_{t+k}]


def improvement_terms(
    mdp: TabularMDP,
    pi: Float64Array,
    mu: Float64Array,
    *,
    k: int,
    horizon: int,
    first: Float64Array | None = None,
) -> ImprovementTerms:
    r"""The terms of Theorem 1, by exact enumeration over states.

    Args:
        mdp: a finite world.
        pi: the new policy [S, A].
        mu: the logging policy [S, A].
        k: the number of steps of the advantages.
        horizon: T.
        first: who chooses a_t: mu as in the theorem (None), or another table. With ``first=pi``, which is
            what a greedy step improves, D_t = advantage_t + remainder_t.
    """
    chooser = mu if first is None else first
    visits = mdp.state_probs(mu, horizon)  # [T, S]
    new, old = mdp.values_by_time(pi, horizon), mdp.values_by_time(mu, horizon)
    lead = np.append(np.sum(visits * (new - old)[:-1], axis=1), 0.0)
    advantages = mdp.k_step_advantage_by_time(pi, mu, k, horizon)
    advantage = np.einsum("ts,sa,tsa->t", visits, chooser, advantages)
    remainder = np.zeros(horizon)
    live = ~mdp.terminal
    step = {
        name: np.einsum("sa,sat->st", table, mdp.transition) for name, table in (("a", chooser), ("pi", pi))
    }
    for t in range(horizon - k):
        reached = (visits[t] * live) @ step["a"]
        for _ in range(k - 1):
            reached = (reached * live) @ step["pi"]
        remainder[t] = mdp.gamma**k * float(reached @ ((new - old)[t + k] * live))
    return ImprovementTerms(lead=lead, advantage=advantage, remainder=remainder)


def performance_difference(
    mdp: TabularMDP, pi: Float64Array, mu: Float64Array, *, k: int, horizon: int
) -> float:
    r"""eta^pi - eta^mu = sum_j gamma^{jk} E_{P^pi_{jk}, a~pi}[A^pi_(k),jk]: the lemma in steps of k.

    For k = 1 it is the performance difference lemma, for k >= T it is E[Q^pi_0 - V^mu_0].
    """
    visits = mdp.state_probs(pi, horizon)
    advantages = mdp.k_step_advantage_by_time(pi, mu, k, horizon)
    return float(
        sum(mdp.gamma**t * np.sum(visits[t][:, None] * pi * advantages[t]) for t in range(0, horizon, k))
    )


# ---------------------------------------------------------------------- Lemma 2


def raw_bias_bound(
    *,
    k: int,
    gamma: float,
    steps_left: float,
    q2: float,
    r_max: float,
    reward_error: float = 0.0,
    weight_error: float = 0.0,
    end_value_error: float = 0.0,
    value_error: float = 0.0,
) -> float:
    r"""Lemma 2, corrected: the bias of a raw k-step advantage at (x_t, a_t).

        |E[A-hat] - A|  <=  (1-gamma^k)/(1-gamma) q2 e_r + (1-gamma^{T-t})/(1-gamma) r_max e_w
                            + gamma^k q2 e_V(t+k) + e_V(t)

    Args:
        k: the number of steps.
        gamma: the discount.
        steps_left: T - t; infinite without a horizon.
        q2: the largest weight, at least 1.
        r_max: the largest |r|.
        reward_error: e_r, the largest E|r-hat - r| over the steps of the window.
        weight_error: e_w, the largest E|w-hat - w| over w_{t+1}^{t+m}, m = 0 .. k-1.
        end_value_error: E|V-hat - V^mu| at x_{t+k}.
        value_error: |V-hat - V^mu| at x_t. All expectations are under mu, given (x_t, a_t).
    """
    _check_k(k)
    return (
        geometric(gamma, min(k, steps_left)) * q2 * reward_error
        + geometric(gamma, steps_left) * r_max * weight_error
        + gamma**k * q2 * end_value_error
        + value_error
    )


def residual_bias_bound(
    *, k: int, gamma: float, delta_max: float, weight_error: float = 0.0, value_error: float = 0.0
) -> float:
    r"""The same for the residual form, where weights multiply deltas and never V.

        |E[A-hat] - A|  <=  (gamma + … + gamma^{k-1}) delta_max e_w + (1 + gamma^k) e_V

    Args:
        k: the number of steps.
        gamma: the discount.
        delta_max: the largest |r + gamma V-hat(x') - V-hat(x)|.
        weight_error: the largest E|w-hat - w| over w_{t+1}^{t+m}, m = 1 .. k-1.
        value_error: the largest |V-hat - V^mu| over contexts.
    """
    _check_k(k)
    return gamma * geometric(gamma, k - 1) * delta_max * weight_error + (1 + gamma**k) * value_error


# ---------------------------------------------------------------------- Condition 2


def condition_2_lambda(k: int, horizon: float) -> float:
    """The mixing (k-1) T / ((T-1) k): 0 for k = 1, 1 for k = T, (k-1)/k without a horizon."""
    _check_k(k)
    if np.isinf(horizon):
        return (k - 1) / k
    if horizon < 2 or k > horizon:
        raise ConfigError(expected="k <= T and T >= 2", found=f"k={k}, T={horizon}")
    return (k - 1) * horizon / ((horizon - 1) * k)


def condition_2_bound(error: float, *, gamma: float, k: int, horizon: float = np.inf) -> float:
    r"""The printed bound, error (1 - lambda gamma)^2 / (1 - gamma)^2, with |V-hat - V*| <= error.

    It holds for the optimal policy of the world reshaped with lambda (rewards r + (1-lambda) gamma V-hat(x'),
    discount lambda gamma), from which it was taken. It does not hold for what k-step policy iteration
    returns: the returns, as in `fixed_point_bound`.
    """
    return error * (1 - condition_2_lambda(k, horizon) * gamma) ** 2 / (1 - gamma) ** 2


def fixed_point_bound(error: float, *, gamma: float, k: int) -> float:
    r"""How far below V* a fixed point of SHPI can be when |V-hat - V*| <= error: sharp for k >= 2.

        V* - V^pi  <=  2 gamma^k error / ((1 - gamma) (1 - gamma^k)),  at k = 1  2 gamma error / (1 - gamma)

    A fixed point is a policy that is greedy for its own A^pi_(k), with exact expectations. Proof for k >= 2:
    let L_j = V* - T_pi^j V-hat. Greediness gives L_k <= gamma P* L_{k-1}; and L_{k-1} - L_k =
    gamma^{k-1} P_pi^{k-1} (T_pi V-hat - V-hat) <= gamma^{k-1} (1+gamma) error, since T_pi V* <= V*. Hence
    max L_k <= gamma^k (1+gamma) error / (1-gamma). Finally V* - V^pi = L_k + gamma^k P_pi^k (V-hat - V^pi).
    """
    _check_k(k)
    if k == 1:
        return 2 * gamma * error / (1 - gamma)
    return 2 * gamma**k * error / ((1 - gamma) * (1 - gamma**k))


# ---------------------------------------------------------------------- Eq. 3


def bellman_residual_minimiser(mdp: TabularMDP, mu: Float64Array, visits: Float64Array) -> Float64Array:
    """argmin_V E (r + gamma V(x') - V(x))^2, [S], for x ~ visits, a ~ mu: Eq. 3 with infinite data."""
    joint = visits[:, None, None] * mu[:, :, None] * mdp.transition  # [S, A, S]
    here = np.eye(mdp.n_states)
    rows = (mdp.gamma * (here * ~mdp.terminal)[None, :, :] - here[:, None, :]).reshape(-1, mdp.n_states)
    mass = joint.sum(axis=1).ravel()
    pull = np.einsum("sat,sa->st", joint, mdp.reward).ravel()
    return np.asarray(np.linalg.lstsq(rows.T @ (mass[:, None] * rows), -rows.T @ pull, rcond=None)[0])


def _check_k(k: int) -> None:
    if k < 1:
        raise ConfigError(expected="k of at least 1", found=str(k))
