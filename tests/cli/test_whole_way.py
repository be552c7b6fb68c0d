"""From a CSV to a decision on the command line alone: init, audit, split, fit, evaluate, mix, act."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shpi import Events
from shpi.cli.main import VERBS, build_parser, main
from shpi.cli.verbs import init
from shpi.data.logged import LoggedData


def shop(users: int = 1500, seed: int = 0) -> pl.DataFrame:
    """Two visits of two recommendations, then all are gone; hats sell to new users, shoes to others."""
    rng = np.random.default_rng(seed)
    n = 4 * users
    item = rng.choice(3, n, p=[0.4, 0.3, 0.3])
    tenure = np.repeat(rng.exponential(1.0, users), 4).round(3)
    start = np.repeat(rng.integers(1_760_000_000, 1_762_000_000, users), 4)
    chance = np.where(item == np.where(tenure < 0.7, 2, 0), 0.3, 0.05)
    return pl.DataFrame({
        "user_id": np.repeat(np.arange(users), 4),
        "timestamp": start + np.tile([0, 300, 259_200, 259_500], users),
        "item": np.array(["shoes", "socks", "hats"])[item],
        "propensity": np.array([0.4, 0.3, 0.3])[item],
        "tenure": tenure,
        "reward": (rng.random(n) < chance).astype(int),
        "churned": np.tile([False, False, False, True], users),
    }).with_columns(pl.from_epoch("timestamp"))  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("way")
    shop().write_csv(folder / "events.csv")
    return folder


def test_from_a_csv_to_a_decision(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(["init", "events.csv", "--yes"]) == 0
    written = tomllib.loads(Path("map.toml").read_text())
    assert written["user"] == "user_id"
    assert written["context"] == ["tenure"]
    assert "next: shpi audit events.csv --columns map.toml" in capsys.readouterr().out
    assert main(["audit", "events.csv", "--columns", "map.toml"]) == 0
    assert main(["split", "events.csv", "--columns", "map.toml"]) == 0
    assert main(["fit", "train.parquet", "--out", "policies/today"]) == 0
    judged = main(["evaluate", "policies/today", "held-out.parquet", "--out", "report.html"])
    assert judged in (0, 5)  # ship, or a first step
    assert main(["mix", "policies/today", "train.parquet", "--share", "30%", "--out", "policies/step"]) == 0
    assert main(["evaluate", "policies/step", "held-out.parquet"]) == 0
    capsys.readouterr()
    rows = pl.DataFrame({"user_id": [7, 8, 9], "tenure": [0.1, 0.2, 3.0]})
    rows.write_csv("rows.csv")
    assert main(["act", "policies/today", "rows.csv", "--keep", "user_id", "--seed", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["user_id"] for line in lines] == [7, 8, 9]
    assert {line["item"] for line in lines} <= {"shoes", "socks", "hats"}
    assert all(0 < line["propensity"] <= 1 for line in lines)


# ---------------------------------------------------------------------- init


def test_init_asks_and_asks_again(capsys):
    sample = shop(5)
    replies = iter(["", "", "itme", "item", "", "-", "", "", "tenure"])
    columns = init.asked(init.guessed(sample), sample, lambda question: next(replies))
    assert columns["action"] == "item"
    assert "propensity" not in columns
    assert columns["session_gap"] == "30m"
    assert columns["context"] == ["tenure"]
    assert "no column 'itme'. Did you mean item" in capsys.readouterr().out


def test_init_overwrites_nothing_and_needs_an_action(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shop(5).write_csv("events.csv")
    Path("map.toml").write_text("mine")
    assert main(["init", "events.csv", "--yes"]) == 2
    assert Path("map.toml").read_text() == "mine"
    pl.DataFrame({"a1": [1], "b2": [2]}).write_csv("strange.csv")
    assert main(["init", "strange.csv", "--yes", "--out", "other.toml"]) == 2
    assert "what was shown (action)" in capsys.readouterr().err
    assert not Path("other.toml").exists()


def test_every_line_of_the_map_says_what_it_means(tmp_path):
    text = init.as_toml(init.guessed(shop(5).drop("propensity")), shop(5).drop("propensity"), "events.csv")
    for line in text.splitlines()[2:]:
        assert not line or "#" in line
    assert '# propensity = "…"' in text
    assert "--estimate-propensities" in text


@pytest.mark.parametrize(("second", "unit"), [(1, "s"), (1000, "ms"), (10**6, "us"), (10**9, "ns")])
def test_numbers_since_1970_get_their_unit(second, unit):
    """Failed before: the map had a session gap of 30m and no unit, and no verb could read it."""
    sample = pl.DataFrame({"item": ["a", "b"], "ts": [1_760_000_000 * second, 1_770_000_000 * second]})
    guess = init.guessed(sample)
    assert (guess["time_unit"], guess["session_gap"]) == (unit, "30m")
    assert "time_unit" not in init.guessed(pl.DataFrame({"item": ["a", "b"], "ts": [1, 2]}))


def test_texts_that_hardly_repeat_are_no_context():
    """Failed before: an id under a name that says nothing was proposed as context."""
    sample = pl.DataFrame(
        {"item": ["a", "b"] * 50, "handle": [f"x{i}" for i in range(100)], "city": ["Rome", "Oslo"] * 50}
    )
    assert init.guessed(sample)["context"] == ["city"]


def test_a_map_without_reward_shows_how_to_name_a_second_table():
    sample = shop(5).drop("reward")
    text = init.as_toml(init.guessed(sample), sample, "events.csv")
    rest = text[text.index("# [[events]]") :].replace("\n# ", "\n").removeprefix("# ")
    events = tomllib.loads(rest)["events"][0]
    assert Events(**events).name == "bought"  # every key of the example exists


# ---------------------------------------------------------------------- split


def test_split_has_no_user_in_both_and_the_whole_in_both_together(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.toml").write_text(
        'user="user_id"\ntime="timestamp"\naction="item"\nreward="reward"\npropensity="propensity"\n'
        'context=["tenure"]\nsession_gap="30m"\n'
    )
    call = ["split", str(place / "events.csv"), "--columns", "map.toml", "--held-out", "0.2"]
    assert main([*call, "--out", "data"]) == 0
    train, held_out = (LoggedData.read(f"data/{name}.parquet") for name in ("train", "held-out"))
    assert not set(train.users) & set(held_out.users)
    assert len(train) + len(held_out) == 6000
    assert held_out.n_users == pytest.approx(300, abs=60)
    assert main([*call, "--out", "data"]) == 2  # nothing is overwritten
    assert main([*call, "--out", "data", "--overwrite"]) == 0
    assert main([*call, "--time", "2025-10-20", "--out", "time"]) == 0
    before, after = (LoggedData.read(f"time/{name}.parquet") for name in ("train", "held-out"))
    assert before.times.max() < after.times.min() + 300_000_000 * 10


# ---------------------------------------------------------------------- mix and act


@pytest.fixture
def policy(tmp_path) -> str:
    import shpi

    logs = shpi.LoggedData.read(
        shop(50),
        {"user": "user_id", "action": "item", "reward": "reward", "context": ["tenure"],
         "propensity": "propensity"},
    )  # fmt: skip
    shpi.learners.BehaviourCloning().fit(logs).save(tmp_path / "policy")
    return str(tmp_path / "policy")


def test_a_mixture_is_what_it_says(policy, tmp_path, capsys):
    from shpi.policies import load_policy

    folder = tmp_path / "mixed"
    assert main(["mix", policy, "--with", "uniform", "--share", "0.25", "--out", str(folder)]) == 0
    x = np.array([[0.1], [3.0]])
    wanted = 0.25 * load_policy(policy).action_probs(x) + 0.75 / 3
    np.testing.assert_allclose(load_policy(folder).action_probs(x), wanted)
    for wrong in (["--share", "0"], ["--share", "120%"], ["--share", "x"]):
        assert main(["mix", policy, "--with", "uniform", *wrong, "--out", str(tmp_path / "no")]) == 2
    assert main(["mix", policy, "--out", str(tmp_path / "no")]) == 2
    assert "its LOG, or --with POLICY" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"tenure": 0.4}\n{"tenure": 2}\n', "tenure\n0.4\n2\n"])
def test_act_reads_standard_input(policy, text, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main(["act", policy, "-", "--seed", "3", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "item,propensity"
    assert len(lines) == 3


def test_act_writes_files_and_obeys_candidates(policy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = pl.DataFrame({"tenure": [0.1] * 40, "can": ["socks|hats"] * 40, "uid": range(40)})
    rows.write_csv("rows.csv")
    for name in ("out.csv", "out.jsonl", "out.parquet"):
        assert main(["act", policy, "rows.csv", "--candidates", "can", "--keep", "uid", "--out", name]) == 0
    decisions = pl.read_csv("out.csv")
    assert set(decisions["item"]) == {"socks", "hats"}
    assert pl.read_parquet("out.parquet")["uid"].to_list() == list(range(40))
    assert pl.read_ndjson("out.jsonl").columns == ["uid", "item", "propensity"]
    assert main(["act", policy, "rows.csv", "--out", "out.xls"]) == 2
    assert main(["act", policy, "rows.csv", "--keep", "uidd"]) == 2
    assert "did you mean 'uid'" in capsys.readouterr().err
    assert main(["act", policy, "nowhere.jsonl"]) == 2


def test_chances_are_those_that_are_logged(policy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"tenure": [0.5] * 20_000}).write_csv("rows.csv")
    assert main(["act", policy, "rows.csv", "--seed", "0", "--out", "out.csv"]) == 0
    shares = pl.read_csv("out.csv").group_by("item").agg(pl.len() / 20_000, pl.col("propensity").first())
    np.testing.assert_allclose(shares["len"], shares["propensity"], atol=0.015)


# ---------------------------------------------------------------------- help and completion


@pytest.mark.parametrize("verb", [
    "init", "audit", "split", "shard", "fit", "compare", "evaluate", "mix", "act", "simulate", "agents",
    "reproduce", "completion",
])  # fmt: skip
def test_every_verb_has_an_example(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    shown = capsys.readouterr().out
    assert "example" in shown
    assert f"shpi {verb} " in shown.split("example", 1)[1]


def test_bash_completes_verbs_options_and_choices():
    script = subprocess.run(
        [sys.executable, "-m", "shpi", "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout

    def completed(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in words)
        code = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shpi; echo ${{COMPREPLY[@]}}"
        ended = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        return set(ended.stdout.split())

    assert completed("shpi", "ev") == {"evaluate"}
    assert "--held-out" in completed("shpi", "split", "x", "--h")
    assert completed("shpi", "evaluate", "--per", "") == {"user", "decision", "session"}


def test_a_verb_imports_its_own_module_only(capsys):
    program = "import sys; from shpi.cli.main import build_parser; build_parser('audit'); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    verbs = {name for name in loaded if name.startswith("shpi.cli.verbs.")}
    assert verbs == {"shpi.cli.verbs.audit"}
    with pytest.raises(SystemExit):
        main(["audti"])
    message = capsys.readouterr().err
    assert all(verb in message for verb in VERBS)  # an unknown one is told all


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_every_verb(shell, capsys):
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    nest = next(action for action in build_parser()._actions if action.dest == "verb")
    assert all(verb in shown for verb in nest.choices)
