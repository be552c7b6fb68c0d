"""How often does the gate ship a policy that is not better, and how often one that is?

Writes docs/gate-false-ships.md, and through `bench_gate_hard` docs/gate-hard-worlds.md. Every policy is
judged on its own fresh log, by the gate with its default settings, in four worlds. The true lift of a policy
is known in one of two ways:

*twins*   Every action gets a twin with the same effect, and mu tosses a coin between the two. A policy that
          prefers one of the twins has importance weights, but a lift of exactly 0.
*rollouts*   mu is mixed with another policy, in random proportions, and rolled out for many users with the
          same random numbers as mu. The policy counts as worse or better if the difference is beyond 4
          standard errors; policies in between are left out, so that noise does not decide what is true.

Environment: SHPI_GATE_POLICIES (per world and kind; 130), SHPI_GATE_FIRST (the first seed), SHPI_GATE_WORLDS,
SHPI_GATE_PAGE; SHPI_GATE_CASES names a folder in which finished worlds are kept and found again. KuaiRand's
files are looked for as in bench_world; without them its rows are left out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import bench_gate_hard
from benchmarks.report import Row
from shpi.data.actions import ActionSpace
from shpi.data.logged import LoggedData
from shpi.data.schema import ContextSchema
from shpi.envs import HIV, RecoGym, Synthetic, mean_return
from shpi.envs.logging import LoggingPolicy
from shpi.envs.rollout import rollout
from shpi.features import Identity
from shpi.ope import SNPDIS, WDR, Evaluation, Gate, KStepSHPI, evaluate
from shpi.ope.diagnostics.diagnose import fatal_for
from shpi.ope.diagnostics.log import LEAST_USERS
from shpi.policies import ConstantPolicy, EpsilonGreedy, Greedy, LinearScorer, Mixture, UniformPolicy

POLICIES = int(os.environ.get("SHPI_GATE_POLICIES", "130"))
FIRST = int(os.environ.get("SHPI_GATE_FIRST", "0"))
DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = Path(os.environ.get("SHPI_GATE_PAGE", DOCS / "gate-false-ships.md"))
CLEAR = 4.0  # standard errors beyond which a policy is truly worse or better
LARGER = 3  # second size of logs, for the power, in multiples of the first
DECISIONS = ("ship", "hold", "need more data", "first step")  # in the order of the page's columns
GROUPS = 14  # groups of KuaiRand's actions
SEEN = ("past_decisions", "past_long_views", "day_decisions", "day_long_views", "hour_sin", "hour_cos")
TRUTH_SEED = 1_000_000_007  # seed of the users for the truth, who are in no log


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """A world in which the gate judges policies."""

    name: str
    words: str
    simulator: Any
    mu: Any
    bad: Callable[[np.random.Generator], Any]  # draws a worse policy to mix mu with
    good: Callable[[np.random.Generator], Any]
    horizon: int
    users: int  # users of a log
    truth_users: int
    k: Any = 4
    truncated: Any = "censored"
    acts: Callable[[Any], Any] = lambda policy: policy  # the evaluated policy as the simulator needs it
    sees: Callable[[LoggedData], LoggedData] = lambda logs: logs  # the simulator's log as it is evaluated

    @cached_property
    def own(self) -> Any:
        """The returns of mu, for the users of the truth [n]."""
        return self.returns(self.mu)

    def returns(self, policy: Any) -> Any:
        """The returns of a policy, for the users of the truth; all policies get the same random numbers."""
        return mean_return(
            self.simulator, self.acts(policy), self.truth_users, TRUTH_SEED, horizon=self.horizon
        ).returns

    def log(self, seed: int, users: int) -> LoggedData:
        """A fresh log of mu."""
        acting = self.acts(self.mu)
        logs = rollout(self.simulator, acting, users, seed, horizon=self.horizon, keep_behaviour=True)
        return self.sees(logs)

    def judge(self, policy: Any, logs: LoggedData, seed: int) -> Evaluation:
        """The evaluation with the gate's verdict, by the estimators that may decide by default."""
        return evaluate(
            policy,
            logs,
            estimators=[WDR(), KStepSHPI(k=self.k), SNPDIS()],
            gate=Gate(),
            truncated=self.truncated,
            details=False,
            seed=seed,
        )


@dataclass(frozen=True, kw_only=True)
class Case:
    """One policy, and the gate's decision."""

    kind: str  # "twins", "worse" or "better"
    users: int
    truth: float  # true lift
    lift: float
    error: float
    decision: str
    needed: int | None
    main: str
    fatal: tuple[str, ...]


# ---------------------------------------------------------------------- policies


class Twins:
    """mu, with each action's probability split between two twins by a random logistic function of x."""

    def __init__(self, mu: Any, logs: LoggedData, rng: np.random.Generator) -> None:
        self.mu = mu
        self.centre, self.scale = logs.contexts.mean(axis=0), logs.contexts.std(axis=0) + 1e-9
        self.weights = rng.standard_normal((logs.schema.width, mu.n_actions)) / np.sqrt(logs.schema.width)
        self.bias = rng.standard_normal(mu.n_actions)
        self.strength = rng.uniform(0.2, 2.0)

    @property
    def n_actions(self) -> int:
        """|A|, twins included."""
        return 2 * int(self.mu.n_actions)

    def action_probs(self, contexts: Any, candidates: Any = None) -> Any:
        """Probabilities [n, 2A]: all first twins, then all second twins."""
        z = np.clip((contexts - self.centre) / self.scale, -5, 5) @ self.weights + self.bias
        first = 1 / (1 + np.exp(-self.strength * z))
        mu = self.mu.action_probs(contexts)
        return np.concatenate([mu * first, mu * (1 - first)], axis=1)


def with_twins(logs: LoggedData, rng: np.random.Generator) -> LoggedData:
    """The log in which a coin decided between each action and its twin."""
    assert logs.propensities is not None
    assert logs.behaviour is not None
    second = rng.random(len(logs)) < 0.5
    return replace(
        logs,
        actions=(logs.actions + second * logs.n_actions).astype(logs.actions.dtype),
        propensities=logs.propensities / 2,
        behaviour=np.concatenate([logs.behaviour, logs.behaviour], axis=1) / 2,
        action_space=ActionSpace.numbered(2 * logs.n_actions),
    )


def linear(weights: Any) -> LinearScorer:
    return LinearScorer(weights, Identity(intercept=False).fit(np.zeros((1, np.shape(weights)[1]))))


def random_linear(n_actions: int, width: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: Greedy(linear(rng.standard_normal((n_actions, width))))


def one_action(n_actions: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: ConstantPolicy(np.eye(n_actions)[rng.integers(n_actions)])


def mixed(world: World, kind: str, rng: np.random.Generator) -> tuple[Any, float] | None:
    """A mixture that is truly worse, or better, with its lift; None if it is not clear."""
    other = (world.bad if kind == "worse" else world.good)(rng)
    share = rng.uniform(0.05, 0.6) if kind == "worse" else rng.uniform(0.02, 0.3)
    policy = Mixture([world.mu, other], [1 - share, share])
    gain = world.returns(policy) - world.own
    lift, error = float(gain.mean()), float(gain.std() / np.sqrt(len(gain)))
    sign = -1 if kind == "worse" else 1
    return (policy, lift) if sign * lift > CLEAR * error else None


# ---------------------------------------------------------------------- worlds


def synthetic() -> World:
    simulator = Synthetic()
    rest = random_linear(10, 2)
    return World(
        name="Synthetic",
        words="10 decisions, 10 actions; mu: the trained agent, half of its decisions random",
        simulator=simulator,
        mu=LoggingPolicy(simulator, 0.5),
        bad=lambda rng: one_action(10)(rng) if rng.random() < 0.5 else rest(rng),
        good=lambda rng: LoggingPolicy(simulator, 0.0),
        horizon=10,
        users=300,
        truth_users=2_000,
    )


def hiv() -> World:
    simulator = HIV(start_spread=0.05)
    rest = random_linear(4, 6)
    return World(
        name="HIV",
        words="10 decisions, 4 actions; mu: the trained agent, half of its decisions random",
        simulator=simulator,
        mu=LoggingPolicy(simulator, 0.5),
        bad=lambda rng: one_action(4)(rng) if rng.random() < 0.5 else rest(rng),
        good=lambda rng: LoggingPolicy(simulator, 0.0),
        horizon=10,
        users=300,
        truth_users=300,
    )


def recogym() -> World:
    simulator = RecoGym(n_products=10)
    most_seen = EpsilonGreedy(linear(np.eye(10)), 0.5)
    return World(
        name="RecoGym",
        words="10 decisions, 10 products; mu: the product seen most often, half of its decisions random",
        simulator=simulator,
        mu=most_seen,
        bad=lambda rng: Greedy(linear(-np.eye(10))) if rng.random() < 0.5 else one_action(10)(rng),
        good=lambda rng: Greedy(linear(np.eye(10))),
        horizon=10,
        users=500,
        truth_users=10_000,
        k="session",
    )


class Grouped:
    """A policy over groups of actions: within a group, all actions are equally likely."""

    def __init__(self, policy: Any, groups: Any, columns: Any) -> None:
        self.policy, self.groups, self.columns = policy, np.asarray(groups), columns
        self.sizes = np.bincount(self.groups)

    @property
    def n_actions(self) -> int:
        """|A| of the world."""
        return len(self.groups)

    def action_probs(self, contexts: Any, candidates: Any = None) -> Any:
        """Probabilities [n, A]."""
        return (self.policy.action_probs(contexts[:, self.columns]) / self.sizes)[:, self.groups]


def in_groups(logs: LoggedData, groups: Any, columns: Any, mu: Any) -> LoggedData:
    """The same log with the group as the action and some of the columns as the context."""
    contexts, actions = logs.contexts[:, columns], groups[logs.actions]
    behaviour = mu.action_probs(contexts)
    return replace(
        logs,
        contexts=contexts,
        final_contexts=logs.final_contexts[:, columns],
        schema=ContextSchema.numeric([logs.schema.dimensions[j] for j in columns]),
        actions=actions.astype(logs.actions.dtype),
        propensities=behaviour[np.arange(len(actions)), actions],
        behaviour=behaviour,
        action_space=ActionSpace.numbered(int(groups.max()) + 1),
    )


def kuairand() -> World | None:
    from benchmarks.bench_world import kuairand as read
    from shpi.envs.kuairand.world import fit_kuairand

    logs = read()
    if logs is None:
        print("KuaiRand's files were not found (SHPI_DATA): its rows are left out", file=sys.stderr)
        return None
    world = fit_kuairand(logs, members=1, horizon=10)
    shown = np.bincount(logs.random.actions, minlength=world.n_actions)
    liked = np.bincount(logs.random.actions, weights=logs.random.rewards, minlength=world.n_actions)
    order = np.argsort(liked / np.maximum(shown, 1))
    groups = np.empty(world.n_actions, dtype=np.int64)
    groups[order] = np.arange(world.n_actions) * GROUPS // world.n_actions  # the least popular come first
    names = list(logs.standard.schema.dimensions)
    columns = [names.index(name) for name in SEEN]
    mu = UniformPolicy(GROUPS)

    def some(first: int) -> Callable[[np.random.Generator], Any]:
        """Draws random proportions over five groups."""

        def draw(rng: np.random.Generator) -> Any:
            probs = np.zeros(GROUPS)
            probs[first : first + 5] = rng.dirichlet(np.ones(5))
            return ConstantPolicy(probs)

        return draw

    return World(
        name="KuaiRand",
        words=f"at most 10 decisions, 112 actions in {GROUPS} groups; mu: uniform; the reward is a long view",
        simulator=world,
        mu=mu,
        bad=some(0),
        good=some(GROUPS - 5),
        horizon=10,
        users=600,
        truth_users=5_000,
        k="session",
        truncated="complete",
        acts=lambda policy: Grouped(policy, groups, columns),
        sees=lambda log: in_groups(log, groups, columns, mu),
    )


WORLDS: dict[str, Callable[[], World | None]] = {
    "synthetic": synthetic,
    "recogym": recogym,
    "hiv": hiv,
    "kuairand": kuairand,
}


# ---------------------------------------------------------------------- measuring


def kept(name: str, world: World) -> tuple[list[Case], int, float]:
    """Cases, policies left out, CPU seconds: measured now, or found from an earlier run."""
    folder = os.environ.get("SHPI_GATE_CASES")
    place = None if folder is None else Path(folder) / f"{name}-{POLICIES}-{FIRST}.json"
    if place is not None and place.exists():
        saved = json.loads(place.read_text(encoding="utf-8"))
        cases = [Case(**{**entry, "fatal": tuple(entry["fatal"])}) for entry in saved["cases"]]
        return cases, saved["unclear"], saved["seconds"]
    began = time.process_time()
    cases, unclear = measure(world, POLICIES)
    seconds = time.process_time() - began
    if place is not None:
        content = {"cases": [asdict(trial) for trial in cases], "unclear": unclear, "seconds": seconds}
        place.write_text(json.dumps(content), encoding="utf-8")
    return cases, unclear, seconds


def measure(world: World, policies: int) -> tuple[list[Case], int]:
    """Measure a world: its cases, and the number of policies left out since their truth was not clear."""
    cases: list[Case] = []
    unclear = 0
    for number in range(policies):
        rng = np.random.default_rng([FIRST, number, 1])
        logs = world.log(_seed(rng), world.users)
        policy = Twins(world.mu, logs, rng)
        cases.append(case("twins", world, policy, with_twins(logs, rng), 0.0, number))
    for kind, wanted in (("worse", policies), ("better", max(1, policies // 8))):
        rng = np.random.default_rng([FIRST, len(kind), 2])
        made = tried = 0
        while made < wanted and tried < 20 * wanted:
            tried += 1
            drawn = mixed(world, kind, rng)
            if drawn is None:
                unclear += 1
                continue
            made += 1
            for users in (world.users, LARGER * world.users)[: 2 if kind == "better" else 1]:
                logs = world.log(_seed(rng), users)
                cases.append(case(kind, world, drawn[0], logs, drawn[1], made))
    return cases, unclear


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 31))


def case(kind: str, world: World, policy: Any, logs: LoggedData, truth: float, seed: int) -> Case:
    evaluation = world.judge(policy, logs, seed)
    verdict, estimate = evaluation.verdict, evaluation.decisive
    assert verdict is not None
    return Case(
        kind=kind,
        users=evaluation.users,
        truth=truth,
        lift=estimate.lift,
        error=estimate.lift_error,
        decision=verdict.decision,
        needed=verdict.users_needed,
        main=estimate.name,
        fatal=tuple(d.name for d in fatal_for(evaluation.diagnostics, estimate.name)),
    )


# ---------------------------------------------------------------------- the page


def run() -> list[Row]:
    """Measure, write the page, and return the rates."""
    wanted = os.environ.get("SHPI_GATE_WORLDS", ",".join(WORLDS)).split(",")
    measured: list[tuple[World, list[Case], int, float]] = []
    for name in wanted:
        world = WORLDS[name]()
        if world is not None:
            measured.append((world, *kept(name, world)))
            cases = measured[-1][1]
            print(summary(world, cases), file=sys.stderr, flush=True)
            draft = PAGE.with_name(f".{PAGE.name}.part")  # written after every world: the run is long
            draft.write_text(page(measured), encoding="utf-8")
            draft.replace(PAGE)
    rows = []
    for world, cases, _, seconds in measured:
        bad = [trial for trial in cases if trial.kind != "better"]
        ships = sum(trial.decision == "ship" for trial in bad)
        rows.append(
            Row(f"{world.name}: false ships", 100 * ships / len(bad), "%", f"{ships} of {len(bad)}", "<= 5")
        )
        for users in sizes(world):
            good = [trial for trial in cases if trial.kind == "better" and trial.users == users]
            share = np.mean([trial.decision == "ship" for trial in good])
            rows.append(Row(f"{world.name}: power", 100 * float(share), "%", f"{users} users"))
        rows.append(Row(f"{world.name}: time", seconds, "CPU-s"))
    return rows + bench_gate_hard.run()


def sizes(world: World) -> tuple[int, int]:
    return world.users, LARGER * world.users


def interval(hits: int, total: int) -> tuple[float, float]:
    """The 95 % Clopper-Pearson interval."""
    low = stats.beta.ppf(0.025, hits, total - hits + 1) if hits else 0.0
    high = stats.beta.ppf(0.975, hits + 1, total - hits) if hits < total else 1.0
    return float(low), float(high)


def rate(cases: Sequence[Case]) -> str:
    hits, total = sum(trial.decision == "ship" for trial in cases), len(cases)
    low, high = interval(hits, total)
    return f"{hits} of {total}: {hits / total:.1%} ({low:.1%} to {high:.1%})"


def summary(world: World, cases: Sequence[Case]) -> str:
    """A line for the terminal: the decisions on each kind of policy."""
    lines = [world.name]
    wrong = [trial for trial in cases if trial.kind != "better" and trial.decision == "ship"]
    lines += [f"  false ship: {trial}" for trial in wrong]
    for kind in ("twins", "worse", "better"):
        for users in sizes(world):
            mine = [trial for trial in cases if trial.kind == kind and trial.users == users]
            if mine:
                counts = {d: sum(trial.decision == d for trial in mine) for d in DECISIONS}
                mains = {
                    m: sum(trial.main == m for trial in mine) for m in sorted({trial.main for trial in mine})
                }
                fatal = sorted(name for trial in mine for name in set(trial.fatal))
                why = {name: fatal.count(name) for name in sorted(set(fatal))}
                lines.append(f"  {kind}, {users} users: {counts} by {mains}, fatal {why}")
    return "\n".join(lines)


HEAD = """# The gate's false ships, and its power

Written by `python -m benchmarks gate`; every policy is judged on a fresh log of its own by `Gate()` with its
default settings (95 % confidence, any lift above 0). A false ship is the verdict "ship" on a policy whose
true lift is at most 0. Rates are followed by their 95 % interval (Clopper and Pearson).

* **no lift at all**: every action has a twin that does the same, and the policy prefers one or the other.
  The importance weights vary, the true lift is exactly 0. This is the hardest case: 5 % are expected.
* **worse**: mu mixed with other policies in random proportions; in rollouts with the same random numbers it
  brings less than mu by more than {clear:.0f} standard errors.
* **better**: likewise, by more than {clear:.0f} standard errors. Policies in between are left out.

| world | policies not better | false ships | of those without any lift | of those that are worse |
|---|---|---|---|---|
"""

POWER = """
| world | better policies | users in the log | shipped | held | need more data | first step | users needed, as the gate says (median) | for a power of 80 % by the true lift (median) | true lift in standard errors (median) |
|---|---|---|---|---|---|---|---|---|---|
"""  # noqa: E501


WHY = """
## What decided, and what forbade to decide

Shares of the logs. A policy far from mu leaves few effective users and is refused for that alone, whether it
is better or worse: such a policy says nothing about the bounds. Horizons are short here; long
ones are among the [hard worlds](gate-hard-worlds.md). Where the k-step estimator decides, nothing ships: its
bias depends on the world ([how much](gate-steps.md)).

"""


def page(measured: Sequence[tuple[World, list[Case], int, float]]) -> str:
    """The document."""
    parts = [HEAD.format(clear=CLEAR)]
    everything: list[Case] = []
    for world, cases, _, _ in measured:
        bad = [trial for trial in cases if trial.kind != "better"]
        everything += bad
        kinds = [rate([trial for trial in bad if trial.kind == kind]) for kind in ("twins", "worse")]
        parts.append(f"| {world.name} | {len(bad)} | **{rate(bad)}** | {kinds[0]} | {kinds[1]} |\n")
    if everything:
        kinds = [rate([trial for trial in everything if trial.kind == kind]) for kind in ("twins", "worse")]
        parts.append(f"| all | {len(everything)} | **{rate(everything)}** | {kinds[0]} | {kinds[1]} |\n")
    parts.append(_caution(everything, [(world.name, cases) for world, cases, _, _ in measured]))
    parts.append(
        "\n## Power\n\nThe share of truly better policies that are shipped, by the size of the log. "
        f"Fewer than {LEAST_USERS} users are never enough.\n"
    )
    parts.append(POWER)
    parts += [_power(world, cases, users) for world, cases, _, _ in measured for users in sizes(world)]
    parts.append("\n## Worlds\n\n")
    parts += [f"* **{world.name}**: {world.words}.\n" for world, _, _, _ in measured]
    parts.append(WHY)
    parts += [_mains(world, cases) for world, cases, _, _ in measured]
    left = ", ".join(f"{world.name} {unclear}" for world, _, unclear, _ in measured)
    spent = sum(seconds for _, _, _, seconds in measured)
    parts.append(
        f"\nLeft out because the truth was not clear: {left}. {spent / 60:.0f} minutes of CPU time.\n"
    )
    return "".join(parts)


def _caution(bad: Sequence[Case], by_world: Sequence[tuple[str, list[Case]]]) -> str:
    """A caveat on how to read the table."""
    none = [trial for trial in bad if trial.kind == "twins"]
    text = (
        "\nThe share over all policies depends on how many of them are clearly worse. The column of those "
        "without any lift does not, and is the one to hold against 5 %."
    )
    for name, cases in by_world:
        mine = [trial for trial in cases if trial.kind == "twins"]
        if mine and np.mean([trial.decision == "ship" for trial in mine]) > 0.05:
            text += f" In {name} it is above 5 %: {rate(mine)}."
    kinds = (("WDR", "WDR"), ("SHPI(", "the k-step estimator"))
    words = [
        f"where {name} decided, {rate(mine)}"
        for start, name in kinds
        if (mine := [trial for trial in none if trial.main.startswith(start)])
    ]
    return f"{text} Of all without any lift: {'; '.join(words)}.\n"


def _power(world: World, cases: Sequence[Case], users: int) -> str:
    mine = [trial for trial in cases if trial.kind == "better" and trial.users == users]
    if not mine:
        return ""
    shares = [np.mean([trial.decision == d for trial in mine]) for d in DECISIONS]
    asked = [trial.needed for trial in mine if trial.needed is not None]
    needed = f"{np.median(asked):,.0f}" if asked else "–"
    strength = np.array([trial.truth / trial.error for trial in mine])
    enough = np.maximum(users * ((stats.norm.ppf(0.95) + stats.norm.ppf(0.8)) / strength) ** 2, LEAST_USERS)
    return (
        f"| {world.name} | {len(mine)} | {users:,} | {shares[0]:.0%} | {shares[1]:.0%} | {shares[2]:.0%} | "
        f"{shares[3]:.0%} | "
        f"{needed} | {np.median(enough):,.0f} | {np.median(strength):.1f} |\n"
    )


def _mains(world: World, cases: Sequence[Case]) -> str:
    """The estimators that decided, and the fatal diagnostics, by kind of policy."""
    lines = [f"* **{world.name}**\n"]
    for kind, words in (("twins", "no lift at all"), ("worse", "worse"), ("better", "better")):
        mine = [trial for trial in cases if trial.kind == kind]
        names = sorted({trial.main for trial in mine})
        by = ", ".join(
            f"{name} {sum(trial.main == name for trial in mine) / len(mine):.0%}" for name in names
        )
        fatal = [name for trial in mine for name in set(trial.fatal)]
        counts = {name: fatal.count(name) for name in sorted(set(fatal))}
        why = ", ".join(f"{name} {count / len(mine):.0%}" for name, count in counts.items()) or "none"
        lines.append(f"  * {words}: decided by {by}; fatal: {why}\n")
    return "".join(lines)
