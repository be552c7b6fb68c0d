import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shpi.errors import ConfigError
from shpi.report import svg
from shpi.report.plots.axes import Scale, log_ticks, round_ticks
from shpi.report.plots.canvas import shortened, text_width
from shpi.report.plots.theme import COLOURS

SPACE = "{http://www.w3.org/2000/svg}"
odd_numbers = st.floats(allow_nan=True, allow_infinity=True)
names = st.text(max_size=30)


def parsed(chart: str) -> ElementTree.Element:
    root = ElementTree.fromstring(chart)
    assert root.tag == f"{SPACE}svg"
    assert root.get("role") == "img"
    return root


def texts(chart: str) -> list[str]:
    return [element.text or "" for element in parsed(chart).iter(f"{SPACE}text")]


def xs(chart: str, tag: str, cls: str, key: str = "x1") -> list[float]:
    return [
        float(element.get(key, "nan"))
        for element in parsed(chart).iter(f"{SPACE}{tag}")
        if element.get("class") == f"shpi-{cls}"
    ]


def charts(width: float = 680) -> dict[str, str]:
    two, low, high = [1, 2], [0, 1], [2, 3]
    return {
        "forest": svg.forest(["a", "b"], two, low, high, bounds=low, main=0, title="t", width=width),
        "bars": svg.bars(["a", "b"], {"mu": [1, 2], "pi": [2, -1]}, title="t", width=width),
        "histogram": svg.histogram([1, 10, 100], {"x": [3, 4]}, log_x=True, title="t", width=width),
        "lines": svg.lines([1, 2], {"x": [3, 4]}, bands={"x": ([2, 3], [4, 5])}, title="t", width=width),
        "boxplots": svg.boxplots(["a"], [[1, 2, 3]], marks=[2.5], title="t", width=width),
    }  # fmt: skip


@pytest.mark.parametrize("width", [340, 680])
@pytest.mark.parametrize("kind", ["forest", "bars", "histogram", "lines", "boxplots"])
def test_charts_are_well_formed_have_a_title_and_stay_on_the_sheet(kind, width):
    chart = charts(width)[kind]
    root = parsed(chart)
    assert root.find(f"{SPACE}title").text == "t"
    high = float(root.get("height"))
    for element in root.iter():
        for key in ("x", "x1", "x2", "cx"):
            assert 0 <= float(element.get(key, 0)) <= width
        for key in ("y", "y1", "y2", "cy"):
            assert 0 <= float(element.get(key, 0)) <= high
    assert chart == charts(width)[kind]
    assert not re.search(r"nan|inf[^o]|http(?!://www\.w3\.org)", chart)


def test_words_of_users_are_escaped():
    evil = "<script>alert('x')</script> & \"quotes\""
    chart = svg.bars([evil], {evil: [1.0], "b": [2.0]}, title=evil, description=evil, x_label=evil)
    assert "<script" not in chart
    assert parsed(chart).find(f"{SPACE}title").text == evil


@settings(max_examples=40, deadline=None)
@example("", "", 1e10, 6e-299)  # a ratio that overflows
@given(names, names, odd_numbers, odd_numbers)
def test_any_words_and_numbers_make_well_formed_charts(name, other, a, b):
    low, high = (a, b) if not a > b else (b, a)
    wild = [low, high, 1.0]
    parsed(
        svg.forest([name, other, "c"], wild, [-math.inf, low, 0.5], [high, math.inf, 1.5], main=2, title=name)
    )
    parsed(svg.lines([1, 2, 3], {name: wild}, log_y=True, title=other, description=name))
    with np.errstate(all="ignore"):
        parsed(
            svg.boxplots([name], [[0.5, 1.0, float(np.clip(np.nan_to_num(a), -1e100, 1e100))]], title=name)
        )


def test_the_interval_is_drawn_where_its_numbers_are():
    chart = svg.forest(["a"], [1.0], [0.0], [2.0], bounds=[0.5], main=0, title="t")
    zero = xs(chart, "line", "ink")[0]
    whisker = next(
        element
        for element in parsed(chart).iter(f"{SPACE}line")
        if element.get("class") == "shpi-c0" and element.get("y1") == element.get("y2")
    )
    low, high = float(whisker.get("x1")), float(whisker.get("x2"))
    assert low == pytest.approx(zero)
    _, bound = xs(chart, "line", "c1")  # the first one is in the legend
    assert bound == pytest.approx(low + (high - low) / 4, abs=0.02)


def test_a_hopeless_interval_does_not_squash_the_others():
    tame = svg.forest(["a", "b"], [1, 1.1], [0.5, 0.6], [1.5, 1.6], main=0, title="t")
    wild = svg.forest(["a", "b", "c"], [1, 1.1, 1e9], [0.5, 0.6, -1e12], [1.5, 1.6, 1e12], main=0, title="t")
    assert xs(wild, "line", "ink") == xs(tame, "line", "ink")
    assert wild.count(" Z") > tame.count(" Z")  # arrow heads


def test_bars_go_left_where_negative_and_say_their_number():
    chart = svg.bars(["up", "down"], {"x": [1.0, -2.0]}, by_sign=True, title="t")
    boxes = list(parsed(chart).iter(f"{SPACE}rect"))[1:]
    up, down = boxes
    zero = float(up.get("x"))
    assert float(down.get("x")) + float(down.get("width")) == pytest.approx(zero, abs=0.02)
    assert float(down.get("width")) == pytest.approx(2 * float(up.get("width")), abs=0.05)
    assert (up.get("class"), down.get("class")) == ("shpi-c2", "shpi-c4")
    assert {"1.00", "−2.00"} <= set(texts(chart))


def test_a_line_has_gaps_where_nothing_is_known():
    chart = svg.lines([1, 2, 3, 4, 5], {"x": [1, 2, math.nan, 2, 1]}, title="t")
    paths = list(parsed(chart).iter(f"{SPACE}path"))
    assert len(paths) == 2


def test_a_boxplot_shows_quartiles():
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    chart = svg.boxplots(["a"], [values], points=False, title="t")
    box = next(element for element in parsed(chart).iter(f"{SPACE}rect") if element.get("class") == "shpi-c0")
    middle = list(xs(chart, "line", "c0"))
    left, right = float(box.get("x")), float(box.get("x")) + float(box.get("width"))
    assert (left + right) / 2 == pytest.approx(middle[-1], abs=0.02)
    assert min(middle) == pytest.approx(left - (right - left) / 2, abs=0.05)  # 1 is half a box below 2


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-1e9, 3e9), (1e-12, 5e-12), (99.9999, 100.0001), (-0.3, 0.7), (5, 1e15)]
)
def test_ticks_are_round_distinct_and_inside(low, high):
    ticks = round_ticks(low, high, 5)
    assert 2 <= len(ticks) <= 12
    assert len({label for _, label in ticks}) == len(ticks)
    slack = 1e-6 * (high - low)
    assert all(low - slack <= value <= high + slack for value, _ in ticks)


@pytest.mark.parametrize(("low", "high"), [(0.5, 2), (1e-9, 1e9), (1, 1.5), (0.02, 40)])
def test_logarithmic_ticks_are_inside(low, high):
    ticks = log_ticks(low, high, 4)
    assert len(ticks) >= 2
    assert all(low * 0.99 <= value <= high * 1.01 for value, _ in ticks)


@settings(deadline=None)
@example([0.0, 5e-324])  # a difference that has no logarithm
@given(st.lists(odd_numbers, max_size=5))
def test_scales_keep_everything_within_their_pixels(values):
    scale = Scale.over(values, 10, 110)
    for value in (x for x in values if math.isfinite(x)):
        assert 10 <= scale(value) <= 110


def test_long_words_are_cut():
    assert shortened("short", 100) == "short"
    cut = shortened("a very long name of an action", 80)
    assert cut.endswith("…")
    assert text_width(cut) <= 80


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("name", ["ink", "soft", *(f"c{j}" for j in range(8))])
@pytest.mark.parametrize("dark", [0, 1])
def test_colours_have_contrast(name, dark):
    first, second = sorted(luminance(COLOURS[colour][dark]) for colour in (name, "paper"))
    assert (second + 0.05) / (first + 0.05) >= 4.5


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: svg.forest([], [], [], [], title="t"), "at least one row"),
        (lambda: svg.forest(["a"], [1, 2], [0], [3], title="t"), "one per label"),
        (lambda: svg.bars(["a"], {}, title="t"), "at least one series"),
        (lambda: svg.bars(["a"], {"x": [1, 2]}, title="t"), "one per label"),
        (lambda: svg.histogram([1, 1], {"x": [1]}, title="t"), "rising edges"),
        (lambda: svg.histogram([0, 1], {"x": [1]}, log_x=True, title="t"), "rising edges"),
        (lambda: svg.lines([2, 1], {"x": [1, 2]}, title="t"), "rising finite x"),
        (lambda: svg.boxplots(["a"], [[1], [2]], title="t"), "one per label"),
        (lambda: svg.bars(["a"], {"x": [1]}, title="t", width=10), "a width of 200"),
    ],
)
def test_bad_input_is_named(draw, message):
    with pytest.raises(ConfigError, match=message):
        draw()


def test_charts_are_written_whole(tmp_path):
    path = svg.write(tmp_path / "chart.svg", charts()["bars"])
    parsed(path.read_text(encoding="utf-8"))
    assert [file.name for file in tmp_path.iterdir()] == ["chart.svg"]
    with pytest.raises(ConfigError, match="a folder that exists"):
        svg.write(tmp_path / "nowhere" / "chart.svg", "x")
