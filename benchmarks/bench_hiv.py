"""HIV: decisions per CPU-second against the original and against scipy, with the errors.

The original's figure was measured once, on a machine like this one. A busy machine slows our figures by up to
a half: the ratios to scipy, measured in the same run, are fairer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.integrate import ode, solve_ivp

from benchmarks.report import Row
from shpi.envs.hiv.ode import BASELINE, DRUGS, Patient
from shpi.envs.hiv.simulator import HIV
from shpi.envs.hiv.taylor import advance
from shpi.errors import MissingExtraError

ORIGINAL = 1967.0  # decisions per CPU-second of RepBM with numba, on one core of a similar machine
SHARED = Path(os.environ.get("SHPI_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def steps_per_second(world: HIV, n: int, decisions: int) -> float:
    """Decisions per CPU-second under uniformly random treatment; the median of five parts of the run."""
    actions = np.random.default_rng(0).integers(0, 4, (decisions, n))
    world.reset(n, seed=0)
    speeds = []
    for block in np.array_split(actions, 5):
        began = time.process_time()
        for decision in block:
            world.step(decision)
        speeds.append(block.size / (time.process_time() - began))
    return float(np.median(speeds))


def plain_rhs(_: float, x: np.ndarray, eps1: float, eps2: float) -> list[float]:
    """The equation for one patient in plain Python numbers, the fastest form for a solver's callback."""
    t1, t2, t1_infected, t2_infected, virus, effectors = x.tolist()
    infected = t1_infected + t2_infected
    new1, new2 = (1.0 - eps1) * 8e-7 * virus * t1, (1.0 - 0.34 * eps1) * 1e-4 * virus * t2
    growth = 0.3 * infected / (infected + 100.0) - 0.25 * infected / (infected + 500.0) - 0.1
    return [
        1e4 - 0.01 * t1 - new1,
        31.98 - 0.01 * t2 - new2,
        new1 - 0.7 * t1_infected - 1e-5 * effectors * t1_infected,
        new2 - 0.7 * t2_infected - 1e-5 * effectors * t2_infected,
        (1.0 - eps2) * 70.0 * infected - 13.0 * virus - new1 - new2,
        1.0 + growth * effectors,
    ]


def by_vode(x: np.ndarray, eps: np.ndarray) -> np.ndarray:
    """One decision with the original's integrator and settings."""
    solver = ode(plain_rhs).set_integrator("vode", method="bdf", nsteps=10_000, rtol=1e-6, atol=1e-12)
    return np.asarray(solver.set_initial_value(x, 0.0).set_f_params(*eps).integrate(5.0))


def by_lsoda(x: np.ndarray, eps: np.ndarray) -> np.ndarray:
    """One decision with scipy's current solver, at about our accuracy."""
    solved = solve_ivp(plain_rhs, (0.0, 5.0), x, "LSODA", args=tuple(eps), rtol=1e-9, atol=1e-12)
    return np.asarray(solved.y[:, -1])


def peer(solve: Callable[[np.ndarray, np.ndarray], np.ndarray], decisions: int) -> tuple[float, float]:
    """Decisions per CPU-second of one patient at a time, and the largest relative error of a decision."""
    treatments = np.random.default_rng(0).integers(0, 4, decisions)
    states, began = [BASELINE], time.process_time()
    for action in treatments:
        states.append(solve(states[-1], DRUGS[action]))
    seconds = time.process_time() - began
    exact = advance(np.array(states[:-1]).T, Patient(), treatments, 5.0, tolerance=1e-12).T
    return decisions / seconds, float(np.abs(np.array(states[1:]) / exact - 1.0).max())


def errors(integrator: str) -> tuple[float, float] | None:
    """Relative error against the converged reference, if available: largest and median trajectory."""
    folder = SHARED / "golden"
    if not (folder / "hiv_tight_reference.npz").exists():
        return None
    with (
        np.load(folder / "hiv_golden.npz", allow_pickle=False) as golden,
        np.load(folder / "hiv_tight_reference.npz", allow_pickle=False) as tight,
    ):
        exact, actions = tight["states_tight"], golden["actions"]
        patient = Patient.from_hidden(golden["p_hidden"] * golden["perturb_params"][:, None])
    move = _function(integrator)
    states, worst = exact[:, 0].T.copy(), np.zeros(len(exact))
    for t in range(actions.shape[1]):
        states = move(states, patient, actions[:, t], 5.0)
        worst = np.maximum(worst, np.abs(states.T / exact[:, t + 1] - 1.0).max(axis=1))
    return float(worst.max()), float(np.median(worst))


def first_use() -> float:
    """CPU-seconds of a fresh process for the first decision ever, numba's import and compilation included."""
    code = (
        "import time, numpy as np; from shpi.envs.hiv.simulator import HIV; began = time.process_time()\n"
        "world = HIV(integrator='compiled'); world.reset(1, seed=0); world.step(np.zeros(1, dtype=int))\n"
        "print(time.process_time() - began)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
        )
    return float(done.stdout)


def _function(integrator: str) -> Callable[..., np.ndarray]:
    if integrator == "numpy":
        return advance
    from shpi.envs.hiv import compiled as hiv_compiled

    return hiv_compiled.advance


def peak_bytes(n: int) -> int:
    """Peak bytes of a reset and two decisions."""
    world = HIV(start_spread=0.05, integrator="numpy")  # the integrator with the larger workspace
    tracemalloc.start()
    world.reset(n, seed=0)
    for _ in range(2):
        world.step(np.zeros(n, dtype=np.int64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def rows_of(integrator: str, vode: tuple[float, float], lsoda: tuple[float, float]) -> list[Row]:
    """The figures of one integrator. The goal for speed applies to the compiled one."""
    world = HIV(start_spread=0.05, integrator=integrator)
    cohort = np.random.default_rng(1).normal(0.0, 0.2, (500, 12)).clip(-0.8, 0.8)
    different = HIV(start_spread=0.05, patient=cohort, integrator=integrator)
    ours = steps_per_second(world, 5_000, 200)
    goal = ">= 50" if integrator == "compiled" else ""
    rows = [
        Row("5,000 patients", ours, "decisions/CPU-s", "200 random treatments each, starts within 5 %"),
        Row("against the original", ours / ORIGINAL, "times", f"RepBM with numba: {ORIGINAL:,.0f}/s", goal),
        Row("against vode", ours / vode[0], "times", f"scipy {vode[0]:,.0f}/s, error {vode[1]:.0e}"),
        Row("against LSODA", ours / lsoda[0], "times", f"scipy {lsoda[0]:,.0f}/s, error {lsoda[1]:.0e}"),
        Row(
            "5,000 different patients",
            steps_per_second(different, 5_000, 40),
            "decisions/CPU-s",
            "hidden parameters N(0, 0.2)",
        ),
        Row("200 patients", steps_per_second(world, 200, 100), "decisions/CPU-s", "a batch of the agent"),
        Row("one patient", steps_per_second(world, 1, 100), "decisions/CPU-s", "calls dominate"),
    ]
    largest_and_median = errors(integrator)
    if largest_and_median is not None:
        note = f"200 decisions, 55 reference trajectories; median {largest_and_median[1]:.0e}"
        rows.append(Row("largest relative error", largest_and_median[0], "", note, "<= 1e-6"))
    return [row._replace(name=f"{integrator}: {row.name}") for row in rows]


def run() -> list[Row]:
    integrators = ["numpy"]
    try:
        HIV(integrator="compiled")
        integrators.insert(0, "compiled")
    except MissingExtraError as error:
        print(f"without the compiled integrator: {error}")
    vode, lsoda = peer(by_vode, 400), peer(by_lsoda, 200)
    rows = [row for integrator in integrators for row in rows_of(integrator, vode, lsoda)]
    if "compiled" in integrators:
        rows.append(
            Row("compiled: first use", first_use(), "CPU-s", "once per machine, then read from a cache")
        )
    few, lot = peak_bytes(4_000), peak_bytes(40_000)
    return [
        *rows,
        Row("memory per patient", (lot - few) / 36_000, "bytes", "peak of reset and steps"),
        Row("memory, 10x the patients", lot / few, "times", "linear is 10", "<= 11"),
    ]
