"""Folders of shards and tables at URIs: a store in memory, and one that speaks S3 on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from hashlib import sha256

import numpy as np
import pytest

import shpi
from shpi.cli.main import main
from shpi.data.shards import ShardedLog, prepare_shards, split_shards
from shpi.errors import ConfigError, DataError, FileError, MissingExtraError
from shpi.files.remote import Remote
from shpi.passes import Processes, add_up, audit_shards
from tests.passes.test_resume import COLUMNS, events
from tests.passes.work import moments

fsspec = pytest.importorskip("fsspec", reason="needs moto and fsspec")


@pytest.fixture
def memory() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    yield "memory://logs"
    system.rm("/logs", recursive=True)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    pytest.importorskip("s3fs", reason="needs moto and s3fs")
    server = pytest.importorskip("moto.server", reason="needs moto").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    port = server.get_host_and_port()[1]
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_EC2_METADATA_DISABLED": "true",
        }.items():  # fmt: skip
            environment.setenv(name, value)
        fsspec.filesystem("s3").mkdir("logs")
        yield "s3://logs"
        fsspec.filesystem("s3").clear_instance_cache()
    server.stop()


def test_a_log_lives_at_a_uri(memory, tmp_path):
    source = events(tmp_path)
    fsspec.filesystem("memory").put_file(str(source), "/logs/table/events.parquet")
    columns = shpi.Columns(**COLUMNS)
    there = prepare_shards(f"{memory}/table/*.parquet", columns, f"{memory}/shards", rows_per_shard=500)
    here = prepare_shards(source, columns, tmp_path / "shards", rows_per_shard=500)
    assert str(there.folder) == "memory://logs/shards"
    np.testing.assert_array_equal(add_up(there, moments), add_up(here, moments))
    assert str(audit_shards(there)) == str(audit_shards(here))
    assert there.schema == here.schema
    split = split_shards(there, 0.3, (f"{memory}/train", tmp_path / "held-out"), seed=0)
    assert [part.rows for part in split] == [
        part.rows for part in split_shards(here, 0.3, (tmp_path / "a", tmp_path / "b"), seed=0)
    ]
    whole = shpi.LoggedData.read(f"{memory}/table", columns)
    assert whole.fingerprint() == shpi.LoggedData.read(source, columns).fingerprint()


def test_the_manifest_is_written_last_and_nothing_is_left_of_a_failure(memory, tmp_path, monkeypatch):
    source, columns, put, order = events(tmp_path), shpi.Columns(**COLUMNS), Remote.put, []

    def full(self: Remote, path) -> None:
        order.append(self.name)
        if len(order) == breaks_at:
            raise FileError(expected="space", found="none")
        put(self, path)

    monkeypatch.setattr(Remote, "put", full)
    breaks_at = 3
    with pytest.raises(FileError):
        prepare_shards(source, columns, f"{memory}/shards", rows_per_shard=500)
    assert not fsspec.filesystem("memory").find("/logs")
    breaks_at = -1
    order.clear()
    prepare_shards(source, columns, f"{memory}/shards", rows_per_shard=500)
    assert order[-1] == "manifest.json"
    assert len(order) == 7
    with pytest.raises(ConfigError, match="a folder that does not exist yet"):
        prepare_shards(source, columns, f"{memory}/shards")


def test_missing_cut_and_foreign_shards_are_named(memory, tmp_path):
    source, system = events(tmp_path), fsspec.filesystem("memory")
    prepare_shards(source, shpi.Columns(**COLUMNS), f"{memory}/shards", rows_per_shard=500)
    name = "/logs/shards/shard-00002.parquet"
    content = system.cat_file(name)
    system.pipe_file(name, content[:-100])
    with pytest.raises(DataError, match=r"shard-00002\.parquet cut short: [\d,]+ of [\d,]+ bytes"):
        ShardedLog.open(f"{memory}/shards")
    system.pipe_file(name, bytes(len(content)))
    with pytest.raises(DataError, match=r"belongs to another log .*shard-00002\.parquet"):
        add_up(ShardedLog.open(f"{memory}/shards"), moments)
    system.rm_file(name)
    with pytest.raises(DataError, match=r"shard-00002\.parquet missing"):
        ShardedLog.open(f"{memory}/shards")
    with pytest.raises(DataError, match="a folder with manifest"):
        ShardedLog.open(f"{memory}/nothing")


def test_the_command_line_and_processes_on_s3(s3, tmp_path, capsys):
    source = events(tmp_path)
    fsspec.filesystem("s3").put_file(str(source), "logs/events/day=1/events.parquet")
    call = ["shard", f"{s3}/events/*/*.parquet", "--columns", str(tmp_path / "map.toml"), "--rows", "500"]
    assert main([*call, "--out", f"{s3}/shards"]) == 0
    assert "s3://logs/shards: 3,000 decisions in 6 shards" in capsys.readouterr().out
    manifest = json.loads(fsspec.filesystem("s3").cat_file("logs/shards/manifest.json"))
    content = fsspec.filesystem("s3").cat_file(f"logs/shards/{manifest['files'][0]}")
    assert sha256(content).hexdigest() == manifest["shards"][0]["sha256"]
    assert main(["audit", f"{s3}/shards", "--jobs", "2", "--json"]) in (0, 1)
    there = json.loads(capsys.readouterr().out)
    assert there["facts"]["structure"]["decisions"] == 3000
    shards = ShardedLog.open(f"{s3}/shards")
    local = prepare_shards(source, shpi.Columns(**COLUMNS), tmp_path / "shards", rows_per_shard=500)
    np.testing.assert_array_equal(add_up(shards, moments, executor=Processes(jobs=2)), add_up(local, moments))
    for place in (shards.folder, local.folder):
        out = str(tmp_path / f"policy-{type(place).__name__}")
        assert main(["fit", str(place), "--learner", "spibb", "--out", out]) == 0
    capsys.readouterr()
    x = np.random.default_rng(1).random((20, 1))
    probabilities = [shpi.load_policy(path).action_probs(x) for path in sorted(tmp_path.glob("policy-*"))]
    np.testing.assert_array_equal(*probabilities)


def test_a_store_that_does_not_answer(s3, monkeypatch):
    with pytest.raises(DataError, match=r"a folder with manifest\.json.*s3://logs/empty"):
        ShardedLog.open(f"{s3}/empty")
    with pytest.raises((FileError, DataError), match="nobody"):
        ShardedLog.open("s3://nobody/shards")
    with pytest.raises(ConfigError, match="a URI of a store that fsspec knows"):
        ShardedLog.open("carrier-pigeon://coop/shards")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'shpi\[remote\]'"):
        ShardedLog.open(f"{s3}/shards")
