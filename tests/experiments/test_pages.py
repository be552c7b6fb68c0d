"""Every experiment: its cells, and its page from made-up rows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shpi.experiments import catalogue
from shpi.experiments._page import page, story, topics
from shpi.experiments._page.compare import better, plain, side_by_side, spread, steadier
from shpi.experiments._page.figures import boxes
from shpi.experiments._run.cells import Cell, Outcome, Row
from shpi.experiments._run.experiment import Claim, Experiment, Figure, Results, Table
from shpi.experiments._run.run import draw
from shpi.experiments._run.settings import READINGS, Settings
from shpi.experiments._run.store import Store
from shpi.experiments.paper import release
from shpi.experiments.paper.mse import KINDS, OWN, PI
from shpi.learners import registry

TEN = Settings(data=True)


def made_up(experiment: Experiment, cells: list[Cell], seed: int = 0) -> list[Row]:
    """Rows of all cells, in which every method has a level of its own."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for cell in cells:
        level = sum(map(ord, cell.method)) % 7 + rng.normal()
        values = {"score": level, "attained": level / 10, "sessions": 2.0, "k": 5.0}
        if cell.work == "mse":
            values = {f"{kind}, {truth}": rng.gamma(2.0) for kind in KINDS for truth in (OWN, PI)}
        if cell.work == "release":
            values = {f"{name}, {epsilon:g}": level for name, epsilon in release.AS_RUN}
        rows += Outcome(values=values).rows(experiment.name, cell, "abc")
    return rows


@pytest.mark.parametrize("name", catalogue.names())
def test_cells_have_distinct_keys_and_known_learners(name: str) -> None:
    pytest.importorskip("torch", reason="the paper's learners have networks")
    experiment = catalogue.find(name)
    for settings in (TEN, Settings(seeds=(0, 1), quick=True, data=True)):
        cells = experiment.cells(settings)
        assert len({cell.key for cell in cells}) == len(cells)
        for cell in cells:
            assert Cell.from_json(cell.to_json()).key == cell.key
            if cell.learner is not None:
                assert set(cell.options) - {"states", "replays", "value_steps", "rewards", "episodes"} <= set(
                    registry.parameters(cell.learner)
                )


@pytest.mark.parametrize("name", catalogue.names())
def test_every_section_has_a_table_and_claims(name: str) -> None:
    experiment = catalogue.find(name)
    rows = made_up(experiment, experiment.cells(TEN))
    blocks = experiment.show(Results(tuple(rows)))
    assert any(isinstance(block, Table) and block.rows for block in blocks)
    claims = [block for block in blocks if isinstance(block, Claim)]
    assert claims
    assert all(claim.holds is not None for claim in claims)
    assert {claim.topic for claim in claims} <= {*topics.PAPER, *topics.OURS, ""}
    assert {claim.reading for claim in claims} <= {*READINGS, ""}
    for figure in (block for block in blocks if isinstance(block, Figure)):
        assert figure.svg.startswith("<svg")


@pytest.mark.parametrize("name", catalogue.names())
def test_sections_of_an_unfinished_run(name: str) -> None:
    experiment = catalogue.find(name)
    cells = experiment.cells(Settings(seeds=(0, 1), data=True))
    for done in (cells[:1], cells[: len(cells) // 3], cells[len(cells) // 2 :], cells):
        section = page.section(experiment, made_up(experiment, done), missing=3)
        assert "3 cells not run yet" in section.status
    empty = page.section(experiment, [], missing=5)
    assert not empty.blocks


def test_experiments_share_cells() -> None:
    keys = {name: {cell.key for cell in catalogue.find(name).cells(TEN)} for name in catalogue.names()}
    for small, large in (("recogym", "signals"), ("synthetic", "defaults"), ("private", "defaults")):
        assert len(keys[small] & keys[large]) >= 50
    assert keys["recogym"] <= keys["signals"]


def test_without_kuairand_the_rest_runs() -> None:
    cells = catalogue.find("defaults").cells(Settings())
    assert cells
    assert not any(cell.log.world == "kuairand" for cell in cells)


def test_the_page_is_written_whole_and_escaped(tmp_path: Path) -> None:
    experiment = catalogue.find("recogym")
    cells = experiment.cells(TEN)
    rows = made_up(experiment, cells)
    rows += Outcome(message="<b>no</b> & more").rows("recogym", cells[0], "abc")[:1]
    markdown, html = page.write(tmp_path, [page.section(experiment, rows, 0)], ["a < b"])
    text, source = markdown.read_text(), html.read_text()
    assert "![" in text
    for file in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (tmp_path / file).read_text().startswith("<svg")
    assert "<b>no</b>" not in source
    assert "a &lt; b" in source
    assert source.count("<svg") == text.count("![") > 0
    assert "0.330 ± 0.170" in text


def test_rows_are_drawn_where_the_data_are_absent(tmp_path: Path) -> None:
    private, store = catalogue.find("private"), Store(tmp_path)
    for cell in private.cells(TEN):
        store.append("private", Outcome(values={"score": 0.1}).rows("private", cell, ""))
    markdown, _ = draw([private], store, Settings(data=False))
    assert "| logging |" in markdown.read_text()
    assert "skipped" not in markdown.read_text()


def test_a_claim_follows_the_numbers() -> None:
    up, down = np.arange(10.0) + 1, np.zeros(10)
    assert better("a > b", up, down, topic="rivals").verdict == "reproduced"
    assert better("a > b", down, up, topic="rivals").verdict == "not reproduced"
    assert better("a > b", up, down, topic="best").verdict == "holds"  # ours: there is nothing to reproduce
    noise = np.array([1.0, -1.0, 2.0, -2.0, 0.5, -0.4])
    assert better("a > b", noise, np.zeros(6), topic="rivals").verdict == "not reproduced"
    assert better("a > b", up[:4], down[:4]).verdict == "open: too few trials"
    sure = better("a > b", up, down)
    assert sure.trials == 10
    assert sure.p == pytest.approx(2**-10, abs=1e-4)


def test_the_digest_counts_what_holds_and_names_where_not() -> None:
    experiments = [catalogue.find(name) for name in ("recogym", "synthetic")]
    claims = [Claim("a > b", holds, "", "rivals", "paper()") for holds in (True, False)]
    claims += [
        Claim("a > b", True, "", "rivals", "defaults"),
        Claim("a > b", None, "", "variance", "paper()"),
    ]
    sections = [
        page.Section(experiment=experiment, blocks=blocks, rows=(), missing=0)
        for experiment, blocks in zip(experiments, (tuple(claims[:1]), tuple(claims[1:])), strict=True)
    ]
    digest = {row[0]: row[1:] for row in page.digest(sections).rows}
    rivals, variance = (digest[topics.PAPER[topic]] for topic in ("rivals", "variance"))
    assert rivals == ("in part (1 of 2); not in synthetic", "–", "–", "reproduced (1 of 1)")
    assert variance == ("open: too few trials", "–", "–", "–")


def test_a_method_that_failed_has_a_line_of_its_own() -> None:
    experiment = catalogue.find("recogym")
    cells = experiment.cells(TEN)
    rows = made_up(experiment, [cell for cell in cells if cell.method != "BCQ"])
    rows += Outcome(message="no").rows("recogym", next(c for c in cells if c.method == "BCQ"), "")
    table = side_by_side(Results(tuple(rows)), "t", ("CB", "BCQ", "nothing"))
    assert [row[1] for row in table.rows][1:] == ["failed", "–"]
    assert plain(8411.4) == "8,411"
    assert [plain(x) for x in (3_432_351.0, 1.7405e10, -2.5e6)] == [
        "3.43e6",
        "1.74e10",
        "\N{MINUS SIGN}2.50e6",
    ]


def test_returns_of_many_magnitudes_are_drawn_on_a_logarithmic_axis() -> None:
    experiment = catalogue.find("hiv")
    cells = [cell for cell in experiment.cells(TEN) if cell.log.epsilon == 0.3]
    rows = [
        row
        for place, cell in enumerate(cells)
        for row in Outcome(values={"score": 10.0 ** (5 + place % 6)}).rows("hiv", cell, "")
    ]
    drawn = boxes(Results(tuple(rows)), "a.svg", "t", ("CB", "BCQ"), label="sum", log_x=True)
    assert isinstance(drawn, Figure)
    assert "sum (logarithmic)" in drawn.svg
    assert "off the chart" not in drawn.svg
    below = [replace(row, value=-1.0) if row.method == "CB" else row for row in rows]
    plainly = boxes(Results(tuple(below)), "a.svg", "t", ("CB", "BCQ"), label="sum", log_x=True)
    assert isinstance(plainly, Figure)
    assert "logarithmic" not in plainly.svg


def test_what_hardly_misses_the_chart_is_on_it() -> None:
    experiment = catalogue.find("recogym")
    levels = {"logging": -7.0, "CB": 6000.0, "BCQ": 8000.0, "CB+MF": -90_000.0}
    cells = [cell for cell in experiment.cells(TEN) if cell.method in levels]
    rows = [row for c in cells for row in Outcome(values={"score": levels[c.method]}).rows("recogym", c, "")]
    drawn = boxes(Results(tuple(rows)), "a.svg", "t", tuple(levels), paper={"logging": (77.0, 1.0)})
    assert isinstance(drawn, Figure)
    description = drawn.svg.partition("<desc")[2].partition("</desc>")[0]
    assert description.count("off the chart") == 1


def test_noise_alone_puts_nothing_off_the_chart() -> None:
    rng = np.random.default_rng(0)
    cells = [cell for cell in catalogue.find("recogym").cells(TEN) if cell.log.seed < 5]
    rows = [row for c in cells for row in Outcome(values={"score": rng.normal()}).rows("recogym", c, "")]
    methods = tuple(dict.fromkeys(cell.method for cell in cells))
    drawn = boxes(Results(tuple(rows)), "a.svg", "t", methods)
    assert isinstance(drawn, Figure)
    assert "off the chart" not in drawn.svg


def test_a_deviation_of_rounding_errors_is_none() -> None:
    assert spread((4.34e10, 8.04e-6)) == "4.34e10 ± 0"
    assert spread((2.0, 0.5)) == "2.000 ± 0.500"


def test_more_spread_is_a_claim_of_its_own() -> None:
    seeds = range(10)
    wide, narrow = {s: (-1.0) ** s * (5 + s) for s in seeds}, {s: (-1.0) ** s for s in seeds}
    names = ("k = 150", "k = 5")
    assert steadier("t", wide, narrow, names=names, topic="variance").verdict == "reproduced"
    assert steadier("t", narrow, wide, names=names, topic="variance").verdict == "not reproduced"
    assert steadier("t", {s: wide[s] for s in range(3)}, narrow, names=names).holds is None
    assert steadier("t", {}, narrow, names=names).holds is None


def test_the_story_is_read_from_the_rows() -> None:
    sections = []
    for name in catalogue.names():
        experiment = catalogue.find(name)
        sections.append(page.section(experiment, made_up(experiment, experiment.cells(TEN)), 0))
    told = {section.experiment.name: (Results(section.rows), section.claims) for section in sections}
    sentences = story.lessons(told)
    assert len(sentences) == 10
    mu = told["recogym"][0].values(method="logging", epsilon=0.3).mean()
    assert any(f"the logging policy has {plain(mu)}" in sentence for sentence in sentences)
    assert story.figure(told) is not None
    text = page.to_markdown(sections, [])
    assert text.index("## What was learned") < text.index("## Claims") < text.index("## How this was run")
    assert text.count("<details>") == len(catalogue.names())


def test_the_story_of_nothing_is_short() -> None:
    assert len(story.lessons({})) == 1  # what the authors' code does is known without a run
    assert story.figure({}) is None


def test_every_claim_stands_behind_the_fold_with_its_p() -> None:
    claim = Claim("a > b", True, "a 2, b 1", "rivals", "repaired()", 10, 0.001)
    assert page.claims_table([claim]).rows == (
        ("a > b", "repaired()", "reproduced", "a 2, b 1", "10", "0.001"),
    )
