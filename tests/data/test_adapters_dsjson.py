from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shpi.data.adapters import from_vw_dsjson
from shpi.errors import DataError


def event(number: int = 1, **changes: Any) -> dict[str, Any]:
    """One event as the decision service writes it: the second of three actions was shown, and clicked."""
    row = {
        "_label_cost": -1.0,
        "_label_probability": 0.8,
        "_label_Action": 2,
        "_labelIndex": 1,
        "o": [{"v": 1.0, "EventId": f"e{number}", "ActionTaken": False}],
        "Timestamp": f"2026-03-0{number}T10:00:00.1234560Z",
        "Version": "1",
        "EventId": f"e{number}",
        "a": [2, 1, 3],
        "c": {
            "User": {"id": f"u{number % 2}", "age": 30 + number, "device": "phone", "pro": True},
            "hist": [0.5, 0.25],
            "_multi": [
                {"_tag": "news", "item": {"length": 3, "topic": "world"}},
                {"_tag": "sport", "item": {"length": 5, "topic": "ball"}},
                {"_tag": "art", "item": {"topic": "world"}},
            ],
        },
        "p": [0.8, 0.15, 0.05],
        "VWState": {"m": "model-1"},
    }
    return {**row, **changes}


def lines(*rows: dict[str, Any]) -> list[str]:
    return [json.dumps(row) + "\n" for row in rows]


def test_costs_become_rewards_and_probabilities_find_their_actions() -> None:
    shown_first = event(
        2,
        _label_cost=0.25,
        _label_probability=0.1,
        _labelIndex=0,
        _label_Action=1,
        a=[1, 2, 3],
        p=[0.1, 0.2, 0.7],
    )
    logs = from_vw_dsjson(lines(event(1), shown_first))
    assert logs.action_space.ids == ("art", "news", "sport")
    assert [logs.action_space.ids[a] for a in logs.actions] == ["sport", "news"]
    assert logs.rewards.tolist() == [1.0, -0.25]
    assert logs.propensities.tolist() == [0.8, 0.1]
    np.testing.assert_allclose(logs.behaviour, [[0.05, 0.15, 0.8], [0.7, 0.1, 0.2]])
    assert logs.candidates is None  # all three were allowed in both events
    assert logs.propensity_mode == "logged"
    assert logs.n_users == 2


def test_features_are_flattened() -> None:
    logs = from_vw_dsjson(lines(event(1), event(2)))
    named = dict(zip(logs.schema.dimensions, logs.contexts.T, strict=True))
    assert named["User.age"].tolist() == [31, 32]
    assert named["User.pro"].tolist() == [1, 1]
    assert named["User.device=phone"].tolist() == [1, 1]
    assert named["User.id=u0"].tolist() == [0, 1]
    assert named["hist[1]"].tolist() == [0.25, 0.25]
    space = dict(zip(logs.action_space.feature_names, logs.action_space.features.T, strict=True))
    assert space["item.length"].tolist() == [0, 3, 5]  # art has none: sparse, so 0
    assert space["item.topic=world"].tolist() == [1, 1, 0]


def test_a_number_that_is_not_written_is_zero() -> None:
    sparse = event(2)
    del sparse["c"]["User"]["age"], sparse["c"]["User"]["device"]
    logs = from_vw_dsjson(lines(event(1), sparse))
    named = dict(zip(logs.schema.dimensions, logs.contexts.T, strict=True))
    assert named["User.age"].tolist() == [31, 0]
    assert named["User.device=<other>"].tolist() == [0, 1]


def test_users_and_time_make_trajectories() -> None:
    logs = from_vw_dsjson(lines(event(3), event(2), event(1), event(4)), user="User.id")
    assert logs.users.tolist() == ["u0", "u1"]
    assert logs.offsets.tolist() == [0, 2, 4]
    assert not any(name.startswith("User.id") for name in logs.schema.dimensions)
    day = 86_400_000_000
    first = np.datetime64("2026-03-02T10:00:00.123456").astype("datetime64[us]").astype(np.int64)
    assert logs.times.tolist() == [first, first + 2 * day, first - day, first + day]
    assert logs.time_unit == "us"


def test_a_time_with_an_offset_is_converted() -> None:
    rows = lines(event(1, Timestamp="2026-03-01T10:00:00+02:00"), event(2, Timestamp="2026-03-01T08:00:00"))
    times = from_vw_dsjson(rows).times
    assert times[0] == times[1]


def test_candidate_sets_that_differ_become_masks() -> None:
    small = event(2, a=[2, 1], p=[0.8, 0.2])
    small["c"]["_multi"] = small["c"]["_multi"][:2]
    logs = from_vw_dsjson(lines(event(1), small))
    assert logs.candidates.tolist() == [[True, True, True], [False, True, True]]
    assert logs.behaviour[1].tolist() == [0.0, 0.2, 0.8]


def test_without_tags_an_action_is_its_position() -> None:
    row = event(1)
    for action in row["c"]["_multi"]:
        del action["_tag"]
    logs = from_vw_dsjson(lines(row))
    assert logs.action_space.ids == (0, 1, 2)
    assert logs.actions.tolist() == [1]


def test_an_action_feature_can_name_the_action() -> None:
    row = event(1)
    for number, action in enumerate(row["c"]["_multi"]):
        action["item"]["id"] = 100 + number
    logs = from_vw_dsjson(lines(row), action_id="item.id")
    assert logs.action_space.ids == (100, 101, 102)
    with pytest.raises(DataError, match=r"a different 'item\.topic'.*line 1.*action_id"):
        from_vw_dsjson(lines(row), action_id="item.topic")


def test_features_that_change_are_left_out_and_named() -> None:
    other = event(2)
    other["c"]["_multi"][0]["item"]["length"] = 4
    logs = from_vw_dsjson(lines(event(1), other))
    assert "item.length" not in logs.action_space.feature_names
    assert logs.ledger.notes == ("action features that change between events left out: item.length",)


def test_many_categories_are_cut_and_reported() -> None:
    rows = [event(i) for i in range(1, 7)]
    for number, row in enumerate(rows):
        row["c"]["User"]["device"] = f"d{min(number, 3)}"
    logs = from_vw_dsjson(lines(*rows), max_categories=2)
    devices = [name for name in logs.schema.dimensions if name.startswith("User.device")]
    assert devices == ["User.device=d0", "User.device=d3", "User.device=<other>"]
    assert "feature 'User.device': 4 values, the 2 most frequent kept" in logs.ledger.notes


def test_lines_that_are_no_decisions_are_counted() -> None:
    unlabelled = event(3)
    del unlabelled["_label_cost"]
    slots = event(4)
    slots["c"]["_slots"] = [{}]
    rows = lines(
        event(1),
        {"RewardValue": 1.0, "EventId": "e9"},
        unlabelled,
        slots,
        event(5, _skipLearn=True),
        event(1),
    )
    logs = from_vw_dsjson([*rows, "\n"])
    assert logs.ledger.rows_in == 6
    assert logs.ledger.rows_used == len(logs) == 1
    assert logs.ledger.balanced()
    assert {drop.reason: (drop.rows, drop.example) for drop in logs.ledger.drops} == {
        "no label": (2, 1),
        "several slots in one decision (_slots)": (1, 3),
        "never shown (_skipLearn)": (1, 4),
        "EventId seen before": (1, 5),
    }


def test_down_sampling_is_reported() -> None:
    logs = from_vw_dsjson(lines(event(1, pdrop=0.5), event(2)))
    assert logs.metrics["sample_weight"].tolist() == [2.0, 1.0]
    assert "probability of drop 0.25 on average" in logs.ledger.notes[0]
    with pytest.raises(DataError, match=r"pdrop.*in \[0, 1\), found 1.0 \(dsjson, line 1\)"):
        from_vw_dsjson(lines(event(1, pdrop=1.0)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_labelIndex": 0}, r"_label_Action = _labelIndex \+ 1"),
        ({"_labelIndex": 7, "_label_Action": 8}, r"the label of one of the actions"),
        ({"_labelIndex": None, "_label_Action": None}, r"'_labelIndex' or '_label_Action', found neither"),
        ({"_labelIndex": None, "_label_Action": "2"}, r"whole numbers as labels"),
        ({"_label_probability": 0.0}, r"_label_probability in \(0, 1\], found 0\.0"),
        ({"_label_probability": 0.5}, r"_label_probability to be the entry of 'p'"),
        ({"p": [0.8, 0.15, 0.06]}, r"sum to 1, found a sum of 1\.01"),
        ({"a": [2, 1], "p": [0.8, 0.2]}, r"order the actions 1\.\.3"),
        ({"_label_cost": float("nan")}, r"a finite number in '_label_cost', found nan"),
        ({"_label_cost": "-1"}, r"a finite number in '_label_cost', found '-1'"),
        ({"Timestamp": "yesterday"}, r"ISO 8601 Timestamp, found 'yesterday'"),
        ({"c": {"User": {}}}, r"its list of actions '_multi'"),
    ],
)
def test_contradictions_name_their_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        from_vw_dsjson(lines(event(1), event(2, **change)))
    assert "line 2" in str(caught.value)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.dsjson"
    path.write_text("".join(lines(event(1), event(2))) + '{"_label_cost": -1, "_lab', encoding="utf-8")
    with pytest.raises(DataError, match=r"log\.dsjson, line 3\)\. What to do: repair or remove the line"):
        from_vw_dsjson(path)
    with pytest.raises(DataError, match=r"a JSON object on every line, found list \(dsjson, line 1\)"):
        from_vw_dsjson(["[1, 2]\n"])


def test_files_packed_or_not(tmp_path: Path) -> None:
    content = "".join(lines(event(1), event(2)))
    plain, packed = tmp_path / "log.json", tmp_path / "log.json.gz"
    plain.write_text(content, encoding="utf-8")
    with gzip.open(packed, "wt", encoding="utf-8") as stream:
        stream.write(content)
    assert from_vw_dsjson(plain).fingerprint() == from_vw_dsjson(str(packed)).fingerprint()
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DataError, match="a whole text file"):
        from_vw_dsjson(packed)
    with pytest.raises(DataError, match="no file"):
        from_vw_dsjson(tmp_path / "absent.json")


def test_nothing_to_learn_from() -> None:
    with pytest.raises(DataError, match="2 lines, none of them usable: 2 no label"):
        from_vw_dsjson(lines({"EventId": "a"}, {"EventId": "b"}))
    with pytest.raises(DataError, match="no lines at all"):
        from_vw_dsjson([])


def test_a_missing_user_or_time_is_named() -> None:
    row = event(2)
    del row["c"]["User"]["id"]
    with pytest.raises(DataError, match=r"'User\.id' \(the user\).*line 2"):
        from_vw_dsjson(lines(event(1), row), user="User.id")
    untimed = event(2)
    del untimed["Timestamp"]
    with pytest.raises(DataError, match=r"a Timestamp in every event, or in none.*line 2"):
        from_vw_dsjson(lines(event(1), untimed))
    assert from_vw_dsjson(lines(untimed)).time_unit == "step"


def test_vowpal_wabbit_reads_the_same_labels() -> None:
    vw = pytest.importorskip("vowpalwabbit", reason="the comparison needs vowpalwabbit")
    rows = [
        event(1),
        event(
            2,
            _label_cost=0.5,
            _labelIndex=2,
            _label_Action=3,
            _label_probability=0.05,
            a=[3, 1, 2],
            p=[0.05, 0.15, 0.8],
        ),
    ]
    logs = from_vw_dsjson(lines(*rows))
    workspace = vw.Workspace("--cb_explore_adf --dsjson --quiet")
    for row, line in enumerate(lines(*rows)):
        examples = workspace.parse(line)
        labels = [e.get_label(vw.LabelType.CONTEXTUAL_BANDIT).costs for e in examples[1:]]  # 0 is shared
        labelled = [(index, costs[0]) for index, costs in enumerate(labels) if costs]
        assert len(labelled) == 1
        index, cost = labelled[0]
        names = [action["_tag"] for action in rows[row]["c"]["_multi"]]
        assert logs.action_space.ids[logs.actions[row]] == names[index]
        assert logs.rewards[row] == -cost.cost
        assert logs.propensities[row] == pytest.approx(cost.probability, rel=1e-6)
        workspace.finish_example(examples)
    workspace.finish()
