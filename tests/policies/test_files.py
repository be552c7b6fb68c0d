from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema
from shpi.errors import ConfigError, DataError, FileError
from shpi.features import Chain, RandomFourier, Standardise
from shpi.features.structure import structure_digest
from shpi.files import bundle
from shpi.files.npz import read_npz
from shpi.policies import (
    EpsilonGreedy,
    FunctionScorer,
    Greedy,
    LinearScorer,
    Mixture,
    UniformPolicy,
    load_policy,
    read_policy_file,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
PHI = Chain((Standardise(), RandomFourier(n_features=10))).fit(X)
POLICY = Mixture(
    [EpsilonGreedy(LinearScorer(RNG.normal(size=(3, PHI.width)), PHI), 0.1), UniformPolicy(3)], [0.3, 0.7]
)


def arrays_of(folder: Path) -> Path:
    """The file of arrays that a manifest names."""
    return folder / json.loads((folder / "manifest.json").read_text())["arrays"]


def sign(folder: Path, manifest: dict[str, object], arrays: dict[str, np.ndarray]) -> None:
    """Write a manifest and arrays with checksums that agree, as an attacker would."""
    np.savez(arrays_of(folder), **arrays)  # type: ignore[arg-type]
    (folder / "manifest.json").write_text(json.dumps(manifest | {"checksum": bundle.checksum(manifest)}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return POLICY.save(tmp_path / "deep" / "policy")


def test_a_nested_policy_comes_back_exactly(folder: Path) -> None:
    loaded = load_policy(folder)
    np.testing.assert_array_equal(loaded.action_probs(X), POLICY.action_probs(X))
    assert sorted(path.name for path in folder.iterdir()) == [arrays_of(folder).name, "manifest.json"]
    assert [path.name for path in folder.parent.iterdir()] == ["policy"]  # no temporary left behind


def test_saving_twice_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = POLICY.save(tmp_path / "again")
    for name in (arrays_of(folder).name, "manifest.json"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_the_manifest_carries_schema_actions_and_notes(tmp_path: Path) -> None:
    schema, actions = ContextSchema.numeric(["a", "b"]), ActionSpace(ids=("x", "y", "z"))
    place = POLICY.save(tmp_path / "p", schema=schema, actions=actions, notes={"command": "shpi fit"})
    described = read_policy_file(place)
    assert (described.kind, described.n_actions) == ("policies/mixture", 3)
    assert described.schema == schema
    assert described.actions == actions
    assert described.notes == {"command": "shpi fit"}
    assert (
        read_policy_file(Greedy(LinearScorer(np.ones((2, PHI.width)), PHI)).save(tmp_path / "g")).width == 2
    )
    with pytest.raises(ConfigError, match="3 action ids"):
        POLICY.save(tmp_path / "q", actions=ActionSpace.numbered(4))


def test_an_existing_path_is_kept_unless_asked(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist yet"):
        UniformPolicy(2).save(folder)
    UniformPolicy(2).save(folder, overwrite=True)
    assert load_policy(folder).n_actions == 2
    assert [path.name for path in folder.parent.iterdir()] == ["policy"]
    other = tmp_path / "mine"
    other.mkdir()
    (other / "diary.txt").write_text("dear diary")
    with pytest.raises(ConfigError, match="only a folder of format 'shpi-policy' is ever overwritten"):
        UniformPolicy(2).save(other, overwrite=True)
    assert (other / "diary.txt").exists()


def test_a_failed_save_keeps_the_old_policy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(bundle, "write_npz", full_disk)
    with pytest.raises(FileError, match="no space left"):
        UniformPolicy(2).save(folder, overwrite=True)
    assert load_policy(folder).n_actions == 3
    assert [path.name for path in folder.parent.iterdir()] == ["policy"]


def test_functions_and_odd_notes_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can be saved.*found a FunctionScorer"):
        Greedy(FunctionScorer(lambda x: x, n_actions=2)).save(tmp_path / "p")
    with pytest.raises(ConfigError, match="JSON-ready"):
        UniformPolicy(2).save(tmp_path / "p", notes={"bad": object()})
    with pytest.raises(ConfigError, match="JSON-ready"):
        UniformPolicy(2).save(tmp_path / "p", notes={"bad": float("nan")})
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- damaged and foreign files


def test_missing_files(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a policy folder with a manifest\.json"):
        load_policy(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"a policy folder with a manifest\.json"):
        load_policy(arrays_of(folder))
    arrays_of(folder).unlink()
    with pytest.raises(DataError, match=r"the file arrays-.*\.npz"):
        load_policy(folder)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_file_cut_short(folder: Path, share: float) -> None:
    place = arrays_of(folder)
    data = place.read_bytes()
    place.write_bytes(data[: int(share * len(data))])
    with pytest.raises(DataError, match="readable arrays"):
        load_policy(folder)


def test_every_flipped_byte_is_noticed_or_harmless(folder: Path) -> None:
    place, truth = arrays_of(folder), POLICY.action_probs(X)
    data = place.read_bytes()
    noticed = 0
    for position in range(0, len(data), 37):
        place.write_bytes(data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :])
        try:
            loaded = load_policy(folder)
        except DataError:
            noticed += 1
        else:  # a byte that the zip format ignores, such as a time stamp
            np.testing.assert_array_equal(loaded.action_probs(X), truth)
    assert noticed > 0.5 * len(range(0, len(data), 37))


def test_an_edited_setting_is_noticed(folder: Path) -> None:
    place = folder / "manifest.json"
    place.write_text(place.read_text().replace('"epsilon": 0.1', '"epsilon": 0.9'))
    with pytest.raises(DataError, match="agree with the checksum"):
        load_policy(folder)


def test_arrays_of_another_policy(folder: Path, tmp_path: Path) -> None:
    other = UniformPolicy(3).save(tmp_path / "other")
    shutil.copy(arrays_of(other), arrays_of(folder))
    with pytest.raises(DataError, match="agree with the checksum"):
        load_policy(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "a manifest in JSON"),
        ("[1]", "another kind of file"),
        ('{"format": "other"}', "another kind of file"),
        ('{"format": "shpi-policy", "version": 99}', "found version 99"),
        ('{"format": "shpi-policy", "version": 1}', "the key 'n_actions'"),
        ('{"format": "shpi-policy", "version": true}', "version True"),
        ('{"format": "shpi-policy", "version": [2]}', "version \\[2\\]"),
        ('{"format": "shpi-policy", "version": NaN}', "a manifest in JSON"),
        ("[" * 100_000, "a manifest in JSON"),
    ],
)
def test_foreign_manifests(folder: Path, text: str, message: str) -> None:
    (folder / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=message):
        load_policy(folder)


def test_a_scorer_is_not_a_policy(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    child = manifest["policy"]["children"]["policies.0"]["children"]["scorer"]
    arrays = read_npz(arrays_of(folder))
    inner = {name.removeprefix("policies.0/scorer/"): a for name, a in arrays.items() if "scorer/" in name}
    sign(folder, manifest | {"policy": child, "sha256": structure_digest(child, inner)}, inner)
    with pytest.raises(DataError, match="a policy, found a LinearScorer"):
        load_policy(folder)


def test_swapped_action_ids_are_noticed(tmp_path: Path) -> None:
    """The ids are beside the policy: another policy acts when they are changed."""
    place = POLICY.save(
        tmp_path / "p", schema=ContextSchema.numeric(["a", "b"]), actions=ActionSpace(ids=("x", "y", "z"))
    )
    manifest = json.loads((place / "manifest.json").read_text())
    for key, value in (
        ("actions", manifest["actions"] | {"ids": ["y", "x", "z"]}),
        ("schema", manifest["schema"][::-1]),
        ("notes", {"approved": True}),
        ("shpi", "9.9"),
        ("n_actions", 4),
        ("version", 1),
    ):
        (place / "manifest.json").write_text(json.dumps(manifest | {key: value}))
        for load in (load_policy, read_policy_file):
            with pytest.raises(DataError, match=r"agree with the checksum|keys among"):
                load(place)


def test_signed_nonsense_is_refused_before_it_acts(folder: Path) -> None:
    """Whoever recomputes the checksums gets an error of ours, whatever the type, shape or kind."""
    manifest, arrays = json.loads((folder / "manifest.json").read_text()), read_npz(arrays_of(folder))

    def signed(change: dict[str, object], **replaced: np.ndarray) -> None:
        policy = json.loads(json.dumps(manifest["policy"]))
        target = policy["children"]["policies.0"]
        target["settings"] |= change
        described = target["children"]["scorer"]["arrays"]["weights"]
        for array in replaced.values():
            described |= {"shape": list(array.shape), "dtype": str(array.dtype)}
        new = arrays | {f"policies.0/scorer/{name}": array for name, array in replaced.items()}
        sign(folder, manifest | {"policy": policy, "sha256": structure_digest(policy, new)}, new)
        with pytest.raises(DataError):
            load_policy(folder)

    signed({"epsilon": "0.1"})
    signed({"epsilon": None})
    signed({"epsilon": 7})
    signed({"other": 1})
    signed({}, weights=np.ones((3, 4)))
    signed({}, weights=np.ones((5, 10)))
    signed({}, weights=np.full((3, 10), np.nan))
    signed({}, weights=np.array(["a", "b"]))


def test_pickled_arrays_are_refused(folder: Path) -> None:
    np.savez(arrays_of(folder), evil=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match="readable arrays"):
        load_policy(folder)


def test_loading_and_acting_need_neither_torch_nor_polars(folder: Path) -> None:
    code = (
        "import sys, numpy as np; from shpi.policies import load_policy;"
        f"load_policy({str(folder)!r}).act(np.zeros((2, 2)), seed=0);"
        "print(sorted({'torch', 'polars', 'pandas'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
