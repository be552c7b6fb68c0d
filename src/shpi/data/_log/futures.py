"""Searches and sums over the future of a decision in its trajectory, with no Python loop over users.

Everything works on flat arrays, and costs O(n log T) for trajectories of at most T decisions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from shpi.data._log import ragged
from shpi.data._log.ledger import Ledger
from shpi.errors import DataError
from shpi.protocols import BoolArray, Float64Array, Int64Array

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData


def first_after(
    values: NDArray[Any],
    low: Int64Array,
    high: Int64Array,
    targets: NDArray[Any],
    *,
    side: Literal["left", "right"],
) -> Int64Array:
    """For each query, the first position in [low, high) whose value is >= target (left) or > (right).

    The result is ``high`` if there is none; ``values`` must not fall between ``low`` and ``high``. All
    queries are bisected together, so neither float times nor large timestamps need a composite key.
    """
    low, high = low.copy(), high.copy()
    left = np.flatnonzero(low < high)
    while len(left):
        middle = (low[left] + high[left]) // 2
        probed, wanted = values[middle], targets[left]
        before = probed < wanted if side == "left" else probed <= wanted
        low[left[before]] = middle[before] + 1
        high[left[~before]] = middle[~before]
        left = left[low[left] < high[left]]
    return low


def window_sums(
    values: Float64Array,
    stops: Int64Array,
    *,
    gamma: float = 1.0,
    clock: NDArray[Any] | None = None,
    unit: float = 1,
) -> Float64Array:
    """S_t = sum over j = t .. stops_t - 1 of gamma^{(clock_j - clock_t) / unit} values_j, for every row t.

    A window must not leave its trajectory. Every window is assembled from blocks of 1, 2, 4, … rows, so
    nothing is ever subtracted: a user with huge values cannot spoil the precision of other users' sums.
    """
    n = len(values)
    position = np.arange(n, dtype=np.int64)  # where the rest of each window starts
    length = stops - position
    block = np.array(values, dtype=np.float64)  # the sums of the next `size` rows
    total = np.zeros(n)

    def weight(start: NDArray[Any], stop: NDArray[Any]) -> Any:
        # Blocks that run over the end of a trajectory are never used; keep their weights finite.
        return 1.0 if clock is None else gamma ** (np.maximum(stop - start, 0) / unit)

    times = position if clock is None else clock
    size, longest = 1, int(length.max(initial=0))
    while size <= longest:
        rows = np.flatnonzero(length & size)
        at = position[rows]
        total[rows] += weight(times[rows], times[at]) * block[at]
        position[rows] += size
        block[:-size] += weight(times[:-size], times[size:]) * block[size:]
        size *= 2
    return total


def keep_prefixes(logs: LoggedData, kept: BoolArray, ledger: Ledger) -> LoggedData:
    """The log without the tails of its trajectories: ``kept`` [n] is True, then False, in each of them.

    The context of the first dropped decision becomes the observed final context. A trajectory that keeps no
    decision is removed.
    """
    inner = np.ones(len(logs), dtype=bool)
    inner[logs.offsets[:-1]] = False
    if (kept[1:] & ~kept[:-1] & inner[1:]).any():
        raise DataError(
            expected="decisions to go from the end of a trajectory only",
            found="a trajectory with a hole",
            remedy="whether a reward was seen must depend on the time of the decision alone",
        )
    counts = np.add.reduceat(kept, logs.offsets[:-1], dtype=np.int64)
    alive = counts > 0
    cut = alive & (counts < np.diff(logs.offsets))
    next_row = (logs.offsets[:-1] + counts)[cut]
    final_contexts, final_observed = logs.final_contexts.copy(), logs.final_observed.copy()
    final_contexts[cut], final_observed[cut] = logs.contexts[next_row], True
    final_candidates = None if logs.final_candidates is None else logs.final_candidates.copy()
    if final_candidates is not None and logs.candidates is not None:
        final_candidates[cut] = logs.candidates[next_row]
    starts = np.zeros(len(logs), dtype=bool)
    starts[logs.session_offsets[:-1]] = True
    return replace(
        logs,
        contexts=logs.contexts[kept],
        actions=logs.actions[kept],
        times=logs.times[kept],
        offsets=ragged.offsets_from_lengths(counts[alive]),
        session_offsets=ragged.offsets_from_starts(starts[kept]),
        users=logs.users[alive],
        terminated=logs.terminated[alive] & ~cut[alive],
        final_contexts=final_contexts[alive],
        final_observed=final_observed[alive],
        final_candidates=None if final_candidates is None else final_candidates[alive],
        metrics={name: values[kept] for name, values in logs.metrics.items()},
        ledger=ledger,
        rewards=None if logs.rewards is None else logs.rewards[kept],
        propensities=None if logs.propensities is None else logs.propensities[kept],
        behaviour=None if logs.behaviour is None else logs.behaviour[kept],
        candidates=None if logs.candidates is None else logs.candidates[kept],
        reward_observed=None if logs.reward_observed is None else logs.reward_observed[kept],
        immediate=None if logs.immediate is None else logs.immediate[kept],
    )
