r"""Values that depend on the user's past rewards besides the context.

    V(x_t, h_t),     h_t = (r_{t-1},  mean of r_0 .. r_{t-1})          h_0 = 0

A reward that looks ahead, such as "bought within 30 days", is not known at the next decision, and would
reveal its outcome to V. Then h uses what was known at once, ``LoggedData.immediate``.

A context rarely is the whole state. What it hides (a mood, an engagement, a stock of earlier purchases) shows
in the rewards before, and they are in every log. mu does not look at them, so (x, h) is a state of the same
problem with more known about it. Advantages have less bias with V(x, h), since fewer states look alike, and
less noise, since levels that persist cancel. The policy never needs h: only the log's advantages do.

Measured effect (attained share of one round, seeds 100 and 102, 1,000 uniform trajectories of the synthetic
task): 0.98 and 0.36-0.99, depending on k, without h; 0.98 and 0.98-0.99 for every k with it. In RecoGym the
reward is a level that persists; without h no k beats the logging policy there. `python -m benchmarks
ablation` has both side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema, Feature
from shpi.errors import DataError
from shpi.features.base import check_contexts
from shpi.features.parts import freeze, saveable
from shpi.protocols import Float64Array, FloatArray
from shpi.values.base import FittedValue, StateValues, ValueModel
from shpi.values.lstd import LSTD

TAIL = 3.0  # standard deviations: past rewards, and the counts used beside them, have long tails
COLUMNS = ("reward before", "mean reward before")  # names of the columns of h


@dataclass(frozen=True, kw_only=True)
class WithPast:
    """Any value model, fitted to (x, h).

    Args:
        model: value model that is fitted on the widened contexts.
    """

    model: ValueModel = field(default_factory=lambda: LSTD(tail=TAIL))

    def fit(self, logs: LoggedData, *, gamma: float, seed: int) -> PastValue:
        """Fit V^mu(x, h)."""
        wide = with_past(logs)
        usual = wide.contexts[:, logs.schema.width :].mean(axis=0, dtype=np.float64)
        return PastValue(value=self.model.fit(wide, gamma=gamma, seed=seed), usual=usual)


@saveable("values/past")
@dataclass(frozen=True, kw_only=True, eq=False)
class PastValue:
    """V(x, h) on a log; for contexts alone, V at the mean past of the log that it was fitted to."""

    value: FittedValue
    usual: Float64Array  # [2] the mean h

    def __post_init__(self) -> None:
        freeze(self, "usual", ndim=1)

    def __call__(self, contexts: FloatArray) -> Float64Array:
        """V(x, mean h), [n]."""
        x = np.asarray(check_contexts(contexts), dtype=np.float32)
        past = np.broadcast_to(self.usual.astype(np.float32), (len(x), len(self.usual)))
        return self.value(np.hstack([x, past]))

    def on_log(self, logs: LoggedData) -> StateValues:
        """V(x_t, h_t) at every context of a log."""
        return StateValues.of(self.value, with_past(logs))


def with_past(logs: LoggedData) -> LoggedData:
    """The same log with h beside every context, the final ones included. Censored rewards count as 0."""
    if logs.rewards is None:
        raise DataError(
            expected="a log with rewards, since the value looks at those before a decision",
            found="none",
            remedy="derive them (logs.with_rewards), or take a value that sees contexts only, such as LSTD()",
        )
    at_once = logs.rewards if logs.immediate is None else logs.immediate
    rewards = np.asarray(at_once, dtype=np.float64)
    if logs.reward_observed is not None and logs.immediate is None:
        rewards = np.where(logs.reward_observed, rewards, 0.0)
    first, lengths = logs.offsets[:-1], np.diff(logs.offsets)
    before = np.concatenate([[0.0], rewards[:-1]])
    before[first] = 0.0
    centre = rewards.mean()
    sums = np.concatenate([[0.0], np.cumsum(rewards - centre)])  # centred: long sums keep their digits
    step = np.arange(len(logs)) - np.repeat(first, lengths)
    mean = (sums[:-1] - np.repeat(sums[first], lengths)) / np.maximum(step, 1) + centre * (step > 0)
    past = np.column_stack([before, mean]).astype(np.float32)
    last = np.column_stack(
        [rewards[logs.offsets[1:] - 1], (sums[logs.offsets[1:]] - sums[first]) / lengths + centre]
    )
    features = logs.schema.features
    taken = {*logs.schema.dimensions, *(feature.name for feature in features)}
    for name in COLUMNS:
        while name in taken:
            name += "'"
        features = (*features, Feature(name=name))
    return replace(
        logs,
        contexts=np.hstack([logs.contexts, past]),
        final_contexts=np.hstack([logs.final_contexts, last.astype(np.float32)]),
        schema=ContextSchema(features=features),
    )
