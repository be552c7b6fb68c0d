"""Requests that arrive together are decided together: the same decisions as one by one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from shpi.data.actions import ActionSpace
from shpi.data.schema import ContextSchema
from shpi.errors import ShpiError
from shpi.policies import save_policy
from shpi.serve import Service
from shpi.serve.decide import ContextEncoder, compile_batch
from shpi.serve.decide.choice import Catalogue
from shpi.serve.loop.control import Control
from shpi.serve.service import Asked, prepare
from shpi.serve.store import Decision
from shpi.serve.store.records import decode, encode
from shpi.serve.web import requests
from shpi.serve.web.answers import answer_of, answers_of, ranked
from shpi.serve.web.hot import Hot
from shpi.serve.web.server import make_app
from tests.serve.policies import policies

ALL = policies()
NAMES = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("name", ALL)
def test_a_batch_equals_action_probs(name: str) -> None:
    policy, x = ALL[name], np.random.default_rng(1).normal(3.0, 3.0, size=(100, 5))
    batch = compile_batch(policy)
    assert (batch is not None) == (name in ("logistic", "tilted", "tilted twice"))
    if batch is not None:
        assert np.abs(batch(x) - policy.action_probs(x)).max() <= 1e-12


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_logits_of_any_size_give_probabilities(size: float) -> None:
    """Below a bound the greatest logit is not subtracted: both ways must be the same softmax."""
    policy, x = ALL["tilted"], size * np.random.default_rng(2).normal(size=(50, 5))
    batch = compile_batch(policy)
    assert batch is not None
    probs = batch(x)
    assert np.abs(probs - policy.action_probs(x)).max() <= 1e-12
    assert np.abs(probs.sum(axis=1) - 1).max() <= 1e-12


def test_rankings_put_the_first_of_equals_first() -> None:
    rng = np.random.default_rng(3)
    probs = np.concatenate([rng.random((20, 30)), rng.integers(0, 4, (20, 30)) / 4, np.ones((2, 30))])
    for most in (1, 10, 29, 30):
        order, greatest = ranked(probs, most)
        expected = np.argsort(-probs, axis=1, kind="stable")[:, :most]
        assert np.array_equal(order, expected)
        assert np.array_equal(greatest, np.take_along_axis(probs, expected, axis=1))


def test_answers_of_a_mixed_batch_are_those_of_each_decision(tmp_path: Path) -> None:
    service = served(tmp_path)
    bodies = [body(n) for n in range(40)]
    bodies[3] = body(3, candidates=["i1", "new\nline", "i4"])
    bodies[7] = body(7, exclude=["i2"])
    asked = [Asked(requests.RANK.decode(raw), raw, f"e{n}", 5) for n, raw in enumerate(bodies)]
    decisions = [decision for decision in service.decide_each(asked) if isinstance(decision, Decision)]
    together = answers_of(decisions, 3)
    assert together == [answer_of(decision, 3) for decision in decisions]
    for decision, answer in zip(decisions, map(json.loads, together), strict=True):
        assert answer["event_id"] == decision.event_id
        assert (answer["action"], answer["propensity"]) == (decision.action, decision.propensity)
        by_item = dict(zip(decision.items, decision.distribution.tolist(), strict=True))
        assert [by_item[entry["id"]] for entry in answer["ranking"]] == sorted(by_item.values())[:-4:-1]


def test_the_items_of_a_policy_are_packed_once_into_the_same_bytes(tmp_path: Path) -> None:
    service = served(tmp_path)
    raw = body(1)
    made = service.decide(requests.RANK.decode(raw), raw, event_id="e1", now=5)
    assert type(made.items) is Catalogue
    plain = msgspec.structs.replace(made, items=list(made.items))
    assert encode(made) == encode(plain)
    assert decode(encode(made)) == plain


def served(folder: Path) -> Service:
    """A service whose champion is what SHPI returns by default."""
    prepare(folder)
    save_policy(
        ALL["tilted"],
        folder / "policies" / "p1",
        schema=ContextSchema.numeric(NAMES),
        actions=ActionSpace(ids=tuple(f"i{n}" for n in range(7))),
    )
    Control.read(folder).with_canary("p1", "test", 1).promoted("test", 2).write(folder)
    return Service(folder)


def body(n: int, **more: object) -> bytes:
    context = dict(zip(NAMES, np.random.default_rng(n).normal(3.0, 2.0, size=5).tolist(), strict=True))
    return json.dumps({"user": f"u{n}", "event_id": f"e{n}", "context": context, **more}).encode()


def test_together_and_one_by_one_are_the_same_decisions(tmp_path: Path) -> None:
    service = served(tmp_path)
    bodies = [body(n) for n in range(200)]
    bodies[3] = body(3, candidates=["i1", "i4", "new"])
    bodies[7] = body(7, exclude=["i2"])
    asked = [Asked(requests.RANK.decode(raw), raw, f"e{n}", 5) for n, raw in enumerate(bodies)]
    together = service.decide_each(asked)
    for request, decision in zip(asked, together, strict=True):
        assert isinstance(decision, Decision)
        alone = service.decide(request.request, request.body, event_id=request.event_id, now=5)
        assert (alone.action, alone.policy, alone.arm, alone.uniform, alone.digest, alone.items) == (
            decision.action, decision.policy, decision.arm, decision.uniform, decision.digest, decision.items
        )  # fmt: skip
        assert np.abs(alone.distribution - decision.distribution).max() <= 1e-12
    assert {decision.arm for decision in together if isinstance(decision, Decision)} == {
        "hold-back",
        "champion",
    }


def test_contexts_together_round_as_one_by_one() -> None:
    encoder, rng = ContextEncoder(ContextSchema.numeric(NAMES)), np.random.default_rng(4)
    numbers = (10.0 ** rng.uniform(-44, 38, size=(200, 5))) * rng.choice([-1, 1], size=(200, 5))
    contexts = [dict(zip(NAMES, row.tolist(), strict=True)) for row in numbers]
    together = encoder.encode_each([json.dumps(context).encode() for context in contexts])
    assert together is not None
    assert np.array_equal(together, np.stack([encoder.encode(context) for context in contexts]))
    assert encoder.encode_each([json.dumps({**contexts[0], "b": 1e39}).encode()]) is None


def test_a_bad_request_does_not_disturb_the_others(tmp_path: Path) -> None:
    service = served(tmp_path)
    bodies = [body(n) for n in range(6)]
    bodies[2] = body(2, context={"a": "text", "b": 1, "c": 1, "d": 1, "e": 1})
    bodies[4] = body(4, context={"a": 1e300, "b": 1, "c": 1, "d": 1, "e": 1})
    users = [f"u{n}" for n in range(6)]
    asked = [Asked(requests.RANK.decode(raw), raw, f"e{n}", 5) for n, raw in enumerate(bodies)]
    decisions = service.decide_each(asked)
    for number, (user, decision) in enumerate(zip(users, decisions, strict=True)):
        looks = service._who(user)[0] == "champion"  # the hold-back does not look at the context
        wrong = looks and number in (2, 4)
        assert isinstance(decision, ShpiError if wrong else Decision)


def test_the_same_id_twice_in_one_turn_is_stored_once(tmp_path: Path) -> None:
    async def work() -> list[tuple[int, bytes]]:
        app = make_app(served(tmp_path), schedule=False)
        hot, answers = Hot(app.service, app.routes, app.metrics), []
        for raw in (body(1), body(1), body(1, session="another")):
            hot.rank(raw, lambda status, answer: answers.append((status, answer)))
        while len(answers) < 3:
            await asyncio.sleep(0.01)
        assert len(app.service.store) == 1  # type: ignore[arg-type]
        await app.service.store.close()
        return answers

    answers = asyncio.run(asyncio.wait_for(work(), 20))
    assert sorted(status for status, _ in answers) == [200, 200, 409]
    assert len({answer for status, answer in answers if status == 200}) == 1
