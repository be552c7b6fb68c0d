"""Runs one learner in its own process: ``python -m shpi.cli._compare.learn_job job.json``.

`shpi compare` starts it once per learner, so that time and memory are those of one learner, and a learner
that fails or runs out of memory does not affect the others. The job and the facts are JSON:

    {"learner": "bandit", "options": {}, "log": "log.parquet", "world": null, "policy": DIR, "facts": FILE}
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from shpi._core.memory import forget_peak, peak_memory
from shpi.errors import ShpiError
from shpi.files.atomic import write_text


def main(place: str) -> int:
    """Run the job; an error is reported among the facts."""
    job = json.loads(Path(place).read_text(encoding="utf-8"))
    try:
        facts = learn(job)
    except ShpiError as error:
        facts = {"error": str(error)}
    except Exception as error:
        facts = {"error": f"{type(error).__name__}: {error}"}
    write_text(job["facts"], json.dumps(facts))
    return 0


def learn(job: dict[str, Any]) -> dict[str, Any]:
    """Fit and save the policy; return CPU seconds, peak memory and, if it has one, its story."""
    from shpi.learners import registry
    from shpi.policies import save_policy

    learner: Any = registry.make(job["learner"], **{k: _tuple(v) for k, v in job["options"].items()})
    source = _simulator(job["world"]) if registry.entry(job["learner"]).kind == "online" else _log(job["log"])
    forget_peak()
    began = time.process_time()
    policy: Any = learner.fit(source)
    facts: dict[str, Any] = {"cpu_seconds": time.process_time() - began, "peak_bytes": peak_memory()}
    writer = getattr(policy, "save", None)
    if writer is None:
        save_policy(policy, job["policy"])
    else:
        writer(job["policy"])
    story = has_story(policy)
    return facts | ({"story": str(policy)} if story else {})


def has_story(policy: object) -> bool:
    """Whether printing the policy tells how it was learned: its class defines ``__str__``."""
    return "__str__" in vars(type(policy))


def _log(place: str) -> Any:
    from shpi.data._read.read import read_log

    return read_log(place, None)


def _simulator(world: dict[str, Any]) -> Any:
    from shpi.envs import registry

    return registry.make(world["name"], **{key: _tuple(value) for key, value in world["params"].items()})


def _tuple(value: Any) -> Any:
    """A list as a tuple: settings are tuples, and JSON has only lists."""
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
