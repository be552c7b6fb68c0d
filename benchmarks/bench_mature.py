"""Rewards that have not matured when the log ends: drop them, or complete them by their expected rest?

Three kinds of logs, all with a known truth:

*finite worlds*  Ten random worlds with a terminal state; reward: the sum of the next 6 rewards. Logs of 12
                 steps that end together, or each user's at a random step. V is LSTD on the reward, A_k with
                 k = 3 is compared with linear algebra. The policy takes the action with the largest mean of
                 A_1; attained is its true A_1 as a share of the largest, in the states of the log. Likewise
                 for `OfflineSHPI` with 1,000 users, and for its V if it treats sums that look ahead as known
                 at the next decision.
*on a clock*     The same worlds with times: users join over thirty days, how long they stay away depends on
                 what they were shown, and the log ends at day 20. E[R | x, a] against logs that go on.
*storefront*     Logs that end in the middle of their users' months. Reward: the conversions of the next 8
                 decisions. E[R | x, a] as a contextual bandit estimates it, against dynamic programming,
                 and the exact value of its policy.

"before" is the rule of earlier versions: drop, but never users who terminated. "later" is the log continued
until all rewards have matured, which no completion can beat on average. Errors are in standard deviations of
the truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.report import Row
from shpi.advantages import k_step_advantages
from shpi.data._log.futures import keep_prefixes
from shpi.data.logged import LoggedData
from shpi.data.rewards import DiscountedSum, ReturnWithin, SessionsWithin, SumWithin
from shpi.envs.storefront import Storefront
from shpi.features import Identity
from shpi.learners import ContextualBandit, OfflineSHPI
from shpi.policies import UniformPolicy
from shpi.protocols import Float64Array
from shpi.testing.tabular import TabularMDP, random_mdp
from shpi.values import LSTD, Complete, StateValues, WithPast

WORLDS, MANY, STEPS, WINDOW, K, GAMMA = range(900, 910), 20_000, 12, 6, 3, 0.9
END, DAYS, LATER = 20.0, 7.0, 45.0
SHOP_SEEDS, SHOP_WINDOW = range(900, 920), 8
REWARD = SumWithin(metric="m", horizon=WINDOW)
TABLE = LSTD(features=Identity(), ridge=1.0, lookahead=1)
COMPLETE = Complete(features=Identity(), ridge=1.0)


def run() -> list[Row]:
    return [*finite(), *past(), *defaults(), *clock(), *storefront()]


# ---------------------------------------------------------------------- finite worlds


def finite() -> Iterator[Row]:
    """V, A_k and the policy, for few and many users, with common and random ends."""
    for ends in ("together", "at random"):
        for users in (200, MANY):
            errors_of: dict[str, list[tuple[float, float, float]]] = {}
            for seed in WORLDS:
                mdp, mu, full = logged(seed, users)
                logs = full if ends == "together" else cut_at_random(full, seed)
                for name, logs_ in treated(logs, REWARD, COMPLETE).items():
                    errors_of.setdefault(name, []).append(judged(logs_, mdp, mu))
                later = mdp.log(mu, users, STEPS + WINDOW, seed, ragged=False)
                known = with_metric(later).with_rewards(REWARD, log_end=STEPS + WINDOW - 1)
                known = keep_prefixes(known, known.steps < STEPS, known.ledger)
                errors_of.setdefault("later", []).append(judged(known, mdp, mu))
            for name, rows in errors_of.items():
                label, exact = f"{users:,} users, ends {ends}: {name}", name == "complete" and users == MANY
                for figure, values in zip(
                    ("bias of V", f"error of A_{K}", "attained"), zip(*rows, strict=True), strict=True
                ):
                    goal = "<= 0.05" if exact and figure == "bias of V" else ""
                    mean = float(np.mean(values))
                    yield Row(f"{label}: {figure}", abs(mean) if goal else mean, "", spread(values), goal)


def logged(seed: int, users: int) -> tuple[TabularMDP, Float64Array, LoggedData]:
    """A world, its logging policy, and a log in which all users who stay make `STEPS` decisions."""
    mdp = random_mdp(6, 3, seed, gamma=GAMMA, n_terminal=1, noise=0.3)
    mdp = replace(mdp, reward=np.where(mdp.terminal[:, None], 0.0, mdp.reward + 1.0))
    mu = mdp.random_policy(seed + 50, concentration=2.0)
    return mdp, mu, with_metric(mdp.log(mu, users, STEPS, seed, ragged=False))


def with_metric(logs: LoggedData) -> LoggedData:
    assert logs.rewards is not None
    return replace(logs, metrics={"m": logs.rewards})


def cut_at_random(logs: LoggedData, seed: int) -> LoggedData:
    """Cut each trajectory after a random number of decisions; the context after the cut is known."""
    longest = int(np.diff(logs.offsets).max())
    ends = np.random.default_rng([seed, 5]).integers(1, longest + 1, logs.n_trajectories)
    return keep_prefixes(logs, logs.steps < ends[logs.trajectory_of_row], logs.ledger)


def treated(logs: LoggedData, reward: Any, complete: Complete, **options: Any) -> dict[str, LoggedData]:
    """The log with unmatured rewards treated as in earlier versions, dropped, and completed."""
    marked = logs.with_rewards(reward, censored="mark", **options)
    gone = np.repeat(logs.terminated, np.diff(logs.offsets))
    observed = np.ones(len(logs), bool) if marked.reward_observed is None else marked.reward_observed
    before = replace(marked, reward_observed=None)
    return {
        "before": keep_prefixes(before, observed | gone, marked.ledger),
        "drop": logs.with_rewards(reward, **options),
        "complete": logs.with_rewards(reward, censored=complete, **options),
    }


def judged(logs: LoggedData, mdp: TabularMDP, mu: Float64Array) -> tuple[float, float, float]:
    """The bias of V and the RMSE of A_k in standard deviations of the truth, and the share attained."""
    plain = replace(mdp, gamma=1.0)
    truth = replace(mdp, reward=plain._backup(plain.values_by_time(mu, WINDOW - 1)[0]))
    value, live = TABLE.fit(logs, gamma=GAMMA, seed=0), ~mdp.terminal
    exact = truth.value(mu)[live]
    bias = np.mean(value(mdp.contexts(np.arange(mdp.n_states)))[live] - exact) / exact.std()
    values = StateValues.of(value, logs)
    advantages, table = truth.k_step_advantage(mu, mu, K)[live], cells(logs, mdp, values, K)[live]
    error = np.sqrt(np.mean((np.nan_to_num(table) - advantages) ** 2)) / advantages.std()
    exact, first = truth.k_step_advantage(mu, mu, 1), cells(logs, mdp, values, 1)
    chosen = np.argmax(np.where(np.isnan(first), -np.inf, first), axis=1)
    share = mdp.occupancy(mu, horizon=STEPS)
    attained = share @ exact[np.arange(mdp.n_states), chosen] / (share @ exact.max(axis=1))
    return float(bias), float(error), float(attained)


def spread(values: Any) -> str:
    """The standard error over worlds or logs."""
    return f"± {np.std(values) / np.sqrt(len(values) - 1):.3f}"


def cells(logs: LoggedData, mdp: TabularMDP, values: StateValues, k: int) -> Float64Array:
    """The mean advantage of every state and action, [S, A]; NaN where there is none."""
    advantages = k_step_advantages(logs, values, k=k, gamma=GAMMA)
    return means(logs, mdp, advantages.values, advantages.valid)


def means(logs: LoggedData, mdp: TabularMDP, targets: Float64Array, used: Any) -> Float64Array:
    cell = (mdp.states_of(logs.contexts) * mdp.n_actions + logs.actions)[used]
    counts = np.bincount(cell, minlength=mdp.reward.size)
    sums = np.bincount(cell, targets[used], minlength=mdp.reward.size)
    table: Float64Array = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return table.reshape(mdp.reward.shape)


def past() -> Iterator[Row]:
    """V that sees past rewards: those known at once, or sums that reach into the future."""
    for name in ("known at once", "as before: sums that look ahead"):
        slopes = []
        for seed in WORLDS:
            mdp, mu, logs = logged(seed, MANY)
            derived = logs.with_rewards(REWARD)
            derived = derived if name == "known at once" else replace(derived, immediate=None)
            value = WithPast(model=LSTD(ridge=3.0, lookahead=1)).fit(derived, gamma=GAMMA, seed=0)
            table = cells(derived, mdp, StateValues.of(value, derived), K)
            plain = replace(mdp, gamma=1.0)
            truth = replace(mdp, reward=plain._backup(plain.values_by_time(mu, WINDOW - 1)[0]))
            exact, ok = truth.k_step_advantage(mu, mu, K), np.isfinite(table) & ~mdp.terminal[:, None]
            slopes.append(np.polyfit(exact[ok], table[ok], 1)[0])
        goal = ">= 0.95" if name == "known at once" else ""
        yield Row(f"past rewards {name}: slope of A_{K}", float(np.mean(slopes)), "of 1", goal=goal)


def defaults() -> Iterator[Row]:
    """The policy of `OfflineSHPI`, whose V sees past rewards."""
    attained_by: dict[str, list[float]] = {}
    for seed in WORLDS:
        mdp, mu, logs = logged(seed, 1_000)
        plain, share = replace(mdp, gamma=1.0), mdp.occupancy(mu, horizon=STEPS)
        truth = replace(mdp, reward=plain._backup(plain.values_by_time(mu, WINDOW - 1)[0]))
        exact = truth.k_step_advantage(mu, mu, 1)
        parts = treated(logs, REWARD, COMPLETE)
        parts["drop, past as before"] = replace(parts["drop"], immediate=None)
        for name, treated_logs in parts.items():
            policy = OfflineSHPI(gamma=GAMMA, k=K, progress=False, seed=seed).fit(treated_logs)
            probs = policy.action_probs(mdp.contexts(np.arange(mdp.n_states)))
            attained = share @ (probs * exact).sum(axis=1) / (share @ exact.max(axis=1))
            attained_by.setdefault(name, []).append(float(attained))
    for name, values in attained_by.items():
        yield Row(f"OfflineSHPI, {name}: attained", float(np.mean(values)), "", spread(values))


# ---------------------------------------------------------------------- on a clock


def clock() -> Iterator[Row]:
    """E[R | x, a] of users on a clock."""
    rewards: dict[str, Any] = {
        "sum within 7 days": SumWithin(metric="m", horizon=DAYS),
        "sessions within 7 days": SessionsWithin(horizon=DAYS),
        "return within 3 days": ReturnWithin(horizon=3.0),
        "discounted sum": DiscountedSum(metric="m", gamma=0.8, per=1),
    }
    for label, reward in rewards.items():
        errors: dict[str, list[tuple[float, float]]] = {}
        for seed in WORLDS:
            mdp, mu, _ = logged(seed, 2)
            exact, share = later_means(timed(mdp, mu, 30_000, seed + 100), mdp, reward)
            future = timed(mdp, mu, 2_000, seed)
            tables = {"later": later_means(future, mdp, reward)[0]}
            for name, treated_logs in treated(until(future, END), reward, COMPLETE, log_end=END).items():
                assert treated_logs.rewards is not None
                tables[name] = means(treated_logs, mdp, treated_logs.rewards, slice(None))
            for name, table in tables.items():
                off = np.where(np.isnan(table), 0.0, table - exact)
                scale = np.sqrt((share * exact**2).sum() - (share * exact).sum() ** 2)
                pair = (share * off).sum() / scale, np.sqrt((share * off**2).sum()) / scale
                errors.setdefault(name, []).append(pair)
        for name, pairs in errors.items():
            bias, error = np.mean(pairs, axis=0)
            yield Row(f"clock, {label}: {name}: bias", float(bias), "")
            yield Row(f"clock, {label}: {name}: error", float(error), "")


def timed(mdp: TabularMDP, mu: Float64Array, users: int, seed: int) -> LoggedData:
    """Users join between day -10 and 20; the pause before a session depends on the last decision."""
    logs = with_metric(mdp.log(mu, users, 60, seed, ragged=False, session_end=0.4))
    rng, first = np.random.default_rng([seed, 1]), logs.offsets[:-1]
    pauses = np.random.default_rng(7).uniform(0.3, 4.0, size=mdp.reward.shape)
    before = np.maximum(np.arange(len(logs)) - 1, 0)
    starts = np.isin(np.arange(len(logs)), logs.session_offsets)
    pause = pauses[mdp.states_of(logs.contexts)[before], logs.actions[before]]
    gaps = np.where(starts, rng.exponential(1.0, len(logs)) * pause, 0.02)
    gaps[first] = rng.uniform(-10.0, END, users)
    times = np.cumsum(gaps)
    times -= np.repeat(times[first] - gaps[first], np.diff(logs.offsets))
    return until(replace(logs, times=times), LATER)


def until(logs: LoggedData, end: float) -> LoggedData:
    """The log as it was at some time, without the contexts after it."""
    cut = keep_prefixes(logs, logs.times <= end, logs.ledger)
    return replace(cut, final_observed=np.zeros(cut.n_trajectories, dtype=bool))


def later_means(logs: LoggedData, mdp: TabularMDP, reward: Any) -> tuple[Float64Array, Float64Array]:
    """The final mean reward of each state and action up to `END`, and the share of decisions."""
    marked, early = logs.with_rewards(reward, censored="mark", log_end=LATER), logs.times <= END
    assert marked.rewards is not None
    cell = mdp.states_of(logs.contexts)[early] * mdp.n_actions + logs.actions[early]
    share = np.bincount(cell, minlength=mdp.reward.size).reshape(mdp.reward.shape) / early.sum()
    return np.nan_to_num(means(logs, mdp, marked.rewards, early)), share


# ---------------------------------------------------------------------- the storefront


def storefront() -> Iterator[Row]:
    """Learning from logs that end in the middle of users' months."""
    shop, reward = Storefront(), SumWithin(metric="m", horizon=SHOP_WINDOW)
    ahead = np.zeros(shop.n_states)
    for _ in range(SHOP_WINDOW - 1):
        ahead = (shop.expected_reward + shop.transition @ ahead).mean(axis=1)
    exact = shop.expected_reward + shop.transition @ ahead  # [S, A] under the uniform logging policy
    for users in (300, 2_000):
        errors_of: dict[str, list[tuple[float, float]]] = {}
        for seed in SHOP_SEEDS:
            full = with_metric(shop.rollout(UniformPolicy(shop.n_actions), users, seed=seed))
            share = np.bincount(full.contexts[:, 0].astype(int), minlength=shop.n_states) / len(full)
            parts = treated(cut_at_random(full, seed), reward, Complete(seed=seed))
            for name, logs in {**parts, "later": full.with_rewards(reward)}.items():
                policy = ContextualBandit(seed=seed).fit(logs)
                off = policy.scorer.scores(shop.contexts) - exact
                error = np.sqrt(share @ np.mean(off**2, axis=1) / (share @ np.var(exact, axis=1)))
                value = shop.exact_value(policy.action_probs(shop.contexts))
                errors_of.setdefault(name, []).append((float(error), value))
        for name, rows in errors_of.items():
            errors, values = zip(*rows, strict=True)
            gained = np.subtract(values, [value for _, value in errors_of["drop"]])
            note = f"{spread(values)}; {gained.mean():+.3f} {spread(gained)} beside drop"
            yield Row(
                f"storefront, {users:,} users: {name}: error", float(np.mean(errors)), "", spread(errors)
            )
            yield Row(f"storefront, {users:,} users: {name}: policy", float(np.mean(values)), "a month", note)
