"""One evaluation, whoever computes it: in memory, in shards of any order, in processes, as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shpi.data.logged import LoggedData
from shpi.data.shards import deal, write_shards
from shpi.envs import RecoGym, Synthetic
from shpi.envs.logging import LoggingPolicy
from shpi.envs.rollout import rollout
from shpi.envs.storefront import Storefront
from shpi.errors import DataError
from shpi.features import Identity
from shpi.ope import SNPDIS, WDR, Evaluation, Gate, Problem, compare, evaluate
from shpi.ope._log.together import Scheduler
from shpi.ope._log.visits import OnBlock, Visits, digest
from shpi.passes import Processes
from shpi.policies import LinearScorer, Softmax, UniformPolicy


@dataclass(frozen=True)
class Backwards:
    """Another order of arrival, by what other processes do: everything is sent."""

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for number in range(len(tasks) - 1, -1, -1):
            yield number, function(tasks[number])


def rare_actions() -> LoggedData:
    """A table of 30 actions, most of which hardly anybody was shown; some users leave, ids are words."""
    rng, users, n_actions = np.random.default_rng(6), 250, 30
    lengths = rng.integers(1, 6, users)
    n, chances = int(lengths.sum()), 0.7 ** np.arange(n_actions)
    chances /= chances.sum()
    actions = rng.choice(n_actions, size=n, p=chances)
    contexts = rng.normal(size=(n, 3))
    return LoggedData.from_arrays(
        contexts=contexts, actions=actions, rewards=(contexts[:, 0] > actions / 5 - 1) + rng.normal(size=n),
        propensities=chances[actions], n_actions=n_actions, offsets=np.append(0, np.cumsum(lengths)),
        users=np.array([f"user-{number:03d}" for number in rng.permutation(users)]),
        terminated=rng.random(users) < 0.6, final_contexts=rng.normal(size=(users, 3)),
    )  # fmt: skip


LONGEST = 30  # decisions of a user in the simulators, which go on for 150 and 200
HORIZONS = {"synthetic": 12, "RecoGym": 12}  # cut once more, in the evaluation
WORLDS: dict[str, Callable[[], LoggedData]] = {
    "storefront": lambda: Storefront().rollout(UniformPolicy(Storefront().n_actions), 150, seed=1),
    "synthetic": lambda: rollout(Synthetic(), LoggingPolicy(Synthetic(), 1.0), 40, 1, horizon=LONGEST),
    "RecoGym": lambda: rollout(RecoGym(), LoggingPolicy(RecoGym(), 0.3), 40, 1, horizon=LONGEST),
    "rare actions": rare_actions,
}


def tilted(logs: LoggedData) -> Softmax:
    features = Identity().fit(logs.contexts[:100])
    weights = np.random.default_rng(1).standard_normal((logs.n_actions, logs.contexts.shape[1] + 1))
    return Softmax(LinearScorer(0.02 * weights, features), 1.0)


def differences(left: Any, right: Any, place: str = "") -> Iterator[str]:
    """What has not the same bits; the digest of the files may differ."""
    if is_dataclass(left):
        for each in fields(left):
            if each.name != "fingerprint":
                yield from differences(
                    getattr(left, each.name), getattr(right, each.name), f"{place}.{each.name}"
                )
    elif isinstance(left, tuple | list):
        if len(left) != len(right):
            yield f"{place}: {len(left)} and {len(right)} entries"
        for a, b in zip(left, right, strict=False):
            yield from differences(a, b, f"{place}[{getattr(a, 'name', '')}]")
    elif isinstance(left, np.ndarray):
        if not np.array_equal(left, right):
            yield f"{place}: {np.abs(left - right).max()}"
    elif left != right and not (left is not left and right is not right) and repr(left) != repr(right):
        yield f"{place}: {left} and {right}"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shpi.ope._log.blocks.ROWS", 400)
    monkeypatch.setattr("shpi.ope.problem.MOST_ROWS", 1_500)
    monkeypatch.setattr("shpi.ope.models.recipes.ROWS", 1_000)


# Few rows make Gram matrices that are nearly singular, and long horizons weights that overflow.
@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning", "ignore::RuntimeWarning")
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("world", WORLDS)
def test_memory_shards_and_every_order_of_arrival_give_the_same_bits(
    world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimates, influences, intervals, sentences and verdict; the shards are unlike each other."""
    logs = WORLDS[world]()
    monkeypatch.setattr("shpi.ope._log.blocks.ROWS", len(logs) // 4 + 1)
    policy, total = tilted(logs), logs.n_trajectories
    late = [logs.user_codes >= logs.n_users // 3, logs.user_codes < logs.n_users // 3]
    folders = [
        deal(logs, tmp_path / "dealt", 3),
        write_shards([logs.select(which) for which in late], tmp_path / "late"),
    ]

    def answer(source: Any, **options: Any) -> Evaluation:
        return evaluate(policy, source, gate=Gate(), gamma=0.9, horizon=HORIZONS.get(world), **options)

    in_memory = answer(logs)
    assert total > 30
    for source, options in ((folders[0], {}), (folders[1], {"executor": Backwards()})):
        assert [*differences(in_memory, answer(source, **options))] == []


@pytest.mark.usefixtures("small_blocks")
def test_two_processes_give_the_bits_of_one(tmp_path: Path) -> None:
    """What is sent, and the order in which blocks arrive, change nothing; a log in memory is sent as well."""
    logs = rare_actions()
    policy, shards = tilted(logs), deal(logs, tmp_path / "shards", 2)
    alone = evaluate(policy, shards, gate=Gate(), gamma=0.9, details=False)
    for source in (shards, logs):
        both = evaluate(policy, source, gate=Gate(), gamma=0.9, details=False, executor=Processes(jobs=2))
        assert [*differences(alone, both)] == []


@pytest.mark.usefixtures("small_blocks")
def test_candidates_are_compared_on_shards_as_in_memory(tmp_path: Path) -> None:
    """Two estimators, one with a model and one with none: the tests above have all of them."""
    logs, estimators = rare_actions(), [WDR(), SNPDIS()]
    policies = {"tilted": tilted(logs), "uniform": UniformPolicy(logs.n_actions)}
    shards = deal(logs, tmp_path / "shards", 2)
    in_memory, in_shards = (
        compare(policies, source, Gate(), estimators=estimators, gamma=0.9, details=False, **options)
        for source, options in ((logs, {}), (shards, {"executor": Backwards()}))
    )
    assert [*differences(in_memory, in_shards)] == []


def test_an_evaluation_makes_few_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimators, checks, details and the gate ask together: 212 passes became these."""
    monkeypatch.setattr("shpi.ope._log.blocks.ROWS", 1_000)
    monkeypatch.setattr("shpi.ope.models.recipes.ROWS", 600)
    logs = Storefront().rollout(UniformPolicy(Storefront().n_actions), 400, seed=1)
    counted: list[Visits] = []
    made = Visits.__init__

    def noted(self: Visits, *arguments: Any) -> None:
        made(self, *arguments)
        counted.append(self)

    monkeypatch.setattr(Visits, "__init__", noted)
    evaluate(tilted(logs), deal(logs, tmp_path / "shards", 2), gate=Gate(), gamma=0.9)
    assert counted[0].passes <= 12, counted[0].passes


def test_the_influences_of_users_are_in_the_order_of_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shpi.ope._log.blocks.ROWS", 100)
    logs = rare_actions()
    problem = Problem.of(tilted(logs), logs)
    assert problem.visits.count > 3
    sums = problem.by_user(_user_sums)
    np.testing.assert_allclose(sums, np.bincount(logs.user_of_row, weights=logs.rewards))


def _user_sums(chunk: Any) -> np.ndarray:
    return np.bincount(chunk.users, weights=chunk.rewards)


# ---------------------------------------------------------------------- computations side by side


@dataclass(eq=False)
class Request:
    number: int
    answered: bool = False


def test_requests_that_come_together_are_answered_together() -> None:
    passes: list[list[int]] = []

    def run_pass(requests: list[Request]) -> None:
        passes.append([request.number for request in requests])
        for request in requests:
            request.answered = True

    scheduler = Scheduler(run_pass)
    known: dict[Any, int] = {}

    def makes(number: int) -> int:
        scheduler.wait_for(Request(number))
        return 10 * number

    def asks(number: int, shared: bool) -> int:
        if shared:
            return scheduler.make_once("once", lambda: makes(0), known)
        first = sum(scheduler.run([lambda: makes(number), lambda: makes(number + 1)]))
        return first + makes(number)

    def fails() -> int:
        scheduler.wait_for(Request(9))
        raise DataError(expected="an answer", found="none")

    results = scheduler.run([lambda: asks(1, False), lambda: asks(0, True), lambda: asks(0, True), fails])
    assert results[:3] == [40, 0, 0]
    assert isinstance(results[3], DataError)
    assert sorted(map(sorted, passes)) == [[0, 1, 2, 9], [1]]
    assert sum(pass_.count(0) for pass_ in passes) == 1  # what both asked for was made once


def test_an_interrupted_pass_ends_all_computations() -> None:
    def interrupt(requests: list[Request]) -> None:
        raise KeyboardInterrupt

    scheduler, ended = Scheduler(interrupt), []

    def waits() -> None:
        try:
            scheduler.wait_for(Request(1))
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        scheduler.run([waits, waits])
    assert ended == [True, True]
    assert scheduler.run([lambda: "again"]) == ["again"]


def test_a_worker_opens_no_message_but_its_own(tmp_path: Path) -> None:
    message = tmp_path / "asked-1"
    message.write_bytes(b"something else")
    with pytest.raises(DataError, match="the message that this evaluation wrote") as caught:
        OnBlock(message, digest(b"what was sent"))(0)
    assert str(message) in str(caught.value)
