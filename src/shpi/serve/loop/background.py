"""A server's background tasks: follow the control file, compare the arms, compact events, run cycles."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from shpi.data.durations import parse_duration
from shpi.errors import ShpiError
from shpi.serve.loop.canary import Ruling, applied, judge
from shpi.serve.loop.control import changing

if TYPE_CHECKING:
    from shpi.serve.service import Service
    from shpi.serve.web.app import App

FOLLOW_EVERY = 0.2  # seconds between looks at the control file
_HOUR = 3600.0  # seconds
_LOG = logging.getLogger("shpi.serve")


def tasks_of(app: App, *, schedule: bool) -> list[Callable[[], Awaitable[None]]]:
    """The background tasks of a server; without ``schedule``, it neither compacts nor learns by itself."""
    service, settings = app.service, app.service.settings
    tasks: list[Callable[[], Awaitable[None]]] = [
        lambda: _every(FOLLOW_EVERY, lambda: follow(service)),
        lambda: _every(parse_duration(settings.canary.look_every) / 1e6, lambda: look(service)),
    ]
    if hasattr(service.store, "since"):
        tasks.append(lambda: _follow_database(service))
    if settings.store.retention:
        tasks.append(lambda: _every(_HOUR, lambda: retain(service)))
    if schedule and settings.log.compact_every:
        tasks.append(lambda: _run_every(service, settings.log.compact_every, "compact"))
    if schedule and settings.cycle.every:
        tasks.append(lambda: _run_every(service, settings.cycle.every, "cycle"))
    return tasks


async def _every(seconds: float, work: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            work()
        except ShpiError as error:  # it may be repaired by the next look
            _LOG.error("%s", error)


def follow(service: Service) -> None:
    """Apply a change of the control file."""
    if service.follow():
        service.monitor.follow(service.control)


def look(service: Service) -> Ruling:
    """Compare the arms, and widen, promote or roll back the canary if that is due."""
    follow(service)
    now = service.monitor.last_time if service.settings.server.clock == "events" else service.now()
    if service.monitor.hold_back is not None:
        rules = service.settings.canary
        service.monitor.hold_back.look(now, alpha=rules.alpha, planned=rules.users)
    ruling = judge(service.control, service.monitor, service.settings, service.health(), now)
    service.ruling = ruling
    if ruling.move != "wait":
        with changing(service.folder) as control:
            if control.canary == service.control.canary:  # unless it has changed in the meantime
                applied(control, ruling, now).write(service.folder)
        _LOG.info("%s: %s", ruling.move, ruling.why)
        follow(service)
    return ruling


def retain(service: Service) -> int:
    """Remove events older than ``store.retention``, and return how many."""
    age = parse_duration(service.settings.store.retention)
    now = service.monitor.last_time if service.settings.server.clock == "events" else service.now()
    return service.store.forget_before(now - age)


async def _follow_database(service: Service) -> None:
    """Pass the records of all workers to the monitor, shortly after they were stored."""
    store: Any = service.store
    last = 0
    while True:
        try:
            last, records = await store.since(last)
        except ShpiError:  # the database is gone; requests report it
            records = []
        service.monitor.observe(records)
        if not records:
            await asyncio.sleep(1.0)


async def _run_every(service: Service, every: str, verb: str) -> None:
    """Run a verb of `shpi serve` in a separate process, so that learning does not slow down decisions."""
    while True:
        await asyncio.sleep(parse_duration(every) / 1e6)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shpi", "serve", verb, str(service.folder)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, errors = await process.communicate()
        except asyncio.CancelledError:
            process.terminate()
            raise
        if process.returncode not in (0, 1):
            service.alarms[verb] = errors.decode(errors="replace").strip()[-500:]
            _LOG.error("%s failed: %s", verb, service.alarms[verb])
        else:
            service.alarms.pop(verb, None)
