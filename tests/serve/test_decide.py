from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shpi.data.schema import ContextSchema, Feature
from shpi.errors import ActionError, ConfigError, DataError
from shpi.policies import FunctionScorer, Greedy, sample_actions
from shpi.serve.decide import Arms, Chooser, ContextEncoder, compile_policy
from shpi.serve.decide.arms import uniform_of
from shpi.serve.decide.choice import allowed, draw, first_choice
from shpi.serve.decide.context import flat
from tests.serve.policies import policies

ALL = policies()


@pytest.mark.parametrize("name", ALL)
def test_compiled_equals_action_probs(name: str) -> None:
    policy, rng = ALL[name], np.random.default_rng(1)
    compiled = compile_policy(policy)
    assert compiled.native
    for _ in range(100):
        x, mask = rng.normal(3.0, 3.0, size=5), rng.random(7) < 0.6
        mask[rng.integers(7)] = True
        assert np.abs(compiled.probs(x) - policy.action_probs(x[None])[0]).max() <= 1e-12
        wanted = policy.action_probs(x[None], mask[None])[0]
        assert np.abs(compiled.probs(x, mask) - wanted).max() <= 1e-12


def test_a_policy_of_another_make_is_called_as_it_is() -> None:
    policy = Greedy(FunctionScorer(lambda x: np.stack([x[:, 0], -x[:, 0]], axis=1), 2, 1))
    compiled = compile_policy(policy)
    assert compiled.probs(np.array([2.0])).tolist() == [1.0, 0.0]
    assert compiled.probs(np.array([-2.0])).tolist() == [0.0, 1.0]

    class Odd(Greedy):
        def action_probs(self, contexts, candidates=None):  # type: ignore[no-untyped-def]
            return np.full((len(contexts), 2), 0.5)

    odd = compile_policy(Odd(policy.scorer))
    assert not odd.native
    assert odd.probs(np.array([2.0])).tolist() == [0.5, 0.5]


# ---------------------------------------------------------------------- contexts

SCHEMA = ContextSchema(
    features=(
        Feature(name="a"),
        Feature(name="b", missing="mean", fill=0.25),
        Feature(name="c", missing="indicator", fill=1.5),
        Feature(name="flag", kind="boolean", missing="zero"),
        Feature(name="kind", kind="categorical", missing="indicator", categories=("x", "y")),
        Feature(name="code", kind="categorical", missing="zero", categories=("1", "2")),
    )
)
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False) | st.integers(-(10**6), 10**6)


@settings(max_examples=60, deadline=None)
@given(
    a=NUMBERS,
    b=st.none() | st.floats(-1e6, 1e6),
    c=st.none() | st.floats(-1e6, 1e6),
    flag=st.none() | st.booleans(),
    kind=st.none() | st.sampled_from(["x", "y", "z"]),
    code=st.none() | st.integers(0, 3),
)
def test_encoding_equals_that_of_the_table_engine(**context: object) -> None:
    types = {"a": pl.Float64, "b": pl.Float64, "c": pl.Float64, "flag": pl.Boolean}
    types |= {"kind": pl.String, "code": pl.Int64}
    row = {key: float(value) if key == "a" else value for key, value in context.items()}  # type: ignore[arg-type]
    wanted = SCHEMA.encode_checked(pl.DataFrame([row], schema=types))[0]
    assert np.array_equal(ContextEncoder(SCHEMA).encode(context), wanted.astype(np.float64))


def test_plain_numbers_take_the_short_way() -> None:
    schema = ContextSchema.numeric(["u", "v"])
    encoder = ContextEncoder(schema)
    assert encoder.encode({"v": 2, "u": 0.1, "more": "text"}).tolist() == [float(np.float32(0.1)), 2.0]
    wrong = (
        {"u": 1.0},
        {"u": "1", "v": 2},
        {"u": None, "v": 2},
        {"u": math.nan, "v": 1},
        {"u": 1e300, "v": 1},
    )
    for context in (*wrong, {"u": 10**400, "v": 1}, {"u": [1], "v": 1}):
        with pytest.raises(DataError, match="context"):
            encoder.encode(context)


def test_objects_are_flattened() -> None:
    assert flat({"a": {"b": 1, "c": [2, {"d": 3}]}, "e": 4}) == {"a.b": 1, "a.c.0": 2, "a.c.1.d": 3, "e": 4}
    encoder = ContextEncoder(ContextSchema.numeric(["a.b", "e"]))
    assert encoder.encode({"a": {"b": 1}, "e": 4}).tolist() == [1.0, 4.0]


def test_errors_do_not_repeat_the_value_of_a_user() -> None:
    with pytest.raises(DataError) as error:
        ContextEncoder(SCHEMA).encode({"a": "secret"})
    assert "secret" not in str(error.value)


# ---------------------------------------------------------------------- choices


def chooser(floor: float = 0.05) -> Chooser:
    schema = ContextSchema.numeric(["a", "b", "c", "d", "e"])
    policy = compile_policy(ALL["greedy"])
    return Chooser("p", policy, ContextEncoder(schema), tuple(f"i{n}" for n in range(7)), floor)


CONTEXT = {"a": 1.0, "b": 2.0, "c": 0.5, "d": 4.0, "e": -1.0}


def test_the_floor_is_a_mixture_with_the_candidates() -> None:
    own = ALL["greedy"].action_probs(np.array([[1.0, 2.0, 0.5, 4.0, -1.0]]))[0]
    choice = chooser().choose(CONTEXT, None, 0.3)
    assert np.allclose(choice.probs, 0.95 * own + 0.05 / 7, atol=1e-15)
    assert choice.propensity == choice.probs[choice.place]
    some = chooser().choose(CONTEXT, ["i1", "i4", "new"], 0.3)
    assert min(some.probs) == pytest.approx(0.05 / 3)
    assert sum(some.probs) == pytest.approx(1.0)
    assert some.probs[2] == pytest.approx(0.05 / 3)  # cold: its share of the floor and nothing more


def test_nothing_known_is_uniform() -> None:
    choice = chooser().choose(CONTEXT, ["u", "v"], 0.7)
    assert choice.probs.tolist() == [0.5, 0.5]
    assert choice.action == "v"


def test_exclusions_come_before_the_draw() -> None:
    assert allowed(["a", "b", "c"], ["b"]) == ["a", "c"]
    with pytest.raises(ActionError, match="none"):
        allowed(["a"], ["a"])


def test_the_apprentice_returns_the_first_choice() -> None:
    assert first_choice(["x", "y"], 0.9, 0.0).probs.tolist() == [1.0, 0.0]
    assert first_choice(["x", "y"], 0.9, 0.1).probs == pytest.approx([0.95, 0.05])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9).filter(any), st.floats(0, 1, exclude_max=True))
def test_the_draw_is_that_of_sample_actions(weights: list[float], uniform: float) -> None:
    probs = np.array(weights)
    assert draw(probs, uniform) == sample_actions(probs[None], np.array([uniform]))[0]


def test_drawn_frequencies_are_the_propensities() -> None:
    served, salt = chooser(0.5), b"salt"
    drawn = [served.choose(CONTEXT, None, uniform_of(f"event {n}", salt)).place for n in range(4000)]
    shares = np.bincount(drawn, minlength=7) / len(drawn)
    assert np.abs(shares - served.choose(CONTEXT, None, 0.0).probs).max() < 0.03


# ---------------------------------------------------------------------- arms


def test_arms_are_nested_stable_and_of_their_size() -> None:
    users = [f"user {n}" for n in range(20_000)]
    small, large = (Arms(salt=b"s", hold_back=0.05, canary=share) for share in (0.01, 0.20))
    first, later = [small.of(user) for user in users], [large.of(user) for user in users]
    assert abs(first.count("hold-back") / len(users) - 0.05) < 0.01
    assert abs(later.count("canary") / len(users) - 0.20) < 0.015
    assert all(b == "hold-back" for a, b in zip(first, later, strict=True) if a == "hold-back")
    assert all(b == "canary" for a, b in zip(first, later, strict=True) if a == "canary")
    assert [Arms(salt=b"t").of(user) for user in users[:200]] != [Arms(salt=b"s").of(u) for u in users[:200]]
    with pytest.raises(ConfigError):
        Arms(salt=b"s", hold_back=0.5, canary=0.6)
