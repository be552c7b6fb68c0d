"""Runs the application with uvicorn."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from pathlib import Path
from typing import Any

from shpi._core.threads import one_thread
from shpi.errors import ConfigError, MissingExtraError
from shpi.serve.loop.background import look, tasks_of
from shpi.serve.loop.canary import Ruling
from shpi.serve.page import page_of, report_of
from shpi.serve.service import Service
from shpi.serve.web.app import App
from shpi.serve.web.front import ConnectionFactory


def make_app(service: Service, *, schedule: bool = True) -> App:
    """The application of a service, with its page and background tasks."""
    app = App(service, page=lambda: page_of(app), report=lambda: report_of(service.folder))
    app.background = tasks_of(app, schedule=schedule)
    return app


def serve(folder: Path, *, host: str | None = None, port: int | None = None) -> int:
    """Serve a folder until the process is stopped."""
    try:
        import uvicorn
    except ImportError:
        raise MissingExtraError("uvicorn", "serve") from None
    service = Service(folder)
    settings = service.settings.server
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    options: dict[str, Any] = {
        "host": host or settings.host,
        "port": settings.port if port is None else port,
        "log_level": "warning",
        "access_log": False,  # keeps user data out of the logs
        "server_header": False,
        "date_header": False,
        "timeout_keep_alive": 75,
        "h11_max_incomplete_event_size": 65536,
        "lifespan": "on",
    }
    if host is not None and host != settings.host:
        _check_host(service, host)
    app = make_app(service)
    options["http"] = ConnectionFactory(app)
    server = uvicorn.Server(uvicorn.Config(app, **options))
    gc.freeze()  # policies and the index live on: spare the collector
    gc.set_threshold(50_000, 20, 50)
    print(f"shpi serve {folder}: http://{options['host']}:{options['port']}/", file=sys.stderr, flush=True)
    one_thread(server.run)()  # matrices are small: BLAS threads would only wait for each other
    return 0 if server.started else 74


def _check_host(service: Service, host: str) -> None:
    from shpi.serve.settings import LOOPBACK

    tokens = service.settings.tokens
    if host not in LOOPBACK and not (tokens.decide and tokens.reward):
        raise ConfigError(
            expected="tokens for decide and reward where the host is not this machine",
            found="none",
            where="--host",
            remedy="set tokens.decide and tokens.reward in serve.toml",
        )


class Running:
    """A service in this process, on a free local port, for tests, demos and notebooks."""

    def __init__(self, folder: Path, *, schedule: bool = False) -> None:
        self.folder, self.schedule = folder, schedule
        self.url = ""
        self.app: App | None = None
        self._thread: Any = None
        self._server: Any = None
        self._loop: Any = None

    def __enter__(self) -> Running:
        import threading
        import time

        import uvicorn

        self.app = make_app(Service(self.folder), schedule=self.schedule)
        config = uvicorn.Config(
            self.app,
            http=ConnectionFactory(self.app),  # type: ignore[arg-type]
            host="127.0.0.1",
            port=0,
            log_level="error",
            access_log=False,
            lifespan="on",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise ConfigError(expected="a server that starts", found="one that does not")
            time.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve()

    def look(self) -> Ruling:
        """Compare the arms now, and widen, promote or roll back the canary if that is due."""

        async def work() -> Ruling:
            assert self.app is not None
            return look(self.app.service)

        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(60)

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)
