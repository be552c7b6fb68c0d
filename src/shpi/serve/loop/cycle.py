"""One round of the loop: compact, audit, fit, evaluate, gate, canary. Every step can be resumed.

    compact    write the events up to now as a log
    audit      end the cycle if the log is unfit for learning
    fit        learn on some users; V_mu stands in for rewards that are still pending (`compact`)
    evaluate   the policy as it would be served, exploration floor included, on the other users, namely
               those whom only the champion has served, since its promotion
    gate       pass only what importance weights over the whole horizon prove: the policy, or a first step,
               a mixture with the champion
    canary     put the policy on trial; from then on the server compares the arms

A cycle that was killed resumes at the step it was in. Files are written whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shpi.errors import ConfigError, ShpiError
from shpi.files.atomic import locked, write_text
from shpi.files.jsonable import finite
from shpi.serve.decide import Arms
from shpi.serve.loop.compact import logged, records_of
from shpi.serve.loop.control import Control, changing, now_us, policy_path
from shpi.serve.loop.state import CYCLES, STEPS, CycleState
from shpi.serve.policies import Mix, mix_path, value_path
from shpi.serve.settings import Settings

if TYPE_CHECKING:
    from shpi.data.logged import LoggedData
    from shpi.protocols import Policy

LOG, TRAIN, HELD_OUT = "log.parquet", "train.parquet", "held-out.parquet"
AUDIT, EVALUATION, REPORT = "audit.json", "evaluation.json", "report.html"


class _Ends(Exception):
    """Ends the cycle; the message is its outcome."""


def run_cycle(folder: Path, *, learner: Any = None, after: Callable[[str], None] | None = None) -> CycleState:
    """Run a cycle, or finish the one that was interrupted.

    Args:
        folder: folder of the service.
        learner: used in place of the settings' learner.
        after: called with the name of each step when it is done.
    """
    cycles = folder / CYCLES
    cycles.mkdir(parents=True, exist_ok=True)
    with locked(cycles):  # one cycle at a time
        settings, state = Settings.read(folder), _begun(folder)
        work = _Steps(folder, settings, state, learner)
        for step in STEPS:
            if step in work.state.done:
                continue
            try:
                facts = getattr(work, step)()
            except _Ends as end:
                return work.state.over(str(end)).write(folder)
            work.state = work.state.after(step, **facts).write(folder)
            if after is not None:
                after(step)
        return work.state.over(work.state.facts["canary"], changed=True).write(folder)  # type: ignore[index]


def _begun(folder: Path) -> CycleState:
    """The unfinished cycle, or a new one."""
    last = CycleState.last(folder)
    if last is not None and last.outcome is None:
        return last
    number = 1 if last is None else last.number + 1
    return CycleState(number=number, started=_now(folder)).write(folder)


def _now(folder: Path) -> int:
    settings = Settings.read(folder)
    if settings.server.clock != "events":
        return now_us()
    return max(
        (record.time for record in records_of(folder, settings) if hasattr(record, "time")), default=now_us()
    )


class _Steps:
    """The steps of a cycle. Each reads the files of the earlier ones, and returns facts for the state."""

    def __init__(self, folder: Path, settings: Settings, state: CycleState, learner: Any) -> None:
        self.folder, self.settings, self.state, self.learner = folder, settings, state, learner
        self.place = state.place(folder)
        day = datetime.fromtimestamp(state.started / 1e6, tz=UTC).strftime("%Y-%m-%d")
        self.name = f"{day}-{state.number}"

    def compact(self) -> dict[str, Any]:
        """Write the log, and split it into users to learn from and held-out users."""
        control = Control.read(self.folder)
        if control.canary is not None:
            raise _Ends(f"'{control.canary.policy}' is still on trial; one policy at a time")
        try:
            logs = logged(records_of(self.folder, self.settings), self.settings, now=self.state.started)
        except ShpiError as error:
            raise _Ends(f"there is no log to learn from: {error}") from None
        if logs.n_users < self.settings.cycle.min_users:
            raise _Ends(
                f"{logs.n_users} users so far; cycle.min_users asks for {self.settings.cycle.min_users}"
            )
        logs.to_parquet(self.place / LOG)
        train, held_out = logs.split_users(self.settings.cycle.held_out, seed=self.settings.cycle.seed)
        train.to_parquet(self.place / TRAIN)
        judged = self._judged(control, held_out)
        judged.to_parquet(self.place / HELD_OUT)
        return {
            "champion": control.champion,
            "users": logs.n_users,
            "decisions": len(logs),
            "judged_users": judged.n_users,
        }

    def _judged(self, control: Control, held_out: LoggedData) -> LoggedData:
        """Held-out users whom only the champion has served, since its promotion: the baseline to beat."""
        settings = self.settings
        reach = settings.decide.hold_back
        if any(entry.what == "canary" for entry in control.history):
            reach += settings.canary.stages[-1]
        if control.champion == control.start and len(control.history) == 1:
            reach = 0.0  # no other policy has ever served
        arms = Arms(salt=bytes.fromhex(control.salt), hold_back=settings.decide.hold_back)
        served = np.array([arms.place(str(user)) >= reach for user in held_out.users])
        of_champion = held_out.select(served)
        if control.champion == control.start:
            return of_champion
        try:
            since = logged(
                records_of(self.folder, settings),
                settings,
                now=self.state.started,
                since=control.champion_since,
            )
        except ShpiError as error:
            raise _Ends(f"no user served by '{control.champion}' has known rewards: {error}") from None
        ours = np.isin(since.users, of_champion.users)
        fewest = math.ceil(settings.cycle.min_users * settings.cycle.held_out)
        served_users = np.unique(since.users[ours]).size
        if served_users < fewest:
            raise _Ends(
                f"'{control.champion}' has served {served_users} held-out users since it was promoted; "
                f"{fewest} are needed to judge what comes next"
            )
        return since.select(ours)

    def audit(self) -> dict[str, Any]:
        """Check that the log is fit for learning and evaluation."""
        report = _read(self.place / LOG).audit()
        write_text(self.place / AUDIT, json.dumps(finite(report.to_json()), indent=1) + "\n")
        if not report.fit:
            raise _Ends(f"the log is unfit for learning: {_first_error(report)}")
        propensities = _read(self.place / HELD_OUT).propensities
        if propensities is not None and bool(np.all(propensities >= 1.0)):
            raise _Ends(
                "the log is unfit for evaluation: its policy does not explore (every decision had "
                "probability 1), so no other action has support; raise decide.floor"
            )
        return {"warnings": report.count("warning")}

    def fit(self) -> dict[str, Any]:
        """Learn a policy, and save it with its termination bonus."""
        from shpi.learners import registry
        from shpi.policies import save_policy
        from shpi.values.files import save_value

        rules, logs = self.settings.cycle, _read(self.place / TRAIN)
        options, learner = dict(rules.options), self.learner
        if learner is None:
            if "seed" in registry.parameters(rules.learner):
                options.setdefault("seed", rules.seed + self.state.number)
            learner = registry.make(rules.learner, **options)
        policy = learner.fit(logs)
        target = policy_path(self.folder, self.name)
        notes = {"learner": rules.learner, "cycle": self.state.number, "log": logs.fingerprint()}
        save_policy(
            policy, target, schema=logs.schema, actions=logs.action_space, notes=notes, overwrite=True
        )
        value = getattr(policy, "value", None)
        if value is not None:
            with contextlib.suppress(ConfigError):  # an unknown kind of value: the policy serves without it
                save_value(value, value_path(target))
        return {"policy": self.name, "proven": bool(getattr(policy, "proven", False))}

    def evaluate(self) -> dict[str, Any]:
        """Evaluate the policy as it would be served, on held-out users."""
        import shpi

        logs, policy = _read(self.place / HELD_OUT), self._as_served()
        gate = shpi.Gate(
            min_lift=self.settings.cycle.min_lift,
            confidence=self.settings.cycle.confidence,
        )
        try:
            compared = shpi.compare({self.name: policy}, logs, gate)
        except ShpiError as error:
            raise _Ends(f"the policy cannot be evaluated: {error}") from None
        evaluation = compared.evaluations[0]
        verdict = evaluation.verdict
        assert verdict is not None
        evaluation.write_html(self.place / REPORT)
        decisive = evaluation.decisive
        step = verdict.first_step
        facts = {
            "decision": verdict.decision,
            "share": 1.0 if step is None else step.share,
            "reasons": list(verdict.reasons),
            "estimator": decisive.name,
            "lift": decisive.lift if step is None else step.lift,
            "at_least": decisive.lift_interval.lower_bound if step is None else step.at_least,
            "baseline": decisive.baseline,
            "effective_users": decisive.effective_users,
            "by_weights": step is not None or decisive.weights is not None,
        }
        write_text(self.place / EVALUATION, json.dumps(finite(facts), indent=1) + "\n")
        shown = ("decision", "share", "estimator", "lift", "at_least", "effective_users")
        return {name: facts[name] for name in shown}

    def _as_served(self) -> Policy:
        from shpi.policies import Mixture, UniformPolicy, load_policy

        policy, floor = load_policy(policy_path(self.folder, self.name)), self.settings.decide.floor
        if floor == 0:
            return policy
        return Mixture((policy, UniformPolicy(policy.n_actions)), (1 - floor, floor))

    def gate(self) -> dict[str, Any]:
        """End the cycle unless importance weights prove the policy, or a mixture with the champion."""
        facts = json.loads((self.place / EVALUATION).read_text(encoding="utf-8"))
        if facts["decision"] not in ("ship", "first step"):
            reasons = " ".join(facts["reasons"][:2])
            raise _Ends(f"the gate says '{facts['decision']}': {reasons}")
        if not facts["by_weights"]:
            raise _Ends(f"the gate rests on a model ({facts['estimator']}), and not on importance weights")
        target = policy_path(self.folder, self.name)
        mix_path(target).unlink(missing_ok=True)
        if facts["decision"] == "first step":
            assert self.state.facts is not None
            Mix(share=facts["share"], over=self.state.facts["champion"]).write(target)
        return {}

    def canary(self) -> dict[str, Any]:
        """Put the policy on trial, unless this was done before the process was killed."""
        facts = self.state.facts
        assert facts is not None
        share = "" if facts["share"] == 1 else f", as a first step of {facts['share']:.0%} of each decision"
        why = f"the gate of cycle {self.state.number}: {facts['lift']:+.4g} per user{share}"
        now = max(self.state.started, 0) if self.settings.server.clock == "events" else now_us()
        with changing(self.folder) as control:
            if control.champion != facts["champion"]:
                raise _Ends(f"'{control.champion}' serves, and the policy was judged against another one")
            known = any(entry.what == "canary" and entry.policy == self.name for entry in control.history)
            if not known:
                control.with_canary(self.name, why, now).write(self.folder)
        return {"canary": f"'{self.name}' went on trial: {why}"}


def _read(path: Path) -> LoggedData:
    from shpi.data._read.read import read_log

    return read_log(path)


def _first_error(report: Any) -> str:
    errors = [finding for finding in report.findings if finding.severity == "error"]
    return str(errors[0].message) if errors else "see audit.json"
