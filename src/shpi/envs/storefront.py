"""The storefront of the paper's introduction (its Figure 1) as a finite decision process with exact values.

A month has up to five sessions, a session two recommendations. The user comes with a need: *everyday*, or, in
few sessions, *special*. The shop has five items:

    bestseller   converts half of the everyday needs at once, hardly any special one, and is a small
                 add-on for users who have bought already
    everyday     functional: answers the everyday need. Three in ten buy at once; the others have seen
                 what they were looking for, and buy when it is shown again
    special      functional: answers the special need, never at once, always when shown again
    discovery    nobody buys it now; it makes the user come back sooner, and with other needs
    filler       nobody wants it

This gives the paper's example. A *bandit* sees what converts at once and always shows the bestseller.
*Session RL* converts every session with the functional items and never spends a recommendation on discovery,
because nothing after the session counts. *SHPI* adds V_mu of the state where its k = 3 steps end, so it gives
up the add-on, and sometimes more, for the next session.

A state is (slot 1..5, need, position in the session, what the first recommendation did), or "gone".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from shpi.data.logged import LoggedData
from shpi.envs import tabular
from shpi.envs.base import check_actions, check_reset, check_running, real_number, whole_number
from shpi.envs.rollout import SESSION_END, rollout
from shpi.envs.streams import Streams
from shpi.errors import ConfigError
from shpi.protocols import BoolArray, Float64Array, Int64Array, IntArray, Policy, Step

ITEMS = ("bestseller", "everyday", "special", "discovery", "filler")
BESTSELLER, EVERYDAY, SPECIAL, DISCOVERY, FILLER = range(5)
FIRST, COLD, WARM, BOUGHT, INSPIRED = range(5)  # the first position, and four cases of the second
_PLACES = 5  # FIRST to INSPIRED
_MOVE, _REWARD, _START = 0, 1, 2  # labels of the random streams


@dataclass
class _Running:
    streams: Streams
    step: int
    state: Int64Array  # [n]
    earned: Float64Array  # [n] conversions so far


@dataclass(frozen=True, kw_only=True, eq=False)
class Storefront:
    """The storefront for many users at once, and its exact values.

    Args:
        max_sessions: number of slots for sessions in a month.
        return_plain: the chance that a slot becomes a session after a session without discovery.
        return_inspired: the same after a session with discovery.
        special_plain: the chance that a session is about a special need, at first and without discovery.
        special_inspired: the same after a session with discovery.
        bestseller: the chance that the bestseller converts an everyday need.
        bestseller_special: the chance that it converts a special need.
        at_once: the chance that the everyday item converts when it is shown for the first time.
        when_warm: the chance that a functional item converts its need when it is shown again.
        add_on: the chance that the bestseller is bought as well.
    """

    max_sessions: int = 5
    return_plain: float = 0.25
    return_inspired: float = 0.9
    special_plain: float = 0.2
    special_inspired: float = 0.4
    bestseller: float = 0.5
    bestseller_special: float = 0.05
    at_once: float = 0.3
    when_warm: float = 1.0
    add_on: float = 0.1
    _run: list[_Running] = field(init=False, repr=False, default_factory=list)  # empty before a reset

    def __post_init__(self) -> None:
        whole_number("max_sessions", self.max_sessions, least=1)
        for name in (
            "return_plain",
            "return_inspired",
            "special_plain",
            "special_inspired",
            "bestseller",
            "bestseller_special",
            "at_once",
            "when_warm",
            "add_on",
        ):
            if real_number(name, getattr(self, name), least=0.0) > 1:
                raise ConfigError(expected=f"{name} to be at most 1", found=str(getattr(self, name)))

    # ------------------------------------------------------------------ properties

    @property
    def name(self) -> str:
        """The registered name."""
        return "storefront"

    @property
    def n_actions(self) -> int:
        """The five items."""
        return len(ITEMS)

    @property
    def action_ids(self) -> tuple[str, ...]:
        """The names of the items."""
        return ITEMS

    @property
    def n_states(self) -> int:
        """The states of all slots, and "gone", which is the last."""
        return self.max_sessions * 2 * _PLACES + 1

    @property
    def horizon(self) -> int:
        """Two recommendations per session."""
        return 2 * self.max_sessions

    @property
    def context_names(self) -> tuple[str, ...]:
        """The number of the state, and its parts."""
        return ("state", "slot", "special_need", "second", "warm", "bought", "inspired")

    @cached_property
    def contexts(self) -> Float64Array:
        """The context of each state, [S, 7]; column 0 is its number, the rest is 0 for "gone"."""
        rows = np.zeros((self.n_states, 7))
        rows[:, 0] = np.arange(self.n_states)
        for state in range(self.n_states - 1):
            slot, need, place = self.describe(state)
            rows[state, 1:] = [slot, need, place != FIRST, place == WARM, place == BOUGHT, place == INSPIRED]
        return rows

    def state(self, slot: int, need: int, place: int) -> int:
        """The number of a state: slot from 1, need 0 everyday or 1 special, place FIRST, COLD, …."""
        return ((slot - 1) * 2 + need) * _PLACES + place

    def describe(self, state: int) -> tuple[int, int, int]:
        """(slot, need, place) of a state that is not "gone"."""
        return state // (2 * _PLACES) + 1, state // _PLACES % 2, state % _PLACES

    def conversion(self, need: int, place: int, item: int) -> float:
        """The chance that an item is bought."""
        if place == BOUGHT:
            return self.add_on if item == BESTSELLER else 0.0
        if item == BESTSELLER:
            return self.bestseller_special if need else self.bestseller
        if item != (SPECIAL if need else EVERYDAY):
            return 0.0
        if place == WARM:
            return self.when_warm
        return 0.0 if need else self.at_once

    @cached_property
    def start(self) -> Float64Array:
        """The distribution of the first state, [S]: every month has a first session, in slot 1."""
        start = np.zeros(self.n_states)
        start[self.state(1, 0, FIRST)] = 1.0 - self.special_plain
        start[self.state(1, 1, FIRST)] = self.special_plain
        return start

    @cached_property
    def transition(self) -> Float64Array:
        """P(s'|s, a), [S, A, S']; "gone" leads to itself."""
        moves = np.zeros((self.n_states, self.n_actions, self.n_states))
        moves[-1, :, -1] = 1.0
        for state in range(self.n_states - 1):
            slot, need, place = self.describe(state)
            for item in range(self.n_actions):
                if place == FIRST:
                    bought = self.conversion(need, FIRST, item)
                    functional = item == (SPECIAL if need else EVERYDAY)
                    memory = WARM if functional else INSPIRED if item == DISCOVERY else COLD
                    moves[state, item, self.state(slot, need, BOUGHT)] += bought
                    moves[state, item, self.state(slot, need, memory)] += 1.0 - bought
                else:
                    moves[state, item] = self._next_session(slot, place == INSPIRED or item == DISCOVERY)
        return moves

    def _next_session(self, slot: int, inspired: bool) -> Float64Array:
        """The distribution of the next state after a session in ``slot``, [S]."""
        comes = self.return_inspired if inspired else self.return_plain
        special = self.special_inspired if inspired else self.special_plain
        row, waiting = np.zeros(self.n_states), 1.0
        for later in range(slot + 1, self.max_sessions + 1):
            row[self.state(later, 0, FIRST)] = waiting * comes * (1.0 - special)
            row[self.state(later, 1, FIRST)] = waiting * comes * special
            waiting *= 1.0 - comes
        row[-1] = waiting
        return row

    @cached_property
    def reward(self) -> Float64Array:
        """E[conversions | s, a, s'], [S, A, S']."""
        values = np.zeros((self.n_states, self.n_actions, self.n_states))
        for state in range(self.n_states - 1):
            slot, need, place = self.describe(state)
            if place == FIRST:
                values[state, :, self.state(slot, need, BOUGHT)] = 1.0
            else:
                for item in range(self.n_actions):
                    values[state, item] = self.conversion(need, place, item)
        return values

    @cached_property
    def expected_reward(self) -> Float64Array:
        """R(s, a) = E[conversions | s, a], [S, A]."""
        expected: Float64Array = (self.transition * self.reward).sum(axis=2)
        return expected

    @cached_property
    def session_ends(self) -> BoolArray:
        """Whether a decision in state s is the last of its session, [S]."""
        ends: BoolArray = np.arange(self.n_states) % _PLACES != FIRST
        ends[-1] = False
        return ends

    # ------------------------------------------------------------------ exact values

    def values(self, table: Float64Array) -> Float64Array:
        """V_pi(s), [S]: the conversions to come in the month."""
        checked = tabular.check_table(table, self.n_states, self.n_actions)
        return tabular.evaluate(self._leaving, self.expected_reward, checked)

    def exact_value(self, table: Float64Array) -> float:
        """The expected conversions per month of a policy table [S, A]."""
        return float(self.start @ self.values(table))

    def expected_sessions(self, table: Float64Array) -> float:
        """The expected sessions per month of a policy table [S, A]."""
        checked = tabular.check_table(table, self.n_states, self.n_actions)
        return float(tabular.visits(self._leaving, checked, self.start)[self.session_ends].sum())

    @cached_property
    def _leaving(self) -> Float64Array:
        """P without the state "gone", whose value is 0: its rows sum to less than 1, so values exist."""
        moves = self.transition.copy()
        moves[:, :, -1] = 0.0
        return moves

    # ------------------------------------------------------------------ the five policies, as tables [S, A]

    def uniform(self) -> Float64Array:
        """All items equally likely: the paper's logging policy mu."""
        return np.full((self.n_states, self.n_actions), 1.0 / self.n_actions)

    def bandit(self) -> Float64Array:
        """The policy argmax_a R(s, a): k = 1 and no bonus."""
        nothing = np.zeros(self.n_states)
        return tabular.greedy(
            tabular.lookahead(self._leaving, self.expected_reward, self.uniform(), nothing, 1)
        )

    def session_rl(self) -> Float64Array:
        """The best policy if nothing counts after a session: V = 0 where it ends."""
        within = self._leaving.copy()
        within[self.session_ends] = 0.0
        return tabular.optimal(within, self.expected_reward)

    def shpi(self, k: int = 3, mu: Float64Array | None = None) -> Float64Array:
        """Short-horizon policy improvement with exact values: k steps, the bonus V_mu, a fixed point."""
        behaviour = self.uniform() if mu is None else mu
        steps = whole_number("k", k, least=1)
        return tabular.improve(self._leaving, self.expected_reward, behaviour, self.values(behaviour), steps)

    def optimal(self) -> Float64Array:
        """The best policy of the whole month."""
        return tabular.optimal(self._leaving, self.expected_reward)

    # ------------------------------------------------------------------ the simulator

    def reset(self, n: int, seed: int, *, first: int = 0) -> Float64Array:
        """Start users first .. first+n-1 and return their contexts [n, 7]."""
        streams = Streams(seed, check_reset(n, seed, first))
        special = streams.uniform(_START, 0) < self.special_plain
        state = np.where(special, self.state(1, 1, FIRST), self.state(1, 0, FIRST))
        self._run[:] = [_Running(streams=streams, step=0, state=state, earned=np.zeros(n))]
        return self.contexts[state]

    def step(self, actions: IntArray) -> Step:
        """Let one recommendation [n] take effect for every user."""
        run = self._running()
        gone = run.state == self.n_states - 1
        check_running(gone, run.step)
        chosen = check_actions(actions, len(gone), self.n_actions, ended=gone)
        before = run.state
        draw = run.streams.uniform(_MOVE, run.step)
        after = (self._cumulative[before, chosen] <= draw[:, None]).sum(axis=1)
        bought = run.streams.uniform(_REWARD, run.step) < self.reward[before, chosen, after]
        run.state, run.step = after, run.step + 1
        run.earned += bought
        ended = after == self.n_states - 1
        info: dict[str, Any] = {SESSION_END: self.session_ends[before]}
        return Step(self.contexts[after], bought.astype(np.float64), ended, info)

    @cached_property
    def _cumulative(self) -> Float64Array:
        """The distribution function over next states, [S, A, S']; 1 from the last possible one on."""
        total = np.cumsum(self.transition, axis=2)
        last = self.n_states - 1 - (self.transition[:, :, ::-1] > 0).argmax(axis=2)  # [S, A]
        total[np.arange(self.n_states) >= last[:, :, None]] = 1.0
        return total

    def candidates(self) -> None:
        """None: every item can always be shown."""
        return

    def rollout(self, policy: Policy, n: int, seed: int, *, first: int = 0) -> LoggedData:
        """The log of n users under ``policy``, with its propensities; more options in `shpi.envs.rollout`."""
        return rollout(self, policy, n, seed, first=first)

    def score(self) -> Float64Array:
        """Conversions of each running user so far, [n]."""
        return self._running().earned.copy()

    def _running(self) -> _Running:
        if not self._run:
            check_running(None)
        return self._run[0]
