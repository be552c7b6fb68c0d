"""False rollbacks of an equal canary in 200 looks: the confidence sequence of `shpi serve`, and a z-test.

Rewards have the same distribution in both arms; there is a look after every 20 users, and a rollback at the
first look that calls the canary worse. The second figure is the power against a canary that is worse by 0.3
standard deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.report import Row
from shpi.protocols import Float64Array
from shpi.serve.loop.compare import FEWEST, Sums, difference

RUNS, USERS, LOOKS, ALPHA = 300, 4000, 200, 0.05
Draw = Callable[[np.random.Generator, int], Float64Array]
REWARDS: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "1 in 10": lambda rng, n: (rng.random(n) < 0.1).astype(np.float64),
    "1 in 50": lambda rng, n: (rng.random(n) < 0.02).astype(np.float64),
    "lognormal": lambda rng, n: rng.lognormal(0, 1.5, size=n),
    "minus lognormal": lambda rng, n: -rng.lognormal(0, 1.5, size=n),
}


def run() -> Iterator[Row]:
    for name, draw in REWARDS.items():
        for share in (0.05, 0.2, 0.5):
            rng = np.random.default_rng(7)
            false, by_z = rates(draw, share, rng)
            worse = -0.3 * float(np.std(draw(rng, 100_000)))
            power, _ = rates(draw, share, rng, worse, runs=RUNS // 3)
            label = f"{name}, canary of {share:.0%}"
            yield Row(f"{label}: false roll-backs", 100 * false, "%", f"z-test {by_z:.0%}", "<= 5")
            yield Row(f"{label}: power", 100 * power, "%")


def rates(
    draw: Draw, share: float, rng: np.random.Generator, effect: float = 0.0, runs: int = RUNS
) -> tuple[float, float]:
    """How often the sequence and a repeated z-test call the canary worse."""
    false = by_z = 0
    for _ in range(runs):
        canary, values = rng.random(USERS) < share, draw(rng, USERS)
        values = values + effect * canary
        first, second, called, called_by_z = Sums(), Sums(), False, False
        for number, (on_trial, value) in enumerate(zip(canary.tolist(), values.tolist(), strict=True), 1):
            (first if on_trial else second).add(value)
            if number % (USERS // LOOKS):
                continue
            gap = difference([(first, second)], alpha=ALPHA, planned=200)
            called = called or (gap is not None and gap.worse)
            if first.n >= FEWEST and second.n >= FEWEST:
                error = (first.variance / first.n + second.variance / second.n) ** 0.5
                called_by_z = called_by_z or (first.mean - second.mean < -1.645 * error)
        false, by_z = false + called, by_z + called_by_z
    return false / runs, by_z / runs
