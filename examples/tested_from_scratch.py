"""What `OfflineSHPI()` does with a log, in plain numpy, from top to bottom.

    python examples/tested_from_scratch.py

Algorithm 2 of the paper (`shpi_from_scratch.py`) improves a policy round by round. The library's defaults do
one thing more: every step away from the logging policy mu has to pass a test. Candidates come in order from
careful to bold; each half of the readers judges what the other half has learned; a bolder candidate replaces
the champion only if its lift is larger and proven; what is returned carries a bound on its lift.

Readers have one of four states, so V and f are plain tables. `tests/test_example_tested.py` holds that the
library returns the same policy with the same lift and bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import stats

# ---------------------------------------------------------------------- 1. a small world

BAIT, STORY, PAUSE = range(3)
CLICK = np.array([0.7, 0.4, 0.0])  # by a rested reader; each step of fatigue takes a quarter of it
MU = np.array([0.6, 0.25, 0.15])  # the logging policy, whatever the state
STATES, STEPS, GAMMA = 4, 20, 0.9


@dataclass
class Log:
    """Decisions of all readers, one reader after the other."""

    state: np.ndarray  # [n] fatigue, 0 to 3
    action: np.ndarray  # [n]
    reward: np.ndarray  # [n] clicks
    after: np.ndarray  # [n] the next state; -1: the reader has left for good
    reader: np.ndarray  # [n] 0 .. N-1
    last: np.ndarray  # [n] whether it is the reader's last decision


def simulate(policy: np.ndarray, readers: int, seed: int) -> Log:
    """Serve readers, each for at most STEPS decisions; ``policy`` is a table [STATES, 3]."""
    rng, rows = np.random.default_rng(seed), []
    for reader in range(readers):
        state, step = int(rng.integers(2)), 0
        while state >= 0 and step < STEPS:
            action = rng.choice(3, p=policy[state])
            click = float(rng.random() < CLICK[action] * (1 - state / 4))
            after = int(np.clip(state + (1, 0, -1)[action], 0, 3)) if rng.random() < 0.8 else state
            after = -1 if rng.random() < (0.02, 0.02, 0.05, 0.25)[state] else after
            step += 1
            rows.append((state, action, click, after, reader, after < 0 or step == STEPS))
            state = after
    return Log(*(np.array(column) for column in zip(*rows, strict=True)))


# ---------------------------------------------------------------------- 2. V of mu, and the judge


def one_hot(state: np.ndarray) -> np.ndarray:
    """phi(x) = (1, 1[x = 0], ..., 1[x = 3]); zeros after the reader has left."""
    phi = np.zeros((len(state), 1 + STATES))
    here = state >= 0
    phi[here, 0] = 1.0
    phi[np.flatnonzero(here), 1 + state[here]] = 1.0
    return phi


class Judge:
    """Measures the lift of any policy over mu, with every reader's part in the error."""

    def __init__(self, log: Log, half: np.ndarray) -> None:
        self.log, self.readers, self.half = log, len(half), half
        self.phi, self.after = one_hot(log.state), one_hot(log.after)
        self.change = self.phi - GAMMA * self.after
        self.penalty = 1e-3 * np.sum(self.phi**2, axis=0) + 1e-9 * len(self.phi)
        self.penalty[0] = 1e-9 * len(self.phi)
        self.first = np.append(True, log.last[:-1])
        gram = self.phi.T @ self.phi + np.diag(self.penalty)
        carry = np.linalg.solve(gram, self.phi.T @ self.after)
        self.unexpected = self.after - self.phi @ carry  # about the next state, under mu
        self.system, self.delta = [], np.zeros(len(self.phi))  # a V of mu for each half: no noise in common
        for rows in (half[log.reader] == 0, half[log.reader] == 1):
            self.system.append(self.phi[rows].T @ self.change[rows] + np.diag(self.penalty))
            theta = np.linalg.solve(self.system[-1], self.phi[rows].T @ log.reward[rows])
            self.delta[rows] = log.reward[rows] - self.change[rows] @ theta
        self.surprise = self.delta.copy()  # all that followed, less V
        for row in range(len(self.delta) - 2, -1, -1):
            if not log.last[row]:
                self.surprise[row] += GAMMA * self.surprise[row + 1]
        self.realised = False  # whether A comes from what followed, or from V at the next state

    def moved(
        self, rho: np.ndarray, followed: int, advantage: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What pi does: the system of D, the share of its moves that counts, and E_pi A of every row."""
        phi, after, weights = self.phi[rows], self.after[rows], rho[rows] - 1  # 0 on average: any function
        gram, squares = phi.T @ phi + np.diag(self.penalty), weights**2  # of the state may be subtracted
        change = (phi * weights[:, None]).T @ self.unexpected[rows]
        square = (phi * squares[:, None]).T @ phi
        size = np.sum(change * np.linalg.solve(gram, change), axis=0)
        noise = np.trace(np.linalg.solve(gram, square)) * np.mean(self.unexpected**2, axis=0)
        kept = np.maximum(0, 1 - np.divide(noise, size, out=np.ones_like(size), where=size > 0))
        ridge = len(gram) * np.sum(squares**2) / np.sum(squares) * np.diag(gram) / len(phi)
        usual = np.linalg.solve(square + np.diag(ridge), phi.T @ (squares * advantage[rows]))
        target = np.zeros(len(rho))
        target[rows] = weights * (advantage[rows] - phi @ usual)
        return gram - GAMMA * (1 - 1 / followed) * (phi.T @ after + change * kept), kept, target

    def lift(self, rho: np.ndarray, followed: int = 50) -> tuple[float, np.ndarray]:
        """The lift, and every reader's part of its error [N], for ratios rho = pi / mu [n]."""
        everywhere = np.ones(len(rho), bool)
        advantage = self.surprise if self.realised else self.delta
        system, kept, target = self.moved(rho, followed, advantage, everywhere)
        theta, starts = np.linalg.solve(system, self.phi.T @ target), self.phi[self.first]
        visits = self.phi @ np.linalg.solve(system.T, starts.sum(axis=0) / self.readers)  # d_pi / d_mu
        ahead = self.after @ theta + (rho - 1) * (self.unexpected @ (kept * theta))
        residual = target - self.phi @ theta + GAMMA * (1 - 1 / followed) * ahead
        parts = np.bincount(self.log.reader, visits * residual, self.readers)
        if not self.realised:  # V of mu is an estimate too
            for side in (0, 1):
                weights = np.where(self.half[self.log.reader] == side, visits * (rho - 1), 0.0)
                through = np.linalg.solve(self.system[side].T, -(weights @ self.change))
                error = np.bincount(self.log.reader, self.delta * (self.phi @ through), self.readers)
                parts = parts + np.where(self.half == side, error, 0.0)
        here = starts @ theta / self.readers
        return float(here.sum()), parts + here - here.sum() / self.readers

    def value(self, rho: np.ndarray | None, rows: np.ndarray, followed: int) -> tuple[np.ndarray, np.ndarray]:
        """V(x_t) and V(x_{t+1}) [n] of pi (rho None: mu), learned from some of the rows."""
        keep = rows.astype(float)
        system = self.phi.T @ (keep[:, None] * self.change) + np.diag(self.penalty)
        theta = np.linalg.solve(system, self.phi.T @ (keep * self.log.reward))
        if rho is not None:
            system, _, target = self.moved(rho, followed, self.log.reward - self.change @ theta, rows)
            theta = theta + np.linalg.solve(system, self.phi.T @ target)
        return self.phi @ theta, self.after @ theta


def error(parts: np.ndarray, noise: float = 1.0) -> float:
    """The standard error. As far as f is noise, two halves teach it to each other: it counts twice."""
    return float(np.sqrt((1 + noise) * len(parts) / (len(parts) - 1) * np.sum(parts**2)))


def lower_bound(lift: float, parts: np.ndarray, noise: float, confidence: float) -> float:
    """One-sided; Student's quantile with as many degrees of freedom as the standard error is worth."""
    kurtosis = float(stats.kurtosis(parts, fisher=False))
    freedom = np.clip(2 * len(parts) / (kurtosis - 1), 2, len(parts) - 1)
    return lift - float(stats.t.ppf(confidence, freedom)) * error(parts, noise)


# ---------------------------------------------------------------------- 3. candidates


@dataclass
class Candidate:
    """mu^power exp(size f): a recipe for f, what each half has learned by it, and the test."""

    words: str
    champion: Candidate | None = None  # whose advantages f is regressed on; None: those of mu
    followed: int = 10  # decisions for which V follows the champion
    f: tuple[np.ndarray, ...] = ()  # by half, tables [STATES, 3] in their standard deviations under mu
    noise: float = 0.0  # share of f's variance that is noise
    size: float = 0.0
    power: float = 1.0
    lift: float = 0.0
    parts: np.ndarray = field(default_factory=lambda: np.zeros(1))  # [N] every reader's part of the error
    rho: np.ndarray = field(default_factory=lambda: np.ones(1))  # [n] pi / mu

    def table(self, f: np.ndarray) -> np.ndarray:
        """The probabilities [STATES, 3]."""
        logits = self.power * np.log(MU) + self.size * f
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def better_than(self, other: Candidate) -> bool:
        """The lift is larger, beyond rounding; that of mu is 0."""
        return self.lift > other.lift + 1e-4 * abs(other.lift)


class Climb:
    """From mu to the boldest policy that the log can vouch for."""

    def __init__(self, log: Log, confidence: float = 0.95, seed: int = 0) -> None:
        half = np.random.default_rng(seed).permutation(int(log.reader.max()) + 1) % 2
        self.log, self.judge, self.half = log, Judge(log, half), half[log.reader]
        self.confidence, self.allowed = confidence, 1 - confidence  # share of logs in which tests may err
        self.champion, self.bound = Candidate("mu"), 0.0
        self.tested: list[Candidate] = []

    def ratios(self, candidate: Candidate, f: tuple[np.ndarray, ...]) -> np.ndarray:
        """The ratios pi / mu [n], with an f for each half of the readers."""
        state, action = self.log.state, self.log.action
        pi = np.where(self.half == 0, *(candidate.table(table)[state, action] for table in f))
        return np.asarray(pi / MU[action])

    def direction(self, champion: Candidate | None = None, followed: int = 10) -> Candidate:
        """Each half regresses the champion's advantages, or those of mu, on (x, a)."""
        tables, shares, rng = [], [], np.random.default_rng(0)
        rho = self.ratios(champion, champion.f) if champion else None  # each as that half has learned it
        for half in (0, 1):
            rows = self.half == half
            advantage = self.advantage(rho, rows, followed)
            table, spread = self.regress(advantage, rows)
            tables.append(table / spread)
            for _ in range(3):  # the same readers with random signs teach nothing but noise
                signs = rng.choice([-1.0, 1.0], size=self.judge.readers)[self.log.reader]
                shares.append((self.regress(signs * advantage, rows)[1] / spread) ** 2)
        return Candidate("", champion, followed, tuple(tables), min(float(np.mean(shares)), 1.0))

    def advantage(self, rho: np.ndarray | None, rows: np.ndarray, followed: int) -> np.ndarray:
        """A_1 = r + gamma V(x') - V(x) [n]; V is learned from some of the rows."""
        here, ahead = self.judge.value(rho, rows, followed)
        return np.asarray(self.log.reward + GAMMA * ahead - here)

    def regress(self, advantage: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
        """The mean by state and action [STATES, 3], less its mean under mu, and its standard deviation."""
        cell = (3 * self.log.state + self.log.action)[rows]
        total = np.bincount(cell, advantage[rows], 3 * STATES)
        table = (total / np.bincount(cell, minlength=3 * STATES)).reshape(STATES, 3)
        table -= table @ MU[:, None]
        return table, float(np.sqrt(np.mean((table**2 @ MU)[self.log.state])))

    def test(self, plan: Candidate) -> Candidate:
        """Each half is judged with what the other has learned."""
        rho = self.ratios(plan, plan.f[::-1])
        lift, parts = self.judge.lift(rho)
        return replace(plan, lift=lift, parts=parts, rho=rho)

    def challenge(self, new: Candidate) -> bool:
        """Whether a test goes on: a candidate that is better becomes champion if its lift is proven.

        Every test takes 4/5 of the error that is still allowed; a proof gives it back.
        """
        self.tested.append(new)
        if not new.better_than(self.champion):
            return True
        bound = lower_bound(new.lift, new.parts, new.noise, 1 - 0.8 * self.allowed)
        if bound > 0:
            self.champion, self.bound = new, bound
        else:
            self.allowed *= 0.2
        return bound > 0

    def choose_judge(self, f: Candidate) -> None:
        """Believe V at the next state where it is more precise than what followed, and no contradiction."""
        rho, ways = self.ratios(replace(f, size=0.5), f.f[::-1]), []
        for self.judge.realised in (False, True):
            ways.append(self.judge.lift(rho))
        (by_value, parts), (by_log, others) = ways
        believed = error(parts) < error(others) and abs(by_value - by_log) <= 2 * error(parts - others)
        self.judge.realised = not believed

    def grow(self, number: int, f: Candidate) -> None:
        """The size doubles while that pays and is proven."""
        size, before = self.champion.size or 0.5, None
        while size <= 64:
            new = self.test(replace(f, words=f"round {number}: size {size:g}", size=size))
            goes_on = self.challenge(new)
            if not goes_on or (before and not new.better_than(before)):
                break
            size, before = 2 * size, new

    def run(self, rounds: int = 10) -> None:
        """Rounds of growth from mu, V following the champion for 10 decisions, then 50; mu's favourite."""
        first, followed = self.direction(), [10, 50]
        self.choose_judge(first)
        self.grow(1, first)
        for number in range(2, rounds + 1):
            champion = self.champion
            if not (followed and champion.f):
                break
            self.grow(number, self.direction(champion, followed[0]))
            if self.champion is champion:
                followed.pop(0)
        self.challenge(self.test(replace(first, words="mu's favourite action", noise=0.0, power=32.0)))

    def policy(self, candidate: Candidate) -> np.ndarray:
        """The same recipe, learned from all readers."""
        if not candidate.f:
            return np.tile(MU, (STATES, 1))
        rho, everybody = None, np.ones(len(self.half), bool)
        if candidate.champion:
            champion = self.policy(candidate.champion)
            rho = champion[self.log.state, self.log.action] / MU[self.log.action]
        table, spread = self.regress(self.advantage(rho, everybody, candidate.followed), everybody)
        return candidate.table(table / spread)

    @property
    def promise(self) -> float:
        """What the champion brings at least, if it is followed for 10 decisions."""
        if not self.champion.f:
            return 0.0
        lift, parts = self.judge.lift(self.champion.rho, followed=10)
        return min(self.bound, max(lower_bound(lift, parts, self.champion.noise, self.confidence), 0.0))


if __name__ == "__main__":
    climb = Climb(simulate(np.tile(MU, (STATES, 1)), 2_000, seed=0))
    climb.run()
    for candidate in climb.tested:
        mark = "  <- returned" if candidate is climb.champion else ""
        spread = error(candidate.parts, candidate.noise)
        print(f"{candidate.words:24s} {candidate.lift:+.3f} ± {spread:.3f}{mark}")
    learned = climb.policy(climb.champion)
    for name, policy in {"mu": np.tile(MU, (STATES, 1)), "learned": learned}.items():
        new = simulate(policy, 2_000, seed=1)
        print(f"{name:8s} {new.reward.sum() / 2_000:.2f} clicks per reader")
    print(f"promised: at least {climb.promise:+.3f} discounted clicks per reader")
    print(np.round(learned, 2))
