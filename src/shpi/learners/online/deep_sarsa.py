"""Deep SARSA, the online agent that the paper trains in each world before any log exists.

Users of a simulator are met in rounds. In a round every user is served for a whole trajectory by the current
policy, epsilon-greedy in Q; then Q is fitted to what was seen. With a' the action that was taken next,

    G_t = r_t + gamma [ (1 - trace) Q(x_{t+1}, a_{t+1}) + trace G_{t+1} ]        Q(x_t, a_t) <- G_t

``trace=0`` is one-step SARSA, ``trace=1`` a Monte-Carlo return with a bootstrap where the trajectory is cut.
Q on the right is the network as it was when the round ended, which therefore acts as a target network.

*Scaling.* Inputs are standardised on the first round, which is uniform. Targets are standardised with a
moving mean and spread, and the last layer is rescaled with them so that Q does not jump (Pop-Art, van Hasselt
et al. 2016): so it copes with returns that grow a thousandfold during training, as in HIV.

*A potential.* Some rewards are levels that persist, such as satisfaction, and the noise of the level hides
the effect of one action. With ``potential`` c > 0 the agent learns from r_t + gamma c r_t - c r_{t-1}
instead. This is potential-based shaping (Ng et al. 1999), with the last reward as the potential. Given x_t
the action does not depend on the last reward, so Q changes by the same amount for all actions; with c = 1 /
(1 - gamma) the agent learns from differences, c (r_t - r_{t-1}).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shpi._core.progress import progress_bar
from shpi._torch.layers import Layers, export, forward, make_layers, predict
from shpi._torch.networks import one_thread
from shpi.errors import ConfigError, DataError
from shpi.features import Standardise, StandardiseMap
from shpi.policies import Greedy, MlpScorer, sample_actions
from shpi.protocols import BoolArray, Float32Array, Float64Array, Int64Array, Simulator

_SCALE_STEP = 0.3  # how fast the scale of the targets follows the latest rounds
_TAILS = (0.01, 0.99)  # the scale ignores what lies outside these quantiles


class Round(NamedTuple):
    """The record of one round of training."""

    number: int  # 0, 1, …
    rounds: int
    epsilon: float
    mean_return: float  # undiscounted, of the exploring policy
    loss: float  # mean squared error in units of the targets' spread


@dataclass(frozen=True, kw_only=True)
class DeepSARSA:
    """Train a Q-network online in a simulator and return its greedy policy.

    Args:
        episodes: number of trajectories in all.
        gamma: the discount.
        hidden: the sizes of the hidden layers.
        learning_rate: learning rate of Adam, at the start.
        final_learning_rate: learning rate at the end; linear in between.
        batch_users: number of users who advance together in one round.
        memory: number of rounds for which a round's data are trained on again.
        epochs: passes over the memory after each round.
        batch_size: decisions per gradient step.
        trace: lambda of the targets, see above.
        potential: c of the shaping, see above; 0 is none.
        epsilon: the share of random actions at the start and at the end; the first round is random anyway.
        exploration: the share of the rounds over which epsilon falls.
        averaging: the returned network is the moving average of the weights with this decay per step.
        seed: random seed; the users are not those of a simulator that is reset with the same number.
        progress: show a bar; None shows it on a terminal.
    """

    episodes: int
    gamma: float = 0.99
    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-4
    batch_users: int = 10
    memory: int = 5
    epochs: int = 3
    batch_size: int = 512
    trace: float = 0.95
    potential: float = 0.0
    epsilon: tuple[float, float] = (1.0, 0.05)
    exploration: float = 0.8
    averaging: float = 0.995
    seed: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        for name in ("episodes", "batch_users", "memory", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(expected=f"{name} of at least 1", found=str(getattr(self, name)))
        if any(size < 1 for size in self.hidden):
            raise ConfigError(expected="hidden layers of at least 1 unit", found=str(self.hidden))
        ranges: dict[str, tuple[float, ...]] = {
            "gamma": (self.gamma,),
            "trace": (self.trace,),
            "epsilon": self.epsilon,
            "exploration": (self.exploration,),
            "averaging": (self.averaging,),
        }
        for name, values in ranges.items():
            if not all(0 <= value <= 1 for value in values):
                raise ConfigError(expected=f"{name} in [0, 1]", found=str(getattr(self, name)))
        if self.gamma == 1 or self.averaging == 1:
            raise ConfigError(expected="gamma and averaging below 1", found="1")
        if not (self.learning_rate > 0 and self.final_learning_rate > 0):
            raise ConfigError(
                expected="positive learning rates", found=f"{self.learning_rate}, {self.final_learning_rate}"
            )
        if not 0 <= self.potential <= 1 / (1 - self.gamma) * (1 + 1e-12):
            raise ConfigError(expected="potential in [0, 1 / (1 - gamma)]", found=str(self.potential))

    def fit(self, simulator: Simulator, *, on_round: Callable[[Round], None] | None = None) -> Greedy:
        """Train in ``simulator`` (which is reset) and return the greedy policy of the averaged network."""
        with one_thread() as torch:
            state = _start(self, simulator, torch)
            sizes = _round_sizes(self.episodes, self.batch_users)
            with progress_bar(f"deep SARSA on {simulator.name}", len(sizes), self.progress) as advance:
                for number, size in enumerate(sizes):
                    report = _one_round(self, simulator, state, number, len(sizes), size)
                    if on_round is not None:
                        on_round(report)
                    advance(1)
            return _policy(state)


def sarsa_targets(
    rewards: Float64Array,
    values: Float64Array,
    alive: BoolArray,
    *,
    gamma: float,
    trace: float,
    potential: float = 0.0,
) -> Float64Array:
    """G_t of the module's first equation, for n users at once [T, n].

    Args:
        rewards: r_t [T, n].
        values: Q(x_t, a_t) [T + 1, n], with the last one after the last decision.
        alive: whether the user is still there before decision t, [T + 1, n]; False at T means terminated,
            True means truncated, so that the value there is bootstrapped.
        gamma: the discount.
        trace: lambda.
        potential: c; G_0 then lacks the unknown reward before the first decision.
    """
    stays = alive[1:]
    shaped = rewards + gamma * potential * np.where(stays, rewards, 0.0)
    shaped[1:] -= potential * rewards[:-1]
    targets = np.empty_like(shaped)
    ahead = values[-1]
    for t in range(len(rewards) - 1, -1, -1):
        following = (1.0 - trace) * values[t + 1] + trace * ahead
        targets[t] = shaped[t] + gamma * np.where(stays[t], following, 0.0)
        ahead = targets[t]
    return targets


# ---------------------------------------------------------------------- one round


@dataclass
class _State:
    """The state of the agent while it learns."""

    torch: Any
    users_seed: int
    rng: np.random.Generator
    layers: Layers
    average: Layers  # the moving average of the layers
    optimiser: Any
    inputs: StandardiseMap | None = None
    mean: float = 0.0  # Q = mean + spread × network
    spread: float = 1.0
    first_user: int = 0
    memory: list[_Seen] = field(default_factory=list)


class _Seen(NamedTuple):
    """Decisions of one round, flat: what Q is fitted to."""

    inputs: Float32Array  # [m, d] standardised contexts
    actions: Int64Array  # [m]
    targets: Float64Array  # [m]


class _Trajectories(NamedTuple):
    """The data of one round of n users, over T decisions."""

    contexts: Float32Array  # [T + 1, n, d]
    actions: Int64Array  # [T + 1, n] the last one would have been taken next
    rewards: Float64Array  # [T, n]
    alive: BoolArray  # [T + 1, n]


def _start(config: DeepSARSA, simulator: Simulator, torch: Any) -> _State:
    words, chance = np.random.SeedSequence(config.seed).spawn(2)
    rng = np.random.default_rng(chance)
    sizes = (len(simulator.context_names), *config.hidden, simulator.n_actions)
    layers = make_layers(torch, sizes, rng, last=0.1)
    return _State(
        torch=torch,
        users_seed=int(words.generate_state(1, np.uint64)[0] >> np.uint64(1)),
        rng=rng,
        layers=layers,
        average=[layer.detach().clone() for layer in layers],
        optimiser=torch.optim.Adam(layers, lr=config.learning_rate, fused=True),
    )


def _one_round(
    config: DeepSARSA, simulator: Simulator, state: _State, number: int, rounds: int, size: int
) -> Round:
    epsilon = 1.0 if number == 0 else _epsilon(config, number, rounds)
    trajectories = _collect(simulator, state, size, epsilon)
    if state.inputs is None:
        state.inputs = Standardise().fit(trajectories.contexts[:-1][trajectories.alive[:-1]])
        state.mean = float(trajectories.rewards[trajectories.alive[:-1]].mean()) * _unit(config)
    # The network knows nothing in the first round: whole returns, with the mean reward at the cut.
    trace = config.trace if number else 1.0
    state.memory = [*state.memory, _learnable(config, state, trajectories, trace)][-config.memory :]
    _rescale(state, first=number == 0)
    progress = number / max(rounds - 1, 1)
    rate = config.learning_rate + progress * (config.final_learning_rate - config.learning_rate)
    for group in state.optimiser.param_groups:
        group["lr"] = rate
    loss = _regress(config, state)
    return Round(number, rounds, epsilon, float(trajectories.rewards.sum(axis=0).mean()), loss)


def _collect(simulator: Simulator, state: _State, n: int, epsilon: float) -> _Trajectories:
    """Serve n new users for a whole trajectory, epsilon-greedy in the current network."""
    horizon, d = simulator.horizon, len(simulator.context_names)
    contexts = np.empty((horizon + 1, n, d), dtype=np.float32)
    actions = np.zeros((horizon + 1, n), dtype=np.int64)
    rewards, alive = np.zeros((horizon, n)), np.ones((horizon + 1, n), dtype=bool)
    contexts[0] = simulator.reset(n, state.users_seed, first=state.first_user)
    state.first_user += n
    length = horizon
    for t in range(horizon):
        actions[t] = _choose(simulator, state, contexts[t], alive[t], epsilon)
        step = simulator.step(actions[t])
        contexts[t + 1], alive[t + 1] = step.contexts, ~step.ended
        rewards[t] = np.where(alive[t], step.rewards, 0.0)
        if step.ended.all():
            length = t + 1
            break
    if not np.isfinite(rewards).all() or not np.isfinite(contexts[: length + 1]).all():
        raise DataError(
            expected="finite rewards and contexts from the simulator",
            found="NaN or infinity",
            where=f"simulator '{simulator.name}'",
        )
    if alive[length].any():
        actions[length] = _choose(simulator, state, contexts[length], alive[length], epsilon)
    return _Trajectories(contexts[: length + 1], actions[: length + 1], rewards[:length], alive[: length + 1])


def _choose(
    simulator: Simulator, state: _State, contexts: Float32Array, alive: BoolArray, epsilon: float
) -> Int64Array:
    """Epsilon-greedy actions [n] among the candidates; always two random numbers per user."""
    n, allowed = len(contexts), np.ones((len(contexts), simulator.n_actions), dtype=bool)
    mask = simulator.candidates()
    if mask is not None:
        allowed = np.where(alive[:, None], mask, allowed)
    explores, draws = state.rng.random((2, n))
    random = sample_actions(allowed / allowed.sum(axis=1, keepdims=True), draws)
    if state.inputs is None:
        return random
    q = predict(state.torch, state.layers, _standardised(state, contexts))
    return np.where(explores < epsilon, random, np.where(allowed, q, -np.inf).argmax(axis=1))


def _learnable(config: DeepSARSA, state: _State, trajectories: _Trajectories, trace: float) -> _Seen:
    """Contexts, actions and targets of the decisions of a round, flat."""
    steps, n, d = trajectories.contexts.shape
    inputs = _standardised(state, trajectories.contexts.reshape(-1, d))
    q = predict(state.torch, state.layers, inputs).reshape(steps, n, -1)
    taken = np.take_along_axis(q, trajectories.actions[:, :, None], axis=2)[:, :, 0].astype(np.float64)
    targets = sarsa_targets(
        trajectories.rewards,
        state.mean + state.spread * taken,
        trajectories.alive,
        gamma=config.gamma,
        trace=trace,
        potential=config.potential,
    )
    usable = trajectories.alive[:-1].copy()
    if config.potential and len(usable) > 1:
        usable[0] = False  # the reward before the first decision is not known
    return _Seen(inputs.reshape(steps, n, d)[:-1][usable], trajectories.actions[:-1][usable], targets[usable])


def _rescale(state: _State, *, first: bool) -> None:
    """Let mean and spread follow the targets, and change the last layer so that Q stays what it was."""
    targets = np.concatenate([round_.targets for round_ in state.memory])
    kept = np.clip(targets, *np.quantile(targets, _TAILS))
    share = 1.0 if first else _SCALE_STEP
    mean = (1 - share) * state.mean + share * float(kept.mean())
    spread = (1 - share) * state.spread + share * float(kept.std())
    spread = spread if spread > 1e-9 * max(abs(mean), 1e-9) else 1.0  # rewards that are all the same
    with state.torch.no_grad():
        for layers in (state.layers, state.average):
            layers[-2].mul_(state.spread / spread)
            layers[-1].mul_(state.spread / spread).add_((state.mean - mean) / spread)
    state.mean, state.spread = mean, spread


def _regress(config: DeepSARSA, state: _State) -> float:
    """Least squares on the memory by Adam; returns the mean loss of the last epoch."""
    torch, layers = state.torch, state.layers
    inputs = torch.from_numpy(np.concatenate([round_.inputs for round_ in state.memory]))
    actions = torch.from_numpy(np.concatenate([round_.actions for round_ in state.memory]))[:, None]
    raw = np.concatenate([round_.targets for round_ in state.memory])
    targets = torch.from_numpy(((raw - state.mean) / state.spread).astype(np.float32))[:, None]
    total = 0.0
    for _ in range(config.epochs):
        order, total = torch.from_numpy(state.rng.permutation(len(raw))), 0.0
        for batch in order.split(config.batch_size):
            error = forward(torch, layers, inputs[batch]).gather(1, actions[batch]) - targets[batch]
            loss = (error * error).mean()
            state.optimiser.zero_grad()
            loss.backward()
            state.optimiser.step()
            with torch.no_grad():
                torch._foreach_lerp_(state.average, layers, 1.0 - config.averaging)
            total += float(loss.detach()) * len(batch)
    return total / len(raw)


def _policy(state: _State) -> Greedy:
    """The averaged network as a policy; its scores are Q in units of the reward."""
    assert state.inputs is not None  # the first round has set it
    weights, biases = export(state.average)
    weights[-1] = (weights[-1] * state.spread).astype(np.float32)
    biases[-1] = (biases[-1] * state.spread + state.mean).astype(np.float32)
    return Greedy(MlpScorer(weights, biases, state.inputs))


# ---------------------------------------------------------------------- small helpers


def _standardised(state: _State, contexts: Float32Array) -> Float32Array:
    assert state.inputs is not None
    return state.inputs.transform(contexts).astype(np.float32)


def _unit(config: DeepSARSA) -> float:
    """The value of a constant reward of 1, after shaping."""
    return (1.0 - config.potential * (1.0 - config.gamma)) / (1.0 - config.gamma)


def _epsilon(config: DeepSARSA, number: int, rounds: int) -> float:
    start, end = config.epsilon
    share = min(1.0, number / max(config.exploration * rounds, 1.0))
    return start + share * (end - start)


def _round_sizes(episodes: int, batch_users: int) -> list[int]:
    full, rest = divmod(episodes, batch_users)
    return [batch_users] * full + ([rest] if rest else [])
