from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shpi.errors import ConfigError, FileError
from shpi.files import atomic
from shpi.files.atomic import new_file, new_folder, write_text

HANGING = """
import sys, time
from pathlib import Path
from shpi.files.atomic import new_file, new_folder
with {writer}(Path(sys.argv[1])) as draft:
    print("writing", flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(place.name for place in folder.iterdir())


def _fail_after(write: Callable[[bytes], object], data: bytes) -> None:
    write(data)
    raise ZeroDivisionError


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "a") as file:
        _fail_after(file.write, b"new")
    assert (tmp_path / "a").read_text() == "old"
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "b") as draft:
        _fail_after((draft / "part").write_bytes, b"half")
    assert names(tmp_path) == ["a"]


def test_no_symbolic_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write into the folder cannot choose what is overwritten, even by guessing the name."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".out.guessed.draft").symlink_to(victim)
    with pytest.raises(FileError):
        write_text(tmp_path / "out", "x")
    (tmp_path / "out").symlink_to(victim)
    monkeypatch.undo()
    write_text(tmp_path / "out", "x")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "out").is_symlink()


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "link"):
        with pytest.raises(ConfigError, match="a device or a pipe"):
            write_text(tmp_path / name, "x")
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


def test_file_modes_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "x")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("writer", ["new_file", "new_folder"])
def test_drafts_of_the_dead_are_swept_and_those_of_the_living_kept(tmp_path: Path, writer: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING.format(writer=writer), str(tmp_path / "a")],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        atomic.sweep(tmp_path / "a")
        assert len(names(tmp_path)) == 1  # its writer is alive
    finally:
        process.kill()
        process.wait()
    assert len(names(tmp_path)) == 1
    (tmp_path / ".b.0.draft").write_text("of another target")
    if writer == "new_file":
        write_text(tmp_path / "a", "x")
    else:
        with new_folder(tmp_path / "a"):
            pass
    assert names(tmp_path) == [".b.0.draft", "a"]


def test_everything_is_flushed_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda number: (events.append("fsync"), sync(number)))
    monkeypatch.setattr(
        Path, "replace", lambda self, target: (events.append("rename"), replace(self, target))
    )
    write_text(tmp_path / "a", "x")
    assert events == ["fsync", "rename", "fsync"]


def test_what_the_system_refuses_is_an_error_of_ours(tmp_path: Path) -> None:
    for code in (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO):
        with pytest.raises(FileError, match="can be written") as caught, new_file(tmp_path / "a"):
            raise OSError(code, os.strerror(code))
        assert caught.value.remedy
    with pytest.raises(ConfigError, match="a folder that exists"):
        write_text(tmp_path / "no" / "a", "x")
    with pytest.raises(ConfigError, match="the name of a file"):
        write_text(tmp_path, "x")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").touch()
    with pytest.raises(ConfigError, match="does not exist yet"), new_folder(tmp_path / "there"):
        pass
    assert names(tmp_path) == ["there"]


def test_a_draft_that_was_swept_before_its_lock_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, swept = atomic.fcntl.flock, []

    def late(number: int, how: int) -> None:
        if not swept:
            swept.extend(tmp_path.iterdir())
            swept[0].unlink()
        flock(number, how)

    monkeypatch.setattr(atomic.fcntl, "flock", late)
    write_text(tmp_path / "a", "x")
    assert swept
    assert names(tmp_path) == ["a"]


def test_writers_wait_for_each_other_inside_a_folder(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from shpi.files.atomic import locked\n"
        "with locked(Path(sys.argv[1])): print('locked', flush=True); time.sleep(0.5)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    began = time.monotonic()
    with atomic.locked(tmp_path):
        assert time.monotonic() - began > 0.2
    process.wait()
