"""Tasks on a Ray cluster, as an executor of passes.

Plain tasks of Ray's core, one per shard: tasks and results that are lost with a worker or a machine are
computed again. Sums are computed on the machines, in blocks of neighbouring nodes of the tree of
`shpi.passes.tree`, so that only the total is transferred; its bits are those of a sum in one process.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shpi._core.versions import versions
from shpi.cluster.connection import connect, no_machines_error, processors, translate_error
from shpi.cluster.work import ONE_THREAD, add_block, do
from shpi.errors import ConfigError

A = TypeVar("A")
T = TypeVar("T")

AHEAD = 2  # tasks per processor that are submitted ahead, to keep it busy
BLOCK = 8  # neighbouring nodes of the tree that one task adds; a power of 2
LOOK_SECONDS = 10.0  # seconds between two checks for live machines
PATIENCE = 120.0  # seconds that a cluster may be without any live machine


@dataclass(frozen=True)
class Ray:
    """Tasks on a Ray cluster.

    A task is sent to the machines with everything it holds. They must have the same versions of shpi and its
    libraries, or they refuse the work. The machines read the shards themselves.

    Args:
        address: "auto", HOST:PORT, or "local"; see `shpi.cluster.connection.connect`.
        retries: number of times that a task is repeated if it was lost with its worker or machine.
    """

    address: str = "auto"
    retries: int = field(default=5, kw_only=True)

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ConfigError(expected="retries of at least 0", found=str(self.retries), where="Ray")

    def run(self, function: Callable[[A], T], tasks: Sequence[A]) -> Iterator[tuple[int, T]]:
        """The results as they arrive."""
        pool = _Pool(self.address, self.retries)
        shared, waiting = pool.share(function), deque(enumerate(tasks))
        results: dict[int, Any] = {}
        try:
            while waiting or pool.busy:
                while waiting and pool.has_room:
                    number, task = waiting.popleft()
                    results[number] = pool.submit(number, do, shared, task, pool.expected)
                for number in pool.finished():
                    yield number, pool.own(results.pop(number))
        finally:
            pool.stop()

    def add_up(self, function: Callable[[A], T], tasks: Sequence[A], add: Callable[[T, T], T]) -> T:
        """The sum of the results; each block of neighbouring nodes is added on one of the machines."""
        if not tasks:
            raise ConfigError(expected="at least one shard to add", found="0")
        pool = _Pool(self.address, self.retries)
        shared, waiting = pool.share(function), deque(enumerate(tasks))
        nodes: dict[tuple[int, int], Any] = {}  # results by level and place, kept on the machines
        done: set[tuple[int, int]] = set()
        sizes = _sizes(len(tasks))
        try:
            while (len(sizes) - 1, 0) not in done:
                while waiting and pool.has_room:
                    number, task = waiting.popleft()
                    nodes[0, number] = pool.submit((0, number), do, shared, task, pool.expected)
                for level, place in pool.finished():
                    done.add((level, place))
                    block = _block(level, place, sizes)
                    if block and done.issuperset(block):
                        above = (level + 1, place // BLOCK)
                        values = [nodes.pop(node) for node in block]
                        nodes[above] = pool.submit(above, add_block, add, pool.expected, *values)
            total: T = pool.own(nodes[len(sizes) - 1, 0])
        finally:
            pool.stop()
        return total


def _sizes(count: int) -> list[int]:
    """The number of nodes of each level, the leaves first."""
    sizes = [count]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // BLOCK))
    return sizes


def _block(level: int, place: int, sizes: list[int]) -> list[tuple[int, int]]:
    """A node and the nodes that are added with it; empty for the root."""
    if level == len(sizes) - 1:
        return []
    first = place // BLOCK * BLOCK
    return [(level, other) for other in range(first, min(first + BLOCK, sizes[level]))]


class _Pool:
    """The running tasks; each has a name that the caller gave."""

    def __init__(self, address: str, retries: int) -> None:
        self._ray = connect(address)
        self._options = {
            "num_cpus": 1,
            "num_returns": 2,
            "max_retries": retries,
            "runtime_env": {"env_vars": ONE_THREAD},
        }
        self._running: dict[Any, Any] = {}  # the completion marker of each task -> its name
        self._remote: dict[Callable[..., Any], Any] = {}
        self._most = AHEAD * processors(self._ray)
        self.expected = versions()

    def share(self, thing: Any) -> Any:
        """Send an object once, for all tasks."""
        return self._ray.put(thing)

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def has_room(self) -> bool:
        return len(self._running) < self._most

    def submit(self, name: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start a task and return a reference to its result."""
        if function not in self._remote:
            self._remote[function] = self._ray.remote(**self._options)(function)
        sign, result = self._remote[function].remote(*arguments)
        self._running[sign] = name
        return result

    def finished(self) -> list[Any]:
        """Wait for tasks to end and return their names, at least one; raise the error of a failed task."""
        alone = 0.0
        while True:
            before = time.monotonic()
            signs, _ = self._ray.wait(list(self._running), num_returns=1, timeout=LOOK_SECONDS)
            if signs:
                break
            alone = 0.0 if processors(self._ray) else alone + time.monotonic() - before
            if alone > PATIENCE:
                raise no_machines_error(alone)
        self._most = AHEAD * max(processors(self._ray), 1)  # machines come and go
        for sign in signs:
            self.fetch(sign)
        return [self._running.pop(sign) for sign in signs]

    def fetch(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise translate_error(self._ray, error) from None

    def own(self, reference: Any) -> Any:
        """A writable copy of a result: Ray returns read-only arrays, unlike other executors."""
        return pickle.loads(
            self._ray.cloudpickle.dumps(self.fetch(reference), protocol=4)
        )  # protocol 5 would be read-only, too

    def stop(self) -> None:
        """Forget the tasks that are still running: at most `AHEAD` per processor, which end by themselves.

        Cancelling a task at the moment in which it ends makes Ray abort this process ("Tried to complete task
        that was not pending", ray-project/ray#54798).
        """
        self._running.clear()
