"""The handler of each path: body in, status and body out."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from shpi.serve.service import Service
from shpi.serve.store.records import Activation, Decision, Reward, digest_of
from shpi.serve.web import requests
from shpi.serve.web.answers import answer_of
from shpi.serve.web.metrics import Metrics
from shpi.serve.web.problems import Problem, problem_of

_ENCODE = msgspec.json.Encoder().encode


Answer = tuple[int, bytes]


class Routes:
    """The handlers of a service."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self.service, self.metrics = service, metrics
        self.ranking = service.settings.server.ranking

    # ------------------------------------------------------------------ rank

    async def rank(self, body: bytes) -> Answer:
        """``POST /v1/rank``."""
        began = perf_counter()
        answer = await self._ranked(body)
        self.metrics.took(perf_counter() - began)
        return 200, answer

    async def _ranked(self, body: bytes | msgspec.Raw) -> bytes:
        request = requests.RANK.decode(body)
        raw, service = bytes(body), self.service
        event_id = request.event_id
        if event_id is not None:
            stored = await service.store.find(event_id)
            if stored is not None:
                return self._stored(stored, raw)
        else:
            event_id = service.new_id()
        now = service.now(requests.moment(request.time, "time"))
        added = await service.store.add(service.decide(request, raw, event_id=event_id, now=now))
        decision = added.record
        assert isinstance(decision, Decision)
        if not added.new:
            return self._stored(decision, raw)
        self.metrics.decisions[decision.arm, decision.policy] += 1
        return answer_of(decision, self.ranking)

    def _stored(self, decision: Decision, body: bytes) -> bytes:
        """Repeat the answer to a stored decision; another body under the same id is a conflict."""
        if decision.digest != digest_of(body):
            raise _conflict("event_id")
        self.metrics.count("shpi_duplicates_total", kind="rank")
        return answer_of(decision, self.ranking)

    # ------------------------------------------------------------------ reward, activate

    async def reward(self, event_id: str, body: bytes) -> Answer:
        """``POST /v1/events/{id}/reward``."""
        return 200, _ENCODE(await self._rewarded(event_id, requests.REWARD.decode(body), body))

    async def _rewarded(self, event_id: str, body: requests.RewardBody, raw: bytes) -> dict[str, Any]:
        reward = self.service.rewarded(event_id, body, raw)
        added = await self.service.store.add(reward)
        stored = added.record
        assert isinstance(stored, Reward)
        if not added.new:
            if stored.digest != reward.digest:
                raise _conflict("reward_id")
            self.metrics.count("shpi_duplicates_total", kind="reward")
        known = self.service.store.knows(event_id)
        if added.new:
            self.metrics.rewards[known] += 1
        return {"event_id": event_id, "stored": True, "duplicate": not added.new, "known": known}

    async def activate(self, event_id: str) -> Answer:
        """``POST /v1/events/{id}/activate``."""
        return 200, _ENCODE(await self._activated(event_id))

    async def _activated(self, event_id: str) -> dict[str, Any]:
        if await self.service.store.find(event_id) is None:
            raise _unknown()
        added = await self.service.store.add(Activation(event_id, self.service.now()))
        return {"event_id": event_id, "activated": True, "duplicate": not added.new}

    # ------------------------------------------------------------------ batch

    async def batch(self, body: bytes) -> Answer:
        """``POST /v1/batch``: every entry gets its own answer and status."""
        batch = requests.BATCH.decode(body)
        count, most = len(batch.rank) + len(batch.activate) + len(batch.reward), self.service.settings.server
        if count > most.batch:
            raise Problem(413, f"at most {most.batch} entries", str(count), "body", "send several batches")
        ranked = await asyncio.gather(*(self._entry(self._rank_entry(raw)) for raw in batch.rank))
        activated = await asyncio.gather(*(self._entry(self._activate_entry(raw)) for raw in batch.activate))
        rewarded = await asyncio.gather(*(self._entry(self._reward_entry(raw)) for raw in batch.reward))
        return 200, _ENCODE({"rank": ranked, "activate": activated, "reward": rewarded})

    async def _rank_entry(self, raw: msgspec.Raw) -> msgspec.Raw:
        return msgspec.Raw(await self._ranked(raw))

    async def _reward_entry(self, raw: msgspec.Raw) -> dict[str, Any]:
        entry = requests.REWARD_ENTRY.decode(raw)
        return await self._rewarded(entry.event_id, entry, bytes(raw))

    async def _activate_entry(self, raw: msgspec.Raw) -> dict[str, Any]:
        return await self._activated(requests.ACTIVATE_ENTRY.decode(raw).event_id)

    async def _entry(self, work: Any) -> dict[str, Any]:
        try:
            return {"status": 200, "answer": await work}
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            return {"status": problem.status, **problem.body()}

    # ------------------------------------------------------------------ one event

    async def event(self, event_id: str) -> Answer:
        """``GET /v1/events/{id}``: the decision, its rewards, and why this action was chosen."""
        decision = await self.service.store.find(event_id)
        if decision is None:
            raise _unknown()
        context = requests.context_of(msgspec.Raw(decision.context))
        loaded = self.service.policies.get(decision.policy)
        rewards = await self.service.store.rewards(event_id)
        answer = {
            **msgspec.json.decode(answer_of(decision, 0)),
            "user": decision.user,
            "session": decision.session,
            "previous": decision.previous,
            "time": decision.time / 1e6,
            "context": context,
            "deferred": decision.deferred,
            "activated": await self.service.store.activated(event_id),
            "random_number": decision.uniform,
            "shadow": decision.shadow,
            "rewards": [
                {
                    "name": reward.name,
                    "value": reward.value,
                    "at": reward.time / 1e6,
                    "reward_id": reward.reward_id,
                }
                for reward in rewards
            ],
            "why": why(decision, self.service.settings.decide.floor),
            "explanation": {} if loaded is None else loaded.explain(context, list(decision.items)),
        }
        return 200, _ENCODE(answer)


def why(decision: Decision, floor: float) -> str:
    """One sentence on why the action was chosen."""
    probs = decision.distribution
    best = int(np.argmax(probs))
    chance = f"with probability {probs[decision.place]:.3g}"
    who = f"policy '{decision.policy}' (arm: {decision.arm})"
    if probs.min() == probs[best] and len(probs) > 1:
        return f"{who} found all {len(probs)} candidates equally likely, and this item was drawn {chance}."
    if probs[decision.place] == probs[best]:
        return f"{who} preferred this item, and it was drawn {chance}."
    return (
        f"{who} preferred '{decision.items[best]}' ({probs[best]:.3g}); this item was drawn {chance}, "
        f"of which exploration is {floor / len(probs):.3g}."
    )


def _conflict(field: str) -> Problem:
    return Problem(
        409,
        f"the same body for the same {field}",
        "another body",
        field,
        "send a new id for a new request; retries repeat the body byte for byte",
    )


def _unknown() -> Problem:
    return Problem(404, "the id of a decision", "an unknown one", "path")
