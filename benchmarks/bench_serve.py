"""`shpi serve` under load: decisions and rewards per CPU second of the server, latency, and kills.

Server and client are separate processes on this machine. Requests per CPU second count the server's user and
system time, which other load on the machine changes little; latency is wall time, and meaningful on a quiet
machine only. The peer is FastAPI with pydantic and SQLite (WAL, synchronous=FULL, group commit) doing the
same; for the decision alone, Vowpal Wabbit's predict. Both run in the peers' environment.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from tests.serve.database import Postgres, reason

from benchmarks.peers import peer_python
from benchmarks.report import Row
from benchmarks.serving.load import Answers, ranks, rewards, send
from benchmarks.serving.servers import NAMES, WIDTH, Server, free_port, made_policy, make_folder, ours
from shpi.serve.decide import ContextEncoder, compile_policy
from shpi.serve.store.files import read_records
from shpi.serve.store.postgres import PostgresStore
from shpi.serve.store.records import Decision, Record, Reward

Read = Callable[[], Iterable[Record]]  # reads the stored records
COUNT = 12_000
KILLS = int(os.environ.get("SHPI_SERVE_KILLS", "20"))
HERE = Path(__file__).parent / "serving"


def run() -> Iterator[Row]:
    yield from _decision()
    with tempfile.TemporaryDirectory() as place:
        yield from _ours(Path(place))
        yield from _peer(Path(place))
    yield from _kills("files")
    why = reason()
    if why is not None:
        yield Row("kill -9 under load, Postgres", float("nan"), "", why)
        return
    with Postgres() as database:
        toml = f'[store]\nkind = "postgres"\nurl = "{database.url}"\n'
        yield from _kills("Postgres", toml, lambda: PostgresStore(database.url).scan())


def _kills(
    store: str, toml: str = "", records: Callable[[], Iterable[Record]] | None = None
) -> Iterator[Row]:
    lost, doubled, changed, acknowledged = killed(KILLS, toml, records)
    yield Row(
        f"kill -9 under load, {store}, {KILLS} times: acknowledged",
        float(acknowledged),
        "decisions and rewards",
    )
    yield Row("… of these lost", float(lost), "", "", "<= 0")
    yield Row("… stored twice", float(doubled), "", "", "<= 0")
    yield Row("… with another propensity than answered", float(changed), "", "", "<= 0")


# ---------------------------------------------------------------------- the decision alone


def _decision() -> Iterator[Row]:
    from shpi.data.schema import ContextSchema

    policy, rng = made_policy(), np.random.default_rng(1)
    compiled, x = compile_policy(policy), rng.normal(size=(400, WIDTH))
    ours_us = _best(lambda: [compiled.probs(row) for row in x]) / len(x)
    whole = _best(lambda: [policy.action_probs(row[None]) for row in x[:100]]) / 100
    error = max(float(np.abs(compiled.probs(row) - policy.action_probs(row[None])[0]).max()) for row in x)
    encoder = ContextEncoder(ContextSchema.numeric(NAMES))
    context = dict(zip(NAMES, x[0].tolist(), strict=True))
    encoding = _best(lambda: [encoder.encode(context) for _ in range(400)]) / 400
    yield Row("one decision, compiled (112 actions, 47 features)", ours_us, "µs CPU", "", "<= 25")
    yield Row("… action_probs of one row", whole, "µs CPU")
    yield Row("… largest difference", error, "", "", "<= 1e-12")
    yield Row("… encoding the JSON context", encoding, "µs CPU")
    python = peer_python()
    if python is None:
        yield Row("… Vowpal Wabbit's predict", float("nan"), "µs CPU", "no peers' environment")
        return
    done = subprocess.run([python, HERE / "peer_vw.py"], capture_output=True, text=True, check=False)
    if done.returncode:
        yield Row("… Vowpal Wabbit's predict", float("nan"), "µs CPU", done.stderr.strip()[-80:])
    else:
        yield Row("… Vowpal Wabbit's predict", json.loads(done.stdout)["median_us"], "µs CPU")


def _best(work: object, repeats: int = 15) -> float:
    """Microseconds of CPU time, the least of several measurements."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()  # type: ignore[operator]
        times.append(time.process_time() - began)
    return 1e6 * min(times)


# ---------------------------------------------------------------------- under load


def _measured(
    server: Server, requests: Iterator[tuple[str, bytes]], *, keep: bool = False
) -> tuple[Answers, float]:
    before = server.cpu()
    answers = send(server.port, requests, keep=keep)
    return answers, server.cpu() - before


def _ours(place: Path) -> Iterator[Row]:
    port = free_port()
    with ours(make_folder(place / "ours"), port) as server:
        send(port, ranks(NAMES, 500))  # warm up
        decided, seconds = _measured(server, ranks(NAMES, COUNT), keep=True)
        ids = [json.loads(body)["event_id"] for body in decided.bodies]
        rewarded, more = _measured(server, rewards(ids))
    good = decided.statuses.get(200, 0)
    paid = rewarded.statuses.get(200, 0)
    wall = good / decided.elapsed
    yield Row("durable rank per server CPU second", good / seconds, "/s", "", ">= 10000")
    yield Row("durable reward per server CPU second", paid / more, "/s", "", ">= 15000")
    yield Row("rank: requests per second of wall time, 32 connections", wall, "/s")
    yield Row("rank: p50", 1e3 * decided.quantile(0.5), "ms")
    yield Row("rank: p99 (quiet machine only)", 1e3 * decided.quantile(0.99), "ms", "", "<= 12")
    yield Row("answers that are not 200", float(COUNT - good + len(ids) - paid), "", "", "<= 0")


def _peer(place: Path) -> Iterator[Row]:
    python = peer_python()
    if python is None:
        yield Row("peer: FastAPI + pydantic + SQLite", float("nan"), "", "no peers' environment")
        return
    policy, port = made_policy(), free_port()
    scorer = policy.scorer  # type: ignore[attr-defined]
    first = scorer.features.steps[0]
    np.savez(place / "weights.npz", weights=scorer.weights, mean=first.mean, scale=first.scale)
    command = [str(python), str(HERE / "peer_fastapi.py"), str(place / "weights.npz"), str(place / "peer.db")]
    with Server([*command, str(port)], port) as server:
        send(port, ranks(NAMES, 300))
        decided, seconds = _measured(server, ranks(NAMES, COUNT // 3), keep=True)
        ids = [json.loads(body)["event_id"] for body in decided.bodies]
        rewarded, more = _measured(server, rewards(ids))
    good, paid = decided.statuses.get(200, 0), rewarded.statuses.get(200, 0)
    yield Row("peer: FastAPI + pydantic + SQLite, rank per CPU second", good / seconds, "/s")
    yield Row("peer: the same, reward per CPU second", paid / more, "/s")
    yield Row("peer: rank p99", 1e3 * decided.quantile(0.99), "ms")


# ---------------------------------------------------------------------- kills


def killed(times: int, toml: str = "", records: Read | None = None) -> tuple[int, int, int, int]:
    """Kill the server under load; return lost, duplicated, changed and acknowledged records."""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        folder = make_folder(Path(place) / "service", toml)
        answered: dict[str, float] = {}
        paid: set[str] = set()
        for number in range(times):
            port = free_port()
            with ours(folder, port) as server:
                timer = threading.Timer(0.3 + chance.random(), server.kill)
                timer.start()
                decided = send(port, ranks(NAMES, 3_000, event=f"k{number}-", seed=number), keep=True)
                fresh = {}
                for body in decided.bodies:
                    answer = json.loads(body)
                    fresh[answer["event_id"]] = answer["propensity"]
                rewarded = send(port, rewards(list(fresh)), keep=True)
                timer.join()
            answered |= fresh
            paid |= {json.loads(body)["event_id"] for body in rewarded.bodies}
        stored = read_records(folder / "events") if records is None else records()
        decisions: dict[str, list[float]] = {}
        rewards_of: dict[str, int] = {}
        for record in stored:
            if isinstance(record, Decision):
                decisions.setdefault(record.event_id, []).append(record.propensity)
            elif isinstance(record, Reward):
                rewards_of[record.event_id] = rewards_of.get(record.event_id, 0) + 1
    lost = sum(event not in decisions for event in answered) + sum(event not in rewards_of for event in paid)
    doubled = sum(len(many) > 1 for many in decisions.values()) + sum(n > 1 for n in rewards_of.values())
    changed = sum(decisions[event] != [answered[event]] for event in answered if event in decisions)
    return lost, doubled, changed, len(answered) + len(paid)


if __name__ == "__main__":
    print(killed(int(sys.argv[1])))
