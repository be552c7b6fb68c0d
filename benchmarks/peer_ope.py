"""Estimates of obp and scope-rl on logs from a file. Runs in the peers' environment, without shpi.

python peer_ope.py LOG.npz OUT.json

The file holds users [1] (their number), steps [1] (the same for every user), actions [n], rewards [n],
propensities [n], policy [n, A] and q [n, A]. Writes {library: {estimator: {"value", method: [low, up]}}}; a
library that cannot be imported is left out, with the reason.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

RESAMPLES = 2_000  # bootstrap samples


def bounds(interval: dict[str, float]) -> list[float]:
    """The two ends of an interval, whatever the keys say about its level."""
    return [next(float(interval[key]) for key in interval if side in key) for side in ("lower", "upper")]


def obp(log: dict[str, Any]) -> dict[str, Any]:
    """Estimates of obp, for logs of one decision per user only."""
    from obp.ope import (
        DoublyRobust,
        InverseProbabilityWeighting,
        SelfNormalizedInverseProbabilityWeighting,
    )

    common = {
        "reward": log["rewards"],
        "action": log["actions"],
        "pscore": log["propensities"],
        "action_dist": log["policy"][:, :, None],
    }
    q = {"estimated_rewards_by_reg_model": log["q"][:, :, None]}
    estimators = {
        "IPS": (InverseProbabilityWeighting(), {}),
        "SNIPS": (SelfNormalizedInverseProbabilityWeighting(), {}),
        "DR": (DoublyRobust(), q),
    }
    return {
        name: {
            "value": float(estimator.estimate_policy_value(**common, **more)),
            "bootstrap": bounds(
                estimator.estimate_interval(**common, **more, n_bootstrap_samples=RESAMPLES, random_state=0)
            ),
        }
        for name, (estimator, more) in estimators.items()
    }


def scope_rl(log: dict[str, Any]) -> dict[str, Any]:
    """Estimates of scope-rl, for logs of any length, the same for all users."""
    from scope_rl.ope.discrete import (
        DoublyRobust,
        PerDecisionImportanceSampling,
        SelfNormalizedPDIS,
        SelfNormalizedTIS,
        TrajectoryWiseImportanceSampling,
    )

    common = {
        "step_per_trajectory": int(log["steps"][0]),
        "action": log["actions"],
        "reward": log["rewards"],
        "pscore": log["propensities"],
        "evaluation_policy_action_dist": log["policy"],
    }
    q = {"state_action_value_prediction": log["q"]}
    estimators = {
        "IPS": (TrajectoryWiseImportanceSampling(), {}),
        "SNIPS": (SelfNormalizedTIS(), {}),
        "PDIS": (PerDecisionImportanceSampling(), {}),
        "SNPDIS": (SelfNormalizedPDIS(), {}),
        "DR": (DoublyRobust(), q),
    }
    estimates: dict[str, dict[str, Any]] = {}
    for name, (estimator, more) in estimators.items():
        estimates[name] = {"value": float(estimator.estimate_policy_value(**common, **more))}
        for method in ("bootstrap", "ttest", "bernstein", "hoeffding"):
            estimates[name][method] = bounds(
                estimator.estimate_interval(
                    **common, **more, ci=method, n_bootstrap_samples=RESAMPLES, random_state=0
                )
            )
    return estimates


def main(file: Path, out: Path) -> None:
    with np.load(file, allow_pickle=False) as stored:
        log = {name: stored[name] for name in stored.files}
    answers: dict[str, Any] = {}
    libraries = {"scope-rl": scope_rl} | ({"obp": obp} if int(log["steps"][0]) == 1 else {})
    for name, ask in libraries.items():
        try:
            answers[name] = ask(log)
        except ImportError as error:
            answers[name] = {"missing": str(error)}
    out.write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
