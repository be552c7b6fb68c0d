import re
from html.parser import HTMLParser

import numpy as np
import pytest

import shpi
from shpi.errors import ConfigError
from shpi.ope import SNPDIS, WDR
from shpi.ope.results import ActionShift, Factor, Interval, Verdict
from shpi.report.html import render
from tests.ope.worlds import H, small_world
from tests.report.evaluations import CASES, EVIL, an_estimate, bare, enormous, hostile, ordinary

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Reader(HTMLParser):
    """Balanced tags, visible text, and everything that could act or fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> without a beginning"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "title", "desc"):
            self.words.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


def text(page: str) -> str:
    return " ".join(" ".join(read(page).words).split())


@pytest.mark.parametrize("case", CASES)
def test_a_report_is_one_small_inert_file(case):
    page = render(CASES[case]())
    reader = read(page)
    assert len(page.encode()) < 2_000_000
    assert not {"script", "iframe", "object", "link", "img", "form", "base"} & {tag for tag, _ in reader.tags}
    for tag, attrs in reader.tags:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        assert (attrs.get("href") or "#").startswith("#")
        assert "src" not in attrs
    assert not re.search(r"url\(|@import|https?:(?!//www\.w3\.org/2000/svg)", page)
    assert "default-src 'none'" in page
    assert not re.search(r"\b(nan|inf|None)\b", text(page).replace("horizon None", ""))


@pytest.mark.parametrize("case", CASES)
def test_ids_are_unique_and_links_arrive(case):
    reader = read(render(CASES[case]()))
    places = [attrs["id"] for tag, attrs in reader.tags if "id" in attrs]
    assert len(set(places)) == len(places)
    named = " ".join(attrs.get("aria-labelledby") or "" for _, attrs in reader.tags).split()
    assert set(named) <= set(places)
    assert {attrs["href"][1:] for tag, attrs in reader.tags if tag == "a"} <= set(places)


def test_the_same_evaluation_gives_the_same_bytes():
    assert render(ordinary()) == render(ordinary())


def test_words_of_users_are_shown_not_obeyed():
    page = render(hostile())
    assert "<script" not in page
    assert "alert('x')" not in page
    shown = text(page)
    assert shown.count(EVIL) >= 15


@pytest.mark.parametrize(
    ("decision", "word"), [("ship", "Ship"), ("hold", "Hold"), ("need more data", "Need more data")]
)
def test_the_verdict_comes_first_as_a_word_with_its_reasons(decision, word):
    shown = text(
        render(ordinary(verdict=Verdict(decision=decision, reasons=("Because.",), users_needed=1234)))
    )
    assert shown.index(word) < shown.index("Because.") < shown.index("Lift over the logging policy")
    assert "About 1,234 users" in shown


def test_without_a_gate_there_is_no_verdict():
    assert "No verdict" in text(render(ordinary(verdict=None)))


def test_every_part_of_the_evaluation_is_in_the_report():
    shown = text(render(ordinary()))
    for words in (
        "autumn model", "200 users", "55207b04d10f696c", "click fell by at most 1 %.", "Heavy tails.",
        "SHPI(k=4)", "tenure: 3 to 9", "item 7", "next reward", "sessions per user and month",
        "How many decisions does the log support?", "settings.gamma", "decides", "threshold 100",
        "not paired",
    ):  # fmt: skip
        assert words in shown, words


def test_missing_parts_leave_no_holes():
    shown = text(render(bare()))
    for words in ("Three factors", "Where the lift comes from", "Short-term"):
        assert words not in shown
    assert "No checks were made" in shown
    assert "models alone" in shown
    assert "log (fingerprint) not taken" in shown


def test_what_is_cut_is_said():
    shown = text(render(enormous()))
    assert "Shown are the 16 of 2,000 segments" in shown
    assert "Shown are the 16 of" in shown.split("Actions", 1)[1]
    assert "32 further estimators are not shown" in shown
    assert "and 488 more reasons" in shown
    assert "… and 1,940 more." in shown


def test_estimators_that_failed_a_check_are_marked():
    page = render(ordinary())
    assert "failed a check" in page
    assert "failed a check" not in render(ordinary(diagnostics=()))


def test_the_largest_actions_are_kept():
    shifts = [
        ActionShift(action=f"a{i}!", logged=0.01, policy=0.01 + i / 1e4, reward=None) for i in range(50)
    ]
    shown = text(render(ordinary(actions_gained_lost=tuple(shifts))))
    assert "a49!" in shown
    assert "a34!" in shown
    assert "a33!" not in shown


@pytest.mark.parametrize(("short", "long", "words"), [
    (0.5, 0.8, "On the next reward and in the long run the policy is better"),
    (-0.5, 0.8, "On the next reward the policy is worse ; in the long run it is better"),
    (0.01, 0.8, "On the next reward the policy is not proven to be different ; in the long run it is better"),
])  # fmt: skip
def test_short_and_long_term_are_put_into_words(short, long, words):
    evaluation = ordinary(
        estimates=(an_estimate("WDR", long, 0.1),), short_term=an_estimate("next reward", short, 0.1)
    )
    assert words in text(render(evaluation)).replace(" .", ".")


def test_a_logging_policy_that_brought_nothing_has_no_percentages():
    zero = ordinary(
        estimates=(an_estimate(baseline=0.0, value=0.8),),
        decomposition=(Factor(name="reward per recommendation", baseline=0.0, value=0.1),),
    )
    shown = text(render(zero))
    assert "brought next to nothing" in shown
    assert "+0.100" in shown


def test_constant_rewards_and_intervals_of_length_zero():
    point = Interval(level=0.95, lower=0.0, upper=0.0, lower_bound=0.0, method="t")
    flat = an_estimate(
        lift=0.0, lift_error=0.0, lift_interval=point, influence_lift=np.zeros(200), value=10.0
    )
    shown = text(render(ordinary(estimates=(flat,), short_term=flat)))
    assert "Lift over the logging policy" in shown
    assert "Does it depend on a few users?" not in shown


def test_rounding_is_no_change():
    noise = (Factor(name="reward per recommendation", baseline=0.3, value=0.1 + 0.2),)
    same = (ActionShift(action="item", logged=0.3, policy=0.1 + 0.2, reward=None),)
    shown = text(render(ordinary(decomposition=noise, actions_gained_lost=same)))
    assert "e−1" not in shown
    assert "No action is chosen more or less often" in shown


def test_a_real_evaluation_is_written_whole(tmp_path):
    mdp, mu, pi = small_world()
    evaluation = shpi.evaluate(mdp.policy(pi), mdp.log(mu, 300, H, seed=0), estimators=[WDR(), SNPDIS()])
    path = evaluation.write_html(tmp_path / "report.html")
    assert evaluation.fingerprint in text(path.read_text(encoding="utf-8"))
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="a folder that exists"):
        ordinary().write_html(tmp_path / "nowhere" / "report.html")
    with pytest.raises(ConfigError, match="the name of a file"):
        ordinary().write_html(tmp_path)
    assert list(tmp_path.iterdir()) == []
