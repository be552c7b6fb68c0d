"""One trial: fit our defaults to a log, and compare the policy and its stated lift with the truth."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from benchmarks.worlds import by_name
from benchmarks.worlds.base import Lift
from benchmarks.worlds.simulated import SimulatedWorld
from shpi.learners import OfflineSHPI

GOING_ON = 600  # decisions of a long rollout: 0.2 % of the discounted rewards come later
FOLLOWED = 200  # users of a long rollout
ALIKE = 1e-9  # differences below this share of the value are rounding errors


class LogCase(NamedTuple):
    """The world, seed and size of a log; ``users`` None: the world's own size."""

    world: str
    seed: int
    users: int | None = None


@dataclass(frozen=True, kw_only=True)
class LiftTrial:
    """The true and the stated lift of the returned policy."""

    case: LogCase
    proven: bool
    left: bool  # another policy than mu, or than its clone, is returned
    lift: Lift  # true lift over mu, up to the end of the log
    lasting: Lift  # true lift if users go on after the last decision of the log
    attainable: float | None  # scale of the lift
    tolerance: float  # values closer than this are equal
    estimate: float | None  # lift that the policy states
    lower: float | None  # lower bound that the policy states
    seconds: float

    @property
    def harmful(self) -> bool:
        """Whether the policy is worse than mu by more than 1 % of what is attainable."""
        return self.attainable is not None and self.lift.value < -0.01 * self.attainable


def lift_trial(case: LogCase) -> LiftTrial:
    """Fit our defaults to a log, and compare with the truth."""
    world = by_name(case.world)
    world = world if case.users is None else world.with_users(case.users)
    logs = world.make_log(case.seed)
    began = time.process_time()
    policy: Any = OfflineSHPI(gamma=world.gamma, seed=case.seed, progress=False).fit(logs)
    seconds = time.process_time() - began
    stated, lift = getattr(policy, "lift", None), world.lift(policy, case.seed)
    lasting = lift
    if isinstance(world, SimulatedWorld) and not logs.terminated.all():
        followed = replace(world, horizon=GOING_ON, new_users=FOLLOWED)
        lasting = followed.lift(policy, case.seed)
    return LiftTrial(
        case=case,
        proven=bool(policy.proven),
        left=policy.chosen > 0,
        lift=lift,
        lasting=lasting,
        attainable=world.attainable(case.seed),
        tolerance=ALIKE * (1.0 + abs(world.mu_value(case.seed))),
        estimate=None if stated is None else float(stated.estimate),
        lower=None if stated is None else float(stated.lower),
        seconds=seconds,
    )
