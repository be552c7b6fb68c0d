from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from shpi.serve import App
from shpi.serve.demo import Shop, Traffic
from shpi.serve.loop.control import Control
from shpi.serve.loop.state import CycleState
from shpi.serve.page import page_of, report_of
from tests.report.chromium import Browser, find
from tests.serve.shop_policy import save_shop_policy
from tests.serve.wire_client import WireClient

TOML = """[server]
clock = "events"
[decide]
start = "apprentice"
[canary]
stages = [0.2, 0.4]
users = 60
window = "1d"
look_every = "1h"
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    """A service that has promoted one policy and tries another."""
    folder = tmp_path_factory.mktemp("page") / "shop"
    folder.mkdir()
    (folder / "serve.toml").write_text(TOML)
    traffic = Traffic(Shop(), arrivals=150, seed=3)
    save_shop_policy(folder / "policies" / "own-article")
    save_shop_policy(folder / "policies" / "news-for-all", worst=True)
    with WireClient(folder) as client:
        for day in range(10):
            traffic.run_day(client)
            client.look()
            now = client.app.service.monitor.last_time
            if day == 1:
                Control.read(folder).with_canary("own-article", "the gate: +0.7 per user", now).write(folder)
            elif day == 6 and Control.read(folder).canary is None:
                Control.read(folder).with_canary("news-for-all", "a test of the roll-back", now).write(folder)
            client.look()
        client.app.service.alarms["compact"] = "the disk is nearly <full>"
        cycle = CycleState(number=1, started=now - 10**11, done=("compact", "audit"), facts={"users": 700})
        cycle.over("the gate says 'need more data': 900 more users.").write(folder)
        made = client.app
    return made


def test_the_page_tells_the_story(app: App) -> None:
    text = page_of(app)
    control = app.service.control
    whats = [entry.what for entry in control.history]
    assert "promoted" in whats  # the better policy passed its stages
    assert control.champion == "own-article"
    assert not [e for e in control.history if e.what == "promoted" and e.policy == "news-for-all"]
    for words in (
        "Traffic",
        "Arms",
        "Policies",
        "Last verdict",
        "own-article",
        "hold-back",
        "decisions in the",
    ):
        assert words in text
    assert "nearly &lt;full&gt;" in text
    assert "<full>" not in text
    assert "<script" not in text
    assert not re.search(r'(src|href)="https?://', text)
    assert "users of the last evaluation" in text
    assert "No cycle" in report_of(app.service.folder)


def test_a_new_service_has_a_page(tmp_path: Path) -> None:
    with WireClient(tmp_path) as client:
        text = page_of(client.app)
        assert "no cycle has run yet" in text


@pytest.mark.skipif(find() is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False)])
def test_the_page_in_a_browser(app: App, tmp_path: Path, width: int, dark: bool) -> None:
    place = tmp_path / "page.html"
    place.write_text(page_of(app), encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(place, width=width, dark=dark)
        assert browser.ask("document.documentElement.scrollWidth") <= width
        assert browser.ask("document.querySelectorAll('section').length") == 4
        assert browser.ask("document.querySelectorAll('svg').length") >= 3
        light = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert (light == "rgb(14, 16, 19)") == dark
        assert [url for url in browser.requests() if not url.startswith("file:")] == []
        assert browser.complaints() == []
        browser.picture(tmp_path / "page.png")


def test_the_page_is_served(tmp_path: Path) -> None:
    from tests.serve.http import Wire, on_wire

    async def work(wire: Wire) -> None:
        status, body, headers = await wire.raw("GET", "/")
        assert status == 200
        assert headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in headers["content-security-policy"]
        assert b"shpi serve" in body
        assert (await wire.raw("GET", "/report"))[0] == 200
        await asyncio.sleep(0)

    on_wire(tmp_path, work, page=True)
