"""The settings of a run: the paper's, or small ones for a quick check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shpi.experiments._run.cells import Cell, Log

# The paper's n_offline; T, d, |A| and rho are the simulators' own defaults. The private log of the paper has
# 10,000 users and 120,000 decisions; as many simulated users of the KuaiRand world make about 100,000.
USERS = {
    "synthetic": 2000,
    "synthetic-large": 2000,
    "recogym": 2000,
    "hiv": 5000,
    "kuairand": 10_000,
    "storefront": 2000,
}
QUICK_USERS = {
    "synthetic": 100,
    "synthetic-large": 40,
    "recogym": 60,
    "hiv": 100,
    "kuairand": 300,
    "storefront": 1000,
}
SLOW = ("hiv", "kuairand", "synthetic-large")  # worlds with half as many trials
K = 5  # the paper's horizon k
FEW = 5  # trials of experiments beyond the paper, and of ablations that the paper shows without numbers
SCREEN = 3  # trials of CQL, which the paper does not include
QUICK_STEPS = 200  # gradient steps of neural learners in a quick run
NEURAL = {"bcq": 4_000, "cql": 4_000, "cb-mf": 2_500, "nn-ips": 2_500}  # in a full run
# Steps where fewer give worse policies: BCQ, uniform log, seed 100: 9e7 after 4,000 steps, 5e9 after 10,000.
LONGER = {("bcq", "hiv"): 10_000, ("cql", "hiv"): 10_000}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run.

    Args:
        seeds: seeds of the trials.
        quick: small logs, few rollouts and gradient steps, to check that everything runs.
        data: whether KuaiRand's files are available.
    """

    seeds: tuple[int, ...] = tuple(range(10))
    quick: bool = False
    data: bool = False

    def first(self, trials: int) -> Settings:
        """The settings with only the first trials."""
        return replace(self, seeds=self.seeds[:trials])

    @property
    def rollouts(self) -> int:
        """Number of new users on whom a policy is tested."""
        return 50 if self.quick else 200

    def users(self, world: str) -> int:
        """Number of users of a log, the paper's n_offline."""
        return (QUICK_USERS if self.quick else USERS)[world]

    def logs(
        self,
        world: str,
        epsilon: float,
        params: Mapping[str, Any] | None = None,
        *,
        variant: str = "",
        users: int | None = None,
    ) -> list[Log]:
        """The logs of all seeds; of half the seeds if fits are slow or there is little to learn."""
        n = self.users(world) if users is None else users
        fewer = max(FEW, len(self.seeds) // 2) if world in SLOW or epsilon == 0 else len(self.seeds)
        return [
            Log(world=world, epsilon=epsilon, users=n, seed=seed, params=dict(params or {}), variant=variant)
            for seed in self.seeds[:fewer]
        ]


def cuts() -> str:
    """A sentence on what a full run cuts to save time."""
    steps = ", ".join(f"{name} {n:,}" for name, n in NEURAL.items())
    steps += "".join(f", {name} in {world} {n:,}" for (name, world), n in LONGER.items())
    return (
        f"Cut to save time: gradient steps ({steps}); "
        "ten trials in RecoGym and the small synthetic task, five in HIV, KuaiRand, the large task and logs "
        "without exploration (the paper says 5 in its text, 10 in its appendix); "
        f"{FEW} in what is beyond the paper, in ablations that the paper shows without numbers (auto-k, "
        "data-size, hybrid, drift, mse, k-synthetic, k-hiv), in the row on clicks of Table 2, of our "
        "defaults in advantages and backshift, and of released() and repaired() in RecoGym; "
        f"{SCREEN} trials of CQL. Tables say where a method has fewer trials."
    )


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method of the experiments, and how to make its cells."""

    name: str
    learner: str | None = None  # None: the logging policy
    k: int | str | None = None
    Lambda: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def on(self, log: Log, settings: Settings, test: Mapping[str, Any] | None = None) -> Cell:
        """The cell of this method on a log."""
        options = dict(self.options)
        if self.learner in NEURAL:
            full = LONGER.get((self.learner, log.world), NEURAL[self.learner])
            options.setdefault("steps", QUICK_STEPS if settings.quick else full)
        if settings.quick and self.learner in ("shpi-paper", "shpi-repaired"):
            options |= {"iterations": 3, "value_steps": QUICK_STEPS} | options
        return Cell(
            method=self.name,
            log=log,
            work="logging" if self.learner is None else "learn",
            learner=self.learner,
            options=options,
            k=self.k,
            Lambda=self.Lambda,
            test=dict(test or {}),
            rollouts=settings.rollouts,
        )


def reading_of(name: str) -> str:
    """The reading of Algorithm 2 that a method's name contains; empty if none."""
    return next((reading for reading in READINGS if reading in name), "")


LOGGING = Method(name="logging")
PAPER = Method(name="SHPI, paper()", learner="shpi-paper", k=K)
RELEASED = Method(name="SHPI, released()", learner="shpi-released", k=K)
REPAIRED = Method(name="SHPI, repaired()", learner="shpi-repaired", k=K)
OURS = Method(name="SHPI, defaults", learner="shpi", k="auto")
READINGS = {"paper()": PAPER, "released()": RELEASED, "repaired()": REPAIRED, "defaults": OURS}
CB = Method(name="CB", learner="bandit-mtr")
BCQ = Method(name="BCQ", learner="bcq")
CBMF = Method(name="CB+MF", learner="cb-mf")
NNIPS = Method(name="NN-IPS", learner="nn-ips")
