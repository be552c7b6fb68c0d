"""The hard worlds: what they call the truth is what simulated users bring, and each keeps its promise."""

from __future__ import annotations

import numpy as np
import pytest

from shpi.testing import hard_worlds
from shpi.testing.hard_worlds import WORLDS, Case, looks


def simulated(case: Case, policy: np.ndarray, users: int, seed: int) -> np.ndarray:
    """What each of many users brings under a table [S, A], without the log around it."""
    rng = np.random.default_rng(seed)
    chain = case.setting.future or case.setting.chain
    first = rng.choice(len(chain.initial), size=users, p=chain.initial)
    done = chain.simulate(policy, case.gain, first, rng, rng.random((users, chain.horizon)))
    return np.where(np.arange(chain.horizon) < done.counts[:, None], done.rewards, 0.0).sum(axis=1)


@pytest.mark.parametrize("name", [name for name in WORLDS if name not in ("rare disaster", "heavy tails")])
def test_the_truth_is_what_users_bring(name: str) -> None:
    case = WORLDS[name].make(seed=5, users=50, lift=WORLDS[name].better)
    assert case.lift == pytest.approx(WORLDS[name].better * case.baseline)
    for policy, truth in (
        (case.setting.mu, case.baseline),
        (case.setting.pi_by_state, case.baseline + case.lift),
    ):
        brought = simulated(case, policy, 20_000, seed=1)
        assert abs(brought.mean() - truth) < 4 * brought.std() / np.sqrt(len(brought))


def test_noise_around_a_mean_has_that_mean() -> None:
    """Of the two worlds whose own noise is too heavy to be averaged out: by many draws of one decision."""
    rng = np.random.default_rng(0)
    for name in ("rare disaster", "heavy tails"):
        case = WORLDS[name].make(seed=2, users=40)
        draw, n = case.setting.chain.draw, 4_000_000
        assert draw is not None
        states, actions = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
        drawn = draw(rng, np.full(n, 2.0), states, actions)
        assert abs(drawn.mean() - 2.0) < 5 * drawn.std() / np.sqrt(n)


@pytest.mark.parametrize("name", list(WORLDS))
def test_no_lift_is_exact_and_seeds_differ(name: str) -> None:
    world = WORLDS[name]
    case, again, other = (
        world.make(seed=1, users=80),
        world.make(seed=1, users=80),
        world.make(seed=2, users=80),
    )
    assert abs(case.lift) < 1e-9 * max(abs(case.baseline), 1.0)
    assert case.logs.fingerprint() == again.logs.fingerprint()
    assert case.logs.fingerprint() != other.logs.fingerprint()
    assert len(case.entry) == case.logs.n_users
    assert case.mixture_lift(0.0) == pytest.approx(0.0, abs=1e-9)
    assert case.mixture_lift(1.0) == pytest.approx(case.lift, abs=1e-9)
    probs = case.policy.action_probs(case.logs.contexts)
    assert np.allclose(probs.sum(axis=1), 1)
    worse = world.make(seed=1, users=80, lift=-0.05)
    assert worse.lift == pytest.approx(-0.05 * abs(worse.baseline))


def test_what_the_logs_hide() -> None:
    churn = WORLDS["unmarked churn"].make(seed=0, users=500)
    assert not churn.logs.terminated.any()
    assert (np.diff(churn.logs.offsets) < churn.horizon).mean() > 0.3
    marked = WORLDS["clickbait"].make(seed=0, users=500)
    early = np.diff(marked.logs.offsets) < marked.horizon
    assert (marked.logs.terminated[early]).all()
    hidden = WORLDS["hidden column"].make(seed=0, users=500)
    assert hidden.logs.propensity_mode == "estimated"
    often = [_overridden_share("overridden decisions", seed) for seed in range(6)]
    rarely = [_overridden_share("rarely overridden decisions", seed) for seed in range(6)]
    assert -0.01 < min(rarely) < max(rarely) < 0.035 < min(often) < max(often) < 0.12


def _overridden_share(name: str, seed: int) -> float:
    """How much more often action 1 was taken than its probabilities say."""
    logs = WORLDS[name].make(seed=seed, users=4_000).logs
    assert logs.behaviour is not None
    return float((logs.actions == 1).mean() - logs.behaviour[:, 1].mean())


def test_looks_grow_to_the_whole_log() -> None:
    case = hard_worlds.WORLDS["no lift, looked at daily"].make(seed=0, users=300)
    logs = looks(case)
    sizes = [log.n_users for log in logs]
    assert sizes == sorted(sizes)
    assert sizes[-1] == case.logs.n_users
    assert len(logs) == 30
