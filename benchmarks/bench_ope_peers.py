"""Our estimators against obp and scope-rl: the same estimates from the same log, and widths of intervals.

Writes docs/ope-peers.md. The peers run in a separate environment (`make .venv-peers/.done`, or the one that
SHPI_PEERS names); without it there are no rows. DR gets the same Q everywhere: ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_coverage import PLAIN, Table, narrow
from benchmarks.peers import THREADS, peer_python
from benchmarks.report import Row
from shpi.data.logged import LoggedData
from shpi.ope import DR, IPS, PDIS, SNIPS, SNPDIS, Estimator, Problem, Settings
from shpi.ope.estimators.robust import cross_fits
from shpi.ope.models.predictions import value_limits

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = Path(os.environ.get("SHPI_OPE_PEERS_PAGE", DOCS / "ope-peers.md"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One log, and the policy that is evaluated on it."""

    name: str
    words: str
    logs: LoggedData
    policy: Any
    value: float  # true value of the policy


def cases() -> list[Case]:
    """One decision with a large mean reward, one with heavy weights, and three decisions."""
    rng = np.random.default_rng(0)
    actions = (rng.random(400) < 0.2).astype(int)
    swapped = LoggedData.from_arrays(
        contexts=np.zeros((400, 1)), actions=actions, rewards=5 + 0.5 * rng.standard_normal(400),
        propensities=np.where(actions == 1, 0.2, 0.8), behaviour=np.tile([0.8, 0.2], (400, 1)), n_actions=2,
        offsets=np.arange(401), final_contexts=np.zeros((400, 1)),
    )  # fmt: skip
    table = np.zeros((2, 10))
    table[0, 0] = table[1, 1] = 1.0
    return [
        Case(name="swapped", words="400 users, 1 decision, 2 actions with probabilities 0.8 and 0.2 that the "
             "policy swaps; rewards 5 ± 0.5", logs=swapped, policy=Table([[0.2, 0.8]]), value=5.0),
        Case(name="bandit", words="1,000 users, 1 decision, weights up to 33, reward 0 or 1",
             logs=narrow(0, 1_000, 1, 0.5, 0.4, 0.0), policy=Table(table), value=0.5),
        Case(name="three decisions", words="1,000 users, 3 decisions, weights up to 36,000, reward 0 or 1",
             logs=narrow(0, 1_000, 3, 0.5, 0.4, 0.0), policy=Table(table), value=1.5),
    ]  # fmt: skip


def ours() -> list[Estimator]:
    """Our estimators, with DR in its textbook form, as the peers have it."""
    return [IPS(), SNIPS(), PDIS(), SNPDIS(), DR(features=PLAIN, paired=False)]


# ---------------------------------------------------------------------- measuring


def run() -> list[Row]:
    """The largest relative difference of any point estimate, and the widths."""
    python = peer_python()
    if python is None:
        print("no environment with obp and scope-rl: run `make .venv-peers/.done`", file=sys.stderr)
        return []
    answered = [(case, *answers(case, python)) for case in cases()]
    draft = PAGE.with_name(f".{PAGE.name}.part")
    draft.write_text(page(answered), encoding="utf-8")
    draft.replace(PAGE)
    rows = []
    for case, mine, theirs in answered:
        for library, estimates in theirs.items():
            if "missing" in estimates:
                print(f"{library}: {estimates['missing']}", file=sys.stderr)
                continue
            apart = max(abs(mine[name]["value"] - estimate["value"]) for name, estimate in estimates.items())
            note = f"largest difference of {', '.join(estimates)}"
            rows.append(Row(f"{case.name}: {library}", apart, "", note, "<= 1e-9"))
            wide = _width(estimates["SNIPS"]["bootstrap"]) / _width(mine["SNIPS"]["skewed"])
            rows.append(Row("  width of SNIPS over ours", wide, "x", "their bootstrap"))
    return rows


def answers(case: Case, python: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The estimates of our library and of the peers."""
    problem = Problem.of(case.policy, case.logs, Settings())
    mine = {}
    for estimator in ours():
        estimate = estimator.estimate(problem)
        mine[estimator.name] = {
            "value": estimate.value,
            "skewed": [estimate.value_interval.lower, estimate.value_interval.upper],
        }
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "log.npz", Path(folder) / "out.json"
        np.savez(file, **as_arrays(case, problem))
        script = Path(__file__).with_name("peer_ope.py")
        done = subprocess.run(
            [python, str(script), str(file), str(out)],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env=os.environ | dict.fromkeys(THREADS, "1"),
        )
        if done.returncode:
            raise RuntimeError(f"the peers failed:\n{done.stderr[-2_000:]}")
        theirs: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return mine, theirs


def as_arrays(case: Case, problem: Problem) -> dict[str, Any]:
    """The log, pi(.|x) and our cross-fitted Q_{H-t}(x, .), from the fit without the user's fold."""
    users = next(problem.chunks())
    fits = cross_fits(problem, "pi", PLAIN, None).by_fold
    features = fits[0].design.of(case.logs.contexts)
    q = np.empty((len(case.logs), case.policy.n_actions))
    for row, (fold, step) in enumerate(zip(users.fold, users.steps, strict=True)):
        to_go = problem.horizon - int(step)
        q[row] = np.clip(fits[fold].tables(to_go) @ features[row], *value_limits(problem, to_go))
    return {
        "users": np.array([case.logs.n_users]),
        "steps": np.array([problem.horizon]),
        "actions": case.logs.actions.astype(np.int64),
        "rewards": case.logs.rewards,
        "propensities": case.logs.propensities,
        "policy": case.policy.action_probs(case.logs.contexts),
        "q": q,
    }


# ---------------------------------------------------------------------- the page

HEAD = """# Against obp and scope-rl

Written by `python -m benchmarks ope_peers`: one log per case, the same arrays for all. obp 0.5.7 and scope-rl
0.2.1 run in an environment of their own, with current versions of numpy and pandas: obp's own pins do not
install on this Python, and its limit on Python's version is overridden. DR uses the same Q everywhere: ours,
cross-fitted by user. Cells: the value, and the width of a nominal 95 % two-sided interval. obp knows logs of
one decision only.
"""

NOTES = """## What to take from it

* Point estimates agree to rounding, so differences are in the intervals alone.
* SNIPS, "swapped": obp and scope-rl resample terms that are already divided by the mean weight, so they lose
  what self-normalisation gains.
* scope-rl's "ttest" uses the one-sided quantile for a two-sided interval (1.65 in place of 1.96 standard
  errors), and its "hoeffding" grows with the root of the number of users, where it should fall.
* Where few users carry the weight ours are wider for IPS, PDIS and DR, on the side that skewness endangers.
  The percentile bootstrap is short there, and covers too little: see `python -m benchmarks coverage`.
"""

METHODS = (
    ("obp", "bootstrap"),
    *(("scope-rl", interval) for interval in ("bootstrap", "ttest", "bernstein", "hoeffding")),
)


def page(answered: list[tuple[Case, dict[str, Any], dict[str, Any]]]) -> str:
    """The document."""
    parts = [HEAD]
    for case, mine, theirs in answered:
        parts.append(f"## {case.name}\n\n{case.words}. True value {case.value:g}.\n")
        heads = ["ours", *(f"{library}, {method}" for library, method in METHODS)]
        lines = ["| estimator | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
        for name, own in mine.items():
            cells = [_cell(own, "skewed")]
            cells += [_cell(theirs.get(library, {}).get(name), method) for library, method in METHODS]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join([*parts, NOTES])


def _cell(estimate: dict[str, Any] | None, method: str) -> str:
    return "–" if estimate is None else f"{estimate['value']:.6f}; {_width(estimate[method]):.3g}"


def _width(ends: list[float]) -> float:
    return ends[1] - ends[0]
