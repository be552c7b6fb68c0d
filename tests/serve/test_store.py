from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from shpi.errors import ConfigError, DataError
from shpi.serve.store import Activation, Clock, FileStore, StoreUnavailableError
from shpi.serve.store.files import read_records
from shpi.serve.store.flush_delay import LONGEST, FlushDelay
from shpi.serve.store.frames import MAGIC, frame, read_frames
from shpi.serve.store.journal import Journal, segments
from tests.serve.events import decision, reward


def run(folder: Path, work: Callable[[FileStore], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def whole() -> Any:
        store = FileStore(folder, **options)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(whole())


async def fill(store: FileStore, count: int = 10) -> None:
    await asyncio.gather(*(store.add(decision(n)) for n in range(count)))
    await asyncio.gather(*(store.add(reward(n)) for n in range(count)))


def test_what_was_added_is_there_after_opening_again(tmp_path: Path) -> None:
    run(tmp_path, fill)

    async def look(store: FileStore) -> None:
        assert len(store) == 10
        stored = await store.find("e3")
        assert stored == decision(3)
        assert stored.propensity == 0.75
        assert await store.rewards("e3") == (reward(3),)
        assert await store.find("e99") is None
        assert store.next_seq() == 10
        assert store.last_time == decision(9).time

    run(tmp_path, look)
    assert len(list(read_records(tmp_path))) == 20


def test_an_id_is_stored_once_while_pending_and_after(tmp_path: Path) -> None:
    async def twice(store: FileStore) -> None:
        same = await asyncio.gather(store.add(decision(1)), store.add(decision(1, user="other")))
        assert [added.new for added in same] == [True, False]
        assert same[1].record == decision(1)
        again = await store.add(decision(1, body=b"{1}"))
        assert not again.new
        assert again.record == decision(1)
        rewards = [
            await store.add(reward(1, value=v, reward_id=r)) for v, r in ((1, "x"), (2, "x"), (3, "y"))
        ]
        assert [added.new for added in rewards] == [True, False, True]
        assert [kept.value for kept in await store.rewards("e1")] == [1, 3]
        active = [await store.add(Activation("e1", 5)) for _ in range(2)]
        assert [added.new for added in active] == [True, False]
        assert await store.activated("e1")

    run(tmp_path, twice)


def test_orphans_are_kept_and_counted_until_their_decision_comes(tmp_path: Path) -> None:
    async def late(store: FileStore) -> None:
        await store.add(reward(1))
        await store.add(reward(2))
        assert store.orphans == 2
        await store.add(decision(1))
        assert store.orphans == 1
        assert len(await store.rewards("e1")) == 1

    run(tmp_path, late)

    async def again(store: FileStore) -> None:
        assert store.orphans == 1

    run(tmp_path, again)


def test_groups_share_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (flushes.append(file), real(file)))
    run(tmp_path, lambda store: fill(store, 200))
    assert 2 <= len(flushes) < 100


# ---------------------------------------------------------------------- faults


def test_a_torn_end_is_cut_and_kept_aside(tmp_path: Path) -> None:
    run(tmp_path, fill)
    path = segments(tmp_path)[0]
    whole = path.read_bytes()
    path.write_bytes(whole + frame(b"never finished")[:-3])

    async def look(store: FileStore) -> int:
        await store.add(decision(11))
        return store.cut_bytes

    assert run(tmp_path, look) == len(frame(b"never finished")) - 3
    assert path.read_bytes().startswith(whole)
    assert len(list(tmp_path.glob("*.torn"))) == 1
    assert len(list(read_records(tmp_path))) == 21


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    run(folder, lambda store: fill(store, 8))
    return segments(folder)[0].read_bytes()


@pytest.mark.parametrize("cut", [0, 5, 8, 9, 15, 16, 40, 100, 500, 1200])
def test_a_segment_cut_anywhere_opens_with_a_prefix(cut: int, segment: bytes, tmp_path: Path) -> None:
    path = tmp_path / "00000000.events"
    path.write_bytes(segment)
    before = [payload for _, payload in read_frames(path)]
    path.write_bytes(segment[:cut])
    Journal(tmp_path).close()
    after = [payload for _, payload in read_frames(path)]
    assert after == before[: len(after)]
    assert path.read_bytes()[: len(MAGIC)] == MAGIC
    assert len(frame(b"")) + sum(len(frame(payload)) for payload in after) <= max(cut, 8)


def test_a_damaged_closed_segment_is_named(tmp_path: Path) -> None:
    run(tmp_path, lambda store: fill(store, 30), segment_bytes=500)
    first = segments(tmp_path)[0]
    assert len(segments(tmp_path)) > 1
    content = bytearray(first.read_bytes())
    content[40] ^= 1
    first.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"00000000\.events"):
        FileStore(tmp_path)


def test_rotation_loses_nothing(tmp_path: Path) -> None:
    run(tmp_path, lambda store: fill(store, 50), segment_bytes=700)

    async def look(store: FileStore) -> None:
        for n in range(50):
            assert await store.find(f"e{n}") == decision(n)

    run(tmp_path, look, segment_bytes=700)


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, full = os.pwrite, [True]

    def pwrite(file: int, content: bytes, place: int) -> int:
        if full[0] and place > 8 and len(content) > 20:
            real(file, content[:20], place)  # half of it fits
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, content, place)

    async def work(store: FileStore) -> None:
        full[0] = False
        await store.add(decision(0))
        full[0] = True
        with pytest.raises(StoreUnavailableError, match="No space"):
            await store.add(decision(1))
        assert store.failing
        assert await store.find("e1") is None
        full[0] = False
        assert (await store.add(decision(1))).new  # the same id, when there is space again
        assert not store.failing

    monkeypatch.setattr(os, "pwrite", pwrite)
    run(tmp_path, work)
    assert [record.event_id for record in read_records(tmp_path)] == ["e0", "e1"]


def test_after_a_failed_flush_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(store: FileStore) -> None:
        def broken(file: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            with pytest.raises(StoreUnavailableError, match="Input/output"):
                await store.add(decision(1))
        with pytest.raises(StoreUnavailableError, match="started again"):
            await store.add(decision(2))

    run(tmp_path, work)


def test_a_cancelled_request_does_not_take_others_with_it(tmp_path: Path) -> None:
    async def work(store: FileStore) -> None:
        tasks = [asyncio.create_task(store.add(decision(n))) for n in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[1], asyncio.CancelledError)
        assert done[0].new
        assert done[2].new
        assert await store.find("e1") == decision(1)  # it was under way

    run(tmp_path, work)


def test_two_servers_on_one_folder_are_refused(tmp_path: Path) -> None:
    async def second(store: FileStore) -> None:
        with pytest.raises(ConfigError, match="one server per folder"):
            FileStore(tmp_path)

    run(tmp_path, second)


WRITER = """
import asyncio, sys
from pathlib import Path
from shpi.serve.store import FileStore
from shpi.serve.store.flush_delay import LONGEST, FlushDelay
from tests.serve.events import decision

async def main():
    store = FileStore(Path(sys.argv[1]))
    start = len(store)
    async def client(first):
        for n in range(first, 10**6, 8):
            added = await store.add(decision(start + n))
            print(added.record.event_id, flush=True)
    await asyncio.gather(*(client(first) for first in range(8)))

asyncio.run(main())
"""


def test_killed_under_load_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "events")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert process.stdout is not None
        acknowledged.add(process.stdout.readline().strip())
        time.sleep(0.3)
        process.kill()
        lines = process.stdout.read().splitlines(keepends=True)
        acknowledged |= {line.strip() for line in lines if line.endswith("\n")}
        process.wait()
        stored = [record.event_id for record in read_records(tmp_path / "events")]
        assert len(stored) == len(set(stored))
        assert acknowledged <= set(stored)
    assert len(acknowledged) > 50


def test_time_never_runs_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = iter([10, 20, 5, 6, 3_600_000_000, 30, 40, 3_600_000_100])
    steady = iter(range(0, 80, 10))
    monkeypatch.setattr(Clock, "_read", staticmethod(lambda: (next(wall), next(steady))))
    clock = Clock()
    times = [clock.now() for _ in range(7)]
    assert times == sorted(set(times))
    assert clock.jumps == 3
    clock.seen(10**16)
    monkeypatch.setattr(Clock, "_read", staticmethod(lambda: (50, 50)))
    assert clock.now() == 10**16 + 1


def test_old_files_are_removed_and_the_rest_stays(tmp_path: Path) -> None:
    async def work(store: FileStore) -> None:
        for n in range(40):  # one by one: every group may begin a file
            await store.add(decision(n))
            await store.add(reward(n))
        before = segments(tmp_path)
        assert len(before) > 4
        assert store.forget_before(0) == 0
        assert store.forget_before(decision(20).time) == 0  # rewards are a little later than decisions
        removed = store.forget_before(reward(20).time)
        assert 0 < removed < len(before) - 1
        assert len(segments(tmp_path)) == len(before) - removed
        assert await store.find("e0") is None
        assert await store.rewards("e0") == ()
        assert await store.find("e39") == decision(39)
        assert await store.rewards("e39") == (reward(39),)
        assert (await store.add(decision(0))).new

    run(tmp_path, work, segment_bytes=700)

    async def again(store: FileStore) -> None:
        assert await store.find("e0") == decision(0)
        assert await store.find("e39") == decision(39)
        assert await store.find("e1") is None

    run(tmp_path, again, segment_bytes=700)


def test_callers_who_come_back_are_waited_for_and_others_are_not() -> None:
    delay = FlushDelay()
    assert delay.seconds_after_flush(answered=1, arrived=0) == 0  # one caller after another: no need to wait
    assert delay.seconds_after_flush(answered=8, arrived=2) == LONGEST
    assert not delay.all_arrived(9)
    assert delay.all_arrived(10)
    delay.record_wait(10)
    waits = []
    for _ in range(100):  # from here on nobody comes back
        waits.append(delay.seconds_after_flush(answered=8, arrived=0))
        if waits[-1]:
            delay.record_wait(1)
    assert sum(wait > 0 for wait in waits) <= 7  # ever more rarely


def test_callers_in_turn_share_flushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen callers who ask again when they are answered need about one flush for each of their turns."""
    flushes, flush = [], os.fdatasync

    def slow(file: int) -> None:
        time.sleep(0.02)
        flushes.append(file)
        flush(file)

    monkeypatch.setattr(os, "fdatasync", slow)

    async def work(store: FileStore) -> None:
        async def caller(number: int) -> None:
            await asyncio.sleep(0.001 * number)
            for turn in range(12):
                await store.add(decision(100 * number + turn))

        await asyncio.gather(*(caller(number) for number in range(16)))

    run(tmp_path, work)
    assert len(flushes) <= 18  # 24 without waiting
