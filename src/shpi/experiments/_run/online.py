"""Work that several experiments share: online SHPI, from scratch or after offline learning."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from shpi.experiments._run import work as plain_work
from shpi.experiments._run import worlds
from shpi.experiments._run.cells import Cell, Outcome
from shpi.learners.online.shpi import OnlineSHPI


def work(cell: Cell) -> Outcome:
    """Learn online with new users of the log's world; ``options["start"] = "log"`` learns offline first.

    The online users are neither those of the log nor those who test the policy in the end.
    """
    options: dict[str, Any] = dict(cell.options)
    start = options.pop("start", None)
    simulator = worlds.world(cell.log.world, cell.log.params)
    learner = OnlineSHPI(**options, seed=cell.log.seed, progress=False)
    if isinstance(cell.k, int):
        learner = replace(learner, k=cell.k)
    start_from: dict[str, Any] = {}
    before = 0.0
    if start == "log":
        logs = worlds.simulate(cell.log)
        offline, before = plain_work.fit_cached(replace(cell, learner="shpi", options={}, k="auto"), logs)
        start_from = {"start": offline, "logs": logs}
    began = time.process_time()
    policy = learner.fit(simulator, **start_from)
    seconds = time.process_time() - began + before
    return Outcome(values=plain_work.try_policy(cell, policy), seconds=seconds)
