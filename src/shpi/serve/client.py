"""A client for `shpi serve`: typed, with retries that repeat the same id, on the standard library alone.

>>> client = Client("http://127.0.0.1:8400")                                     # doctest: +SKIP
>>> decision = client.rank("user 7", {"hour": 20}, ["tea", "coffee"])            # doctest: +SKIP
>>> client.reward(decision.event_id, 1.0)                                        # doctest: +SKIP

Every request has its id before it is sent the first time. A connection that breaks, or an answer of 429 or
503, is tried again with the same body: the server gives the stored answer if it had stored one.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

from shpi.errors import ConfigError, DataError, ShpiError

Item = int | str
Moment = float | datetime
P = ParamSpec("P")
T = TypeVar("T")
_AGAIN = (429, 503)  # HTTP status: too many requests, not available; the request is sent again


class ServeError(ShpiError):
    """The server refused a request, or could not be reached; ``status`` is 0 in the latter case."""

    def __init__(self, status: int, *, expected: str, found: str, where: str = "", remedy: str = "") -> None:
        super().__init__(expected=expected, found=found, where=where, remedy=remedy)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """An item and its probability."""

    id: Item
    propensity: float


@dataclass(frozen=True, kw_only=True)
class RankedDecision:
    """A decision of the server; its ranking lists candidates, the most likely first."""

    event_id: str
    action: Item
    propensity: float
    ranking: tuple[Ranked, ...]
    policy: str
    arm: str


@dataclass(frozen=True, kw_only=True)
class Rewarded:
    """The server has stored a reward. ``known``: it also has the decision that the reward belongs to."""

    event_id: str
    duplicate: bool
    known: bool


class Client:
    """Asks for decisions and reports rewards. One client may be used by several threads."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 5.0,
        retries: int = 3,
        pause: float = 0.1,
    ) -> None:
        """Prepare a client.

        Args:
            url: address of the server, e.g. ``http://127.0.0.1:8400``.
            token: bearer token, where the server asks for one.
            timeout: seconds that one attempt may take.
            retries: further attempts after a broken connection, a 429 or a 503.
            pause: seconds before the first retry; doubled for every further one, with random jitter.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(expected="a URL such as http://127.0.0.1:8400", found=repr(url))
        self._parts, self.timeout, self.retries, self.pause = parts, timeout, retries, pause
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._local = threading.local()

    # ------------------------------------------------------------------ verbs

    def rank(
        self,
        user: Item,
        context: Mapping[str, Any] | None = None,
        candidates: Sequence[Item | Mapping[str, Any]] | None = None,
        *,
        event_id: str | None = None,
        session: str | None = None,
        previous: str | None = None,
        time: Moment | None = None,
        exclude: Sequence[Item] = (),
        defer: bool = False,
    ) -> RankedDecision:
        """Ask for a decision.

        Args:
            user: id of the user, which decides the arm.
            context: what is known before the decision.
            candidates: item ids, or ``{"id": …, "features": {…}}``; None: all items that the policy knows.
            event_id: id of the decision; None: a random one.
            session: id of the user's session; None: the server splits sessions at long pauses.
            previous: id of the user's event before this one.
            time: time of the decision; None: now.
            exclude: items that must not be chosen.
            defer: the decision counts only once it is activated.
        """
        body = {
            "event_id": event_id or secrets.token_hex(16),
            "user": user,
            "context": dict(context or {}),
            **({} if candidates is None else {"candidates": list(candidates)}),
            **({} if session is None else {"session": session}),
            **({} if previous is None else {"previous": previous}),
            **({} if time is None else {"time": _seconds(time)}),
            **({"exclude": list(exclude)} if exclude else {}),
            **({"defer": True} if defer else {}),
        }
        answer = self._call("POST", "/v1/rank", body)
        ranking = tuple(Ranked(**entry) for entry in answer.pop("ranking"))
        return RankedDecision(ranking=ranking, **answer)

    def activate(self, event_id: str) -> bool:
        """Report that a deferred decision was shown; False if it was reported before."""
        return not self._call("POST", f"/v1/events/{event_id}/activate", {})["duplicate"]

    def reward(
        self,
        event_id: str,
        value: float,
        *,
        reward_id: str | None = None,
        name: str | None = None,
        at: Moment | None = None,
    ) -> Rewarded:
        """Report a reward of a decision; without a ``reward_id``, a random one is made."""
        body = {
            "value": value,
            "reward_id": reward_id or secrets.token_hex(16),
            **({} if name is None else {"name": name}),
            **({} if at is None else {"at": _seconds(at)}),
        }
        answer = self._call("POST", f"/v1/events/{event_id}/reward", body)
        return Rewarded(event_id=event_id, duplicate=answer["duplicate"], known=answer["known"])

    def batch(
        self,
        rank: Sequence[Mapping[str, Any]] = (),
        activate: Sequence[Mapping[str, Any]] = (),
        reward: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, list[dict[str, Any]]]:
        """Send many requests at once, as bodies of the API; entries without an id get a random one."""
        ranks = [{"event_id": secrets.token_hex(16), **entry} for entry in rank]
        rewards = [{"reward_id": secrets.token_hex(16), **entry} for entry in reward]
        body = {"rank": ranks, "activate": [dict(entry) for entry in activate], "reward": rewards}
        answers: dict[str, list[dict[str, Any]]] = self._call("POST", "/v1/batch", body)
        return answers

    def event(self, event_id: str) -> dict[str, Any]:
        """Everything that is known about a decision."""
        return self._call("GET", f"/v1/events/{event_id}", None)

    # ------------------------------------------------------------------ attempts

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        content = None if body is None else _json(body)
        for attempt in range(self.retries + 1):
            last = attempt == self.retries
            try:
                status, answer = self._attempt(method, self._parts.path.rstrip("/") + path, content)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                if last:
                    raise ServeError(
                        0,
                        expected="an answer from the server",
                        found=f"{type(error).__name__}: {error}",
                        where=self._parts.netloc,
                        remedy="start it, or look at the network",
                    ) from None
            else:
                if status == 200:
                    return answer
                if status not in _AGAIN or last:
                    raise _refused(status, answer)
            time.sleep(self.pause * 2**attempt * (0.5 + random.random()))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _attempt(self, method: str, path: str, content: bytes | None) -> tuple[int, dict[str, Any]]:
        connection = self._connection()
        connection.request(method, path, body=content, headers=self._headers)
        response = connection.getresponse()
        text = response.read()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {}
        return response.status, answer if isinstance(answer, dict) else {}

    def _connection(self) -> http.client.HTTPConnection:
        """The connection of this thread, which stays open between requests."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            host, port = self._parts.hostname or "", self._parts.port
            if self._parts.scheme == "https":
                context = ssl.create_default_context()
                connection = http.client.HTTPSConnection(host, port, timeout=self.timeout, context=context)
            else:
                connection = http.client.HTTPConnection(host, port, timeout=self.timeout)
            self._local.connection = connection
        return connection

    def _drop(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


def _in_thread(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A method of `Client` for asyncio: the same arguments, run in a thread."""

    @wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self._client, *args, **kwargs)

    return call


class AsyncClient:
    """The same for asyncio: each call runs in a thread, with the retries of `Client`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 5.0,
        retries: int = 3,
        pause: float = 0.1,
    ) -> None:
        """Prepare a client; the arguments are those of `Client`."""
        self._client = Client(url, token=token, timeout=timeout, retries=retries, pause=pause)

    rank = _in_thread(Client.rank)
    activate = _in_thread(Client.activate)
    reward = _in_thread(Client.reward)
    batch = _in_thread(Client.batch)
    event = _in_thread(Client.event)


def _refused(status: int, answer: Mapping[str, Any]) -> ServeError:
    error = answer.get("error")
    parts = error if isinstance(error, dict) else {}
    return ServeError(
        status,
        expected=str(parts.get("expected", "an answer")),
        found=str(parts.get("found", f"status {status}")),
        where=str(parts.get("where", "")),
        remedy=str(parts.get("remedy", "")),
    )


def _seconds(value: Moment) -> float:
    return value.timestamp() if isinstance(value, datetime) else float(value)


def _json(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise DataError(
            expected="values that JSON can carry: text, finite numbers, truth values, lists, dicts",
            found=str(error),
            where="the request",
            remedy="leave missing values out, and convert arrays with tolist()",
        ) from None
