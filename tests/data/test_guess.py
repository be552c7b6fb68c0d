"""The guessed column map: nothing in the context that looks like an outcome or an id."""

from __future__ import annotations

import tomllib

import polars as pl
import pytest

from shpi.data._read.guess import guess_columns, is_id, is_outcome

SHOP = [
    "user_id",
    "ts",
    "session_id",
    "shown_item",
    "clicked",
    "purchased",
    "tenure",
    "device",
    "hist_clicks",
]
PUSH = ["notification_id", "user_id", "sent_at", "template", "opened", "opened_at", "closed", "app_version"]


def test_outcomes_are_metrics_and_not_context() -> None:
    """Failed before: `purchased` beside the reward `clicked` was proposed as context."""
    guess = tomllib.loads(guess_columns([*SHOP[:3], "item_id", *SHOP[4:]]))
    assert guess["reward"] == "clicked"
    assert guess["metrics"] == ["purchased"]
    assert guess["context"] == ["tenure", "device", "hist_clicks"]


def test_push_notifications() -> None:
    """Failed before: `sent_at` was not found as the time, `opened` and `closed` were context."""
    guess = tomllib.loads(guess_columns(PUSH))
    assert (guess["user"], guess["time"], guess["action"]) == ("user_id", "sent_at", "template")
    assert guess["metrics"] == ["opened", "closed"]
    assert guess["context"] == ["app_version"]
    assert "notification_id, opened_at" in guess_columns(PUSH)


def test_types_keep_text_out_of_the_metrics() -> None:
    types = pl.Schema({name: pl.String() for name in PUSH} | {"opened": pl.Int64(), "closed": pl.Boolean()})
    guess = tomllib.loads(guess_columns(PUSH, types))
    assert guess["metrics"] == ["opened", "closed"]


@pytest.mark.parametrize("name", ["purchased", "Opened", "closedAt", "is_click", "watchTime"])
def test_outcomes(name: str) -> None:
    assert is_outcome(name)


@pytest.mark.parametrize(
    "name",
    ["hist_clicks", "clicks_7d", "days_since_purchase", "avg_watch", "tenure", "n_orders", "last_purchase"],
)
def test_features(name: str) -> None:
    assert not is_outcome(name)
    assert not is_id(name)


def test_ids_and_dotted_names() -> None:
    assert is_id("request_id")
    assert is_id("deviceId")
    guess = tomllib.loads(
        guess_columns(["EventId", "Timestamp", "action", "probability", "reward", "User.id", "User.age"])
    )
    assert guess["user"] == "User.id"
    assert guess["propensity"] == "probability"
    assert guess["context"] == ["User.age"]


def test_names_with_quotes_stay_toml() -> None:
    assert tomllib.loads(guess_columns(["item", 'the "best"']))["context"] == ['the "best"']


@pytest.mark.parametrize("name", ["Player", "customer_no", "context.user.id", "patientId", "shopper", "user"])
def test_people_are_users(name: str) -> None:
    """Failed before: `Player` was proposed as context."""
    guess = tomllib.loads(guess_columns(["mood", name, "offer", "player_level"]))
    assert (guess["user"], guess["context"]) == (name, ["mood", "player_level"])


def test_what_was_spent_so_far_is_known_before() -> None:
    """Failed before: it was proposed as an outcome."""
    assert tomllib.loads(guess_columns(["item", "spent_so_far"]))["context"] == ["spent_so_far"]
