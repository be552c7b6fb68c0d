from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import hyp1f1

from shpi.envs.hiv import simulator as hiv
from shpi.envs.hiv import taylor as hiv_taylor
from shpi.envs.hiv.ode import BASELINE, DRUGS, HIDDEN, PATIENT_20, Patient, reward, rhs
from shpi.envs.hiv.simulator import HIV
from shpi.envs.rollout import mean_return, rollout
from shpi.errors import ActionError, ConfigError, EpisodeError, MissingExtraError
from shpi.policies import UniformPolicy

Advance = Callable[..., np.ndarray]
needs_numba = pytest.mark.skipif(find_spec("numba") is None, reason="needs numba: pip install 'shpi[fast]'")


@pytest.fixture(scope="module", params=["numpy", pytest.param("compiled", marks=needs_numba)])
def integrator(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def advance(integrator: str) -> Advance:
    return hiv._advance(integrator)


@pytest.fixture(scope="module")
def golden(golden_dir: Path) -> dict[str, np.ndarray]:
    """The original's trajectories, and under other names the converged ones."""
    with np.load(golden_dir / "hiv_golden.npz", allow_pickle=False) as file:
        data = {name: file[name] for name in file.files}
    with np.load(golden_dir / "hiv_tight_reference.npz", allow_pickle=False) as file:
        data |= {name: file[name] for name in file.files if name not in ("names", "note")}
    data["default"] = np.char.startswith(data["names"], "default/")
    data["hidden"] = data["p_hidden"] * data["perturb_params"][:, None]
    return data


@pytest.fixture(scope="module")
def follow(golden: dict[str, np.ndarray]) -> Callable[[str], np.ndarray]:
    """The golden trajectories by the integrator of that name."""

    @cache
    def trajectories(name: str) -> np.ndarray:
        patient, states = Patient.from_hidden(golden["hidden"]), golden["states"][:, 0].T.copy()
        visited = [states.T]
        for t in range(golden["actions"].shape[1]):
            states = hiv._advance(name)(states, patient, golden["actions"][:, t], 5.0)
            visited.append(states.T)
        return np.stack(visited, axis=1)  # [55, 201, 6]

    return trajectories


@pytest.fixture(scope="module")
def ours(follow: Callable[[str], np.ndarray], integrator: str) -> np.ndarray:
    return follow(integrator)


def relative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a - b) / np.abs(b)


# ---------------------------------------------------------------------- the equation


@pytest.mark.parametrize(("name", "hidden"), [("rhs_default", np.zeros(12)), ("rhs_ins20", PATIENT_20)])
def test_right_hand_side_is_the_originals(golden: dict[str, Any], name: str, hidden: Any) -> None:
    x, patient = golden["rhs_x"], Patient.from_hidden(hidden)
    for action in range(4):
        slopes = rhs(x, np.full(len(x), action), patient)
        assert relative(slopes, golden[name][action]).max() < 1e-12


def test_reward_is_the_originals(golden: dict[str, Any]) -> None:
    x = golden["rhs_x"]
    for action in range(4):
        expected = golden["reward_default"][action]
        assert relative(reward(x, np.full(len(x), action)), expected).max() < 1e-12


def test_patient_20_is_entry_20(golden: dict[str, Any]) -> None:
    assert tuple(f"p_{name}".replace("p_dE", "p_d_E") for name in HIDDEN) == tuple(golden["hidden_keys"])
    assert np.array_equal(golden["preset_hidden_params"][20], PATIENT_20)


def test_per_patient_parameters_equal_one_patient_at_a_time() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.uniform(-0.3, 0.3, (5, 12))
    states, actions = BASELINE * rng.uniform(0.5, 2.0, (5, 6)), rng.integers(0, 4, 5)
    together = rhs(states, actions, Patient.from_hidden(hidden))
    for i in range(5):
        alone = rhs(states[[i]], actions[[i]], Patient.from_hidden(hidden[i]))
        assert np.array_equal(together[[i]], alone)


def test_baseline_is_nearly_an_equilibrium_without_treatment() -> None:
    drift = rhs(BASELINE[None], np.array([0]), Patient())[0]
    gross = np.array([1e4, 31.98, 0.7 * 11945, 0.7 * 46, 13 * 63919, 0.1 * 24])
    assert (np.abs(drift) < 0.02 * gross).all()


def test_reward_in_numbers() -> None:
    states = np.array([[1.0, 1.0, 1.0, 1.0, 1000.0, 3.0]] * 4)
    expected = 3000.0 - 100.0 - np.array([0.0, 9800.0, 180.0, 9980.0])
    assert np.allclose(reward(states, np.arange(4)), expected, rtol=1e-15)


# ---------------------------------------------------------------------- the integrator


def test_every_trajectory_follows_the_converged_solution(golden: dict[str, Any], ours: np.ndarray) -> None:
    error = relative(ours, golden["states_tight"])
    assert error.max() < 1e-6
    assert np.median(error.max(axis=(1, 2))) < 3e-8


def test_states_agree_with_the_original_within_its_own_error(
    golden: dict[str, Any], ours: np.ndarray
) -> None:
    error = relative(ours, golden["states"]).max(axis=(1, 2))
    assert error[golden["default"]].max() < 3e-4
    assert error.max() < 2e-2


def test_returns_agree_with_the_original(golden: dict[str, Any], ours: np.ndarray) -> None:
    earned = np.stack([reward(ours[:, t + 1], golden["actions"][:, t]) for t in range(200)], axis=1)
    error = relative(earned.sum(axis=1), golden["returns"])
    assert error[golden["default"]].max() < 2e-5
    assert error.max() < 1e-4


def test_single_steps_from_the_originals_states(golden: dict[str, Any], advance: Advance) -> None:
    start = golden["states"][:, :-1].reshape(-1, 6)[::4]
    patient = Patient.from_hidden(np.repeat(golden["hidden"], 200, axis=0)[::4])
    reached = advance(start.T.copy(), patient, golden["actions"].reshape(-1)[::4], 5.0).T
    assert relative(reached, golden["states"][:, 1:].reshape(-1, 6)[::4]).max() < 2e-4
    assert relative(reached, golden["one_step_from_golden"].reshape(-1, 6)[::4]).max() < 5e-8


def test_simulator_walks_the_golden_trajectories(golden: dict[str, Any], integrator: str) -> None:
    chosen = [0, 9, 17, 24]  # default patients start without spread, so the simulator can repeat them
    world = HIV(integrator=integrator)
    contexts = world.reset(4, seed=0)
    assert np.abs(contexts - golden["obs_log10"][chosen, 0]).max() < 1e-14
    for t in range(40):
        step = world.step(golden["actions"][chosen, t])
        assert relative(world.states(), golden["states_tight"][chosen, t + 1]).max() < 1e-6
        assert relative(step.rewards, golden["rewards_tight"][chosen, t]).max() < 1e-6
        assert np.abs(step.contexts - golden["obs_log10"][chosen, t + 1]).max() < 3e-4


@pytest.fixture(scope="module")
def strange() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Deviations, starts and treatments of six strange patients, and their states after 3 days."""
    rng = np.random.default_rng(1)
    hidden = rng.uniform(-0.9, 1.5, (6, 12))
    states = BASELINE * 10.0 ** rng.uniform(-3, 2, (6, 6))
    actions, exact = rng.integers(0, 4, 6), np.empty_like(states)
    for i in range(6):
        patient = Patient.from_hidden(hidden[i])
        exact[i] = solve_ivp(
            lambda _, x, i=i, patient=patient: rhs(x[None], actions[[i]], patient)[0],
            (0.0, 3.0), states[i], method="LSODA", rtol=1e-9, atol=1e-11 * states[i].min(),
        ).y[:, -1]  # fmt: skip
    return hidden, states, actions, exact


def test_strange_patients_follow_an_independent_solver(strange: Any, advance: Advance) -> None:
    hidden, states, actions, exact = strange
    reached = advance(states.T.copy(), Patient.from_hidden(hidden), actions, 3.0).T
    assert relative(reached, exact).max() < 1e-6


@pytest.mark.parametrize("days", [1e-3, 0.7, 5.0, 40.0])
def test_two_halves_make_a_whole(days: float, advance: Advance) -> None:
    states = BASELINE[:, None] * np.array([[0.5, 1.0, 3.0]])
    actions, patient = np.array([1, 2, 0]), Patient()
    whole = advance(states, patient, actions, days)
    half = advance(states, patient, actions, days / 2)
    assert relative(advance(half, patient, actions, days / 2), whole).max() < 1e-7


def test_a_smaller_tolerance_gives_a_smaller_error(advance: Advance) -> None:
    rng = np.random.default_rng(2)
    states, actions = BASELINE[:, None] * rng.uniform(0.2, 5.0, (6, 200)), rng.integers(0, 4, 200)
    exact, *others = (advance(states, Patient(), actions, 5.0, tolerance=t) for t in (1e-13, 1e-9, 1e-6))
    fine, coarse = (relative(other, exact).max() for other in others)
    assert fine < 1e-8
    assert fine < coarse < 1e-5


@needs_numba
def test_compiled_and_numpy_agree(golden: dict[str, Any]) -> None:
    # Steps whose length is set by rounding errors differ a little, hence more than a few ulp
    start, actions = golden["states"][:, :-1].reshape(-1, 6)[::4].T.copy(), golden["actions"].reshape(-1)[::4]
    patient = Patient.from_hidden(np.repeat(golden["hidden"], 200, axis=0)[::4])
    for tolerance, bound in ((hiv_taylor.TOLERANCE, 1e-9), (1e-12, 2e-11)):
        reached = (
            hiv._advance(name)(start, patient, actions, 5.0, tolerance=tolerance)
            for name in ("numpy", "compiled")
        )
        difference = relative(*reached)
        assert difference.max() < bound
        assert np.quantile(difference, 0.99) < 2e-12


@needs_numba
def test_compiled_and_numpy_agree_over_200_decisions(follow: Callable[[str], np.ndarray]) -> None:
    difference = relative(follow("numpy"), follow("compiled")).max(axis=(1, 2))
    assert np.median(difference) < 1e-9
    assert np.sort(difference)[-2] < 1e-8
    assert difference.max() < 1e-7  # the patient who multiplies errors by about 100


def test_tail_of_an_exponential_series() -> None:
    z = np.linspace(0.0, 16.0, 50)
    tail = np.empty_like(z)
    hiv_taylor._tail(z, tail, np.empty_like(z))
    exact = -z / 13 * hyp1f1(1, 14, -z)
    assert np.abs(tail - exact).max() < 2e-5
    assert np.abs(tail - exact)[z < 5].max() < 1e-7


def test_series_start_with_the_right_hand_side() -> None:
    rng = np.random.default_rng(3)
    states, actions = BASELINE[:, None] * rng.uniform(0.2, 5.0, (6, 8)), rng.integers(0, 4, 8)
    batch = hiv_taylor._Batch(8)
    batch.begin(states, hiv_taylor.rates_of(Patient(), actions), 5.0)
    hiv_taylor._expand(batch)
    gross = np.abs(batch.series[1, :6]) + np.abs(states)
    assert (np.abs(batch.series[1, :6].T - rhs(states.T, actions, Patient())) < 1e-12 * gross.T).all()


# ---------------------------------------------------------------------- determinism


def walk(world: HIV, sizes: list[int], actions: np.ndarray, seed: int = 5) -> np.ndarray:
    parts, first = [], 0
    for n in sizes:
        columns = [world.reset(n, seed, first=first)]
        for decision in actions:
            step = world.step(decision[first : first + n])
            columns += [step.contexts, step.rewards[:, None]]
        parts.append(np.concatenate(columns, axis=1))
        first += n
    return np.concatenate(parts)


@pytest.mark.parametrize("patient", [None, np.random.default_rng(0).normal(0, 0.2, (7, 12))])
def test_users_do_not_depend_on_the_batch(patient: Any, integrator: str) -> None:
    world = HIV(start_spread=0.2, patient=patient, integrator=integrator)
    actions = np.random.default_rng(1).integers(0, 4, (6, 1301))
    whole = walk(world, [1301], actions)
    assert np.array_equal(whole, walk(world, [1, 2, 3, 7, 9, 100, 1179], actions))
    assert np.array_equal(whole[:150], walk(world, [15] * 10, actions))


@needs_numba
def test_ten_thousand_users_at_once_or_in_ten_calls() -> None:
    cohort = np.random.default_rng(2).normal(0, 0.2, (1009, 12)).clip(-0.8, 0.8)
    world = HIV(start_spread=0.2, patient=cohort, integrator="compiled")
    actions = np.random.default_rng(3).integers(0, 4, (8, 10_000))
    assert np.array_equal(walk(world, [10_000], actions), walk(world, [1_000] * 10, actions))


def test_same_seed_same_log(integrator: str) -> None:
    world, policy = HIV(start_spread=0.05, horizon=4, integrator=integrator), UniformPolicy(4)
    logs, again = (rollout(world, policy, 30, seed=3) for _ in range(2))
    halves = rollout(world, policy, 30, seed=3, batch=11)
    for other in (again, halves):
        assert np.array_equal(logs.contexts, other.contexts)
        assert np.array_equal(logs.rewards, other.rewards)
    assert len(logs) == 120
    assert not logs.terminated.any()
    earned = mean_return(world, policy, 30, seed=3).returns
    assert np.allclose(earned, logs.rewards.reshape(30, 4).sum(axis=1), rtol=1e-12)


def test_threads_do_not_share_a_workspace(advance: Advance) -> None:
    rng = np.random.default_rng(6)
    states = BASELINE[:, None] * rng.uniform(0.2, 5.0, (6, 2000))
    actions = [rng.integers(0, 4, 2000) for _ in range(6)]

    def work(chosen: np.ndarray) -> np.ndarray:
        return advance(states, Patient(), chosen, 5.0)

    with ThreadPoolExecutor(3) as pool:
        for threaded, alone in zip(pool.map(work, actions), map(work, actions), strict=True):
            assert np.array_equal(threaded, alone)


def test_a_failure_leaves_no_trace(advance: Advance) -> None:
    states, actions = np.tile(BASELINE[:, None], (1, 1600)), np.ones(1600, dtype=np.int64)
    before = advance(states, Patient(), actions, 5.0)
    broken = states.copy()
    broken[0, 7] = np.nan
    with pytest.raises(ConfigError, match="patient 7"):
        advance(broken, Patient(), actions, 5.0)
    assert np.array_equal(advance(states, Patient(), actions, 5.0), before)


# ---------------------------------------------------------------------- starts and patients


def test_without_spread_everyone_starts_at_the_baseline() -> None:
    world = HIV()
    assert np.array_equal(world.reset(5, seed=1), np.tile(np.log10(BASELINE), (5, 1)))
    assert np.array_equal(world.states(), np.tile(BASELINE, (5, 1)))


def test_start_spread_is_uniform_and_by_component() -> None:
    world = HIV(start_spread=0.05)
    world.reset(20_000, seed=2)
    relative_start = world.states() / BASELINE - 1.0
    assert np.abs(relative_start).max() <= 0.05
    assert np.abs(relative_start.mean(axis=0)).max() < 4 * 0.05 / np.sqrt(3 * 20_000)
    assert np.allclose(relative_start.std(axis=0), 0.05 / np.sqrt(3), rtol=0.02)
    correlation = np.corrcoef(relative_start.T) - np.eye(6)
    assert np.abs(correlation).max() < 4 / np.sqrt(20_000)
    first = world.states()
    world.reset(20_000, seed=3)
    assert not np.array_equal(first, world.states())


def test_users_take_their_patients_in_turn() -> None:
    table = np.random.default_rng(4).normal(0, 0.2, (3, 12))
    together = HIV(patient=table)
    together.reset(5, seed=0, first=2)  # users 2..6 are patients 2, 0, 1, 2, 0
    together.step(np.full(5, 3))
    for place, row in enumerate([2, 0, 1, 2, 0]):
        alone = HIV(patient=table[row])
        alone.reset(1, seed=0)
        alone.step(np.array([3]))
        assert np.array_equal(together.states()[place], alone.states()[0])


def test_setting_of_repbm() -> None:
    world = HIV.repbm()
    assert np.array_equal(world.hidden, [PATIENT_20])
    assert world.start_spread == 0.05
    assert HIV.repbm(start_spread=0.03).start_spread == 0.03


def test_treatment_lowers_the_virus_and_costs() -> None:
    world = HIV()
    world.reset(4, seed=0)
    for _ in range(10):
        step = world.step(np.arange(4))
    virus = world.states()[:, 4]
    assert virus[3] < virus[1] < virus[0]
    assert virus[3] < virus[2] < virus[0]
    costs = 1e3 * world.states()[:, 5] - 0.1 * virus - step.rewards
    assert np.allclose(costs, 2e4 * DRUGS[:, 0] ** 2 + 2e3 * DRUGS[:, 1] ** 2)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"horizon": 0}, "horizon to be a whole number >= 1"),
        ({"dt_days": 0.0}, "dt_days to be a finite number > 0"),
        ({"dt_days": -5.0}, "dt_days"),
        ({"dt_days": float("nan")}, "dt_days"),
        ({"start_spread": -0.1}, "start_spread"),
        ({"start_spread": 1.0}, "start_spread < 1"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": 0.1}, "tolerance in 1e-13..1e-3"),
        ({"integrator": "rk4"}, "an integrator: auto, numpy, compiled"),
        ({"patient": 3}, "patient 20, the only one"),
        ({"patient": True}, "patient 20, the only one"),
        ({"patient": [0.1] * 11}, "12 relative deviations"),
        ({"patient": np.zeros((0, 12))}, "12 relative deviations"),
        ({"patient": "sick"}, "12 relative deviations"),
        ({"patient": [0.0] * 11 + [float("nan")]}, "found nan for Kd"),
        ({"patient": np.array([[0.0] * 12, [0.0] * 2 + [-1.5] + [0.0] * 9])}, "found -1.5 for k1 .patient 1"),
        ({"patient": [0.0] * 4 + [4.0] + [0.0] * 7}, "f . eps1 <= 1"),
    ],
)
def test_nonsense_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HIV(**params)


def test_negative_rate() -> None:
    with pytest.raises(ConfigError, match="k2 to be finite and > 0"):
        Patient(k2=-1e-4)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(3, dtype=int), r"shape \(2,\)"),
        (np.zeros((2, 1), dtype=int), r"shape \(2,\)"),
        (np.array([0, 4]), "actions in 0..3"),
        (np.array([-1, 0]), "actions in 0..3"),
        (np.array([0.0, 1.0]), "integer actions"),
    ],
)
def test_bad_actions(actions: np.ndarray, message: str) -> None:
    world = HIV()
    world.reset(2, seed=0)
    with pytest.raises(ActionError, match=message):
        world.step(actions)


def test_nobody_at_all() -> None:
    with pytest.raises(ConfigError, match="n to be a whole number >= 1"):
        HIV().reset(0, seed=0)


def test_step_before_reset() -> None:
    with pytest.raises(EpisodeError, match="a reset before the first step"):
        HIV().step(np.array([0]))
    with pytest.raises(EpisodeError, match="a reset before the first step"):
        HIV().states()


def test_step_after_the_horizon() -> None:
    world = HIV(horizon=2)
    world.reset(1, seed=0)
    for _ in range(2):
        world.step(np.array([0]))
    with pytest.raises(EpisodeError, match="at most 2 decisions"):
        world.step(np.array([0]))


def test_a_failure_names_the_patient(monkeypatch: pytest.MonkeyPatch, integrator: str) -> None:
    hidden = np.array([[0.0] * 12, [0.0] * 3 + [1e9] + [0.0] * 8])  # k2 of user 41 is 1e5
    world = HIV(patient=hidden, integrator=integrator)
    monkeypatch.setattr(hiv_taylor, "MAX_STEPS", 50)
    world.reset(2, seed=0, first=40)
    with pytest.raises(ConfigError, match=r"after 50 steps .patient 41."):
        world.step(np.array([0, 0]))


def test_a_state_that_is_not_positive_names_the_patient(advance: Advance) -> None:
    states = np.tile(BASELINE[:, None], (1, 3))
    states[4, 2] = np.nan
    with pytest.raises(ConfigError, match=r"V = nan, E = nan .patient 2."):
        advance(states, Patient(), np.zeros(3, dtype=np.int64), 5.0)


@needs_numba
@pytest.mark.parametrize("shape", [(6, 4), (5, 3), (6,)])
def test_compiled_code_stays_within_its_tables(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"states of shape \(6, 3\)"):
        hiv._advance("compiled")(np.ones(shape), Patient(), np.zeros(3, dtype=np.int64), 5.0)


# ---------------------------------------------------------------------- which integrator


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "shpi.envs.hiv.compiled", raising=False)
    monkeypatch.delattr("shpi.envs.hiv.compiled", raising=False)
    hiv._advance.cache_clear()
    yield
    hiv._advance.cache_clear()


@needs_numba
def test_the_compiled_integrator_is_taken_where_there_is_numba() -> None:
    from shpi.envs.hiv import compiled as hiv_compiled

    assert hiv._advance("auto") is hiv._advance("compiled") is hiv_compiled.advance
    assert hiv._advance("numpy") is hiv_taylor.advance


@pytest.mark.usefixtures("without_numba")
def test_without_numba() -> None:
    world = HIV()
    world.reset(2, seed=0)
    world.step(np.array([0, 3]))
    assert hiv._advance("auto") is hiv_taylor.advance
    with pytest.raises(MissingExtraError, match=r"package 'numba'.*pip install 'shpi\[fast\]'"):
        HIV(integrator="compiled")


@needs_numba
def test_without_a_folder_for_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    from shpi.envs.hiv import compiled as hiv_compiled

    def njit(*signature: Any, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("no locator available")
        return lambda function: (function, options)

    monkeypatch.setattr(numba, "njit", njit)
    function, options = hiv_compiled._kernel.__wrapped__()
    assert function is hiv_compiled._integrate
    assert "fastmath" not in options
