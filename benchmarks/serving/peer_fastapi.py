"""The peer: FastAPI, pydantic and SQLite doing the same: 112 actions, stored before the answer.

Run by the peers' environment: python peer_fastapi.py WEIGHTS.npz DATABASE PORT. SQLite writes ahead with
synchronous=FULL, and commits in groups: requests that wait together share a commit, as in ours.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

arrays = np.load(sys.argv[1])
weights, mean, scale = arrays["weights"], arrays["mean"], arrays["scale"]
items = [f"item-{n}" for n in range(len(weights))]
names = [f"f{n}" for n in range(len(mean))]
database = sqlite3.connect(sys.argv[2], check_same_thread=False, isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, time REAL, body TEXT, answer TEXT)")
database.execute(
    "CREATE TABLE IF NOT EXISTS rewards (id TEXT, reward TEXT, value REAL, PRIMARY KEY (id, reward))"
)
pool, rng = ThreadPoolExecutor(1), np.random.default_rng(0)
waiting: list[tuple[str, tuple[Any, ...], asyncio.Future[None]]] = []  # statement, values, when it is stored


class RankBody(BaseModel):
    """A request."""

    user: str
    event_id: str | None = None
    context: dict[str, float]


class Item(BaseModel):
    """An item and its probability."""

    id: str
    propensity: float


class Ranked(BaseModel):
    """An answer."""

    event_id: str
    action: str
    propensity: float
    ranking: list[Item]


class RewardBody(BaseModel):
    """A reward."""

    value: float
    reward_id: str


def write(group: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
    database.execute("BEGIN")
    for statement, values in group:
        database.execute(statement, values)
    database.execute("COMMIT")


async def commits() -> None:
    loop = asyncio.get_running_loop()
    while True:
        while not waiting:
            await asyncio.sleep(0.0005)
        group = waiting[:]
        waiting.clear()
        await loop.run_in_executor(pool, write, [(statement, values) for statement, values, _ in group])
        for _, _, done in group:
            done.set_result(None)


async def stored(statement: str, values: tuple[Any, ...]) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.append((statement, values, done))
    await done


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.task = asyncio.create_task(commits())
    yield
    app.state.task.cancel()


async def rank(body: RankBody) -> Ranked:
    event = body.event_id or uuid.uuid4().hex
    x = (np.array([body.context[name] for name in names]) - mean) / scale
    logits = weights @ np.append(1.0, x)
    probs = np.exp(logits - logits.max())
    probs /= probs.sum()
    chosen = int(rng.choice(len(probs), p=probs))
    order = np.argsort(-probs)[:10]  # as many as we answer
    answer = Ranked(
        event_id=event,
        action=items[chosen],
        propensity=float(probs[chosen]),
        ranking=[Item(id=items[place], propensity=float(probs[place])) for place in order],
    )
    row = (event, time.time(), body.model_dump_json(), json.dumps(probs.tolist()))
    await stored("INSERT INTO events VALUES (?, ?, ?, ?)", row)
    return answer


async def reward(event: str, body: RewardBody) -> dict[str, bool]:
    row = (event, body.reward_id, body.value)
    await stored("INSERT OR IGNORE INTO rewards VALUES (?, ?, ?)", row)
    return {"stored": True}


app = FastAPI(lifespan=lifespan)
app.add_api_route("/v1/rank", rank, methods=["POST"], response_model=Ranked)
app.add_api_route("/v1/events/{event}/reward", reward, methods=["POST"], response_model=None)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[3]), log_level="error", access_log=False)
