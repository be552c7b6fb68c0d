"""A service without a socket: requests go straight to the application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from shpi.serve import App, Service, Settings
from shpi.serve.service import prepare
from shpi.serve.web.server import make_app


class Wire:
    """Sends requests to an application."""

    def __init__(self, app: App) -> None:
        self.app, self.service = app, app.service

    async def raw(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        pairs = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        scope = {"type": "http", "method": method, "path": path, "headers": pairs, "client": ("1.2.3.4", 5)}
        await self.app(scope, receive, send)
        reply_headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], sent[1]["body"], reply_headers

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        status, answer, _ = await self.raw(method, path, content, headers)
        return status, json.loads(answer)

    async def rank(self, **body: Any) -> Any:
        status, answer = await self.call("POST", "/v1/rank", {"user": "u", **body})
        assert status == 200, answer
        return answer


def on_wire(
    folder: Path, work: Callable[[Wire], Coroutine[Any, Any, Any]], toml: str = "", page: bool = False
) -> Any:
    """Run some requests on the service of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if toml:
        (folder / "serve.toml").write_text(toml)

    async def whole() -> Any:
        service = Service(folder, prepare(folder))
        app = make_app(service, schedule=False) if page else App(service)
        app.ready = True
        try:
            return await work(Wire(app))
        finally:
            await app.stop()

    return asyncio.run(whole())


def settings(toml: dict[str, Any]) -> Settings:
    return Settings.of(toml)
