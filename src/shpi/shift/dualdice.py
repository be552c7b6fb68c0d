"""DualDICE with networks (Nachum et al. 2019): the state-action density ratio as a saddle point.

    min_nu max_zeta  E_D[ zeta(x,a) (nu(x,a) - gamma E_{a'~pi} nu(x',a')) - zeta(x,a)^2 / 2 ]
                     - (1-gamma) E_{x_0, a~pi}[nu(x_0,a)]  +  norm_penalty lambda (E_D zeta - 1)

The optimal zeta is d_pi(x,a) / d_D(x,a), where D are the rows of the log. The ratio of states is

    w(x) = sum_a mu(a|x) zeta(x,a),    or    zeta(x,a) mu(a|x) / pi(a|x)  at the logged a.

The last term (lambda is minimised together with nu) keeps the mean of zeta at 1. Without it the level of zeta
is learned at the rate 1-gamma: at gamma = 0.99 it was still 0.56 after 100,000 steps. The networks have one
output per action, which is |A| times cheaper than the action as an input. zeta is averaged over the second
half of the steps, because the iterates circle around the saddle point; with large steps they diverge.

On finite worlds the closed form `LinearRatio` is as good or better in a hundredth of the time. DualDICE is
here because the paper uses it, and for contexts that no feature map suits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from shpi._torch.networks import import_torch, network_layers, one_thread
from shpi.errors import ConfigError, DataError
from shpi.features.base import FeatureMap, Recipe, fit_features
from shpi.features.scale import Standardise
from shpi.protocols import Float32Array, Float64Array, FloatArray, Policy
from shpi.shift.base import (
    Limits,
    Ratio,
    action_ratios,
    check_gamma,
    last_rows,
    make_ratio,
    usable_rows,
)

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData

_SNAPSHOTS = 50  # number of iterates over which zeta is averaged
_ROWS = 1 << 13  # rows per block when a network is only evaluated


@dataclass(frozen=True, kw_only=True)
class DualDICE:
    """Neural DualDICE.

    Args:
        gamma: discount factor of d_pi, below 1.
        hidden: widths of the hidden layers of both networks.
        steps: number of gradient steps.
        batch: number of rows per gradient step.
        learning_rate: learning rate of Adam, for nu, zeta and lambda.
        clip: gradients are clipped to [-clip, clip], entry by entry.
        norm_penalty: 1 to keep the mean of zeta at 1; 0 for no constraint.
        average: share of the last steps over which zeta is averaged; 0: only the last iterate.
        network: ``heads`` for one output per action; ``concatenated`` for the action as an input, as in the
            authors' code: |A| times as much work.
        features: features of the contexts, standardised by default.
        limits: thresholds beyond which the ratio is unreliable.
    """

    gamma: float
    hidden: tuple[int, ...] = (64, 64)
    steps: int = 10_000
    batch: int = 2048
    learning_rate: float = 1e-3
    clip: float = 1.0
    norm_penalty: float = 1.0
    average: float = 0.5
    network: Literal["heads", "concatenated"] = "heads"
    features: Recipe | FeatureMap = field(default_factory=Standardise)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_gamma(self.gamma, "DualDICE")
        if self.steps < 1 or self.batch < 1 or not self.learning_rate > 0 or not self.clip > 0:
            raise ConfigError(
                expected="at least one step and one row per batch, a positive learning rate and clip",
                found=f"{self.steps}, {self.batch}, {self.learning_rate}, {self.clip}",
                where="DualDICE",
            )
        if not 0 <= self.average <= 1 or self.norm_penalty < 0:
            raise ConfigError(
                expected="average in [0, 1] and norm_penalty >= 0",
                found=f"{self.average} and {self.norm_penalty}",
                where="DualDICE",
            )
        if self.network not in ("heads", "concatenated") or not self.hidden:
            raise ConfigError(expected="network 'heads' or 'concatenated'", found=repr(self.network))

    @classmethod
    def literal(cls, gamma: float = 0.99) -> DualDICE:
        """The authors' settings for DualDICE; slower and less accurate than the default.

        Adam at 1e-4, batches of 2048, 100,000 steps, no norm constraint, the action as an input, the last
        iterate.
        """
        return cls(
            gamma=gamma,
            steps=100_000,
            learning_rate=1e-4,
            norm_penalty=0.0,
            average=0.0,
            network="concatenated",
        )

    def prepare(self, logs: LoggedData, *, seed: int) -> PreparedDualDICE:
        """Compute the inputs of the networks once."""
        import_torch()
        usable_rows(logs)
        features = fit_features(self.features, logs.contexts)
        return PreparedDualDICE(
            config=self,
            logs=logs,
            inputs=features.transform(logs.contexts).astype(np.float32),
            final_inputs=features.transform(logs.final_contexts).astype(np.float32),
            seed=seed,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedDualDICE:
    """DualDICE prepared on a log."""

    config: DualDICE
    logs: LoggedData
    inputs: Float32Array  # [n, p]
    final_inputs: Float32Array  # [N, p]
    seed: int

    def fit(self, pi: Policy | ArrayLike, mu: Policy | None = None) -> Ratio:
        """Train both networks, and average zeta over the actions of mu."""
        if not isinstance(pi, Policy):
            raise ConfigError(
                expected="a policy: DualDICE needs pi(.|x) of every action and at every next context",
                found=f"a {type(pi).__name__}",
                remedy="pass the policy itself, or use LinearRatio",
            )
        logs = self.logs
        rho = action_ratios(logs, pi)
        shares, final_shares = self._shares(rho, mu)
        with one_thread() as torch:
            zeta, final_zeta = _train(torch, self, pi, shares, final_shares)
        following = np.append(zeta[1:], 0.0)
        following[last_rows(logs)] = zeta[last_rows(logs)] if final_zeta is None else final_zeta
        return make_ratio(zeta, following, rho, logs, self.config.limits)

    def _shares(self, rho: Float64Array, mu: Policy | None) -> tuple[Float64Array, Float64Array | None]:
        """The weights of zeta(x, .) in w(x): [n, A], and [N, A] at the final contexts."""
        logs, n = self.logs, len(self.logs)
        if mu is not None:
            final = mu.action_probs(logs.final_contexts, logs.final_candidates)
            return mu.action_probs(logs.contexts, logs.candidates), final
        if logs.behaviour is not None:
            return logs.behaviour, None
        if not (rho > 0).all():
            raise DataError(
                expected="mu(.|x) of every action, or a policy pi that may take every logged action",
                found=f"neither: pi never takes {int((rho == 0).sum())} of the {n} logged actions",
                remedy="pass mu to fit, or a log with the behaviour distribution, or use LinearRatio",
            )
        shares = np.zeros((n, logs.n_actions))
        shares[np.arange(n), logs.actions] = 1.0 / rho
        return shares, None


def _train(
    torch: Any,
    prepared: PreparedDualDICE,
    pi: Policy,
    shares: Float64Array,
    final_shares: Float64Array | None,
) -> tuple[Float64Array, Float64Array | None]:
    """Find the saddle point by Adam; return sum_a shares zeta at every row [n] and final context [N]."""
    config, logs = prepared.config, prepared.logs
    draw = torch.Generator().manual_seed(prepared.seed)
    sizes = (prepared.inputs.shape[1], *config.hidden, logs.n_actions)
    nu, zeta = (_network(torch, config.network, sizes, draw) for _ in range(2))
    level = torch.zeros(1, requires_grad=True)  # lambda
    down = torch.optim.Adam([*nu.parameters(), level], lr=config.learning_rate, fused=True)
    up = torch.optim.Adam(zeta.parameters(), lr=config.learning_rate, fused=True, maximize=True)
    data = _tensors(torch, prepared, pi)
    tail = max(1, round(config.average * config.steps))
    every = max(1, tail // _SNAPSHOTS)
    total, final, count = np.zeros(len(logs)), np.zeros(logs.n_trajectories), 0
    for step in range(1, config.steps + 1):
        loss = _lagrangian(torch, config, nu, zeta, level, data, draw)
        down.zero_grad(set_to_none=True)
        up.zero_grad(set_to_none=True)
        loss.backward()
        for network in (nu, zeta):
            torch.nn.utils.clip_grad_value_(network.parameters(), config.clip)
        down.step()
        up.step()
        left = config.steps - step
        if left < tail and left % every == 0:
            total += _weighted(torch, zeta, prepared.inputs, shares)
            if final_shares is not None:
                final += _weighted(torch, zeta, prepared.final_inputs, final_shares)
            count += 1
    return total / count, None if final_shares is None else final / count


def _lagrangian(
    torch: Any, config: DualDICE, nu: Any, zeta: Any, level: Any, data: dict[str, Any], draw: Any
) -> Any:
    """The objective on one batch of rows and one of initial contexts."""
    rows = data["rows"][torch.randint(len(data["rows"]), (config.batch,), generator=draw)]
    first = torch.randint(len(data["first"]), (config.batch,), generator=draw)
    chosen = data["actions"][rows, None]
    x, following = data["inputs"][rows], data["inputs_next"][rows]
    # One call of nu for all three inputs: small networks spend their time in overhead, not in arithmetic.
    values = nu(torch.cat([x, following, data["first"][first]])).split(config.batch)
    here = values[0].gather(1, chosen)[:, 0]
    ahead = (data["pi_next"][rows] * values[1]).sum(1)  # 0 after a termination
    start = (data["pi_first"][first] * values[2]).sum(1)
    weight = zeta(x).gather(1, chosen)[:, 0]
    value = (weight * (here - config.gamma * ahead) - 0.5 * weight**2).mean()
    norm = config.norm_penalty * level[0] * (weight.mean() - 1.0)
    return value - (1.0 - config.gamma) * start.mean() + norm


def _tensors(torch: Any, prepared: PreparedDualDICE, pi: Policy) -> dict[str, Any]:
    """The data that batches are drawn from, in float32."""
    logs, last = prepared.logs, last_rows(prepared.logs)
    following = np.append(prepared.inputs[1:], prepared.inputs[:1], axis=0)
    following[last] = prepared.final_inputs
    here = _probabilities(pi, logs.contexts, logs.candidates)
    ahead = np.append(here[1:], here[:1], axis=0)
    ahead[last] = _probabilities(pi, logs.final_contexts, logs.final_candidates)
    ahead[last[logs.terminated]] = 0.0
    start = logs.offsets[:-1]
    return {
        "rows": torch.from_numpy(np.flatnonzero(usable_rows(logs))),
        "actions": torch.from_numpy(logs.actions.astype(np.int64)),
        "inputs": torch.from_numpy(prepared.inputs),
        "inputs_next": torch.from_numpy(following),
        "pi_next": torch.from_numpy(ahead),
        "first": torch.from_numpy(prepared.inputs[start]),
        "pi_first": torch.from_numpy(here[start]),
    }


def _probabilities(pi: Policy, contexts: FloatArray, candidates: Any) -> Float32Array:
    """pi(.|x) [n, A] in float32, computed in blocks."""
    probs = np.empty((len(contexts), pi.n_actions), dtype=np.float32)
    for start in range(0, len(contexts), _ROWS):
        rows = slice(start, start + _ROWS)
        probs[rows] = pi.action_probs(contexts[rows], None if candidates is None else candidates[rows])
    return probs


def _weighted(torch: Any, zeta: Any, inputs: Float32Array, shares: Float64Array) -> Float64Array:
    """sum_a shares(x, a) zeta(x, a) for every row [n]."""
    weights = np.empty(len(inputs))
    with torch.no_grad():
        for start in range(0, len(inputs), _ROWS):
            rows = slice(start, start + _ROWS)
            weights[rows] = (shares[rows] * zeta(torch.from_numpy(inputs[rows])).numpy()).sum(axis=1)
    return weights


def _network(torch: Any, kind: str, sizes: tuple[int, ...], draw: Any) -> Any:
    """A function from inputs [n, p] to one number per action [n, A]."""
    if kind == "heads":
        return network_layers(torch, sizes, draw)
    width, *hidden, n_actions = sizes
    first, rest = network_layers(torch, (width + n_actions, hidden[0]), draw)[0], (*hidden, 1)
    later = network_layers(torch, rest, draw)

    class Concatenated(torch.nn.Module):  # type: ignore[misc]
        """The action as a one-hot input: add its column of the first layer to the context's part."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.later = first, later

        def forward(self, x: Any) -> Any:
            context_layer = x @ self.first.weight[:, :width].T + self.first.bias  # [n, h]
            actions = self.first.weight[:, width:].T  # [A, h]
            mixed = torch.relu(context_layer[:, None, :] + actions[None, :, :])
            return self.later(mixed)[:, :, 0]

    return Concatenated()
