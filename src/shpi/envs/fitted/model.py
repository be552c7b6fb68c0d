"""A simulator that is fitted to a log: `WorldModel` learns, `FittedWorld` simulates and reports.

One decision of a simulated user:

    1. proxy reward   r ~ P(r | x, a)
    2. feedback       the further metrics of the decision, copied from a similar decision of the log
    3. session end    e ~ P(end | x, a, feedback)
    4. return         if the session ended: in bin b with hazard h_b(x, a, feedback), or never (gone)
    5. next context   by the `Moves` of the world: copied steps of the log, or known rules

The *long-term score* of a user is L = 2 P(returns within the last bin) - 1 in [-1, 1], and -1 when gone.
Users start at first contexts of the log, drawn with replacement. Every model is fitted once to all users, and
once to each of B bootstrap samples of the users; the spread of these fits is the uncertainty. For the limits
of such a world, see docs/world-model.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from shpi.data.durations import Duration
from shpi.data.logged import LoggedData
from shpi.envs.base import real_number, whole_number
from shpi.envs.fitted.moves import Moves
from shpi.envs.fitted.outcomes import Observed
from shpi.envs.fitted.simulator import FittedWorld
from shpi.errors import ConfigError

Outcome = Literal["reward", "end", "return"]

__all__ = ["FittedWorld", "WorldModel"]


@dataclass(frozen=True, kw_only=True)
class WorldModel:
    """The settings with which a world is learned from a log.

    Args:
        members: B, the number of models in the ensemble, besides the fit to all users.
        bins: number of bins of a column with many values.
        ridge: ridge penalty lambda of the tables; None chooses one on held-out users.
        action_effects: outcomes that may depend on the action itself, beyond the feedback to it.
        interactions: context columns with which the action's effects vary; None for all of them if the log
            has ten decisions for each parameter that this adds.
        return_bins: upper ends of the bins of the time between a session and the return, e.g.
            ``("1d", "3d", "7d")``, or plain numbers for a log with numeric times; a user who does not return
            within the last is gone. None: these for timestamps, and a single endless bin for other logs.
        observed: whether users were observed until the end of the ``"log"``, or until the last decision of
            each ``"user"``; None: the log for timestamps, else the user.
        feedback: context columns that count the feedback of users, for ``link``.
        link: factor on every effect of feedback on session ends and returns; 1: as estimated.
        assumed: an effect that is *not* estimated but assumed: the log-odds of every hazard of return rise by
            ``assumed`` × (the context column ``assumed_on``, as it is after the decision, minus its mean).
        assumed_on: that column; needed if ``assumed`` is not 0.
        horizon: the number of decisions after which a rollout is truncated; None for the log's longest.
        window: time for which users are simulated; None: until they are gone.
        neighbours: number of similar decisions from which one is copied.
        name: name of the simulator.
    """

    members: int = 5
    bins: int = 16
    ridge: float | None = None
    action_effects: tuple[Outcome, ...] = ("reward", "end", "return")
    interactions: tuple[str, ...] | None = None
    return_bins: tuple[Duration, ...] | None = None
    observed: Observed | None = None
    feedback: tuple[str, ...] = ()
    link: float = 1.0
    assumed: float = 0.0
    assumed_on: str | None = None
    horizon: int | None = None
    window: Duration | None = None
    neighbours: int = 20
    name: str = "world"

    def __post_init__(self) -> None:
        for key, least in (("members", 0), ("bins", 2), ("neighbours", 1)):
            whole_number(key, getattr(self, key), least=least)
        if self.horizon is not None:
            whole_number("horizon", self.horizon, least=1)
        if self.ridge is not None:
            real_number("ridge", self.ridge, above=0.0)
        real_number("link", self.link, least=0.0)
        real_number("assumed", self.assumed)
        unknown = set(self.action_effects) - set(get_args(Outcome))
        if unknown:
            raise ConfigError(
                expected=f"action_effects among {', '.join(get_args(Outcome))}", found=str(sorted(unknown))
            )

    def fit(
        self,
        logs: LoggedData,
        seed: int = 0,
        *,
        action_log: LoggedData | None = None,
        moves: Moves | None = None,
    ) -> FittedWorld:
        """Learn the world of a log.

        Args:
            logs: decisions of at least 20 users, with rewards and at least two actions.
            seed: random seed of the ensemble's samples.
            action_log: a log with the same contexts and actions, in which actions were chosen at random: the
                effects of the action on the reward are then estimated there, and only there.
            moves: rules by which contexts change, if they are known; else steps of the log are copied.
        """
        from shpi.envs.fitted.fit import fit_world

        return fit_world(self, logs, seed, action_log, moves)
