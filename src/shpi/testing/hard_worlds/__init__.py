"""Worlds that are hard for a gate, with exact true lifts: test your own gate, or ours.

    from shpi.testing import hard_worlds

    for name, world in hard_worlds.WORLDS.items():
        case = world.make(seed=0)                 # a log, a policy whose true lift is exactly 0
        shpi.evaluate(case.policy, case.logs, gate=shpi.Gate())
        world.make(seed=0, lift=world.better)     # the same with a lift that is worth finding

Every seed gives another world of its kind: other delays, shares, levels and policies. ``Case.lift`` is the
true lift per user over ``Case.horizon`` decisions, computed exactly, not simulated. ``Case.options`` are the
options that an owner who knows the log would give to `shpi.evaluate`. `looks` returns the log as it was on
each day.
"""

from shpi.testing.hard_worlds.calendar import (
    daily_looks,
    drifting_mu,
    looks,
    switched_by_day,
    turned_effect,
)
from shpi.testing.hard_worlds.chain import Chain
from shpi.testing.hard_worlds.false_propensities import (
    hidden_column,
    overridden,
    rarely_overridden,
    rule_changes,
)
from shpi.testing.hard_worlds.late import clickbait, late_harm, unmarked_churn
from shpi.testing.hard_worlds.people import big_spenders, bots, heavy_and_light, small_log, user_types
from shpi.testing.hard_worlds.random_worlds import random_worlds
from shpi.testing.hard_worlds.tails import heavy_tails, rare_action, rare_disaster, rare_rewards
from shpi.testing.hard_worlds.world import Calendar, Case, GroupPolicy, Setting, World

WORLDS: dict[str, World] = {
    world.name: world
    for world in (
        clickbait,
        late_harm,
        unmarked_churn,
        heavy_and_light,
        hidden_column,
        rule_changes,
        overridden,
        rarely_overridden,
        rare_disaster,
        big_spenders,
        bots,
        drifting_mu,
        switched_by_day,
        turned_effect,
        small_log,
        heavy_tails,
        rare_rewards,
        user_types,
        rare_action,
        daily_looks,
        random_worlds,
    )
}

__all__ = ["WORLDS", "Calendar", "Case", "Chain", "GroupPolicy", "Setting", "World", "looks"]
