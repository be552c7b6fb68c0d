"""Policy folders under attack: bombs, pipes, two writers, readers during a replacement."""

from __future__ import annotations

import json
import os
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from shpi._core.memory import forget_peak, peak_memory
from shpi.errors import ConfigError, DataError, ShpiError
from shpi.files.npz import read_npz, write_npz
from shpi.policies import TabularPolicy, UniformPolicy, load_policy


def arrays_of(folder: Path) -> Path:
    return folder / json.loads((folder / "manifest.json").read_text())["arrays"]


def test_arrays_come_back_exactly(tmp_path: Path) -> None:
    arrays = {
        "a/b.0": np.arange(6.0).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "scalar": np.array("text"),
        "flags": np.array([True, False]),
        "empty": np.zeros((0, 3), np.float32),
        "allow_pickle": np.ones(2),  # only a name like any other
    }
    with (tmp_path / "a.npz").open("wb") as file:
        write_npz(file, arrays)
    for loaded in (read_npz(tmp_path / "a.npz"), dict(np.load(tmp_path / "a.npz", allow_pickle=False))):
        assert sorted(loaded) == sorted(arrays)
        for name, array in arrays.items():
            assert loaded[name].dtype == array.dtype
            np.testing.assert_array_equal(loaded[name], array)
    with pytest.raises(ConfigError, match="numbers, flags or text"), (tmp_path / "b").open("wb") as file:
        write_npz(file, {"x": np.array([{}], dtype=object)})


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    folder = UniformPolicy(3).save(tmp_path / "p")
    place = arrays_of(folder)
    with (
        zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as member,
    ):
        np.lib.format.write_array_header_1_0(
            member, {"descr": "<f8", "fortran_order": False, "shape": (48 * 2**20,)}
        )
        for _ in range(384):
            member.write(bytes(2**20))
    assert place.stat().st_size < 2_000_000
    forget_peak()
    before = peak_memory()
    with pytest.raises(DataError, match="claims to hold"):
        load_policy(folder)
    after = peak_memory()
    assert before is not None
    assert after is not None
    assert after - before < 100e6


def test_a_small_bomb_is_refused_by_the_size_in_the_manifest(tmp_path: Path) -> None:
    folder = TabularPolicy(np.eye(3)).save(tmp_path / "p")
    place, size = arrays_of(folder), 100 * 2**20
    with (
        zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("probs.npy", "w") as member,
    ):
        np.lib.format.write_array_header_1_0(
            member, {"descr": "<f8", "fortran_order": False, "shape": (size // 8,)}
        )
        for _ in range(size // 2**20):
            member.write(bytes(2**20))
    forget_peak()
    before = peak_memory()
    with pytest.raises(DataError, match="where the manifest says 72"):
        load_policy(folder)
    after = peak_memory()
    assert before is not None
    assert after is not None
    assert after - before < 5e6  # 214 MB before


def test_a_header_that_lies_about_its_shape(tmp_path: Path) -> None:
    place = tmp_path / "a.npz"
    for shape in ((10**15,), (3,), (-1,), (2**62, 4)):
        with zipfile.ZipFile(place, "w") as archive, archive.open("x.npy", "w") as member:
            np.lib.format.write_array_header_1_0(
                member, {"descr": "<f8", "fortran_order": False, "shape": shape}
            )
            member.write(bytes(16))
        with pytest.raises(DataError, match="readable arrays"):
            read_npz(place)


@pytest.mark.parametrize("which", ["manifest.json", "arrays"])
def test_a_pipe_or_a_folder_does_not_hang(tmp_path: Path, which: str) -> None:
    folder = UniformPolicy(3).save(tmp_path / "p")
    place = arrays_of(folder) if which == "arrays" else folder / which
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(DataError, match="a regular file"):
        load_policy(folder)
    place.unlink()
    place.mkdir()
    with pytest.raises(DataError, match="a regular file"):
        load_policy(folder)


def test_writers_and_readers_at_once(tmp_path: Path) -> None:
    """Every writer succeeds, every reader finds one of the policies, and nothing is left behind."""
    folder, states = tmp_path / "p", np.zeros((1, 1))
    TabularPolicy(np.eye(5)[:1]).save(folder)
    problems: list[Exception] = []
    writing = threading.Event()

    def write(action: int) -> None:
        for _ in range(15):
            try:
                TabularPolicy(np.eye(5 + action)[[action]]).save(folder, overwrite=True)
            except Exception as error:
                problems.append(error)

    def read() -> None:
        while not writing.is_set():
            try:
                policy = load_policy(folder)
                assert policy.action_probs(states)[0, policy.n_actions - 5] == 1
            except Exception as error:
                problems.append(error)

    writers = [threading.Thread(target=write, args=(action,)) for action in range(3)]
    reader = threading.Thread(target=read)
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    writing.set()
    reader.join()
    assert problems == []
    assert sorted(place.name for place in folder.iterdir()) == [arrays_of(folder).name, "manifest.json"]
    assert [place.name for place in tmp_path.iterdir()] == ["p"]


def test_drafts_inside_a_policy_are_swept_whatever_their_name(tmp_path: Path) -> None:
    folder = UniformPolicy(3).save(tmp_path / "p")
    (folder / ".arrays-0123.npz.abc.draft").write_text("of a killed writer")
    UniformPolicy(4).save(folder, overwrite=True)
    assert sorted(place.name for place in folder.iterdir()) == [arrays_of(folder).name, "manifest.json"]


def test_two_new_policies_of_one_name(tmp_path: Path) -> None:
    """Whoever comes second is told so, or replaces the first if asked to."""
    barrier, outcomes = threading.Barrier(2), []

    def write(overwrite: bool) -> None:
        barrier.wait()
        try:
            UniformPolicy(3).save(tmp_path / "p", overwrite=overwrite)
            outcomes.append("ok")
        except ShpiError as error:
            outcomes.append(type(error).__name__)

    for overwrite in (False, True):
        outcomes.clear()
        threads = [threading.Thread(target=write, args=(overwrite,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == (["ok", "ok"] if overwrite else ["ConfigError", "ok"])
        assert load_policy(tmp_path / "p").n_actions == 3
        if not overwrite:
            for place in (tmp_path / "p").iterdir():
                place.unlink()
            (tmp_path / "p").rmdir()
