"""The report in a real browser: no complaints, no requests, nothing too wide, both themes, paper."""

from pathlib import Path

import pytest

from tests.report import chromium
from tests.report.evaluations import CASES, EVIL

pytestmark = pytest.mark.skipif(chromium.find() is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    return {name: make().write_html(folder / f"{name}.html") for name, make in CASES.items()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    with chromium.Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("case", CASES)
def test_nothing_sticks_out_on_a_phone_and_nobody_complains(browser, reports, case):
    browser.events.clear()
    for width in (360, 390, 1200):
        browser.open(reports[case], width=width)
        assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []
    assert set(browser.requests()) == {reports[case].resolve().as_uri()}


def test_words_are_there_and_large_enough(browser, reports):
    browser.open(reports["ordinary"], width=390)
    words = browser.ask("document.body.innerText")
    assert "Need more data" in words
    assert "autumn model" in words
    least = browser.ask(
        "Math.min(...[...document.querySelectorAll('.narrow text')]"
        ".map(one => one.getBoundingClientRect().height))"
    )
    assert least >= 11
    assert browser.ask("getComputedStyle(document.querySelector('.wide')).display") == "none"


def test_scripts_in_names_do_not_run(browser, reports):
    browser.open(reports["hostile"])
    assert browser.ask("document.scripts.length") == 0
    assert EVIL.split(" ", 1)[0] in browser.ask("document.querySelector('h1').innerText")


def test_both_themes_and_paper(browser, reports):
    colours = {}
    for name, options in {
        "light": {},
        "dark": {"dark": True},
        "paper": {"dark": True, "media": "print"},
    }.items():
        browser.open(reports["ordinary"], **options)
        ask = "getComputedStyle(document.querySelector('{}')).{}"
        colours[name] = tuple(
            browser.ask(ask.format(*element))
            for element in (("section", "backgroundColor"), ("text.shpi-ink", "color"))
        )
    assert colours["light"] == ("rgb(255, 255, 255)", "rgb(27, 31, 36)")
    assert colours["dark"] == ("rgb(22, 25, 29)", "rgb(232, 234, 237)")
    assert colours["paper"] == colours["light"]


def test_it_prints(browser, reports):
    browser.open(reports["ordinary"])
    printed = browser.paper()
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000
