"""Offline SHPI from scratch: the whole algorithm in plain numpy, to be read from top to bottom.

    python examples/shpi_from_scratch.py

A news feed logs what it showed, with which probability, and whether the reader clicked. Clickbait is clicked
most, but it tires readers, and tired readers leave for good. We learn from this log alone

    a bandit      which maximises the next click,
    session RL    which maximises the clicks of the next k steps,
    SHPI          which adds, at the end of these k steps, a bonus: the long-term value V of the reader's
                  state there,

and then try all three on new readers. ``shpi.OfflineSHPI`` does the same, with more features and more care;
`tests/test_example_from_scratch.py` holds that both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]  # of contexts [n, 2]: probabilities, features or values
Row = tuple[np.ndarray, int, float, float]  # context, action, its probability, click

# ---------------------------------------------------------------------- 1. a small world

CLICKBAIT, STORY, PAUSE, FILLER = range(4)
CLICK = np.array([0.6, 0.4, 0.0, 0.1])  # the chance of a click by a rested reader
TIRING = np.array([0.5, 0.1, -0.8, 0.1])
MU = np.array([0.4, 0.2, 0.2, 0.2])  # the logging policy: mostly clickbait, whatever the context
STEPS = 40


@dataclass
class Log:
    """Decisions of all readers, one after the other. Reader i owns rows offsets[i] .. offsets[i+1]-1."""

    contexts: np.ndarray  # [n, 2] interest and fatigue
    actions: np.ndarray  # [n]
    propensities: np.ndarray  # [n] mu(a|x) of the action that was taken
    rewards: np.ndarray  # [n] clicks
    offsets: np.ndarray  # [N + 1]
    final_contexts: np.ndarray  # [N, 2] the context after the last decision
    terminated: np.ndarray  # [N] True: the reader left for good. False: the log just stops


def simulate(policy: Function, n_readers: int, seed: int) -> Log:
    """Serve readers, each for at most STEPS decisions. ``policy`` maps contexts [n, 2] to probs [n, 4]."""
    rng, readers = np.random.default_rng(seed), list[tuple[list[Row], np.ndarray, bool]]()
    for _ in range(n_readers):
        x = np.array([rng.normal(), rng.uniform(0, 2)], dtype=np.float32)
        rows, left = list[Row](), False
        while len(rows) < STEPS and not left:
            probs = policy(x[None])[0]
            a = rng.choice(4, p=probs)
            chance = CLICK[a] / (1 + np.exp(2 * x[1] - 3 - 0.5 * x[0]))  # tired readers click less
            rows.append((x, a, probs[a], float(rng.random() < chance)))
            fatigue = np.clip(x[1] + TIRING[a] + 0.1 * rng.normal(), 0, 3)
            x = np.array([0.95 * x[0] + 0.3 * rng.normal(), fatigue], dtype=np.float32)
            left = rng.random() < 0.02 + 0.1 * (fatigue > 2)  # and leave more often
        readers.append((rows, x, left))
    contexts, actions, probs, rewards = (
        np.array([row[i] for rows, *_ in readers for row in rows]) for i in range(4)
    )
    lengths = [len(rows) for rows, *_ in readers]
    finals = np.array([last for _, last, _ in readers])
    offsets, left_for_good = np.append(0, np.cumsum(lengths)), np.array([left for *_, left in readers])
    return Log(contexts, actions, probs, rewards, offsets, finals, left_for_good)


# ---------------------------------------------------------------------- 2. features


class Features:
    """phi(x) = (1, z, z^2, …) with z the standardised context."""

    def __init__(self, contexts: np.ndarray, degree: int) -> None:
        contexts = contexts.astype(np.float64)
        self.mean, self.scale, self.degree = contexts.mean(axis=0), contexts.std(axis=0), degree

    def __call__(self, contexts: np.ndarray) -> np.ndarray:
        """Contexts [n, 2] to features [n, p]."""
        z = (contexts.astype(np.float64) - self.mean) / self.scale
        return np.hstack([np.ones((len(z), 1)), *(z**power for power in range(1, self.degree + 1))])


# ---------------------------------------------------------------------- 3. the termination bonus


def following(log: Log, rows: np.ndarray, finals: np.ndarray) -> np.ndarray:
    """What comes after each decision: the next row's entry, or the final one; 0 after the reader has left."""
    ahead = np.empty_like(rows)
    ahead[:-1] = rows[1:]
    last = log.offsets[1:] - 1
    ahead[last] = finals
    ahead[last[log.terminated]] = 0.0
    return ahead


def lstd(log: Log, features: Features, gamma: float, ridge: float) -> Function:
    """V(x) = phi(x)'theta of the logging policy: LSTD, the closed form of temporal differences.

    theta solves  sum_t phi_t (phi_t - gamma phi_{t+1})' theta + penalty theta = sum_t phi_t r_t.
    The Bellman residual of the paper (its Eq. 3) is biased where x' is random; this is not.
    """
    phi = features(log.contexts)
    ahead = following(log, phi, features(log.final_contexts))
    gram = phi.T @ phi
    penalty = np.full(len(gram), ridge * np.diag(gram)[1:].mean() / len(phi))
    penalty[0] = 0.0  # the level of V is free
    theta = np.linalg.solve(gram - gamma * phi.T @ ahead + np.diag(penalty), phi.T @ log.rewards)
    return lambda contexts: features(contexts) @ theta


def no_bonus(contexts: np.ndarray) -> np.ndarray:
    """V = 0."""
    return np.zeros(len(contexts))


# ---------------------------------------------------------------------- 4. k-step advantages


def advantages(
    log: Log,
    value: Function,
    pi_taken: np.ndarray,
    k: int,
    gamma: float,
    clip: tuple[float, float] = (0.5, 2.0),
) -> np.ndarray:
    """A_k(x_t, a_t): what follows if a_t is taken, and then pi for k-1 steps, above what mu would bring.

        delta_t = r_t + gamma V(x_{t+1}) - V(x_t)
        A_k     = delta_t + sum_{m=1}^{k-1} gamma^m clip(w_{t+1}^{t+m}) delta_{t+m},     w = prod pi / mu

    This is Eq. 4 of the paper, telescoped. The printed form multiplies V itself, which is large, by the
    noisy weights; here they multiply only the small surprises delta. Both have the same mean.
    """
    v = value(log.contexts)
    delta = log.rewards + gamma * following(log, v, value(log.final_contexts)) - v
    ratio = pi_taken / log.propensities
    ends = np.repeat(log.offsets[1:], np.diff(log.offsets))  # [n] the row after each reader's last one
    rows, total, weight = np.arange(len(delta)), delta.copy(), np.ones(len(delta))
    for m in range(1, k):
        inside = rows + m < ends  # a window ends with its reader
        ahead = np.minimum(rows + m, len(delta) - 1)
        weight = np.where(inside, weight * ratio[ahead], weight)
        total += np.where(inside, gamma**m * np.clip(weight, *clip) * delta[ahead], 0.0)
    return total


# ---------------------------------------------------------------------- 5. the regression


def regress(
    log: Log, features: Features, targets: np.ndarray, own: float = 1.0, shared: float = 0.1
) -> np.ndarray:
    """f(x, a) = phi(x)'(w_0 + w_a): ridge regression with a shared part and a part per action.

        minimise  sum_t (A_t - f(x_t, a_t))^2 + shared |w_0|^2 + own sum_a |w_a|^2

    Returns beta_a = w_0 + w_a, [A, p].
    """
    phi, n_actions = features(log.contexts), len(MU)
    p, level = phi.shape[1], targets.mean()  # the penalty must not pull the mean towards 0
    design = np.zeros((len(phi), (n_actions + 1) * p))
    design[:, :p] = phi
    for a in range(n_actions):
        taken = log.actions == a
        design[taken, (a + 1) * p : (a + 2) * p] = phi[taken]
    penalty = np.repeat([shared] + [own] * n_actions, p)
    w = np.linalg.solve(design.T @ design + np.diag(penalty), design.T @ (targets - level))
    beta = w[:p] + w[p:].reshape(n_actions, p)
    beta[:, 0] += level
    return beta


# ---------------------------------------------------------------------- 6. policy iteration: Algorithm 2


@dataclass
class Greedy:
    """pi(x) = argmax_a f(x, a)."""

    features: Features
    beta: np.ndarray  # [A, p]

    def scores(self, contexts: np.ndarray) -> np.ndarray:
        """f(x, .), [n, A]."""
        return np.asarray(self.features(contexts) @ self.beta.T)

    def __call__(self, contexts: np.ndarray) -> np.ndarray:
        """Probabilities [n, A]: 1 for the best action."""
        return np.asarray(np.eye(len(self.beta))[self.scores(contexts).argmax(axis=1)])


def offline_shpi(
    log: Log, *, k: int, gamma: float = 0.95, iterations: int = 10, bonus: bool = True
) -> tuple[Greedy, Function]:
    """V once; then advantages, regression, greedy step, J times. Starts from pi_0 = mu.

    Without the bonus it is session-based RL; without it and with k = 1, a contextual bandit.
    """
    value = lstd(log, Features(log.contexts, 2), gamma, ridge=30.0) if bonus else no_bonus
    features = Features(log.contexts, 1)
    taken = log.propensities  # pi_0(a_t|x_t): at first all weights are 1
    for _ in range(iterations):
        policy = Greedy(features, regress(log, features, advantages(log, value, taken, k, gamma)))
        taken = policy(log.contexts)[np.arange(len(log.actions)), log.actions]
    return policy, value


# ---------------------------------------------------------------------- 7. try it


def logging_policy(contexts: np.ndarray) -> np.ndarray:
    """The probabilities mu(.|x), [n, A]."""
    return np.tile(MU, (len(contexts), 1))


def main() -> None:
    """Learn three policies from one log, and serve new readers with each."""
    log = simulate(logging_policy, 1500, seed=0)
    print(f"{len(log.actions):,} decisions of {len(log.offsets) - 1:,} readers")
    policies: dict[str, Function] = {
        "mu, the logging policy": logging_policy,
        "a bandit (k = 1, no bonus)": offline_shpi(log, k=1, bonus=False)[0],
        "session RL (k = 5, no bonus)": offline_shpi(log, k=5, bonus=False)[0],
        "SHPI (k = 5)": offline_shpi(log, k=5)[0],
    }
    for name, policy in policies.items():
        test = simulate(policy, 400, seed=1)
        print(f"{name:30s} {test.rewards.sum() / 400:5.2f} clicks per reader")


if __name__ == "__main__":
    main()
