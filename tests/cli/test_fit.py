"""``shpi fit``: from a log to a policy folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from shpi.cli.main import main
from shpi.data.logged import LoggedData
from shpi.learners import ContextualBandit
from shpi.oracles import Ridge
from shpi.policies import load_policy, read_policy_file
from shpi.testing.tastes import Tastes


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("fit") / "log.parquet"
    Tastes(masked=True).log(150, seed=1).to_parquet(place)
    return place


def test_the_folder_holds_the_policy_and_how_it_was_made(log, tmp_path, capsys):
    out = tmp_path / "policy"
    options = ["--learner", "bandit", "-o", "target=mtr", "-o", "support=null", "--seed", "3"]
    assert main(["fit", str(log), "--out", str(out), *options]) == 0
    logs = LoggedData.read(log)
    wanted = ContextualBandit(target="mtr", support=None, seed=3).fit(logs)
    np.testing.assert_array_equal(
        load_policy(out).action_probs(logs.contexts, logs.candidates),
        wanted.action_probs(logs.contexts, logs.candidates),
    )
    about = read_policy_file(out)
    assert about.schema is not None
    assert about.actions is not None
    assert about.schema.to_json() == logs.schema.to_json()
    assert about.notes["learner"] == "bandit"
    assert about.notes["log"] == logs.fingerprint()
    assert about.notes["options"] == ["target=mtr", "support=null"]
    assert "learned by 'bandit'" in capsys.readouterr().out


def test_shpi_tells_its_story(log, tmp_path, capsys):
    assert main(["fit", str(log), "--out", str(tmp_path / "p"), "-o", "k=2", "-o", "oracle=ridge"]) == 0
    shown = capsys.readouterr().out
    assert "in test order" in shown
    assert "at least" in shown
    assert load_policy(tmp_path / "p").n_actions == 4


def test_a_table_is_read_as_by_audit(log, tmp_path, capsys):
    logs = LoggedData.read(log)
    rows = {
        "uid": logs.users[logs.trajectory_of_row],
        "ts": logs.steps,
        "item": logs.actions,
        "p": logs.propensities,
        "ltr": logs.rewards,
        "east": logs.contexts[:, 0],
    }
    table = tmp_path / "table.csv"
    pl.DataFrame(rows).write_csv(table)
    out = tmp_path / "policy"
    assert main(["fit", str(table), "--out", str(out)]) == 2  # a guess of the column map is printed
    assert "needs a column map" in capsys.readouterr().err
    columns = tmp_path / "map.toml"
    columns.write_text(
        'user = "uid"\ntime = "ts"\naction = "item"\npropensity = "p"\nreward = "ltr"\ncontext = ["east"]\n'
    )
    arguments = ["fit", str(table), "--columns", str(columns), "--learner", "clone", "--out", str(out)]
    assert main(arguments) == 0
    assert read_policy_file(out).width == 1


def test_learners_are_listed(capsys):
    assert main(["fit", "--list"]) == 0
    shown = capsys.readouterr().out
    assert "spibb-shpi" in shown
    assert "a simulator" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{log}"], "a log and --out DIR, found no --out"),
        (["--out", "{new}"], "found no log"),
        (["{log}", "--out", "{old}"], "a folder that does not exist yet"),
        (["{log}", "--out", "{old}", "--overwrite"], "only policies are replaced"),
        (["{log}", "--out", "{new}", "--learner", "finest"], "the name of a learner"),
        (["{log}", "--out", "{new}", "--learner", "deep-sarsa"], "learns by acting in a simulator"),
        (["{log}", "--out", "{new}", "-o", "kk=3"], "options of 'shpi' among k, gamma"),
        (["{log}", "--out", "{new}", "-o", "k"], "-o KEY=VALUE, found 'k'"),
        (["{new}.parquet", "--out", "{new}"], "shpi fit: "),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(arguments, message, log, tmp_path, capsys):
    (tmp_path / "old").mkdir()
    places = {"log": log, "new": tmp_path / "new", "old": tmp_path / "old"}
    assert main(["fit", *(text.format(**places) for text in arguments)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()
    assert not any((tmp_path / "old").iterdir())


def test_overwrite_replaces_a_policy(log, tmp_path):
    out = tmp_path / "policy"
    ContextualBandit(oracle=Ridge.exact()).fit(LoggedData.read(log)).save(out)
    before = read_policy_file(out).sha256
    assert main(["fit", str(log), "--learner", "clone", "--out", str(out)]) == 2
    assert read_policy_file(out).sha256 == before
    assert main(["fit", str(log), "--learner", "clone", "--out", str(out), "--overwrite"]) == 0
    assert read_policy_file(out).sha256 != before
