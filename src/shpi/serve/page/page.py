"""Builds the HTML page of a service from the server's current state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import shpi
from shpi.report.page import Section, esc, page, tile
from shpi.serve.loop.state import CycleState
from shpi.serve.loop.story import day, sentence
from shpi.serve.page.sections import arms, policies, traffic, verdict

if TYPE_CHECKING:
    from shpi.serve.web.app import App

REPORT = "report.html"


def page_of(app: App) -> str:
    """The HTML page of a service."""
    service = app.service
    control, monitor = service.control, service.monitor
    now = monitor.last_time if service.settings.server.clock == "events" else service.now()
    cycle = CycleState.last(service.folder)
    status = sentence(service.folder, control, service.ruling.why)
    decisions = sum(hour.decisions for hour in monitor.hours.values())
    rewards = sum(hour.rewards for hour in monitor.hours.values())
    value = sum(hour.value for hour in monitor.hours.values())
    effective = (cycle.facts or {}).get("effective_users") if cycle is not None else None
    alarms = "".join(
        f'<div class="verdict hold" role="alert"><p><b>Alarm, {esc(name)}:</b> {esc(why)}</p></div>'
        for name, why in service.alarms.items()
    )
    wait = esc(service.settings.rewards.wait)
    tiles = [
        tile(f"{decisions:,}", "decisions in the last 14 days"),
        tile(f"{rewards:,}", "rewards in the same time"),
        tile(f"{value / decisions if decisions else 0:.4g}", "reward per decision"),
        tile(f"{monitor.users:,}", "users so far"),
        tile(f"{monitor.matured_share(now):.0%}", f"of the decisions have had {wait} for their rewards"),
        tile("–" if effective is None else f"{effective:,.0f}", "effective users of the last evaluation"),
    ]
    when = esc(day(now)) if now else "no decision yet"
    header = (
        f"<header><h1>shpi serve</h1><p>{esc(service.folder.name)} · {esc(control.champion)} serves"
        f" · {when}</p>"
        f'</header><p role="status"><b>{esc(status, 900)}</b></p>{alarms}'
        f'<div class="tiles">{"".join(tiles)}</div>'
    )
    sections: list[Section] = [
        traffic(monitor),
        arms(service),
        policies(control, monitor),
        verdict(cycle, service.folder),
    ]
    footer = f"shpi {shpi.__version__} · {when} · reload to see more"
    return page("shpi serve", header, sections, footer)


def report_of(folder: Path) -> str:
    """The report of the last cycle that has one."""
    reports = sorted(folder.glob(f"cycles/*/{REPORT}"))
    if not reports:
        return "<!doctype html><title>shpi serve</title><p>No cycle has evaluated a policy yet.</p>"
    return reports[-1].read_text(encoding="utf-8")
