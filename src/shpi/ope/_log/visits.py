"""Passes over the blocks of a log: one pass answers all requests that are open at the same time."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

from shpi.data.logged import LoggedData
from shpi.data.shards import ShardedLog
from shpi.errors import DataError, ShpiError
from shpi.ope._log.blocks import Blocks, InFolder, InMemory
from shpi.ope._log.gather import Gathers
from shpi.ope._log.scratch import Keeper, opened_from, require_shared
from shpi.ope._log.together import Scheduler
from shpi.passes import Executor, Resumable, Serial
from shpi.passes.resume import content_digest

T = TypeVar("T")

HELD = 1 << 28  # bytes of intermediate results to hold in memory, if the log itself is in memory
_KEPT = "_visits"


class Opens(Protocol):
    """A problem: it turns a block into the argument of a request's function."""

    def chunk_of(self, logs: LoggedData, number: int, shared: dict[Hashable, Any]) -> Any:
        """Usually a `Chunk`; all requests that this visit of the block answers use the same ``shared``."""
        ...


@dataclass(eq=False)
class Request:
    """A function to apply to every block, and the collectors of its results."""

    problem: Opens | None  # None: the function takes the log of the block as it is
    function: Callable[[Any], Any]
    results: Sequence[Gathers] = ()  # one for each thing that the function returns
    errors: dict[int, ShpiError] = field(default_factory=dict)
    answered: bool = False


@dataclass(frozen=True)
class Outcome:
    """The value that a function returned for a block, or the error that it raised."""

    value: Any = None
    error: ShpiError | None = None


class Visits:
    """The blocks of one source, the executor that visits them, and the results kept between visits."""

    def __init__(self, source: LoggedData | ShardedLog, executor: Executor | None) -> None:
        self.executor = executor or Serial()
        self.serial = isinstance(self.executor, Serial)
        self.passes = 0
        self.blocks: Blocks
        if isinstance(source, ShardedLog):
            dealing = self.executor.executor if isinstance(self.executor, Resumable) else self.executor
            self.blocks = InFolder.of_shards(source, dealing)  # writes temporary files: never resumed
            self.passes += 2
        else:
            self.blocks = InMemory(source) if self.serial else InFolder.of_log(source)
        folder = self.blocks.scratch if isinstance(self.blocks, InFolder) else None
        self.keeper = Keeper(folder, HELD if folder is None else 0)
        self.count = len(self.blocks.places)
        # A log that is a single block in memory keeps everything computed from it.
        self.lasting = self.count == 1 and folder is None
        self.scheduler = Scheduler(self._visit)
        self._source = source
        self.tokens = count()
        self._numbered: list[Any] = []

    @classmethod
    def of(cls, source: LoggedData | ShardedLog, executor: Executor | None = None) -> Visits:
        """The visits already in use for this log, or new ones."""
        known: weakref.ref[Visits] | None = vars(source).get(_KEPT)
        visits = None if known is None else known()
        if visits is None or (executor is not None and visits.executor != executor):
            visits = cls(source, executor)
            vars(source)[_KEPT] = weakref.ref(visits)
        return visits

    @cached_property
    def _log_digest(self) -> str:
        return self._source.fingerprint()

    def _depends_on(self, asked: list[Request]) -> bytes | None:
        """A digest of everything that the answers depend on; None unless the executor keeps answers."""
        if not isinstance(self.executor, Resumable):
            return None
        return content_digest((self._log_digest, self.count, asked))

    def number_of(self, thing: Any) -> int:
        """A number that identifies an object; the object is kept alive."""
        for number, known in enumerate(self._numbered):
            if known is thing:
                return number
        self._numbered.append(thing)
        return len(self._numbered) - 1

    def ask(self, problem: Opens | None, function: Callable[[Any], Any], *results: Gathers) -> Any:
        """Apply a function to all blocks; return the total of its results in the collector.

        With several collectors, the function returns as many things, and so does this.
        """
        request = Request(problem, function, results)
        self.scheduler.wait_for(request)
        if request.errors:
            raise request.errors[min(request.errors)]
        request.results = ()  # the request may live on for a while: do not keep them twice
        totals = [collector.total() for collector in results]
        return totals[0] if len(totals) == 1 else tuple(totals)

    def _visit(self, requests: list[Request]) -> None:
        self.passes += 1
        visited: Iterator[tuple[int, list[Outcome]]]
        if self.serial:
            here = partial(answers, self.blocks, requests, lasting=self.lasting)
            visited = ((number, here(number)) for number in range(self.count))
        else:
            visited = self._elsewhere(requests)
        for number, outcomes in visited:
            for request, outcome in zip(requests, outcomes, strict=True):
                if outcome.error is not None:
                    request.errors[number] = outcome.error
                elif not request.errors:
                    values = outcome.value if len(request.results) > 1 else (outcome.value,)
                    for collector, value in zip(request.results, values, strict=True):
                        collector.give(number, value)
        for request in requests:
            request.answered = True

    def _elsewhere(self, requests: list[Request]) -> Iterator[tuple[int, list[Outcome]]]:
        """Answer in worker processes; the requests are written once, not sent with every block."""
        assert isinstance(self.blocks, InFolder)
        asked = [Request(request.problem, request.function) for request in requests]
        path = self.blocks.scratch.path / f"asked-{self.passes}"
        message = pickle.dumps((self.blocks, asked), protocol=pickle.HIGHEST_PROTOCOL)
        path.write_bytes(message)
        on_block = OnBlock(path, digest(message), self._depends_on(asked))
        yield from self.executor.run(on_block, range(self.count))
        path.unlink()


def answers(
    blocks: Blocks, requests: Sequence[Request], number: int, *, lasting: bool = False
) -> list[Outcome]:
    """Open one block and answer all requests about it."""
    logs = blocks.open(number)
    outcomes = []
    shared: dict[Hashable, Any] = {}  # shared by all problems while this block is open
    for request in requests:
        try:
            problem = request.problem
            opened = logs if problem is None else problem.chunk_of(logs, number, shared)
            outcomes.append(Outcome(value=request.function(opened)))
        except ShpiError as error:
            outcomes.append(Outcome(error=error))
    if not lasting:  # chunks and shared results form reference cycles: clear them to free memory now
        for chunk in shared.values():
            getattr(chunk, "_memo", {}).clear()
    shared.clear()
    return outcomes


def digest(message: bytes) -> str:
    """The digest by which a worker checks its message."""
    return blake2b(message, digest_size=32).hexdigest()


_last: dict[Path, Any] = {}  # the last message that this process opened


@dataclass(frozen=True)
class OnBlock:
    """The task of a worker process: given a block's number, open the block and answer the requests.

    The requests are in a file, which is unpickled only if it has the digest of the message that was sent.
    """

    asked: Path
    digest: str
    depends_on: bytes | None = None  # key under which results are kept; see `shpi.passes.Resumable`

    def __call__(self, number: int) -> list[Outcome]:
        """The outcomes for one block."""
        if self.asked not in _last:
            _last.clear()
            require_shared(self.asked.parent)
            message = self.asked.read_bytes()
            if digest(message) != self.digest:
                raise DataError(
                    expected="the message that this evaluation wrote for its workers",
                    found="other bytes",
                    where=str(self.asked),
                    remedy="set TMPDIR to a folder that nobody else writes to, and evaluate again",
                )
            _last[self.asked] = opened_from(self.asked.parent, message)
        blocks, requests = _last[self.asked]
        return answers(blocks, requests, number)
