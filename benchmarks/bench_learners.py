"""Every learner on one small log: the exact value in the storefront, seeds 0 to 2.

Offline learners get 2,000 users of a uniform policy; online learners interact with 1,000. Networks take fewer
steps than by default: 1,000 for BCQ and CQL, 500 for CB+MF and NN-IPS. Writes the table of
docs/learners/index.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Row
from shpi.data.logged import LoggedData
from shpi.envs.storefront import Storefront
from shpi.learners import registry
from shpi.policies import UniformPolicy

PAGE = Path(__file__).resolve().parents[1] / "docs" / "learners" / "index.md"
BEGIN, END = "<!-- python -m benchmarks learners -->", "<!-- end -->"
SEEDS, USERS, MET = (0, 1, 2), 2000, 1000
STEPS = {"bcq": 1000, "cql": 1000, "cb-mf": 500, "nn-ips": 500}


def run() -> list[Row]:
    shop = Storefront()
    logs = [shop.rollout(UniformPolicy(shop.n_actions), USERS, seed=seed) for seed in SEEDS]
    values_of = {
        name: [value(shop, name, log, seed) for log, seed in zip(logs, SEEDS, strict=True)]
        for name in registry.names()
        if registry.missing(name) is None and name != "shpi-released"  # needs windows of 30 decisions
    }
    write(values_of)
    return [Row(name, float(np.mean(values)), "conversions a month") for name, values in values_of.items()]


def value(shop: Storefront, name: str, log: LoggedData, seed: int) -> float:
    """The exact value of a learner's policy."""
    options: dict[str, Any] = {"seed": seed}
    if name in STEPS:
        options["steps"] = STEPS[name]
    budget = registry.entry(name).budget
    if budget is not None:
        options[budget] = MET
    learner: Any = registry.make(name, **options)
    policy = learner.fit(log if budget is None else shop)
    return float(shop.exact_value(policy.action_probs(shop.contexts)))


def write(values_of: dict[str, list[float]]) -> None:
    """Write the table between the two marks of the page."""
    head = ["| learner | " + " | ".join(f"s = {seed}" for seed in SEEDS) + " | mean |"]
    head.append("|---" * (len(SEEDS) + 2) + "|")
    rows = [
        f"| `{name}` | " + " | ".join(f"{value:.3f}" for value in values) + f" | {np.mean(values):.3f} |"
        for name, values in sorted(values_of.items(), key=lambda item: -float(np.mean(item[1])))
    ]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join([before + BEGIN, "", *head, *rows, "", END]) + after, encoding="utf-8")
