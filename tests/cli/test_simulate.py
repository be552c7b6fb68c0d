from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from shpi.cli.verbs.without_data import simulate
from shpi.data.logged import LoggedData
from shpi.envs.rollout import rollout
from shpi.envs.storefront import Storefront
from shpi.envs.synthetic.simulator import Synthetic
from shpi.errors import ConfigError
from shpi.policies import UniformPolicy


def call(*arguments: str) -> int:
    parser = argparse.ArgumentParser(prog="shpi")
    simulate.add_parser(parser.add_subparsers())
    options = parser.parse_args(["simulate", *arguments])
    return int(options.run(options))


def test_the_file_is_the_log_of_the_simulator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new folder" / "log.parquet"
    assert call("storefront", "--users", "50", "--seed", "3", "--out", str(out)) == 0
    expected = rollout(Storefront(), UniformPolicy(5), 50, seed=3)
    logs = LoggedData.read(out)
    assert logs.fingerprint() == expected.fingerprint()
    assert np.array_equal(logs.session_offsets, expected.session_offsets)
    assert logs.terminated.all()
    printed = capsys.readouterr()
    assert f"wrote {out}" in printed.out
    assert "50 users" in printed.out
    assert f"next: shpi audit {out}" in printed.out
    assert printed.err == ""  # no progress bar outside a terminal


def test_fewer_users_are_the_beginning_of_more(tmp_path: Path) -> None:
    few, many, rest = (str(tmp_path / name) for name in ("few", "many", "rest"))
    common = ("synthetic", "--horizon", "5")
    call(*common, "--users", "10", "--out", few)
    call(*common, "--users", "30", "--batch", "7", "--out", many)
    call(*common, "--users", "20", "--first", "10", "--out", rest)
    a, b, c = (LoggedData.read(path) for path in (few, many, rest))
    assert np.array_equal(np.concatenate([a.contexts, c.contexts]), b.contexts)
    assert np.array_equal(np.concatenate([a.users, c.users]), b.users)


def test_policies_epsilon_and_parameters(tmp_path: Path) -> None:
    out = str(tmp_path / "log.parquet")
    call("synthetic", "--policy", "controller", "--epsilon", "0.3", "--param", "n_actions=4",
         "--param", "d=3", "--horizon", "200", "--users", "20", "--out", out)  # fmt: skip
    logs = LoggedData.read(out)
    assert logs.n_actions == 4
    assert logs.schema.width == 3
    assert np.diff(logs.offsets).tolist() == [200] * 20
    assert set(np.unique(np.round(logs.propensities, 12))) == {0.075, 0.775}
    call("synthetic", "--param", "reward_offset=[1e5, 1e4]", "--users", "5", "--out", out)
    assert "true_reward" in LoggedData.read(out).metrics
    call("storefront", "--policy", "shpi", "--users", "20", "--out", out)
    logs = LoggedData.read(out)
    best = Storefront().shpi()
    assert np.array_equal(logs.actions, best[logs.contexts[:, 0].astype(int)].argmax(axis=1))


def test_a_saved_policy_can_decide(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    UniformPolicy(5).save(folder)
    out = tmp_path / "log.parquet"
    call("storefront", "--policy", str(folder), "--users", "20", "--out", str(out))
    assert LoggedData.read(out).fingerprint() == rollout(Storefront(), UniformPolicy(5), 20, 0).fingerprint()


def test_the_list_names_worlds_and_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("storefront", "--list") == 0
    printed = capsys.readouterr().out
    assert "storefront" in printed
    assert "max_sessions" in printed


def test_the_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        call("--help")
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for word in ("--policy", "--epsilon", "--users", "--seed", "--out", "--horizon", "--param", "examples:"):
        assert word in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no simulator"),
        (("storefront",), "no --out"),
        (("storefrnt", "--out", "x"), "one of synthetic, synthetic-large, storefront"),
        (("storefront", "--out", "x", "--users", "0"), "n to be a whole number >= 1"),
        (("storefront", "--out", "x", "--seed", "-1"), "seed"),
        (("storefront", "--out", "x", "--param", "tau"), "--param KEY=VALUE, found 'tau'"),
        (("storefront", "--out", "x", "--param", "tau=1"), "parameters of 'storefront' among max_sessions"),
        (("storefront", "--out", "x", "--param", "add_on=often"), "add_on to be a finite number"),
        (("storefront", "--out", "x", "--horizon", "11"), "horizon of at most 10"),
        (("storefront", "--out", "x", "--policy", "controller"), "uniform, bandit, session_rl"),
        (("synthetic", "--out", "x", "--policy", "nothing"), "'synthetic': uniform, controller, agent"),
        (("synthetic", "--out", "x", "--policy", "controller", "--epsilon", "1.5"), "--epsilon in"),
        (("synthetic", "--out", "x", "--epsilon", "0.5"), "uniform, which is random already"),
    ],
)
def test_bad_input_writes_nothing(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        call(*arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--out to be a file"):
        call("storefront", "--out", str(tmp_path))


def test_values_are_json_or_text() -> None:
    assert simulate.parse_param("a=1") == ("a", 1)
    assert simulate.parse_param("a=0.5") == ("a", 0.5)
    assert simulate.parse_param("a=true") == ("a", True)
    assert simulate.parse_param("a=[1, 2]") == ("a", (1, 2))
    assert simulate.parse_param("a=click") == ("a", "click")
    assert simulate.parse_param("a=b=c") == ("a", "b=c")
    assert Synthetic(**dict([simulate.parse_param("tau=3")])).tau == 3
