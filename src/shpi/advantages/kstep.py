r"""k-step advantages, Eq. 2, 4 and 5 of the paper: the rewards of k steps plus the termination bonus.

    raw        A_k(x_t, a_t) = sum_{m=0}^{k-1} gamma^m c(w_{t+1}^{t+m}) r_{t+m}
                               + gamma^k c(w_{t+1}^{t+k-1}) V(x_{t+k}) - V(x_t)
    residual   A_k(x_t, a_t) = sum_{m=0}^{k-1} gamma^m c(w_{t+1}^{t+m}) delta_{t+m}
               delta_t = r_t + gamma V(x_{t+1}) - V(x_t)

    w_a^b = rho_a … rho_b,  rho = pi/mu,  w = 1 for an empty product;    c clips to [q1, q2]

Telescoping the raw form gives the residual form: they are equal if the weights are 1, and have the same mean
if weights are not clipped. The residual form multiplies only deltas by noisy weights, never V itself.

Three notes on the printed equations:
* Eq. 4 weights the bonus by w_{t+1}^{t+k}. The ratio at t+k belongs to an action after x_{t+k} and has mean 1
  given x_{t+k}, so it leaves the mean unchanged but adds variance, and a bias if clipped. It is left out by
  default (``bonus_ratio=True`` includes it; at the end of a trajectory there is none).
* Algorithm 2 clips one product per decision, Eq. 5 has one weight per step: ``clip="product"`` is the first
  interpretation (every step after the first, and the bonus, get the clipped whole product), "prefix" the
  second. The authors' release clips each ratio and no product, so that weights reach [q1^k, q2^k]: "ratio".
* k = 1 gives A^mu; k >= T gives Q^pi - V^mu, which ranks actions as A^pi does but is not equal to it.

Identities: V = 0 is session-based RL, and with k = 1 a contextual bandit (A = r).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from shpi.advantages.sums import weighted_sums
from shpi.advantages.windows import Horizon, window_stops
from shpi.data.logged import LoggedData
from shpi.errors import ConfigError, DataError
from shpi.protocols import BoolArray, Float64Array, Int64Array
from shpi.values.base import StateValues, checked_gamma, checked_values
from shpi.values.transitions import rewards_of, usable_transitions

Form = Literal["residual", "raw"]
ClipRule = Literal["prefix", "product", "ratio"]


@dataclass(frozen=True, kw_only=True)
class WeightSummary:
    """The importance products over whole windows, before clipping."""

    mean: float  # about 1 if the propensities are right and mu supports pi
    largest: float
    clipped_low: float  # share of the windows below q1
    clipped_high: float  # share above q2
    effective_share: float  # (sum w)^2 / (n sum w^2), the effective sample size as a share

    @classmethod
    def of(cls, products: Float64Array, clip: tuple[float, float] | None) -> WeightSummary:
        """Summarise the products of the valid windows."""
        if not len(products):
            return cls(mean=1.0, largest=1.0, clipped_low=0.0, clipped_high=0.0, effective_share=0.0)
        low, high = clip or (-np.inf, np.inf)
        top = float(products.max())
        scaled = products / (top or 1.0)  # squares of huge products must not overflow
        square = float(np.square(scaled).sum())
        return cls(
            mean=float(products.mean()),
            largest=top,
            clipped_low=float((products < low).mean()),
            clipped_high=float((products > high).mean()),
            effective_share=float(scaled.sum() ** 2 / (len(products) * square)) if square else 0.0,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Advantages:
    """The advantage of every logged decision."""

    values: Float64Array  # [n]; 0 where not valid
    valid: BoolArray  # [n] False: the outcome of this decision is unknown; leave the row out
    lengths: Int64Array  # [n] number of steps in each window, at most k
    weights: WeightSummary


def k_step_advantages(
    logs: LoggedData,
    values: StateValues,
    *,
    k: Horizon,
    gamma: float,
    ratios: Float64Array | None = None,
    weight_clip: tuple[float, float] | None = (0.5, 2.0),
    form: Form = "residual",
    clip: ClipRule = "prefix",
    bonus_ratio: bool = False,
) -> Advantages:
    """The k-step advantages of all decisions of a log. See the top of this file for the equations.

    Args:
        logs: logged decisions.
        values: V at their contexts; `StateValues.of`, or `StateValues.zeros` for no bonus.
        k: number of steps, or "session": until the end of each decision's session. If k exceeds the rest of
            a trajectory, the window ends with it.
        gamma: discount factor, in [0, 1].
        ratios: rho [n], see `importance_ratios`; None if pi itself produced the log (online: weights 1).
        weight_clip: clipping range (q1, q2) with q1 <= 1 <= q2; None: no clipping.
        form: "residual", or the paper's "raw" form.
        clip: interpretation of the paper's clipping. Under "ratio" a ratio may be negative, as in the
            release, whose propensities are not probabilities.
        bonus_ratio: whether to weight the bonus as printed in Eq. 4.
    """
    checked_gamma(gamma, below_one=False)
    for name, chosen, allowed in (("form", form, get_args(Form)), ("clip", clip, get_args(ClipRule))):
        if chosen not in allowed:
            raise ConfigError(expected=f"{name} to be one of {', '.join(allowed)}", found=repr(chosen))
    clip_range, rho = _checked(weight_clip, ratios, len(logs), negative=clip == "ratio")
    if clip == "ratio":  # clip the ratios here, and no product later
        rho = rho if rho is None or clip_range is None else np.clip(rho, *clip_range)
        clip_range = None
    rewards, usable = rewards_of(logs), usable_transitions(logs)
    ahead = values.following(logs)  # [n] V(x_{t+1})
    stops = window_stops(logs, k, usable)
    lengths = stops - np.arange(len(logs))
    valid, last = lengths > 0, np.maximum(stops - 1, 0)  # the bonus is V of the context after the last row

    terms = rewards if form == "raw" else rewards + gamma * ahead - values.rows
    terms = np.where(usable, terms, 0.0)
    if clip == "product":
        sums, _ = weighted_sums(terms, None, stops, gamma, None)
        _, whole = weighted_sums(terms, rho, stops, gamma, None)
    else:
        sums, whole = weighted_sums(terms, rho, stops, gamma, clip_range)
    if bonus_ratio and rho is not None:
        whole = whole * _ratio_at(stops, rho, logs)
    weight = whole if clip_range is None else np.clip(whole, *clip_range)
    if clip == "product":
        sums = terms + weight * (sums - terms)
    if form == "raw":
        sums = sums + gamma**lengths * weight * ahead[last] - values.rows
    if not np.isfinite(sums).all():
        raise DataError(
            expected="finite advantages",
            found="importance products that overflow",
            where=f"row {int(np.flatnonzero(~np.isfinite(sums))[0])}",
            remedy="set weight_clip, or a smaller k",
        )
    return Advantages(
        values=np.where(valid, sums, 0.0),
        valid=valid,
        lengths=lengths,
        weights=WeightSummary.of(whole[valid], clip_range),
    )


def _ratio_at(stops: Int64Array, ratios: Float64Array, logs: LoggedData) -> Float64Array:
    """The ratio of the decision after each window [n]; 1 if the trajectory has ended."""
    ends = np.repeat(logs.offsets[1:], np.diff(logs.offsets))
    return np.where(stops < ends, ratios[np.minimum(stops, len(ratios) - 1)], 1.0)


def _checked(
    clip: tuple[float, float] | None, ratios: Float64Array | None, n: int, *, negative: bool
) -> tuple[tuple[float, float] | None, Float64Array | None]:
    """Check the clipping range and the ratios, and return both."""
    if clip is not None:
        low, high = (float(q) for q in clip)
        if not 0 <= low <= 1 <= high:
            raise ConfigError(
                expected="weight_clip (q1, q2) with 0 <= q1 <= 1 <= q2, or None", found=repr(tuple(clip))
            )
        clip = low, high
    if ratios is None:
        return clip, None
    rho = checked_values(ratios, n, "the importance ratio of row")
    if not negative and (rho < 0).any():
        row = int(np.flatnonzero(rho < 0)[0])
        raise DataError(expected="importance ratios of at least 0", found=str(rho[row]), where=f"row {row}")
    return clip, rho
