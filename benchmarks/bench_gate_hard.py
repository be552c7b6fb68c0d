"""The gate in the hard worlds: false ships, power, first steps, and coverage of its bounds.

Writes docs/gate-hard-worlds.md. Every policy is judged on its own fresh log by `Gate()` with default
settings, in every world of `shpi.testing.hard_worlds`, once with a true lift of exactly 0 and once with a
lift that is worth finding. If the log does not say how trajectories end, it is judged as it is, and as its
owner would describe it.

Environment: SHPI_HARD_POLICIES (without lift, per world; 100), SHPI_HARD_BETTER (with lift; 30),
SHPI_HARD_FIRST (the first seed; 1000), SHPI_HARD_WORLDS (names, separated by semicolons), SHPI_HARD_PAGE;
SHPI_HARD_CASES names a file that keeps judgements, one JSON line each, for later runs. SHPI_WORKERS
processes judge in parallel. benchmarks/gate_before.json has the counts of version 0.1, and the seeds of the
reported logs with lift that it shipped.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scipy import stats

from benchmarks.gate_hard import Judged, judge, size
from benchmarks.parallel import each
from benchmarks.report import Row
from shpi.testing.hard_worlds import WORLDS

POLICIES, BETTER, FIRST = (
    size("SHPI_HARD_POLICIES", 100),
    size("SHPI_HARD_BETTER", 30),
    size("SHPI_HARD_FIRST", 1_000),
)
ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(os.environ.get("SHPI_HARD_PAGE", ROOT / "docs" / "gate-hard-worlds.md"))
BEFORE = Path(__file__).with_name("gate_before.json")
RARELY = "rarely overridden decisions"
Task = tuple[str, int, int | None, float, bool]


def run() -> list[Row]:
    """Measure, write the page, and return the rates."""
    chosen = os.environ.get("SHPI_HARD_WORLDS")
    wanted = list(WORLDS) if chosen is None else [name.strip() for name in chosen.split(";")]
    cases: list[Judged] = []
    for name in wanted:
        cases += measured(name)
        draft = PAGE.with_name(f".{PAGE.name}.part")  # written after every world, since the whole run is long
        draft.write_text(page(cases), encoding="utf-8")
        draft.replace(PAGE)
    rows = []
    for name in wanted:
        for told in sorted({case.told for case in cases if case.world == name}):
            mine = [case for case in cases if case.world == name and case.told == told]
            none = [case for case in mine if case.wanted == 0]
            ships = sum(case.decision == "ship" for case in none)
            label = f"{name}{', as its owner describes it' if told else ''}"
            goal = "" if WORLDS[name].impossible else f"<= {100 * allowed(len(none)) / len(none):.4g}"
            note = f"{ships} of {len(none)}"
            rows.append(Row(f"{label}: false ships", 100 * ships / len(none), "%", note, goal))
    return rows


def tasks(name: str) -> list[Task]:
    """All tasks of a world."""
    example = WORLDS[name].make(FIRST, 40)
    describes = "truncated" in example.options or example.setting.churn_after is not None
    readings = (False, True) if describes else (False,)
    sizes = ((0.0, POLICIES), (WORLDS[name].better, BETTER))
    return [
        (name, FIRST + seed, None, lift, told)
        for lift, count in sizes
        for told in readings
        for seed in range(count)
    ]


def measured(name: str) -> list[Judged]:
    """The judgements of a world: made now, or kept from an earlier run."""
    place = os.environ.get("SHPI_HARD_CASES")
    kept: dict[Task, Judged] = {}
    if place is not None and Path(place).exists():
        for line in Path(place).read_text(encoding="utf-8").splitlines():
            case = Judged(**{key: _plain(value) for key, value in json.loads(line).items()})
            kept[case.world, case.seed, None, case.wanted, case.told] = case
    missing = [task for task in tasks(name) if task not in kept]
    fresh = [case for case in each(judge, missing, name) if case is not None] if missing else []
    if place is not None and fresh:
        with Path(place).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(case)) + "\n" for case in fresh)
    return [kept[task] for task in tasks(name) if task in kept] + fresh


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def allowed(total: int) -> int:
    """The number of false ships that is within the noise of 5 %: one world in forty has more."""
    return int(stats.binom.ppf(0.975, total, 0.05))


def interval(hits: int, total: int) -> str:
    """Hits with the 95 % Clopper-Pearson interval, as text."""
    low = stats.beta.ppf(0.025, hits, total - hits + 1) if hits else 0.0
    high = stats.beta.ppf(0.975, hits + 1, total - hits) if hits < total else 1.0
    return f"{hits} of {total} ({low:.0%} to {high:.0%})"


# ---------------------------------------------------------------------- the page

HEAD = """# The gate in the hard worlds

Written by `python -m benchmarks gate_hard` (also part of `python -m benchmarks gate`). The worlds are those
of `shpi.testing.hard_worlds`: every seed is another world of its kind, and the true lift is exact. The gate
has its default settings.

**false ships**: "ship" on a policy whose true lift is exactly 0, with the 95 % interval of the rate.
**false steps**: a first step offered whose own true lift is not above 0. **held**: how often the lower
bound of the lift that leads the report was not above its truth (with and without lift; 95 % is meant; the
gate's own bound is lower still, because its witness has to agree). It does not hold where propensities are
false: there the checks have to refuse. **shipped**: the share of
policies with the given true lift, of the present value, that ship; in brackets those that were offered a
proven first step instead. **before**: the same of version 0.1, on the same logs. **lost (step)**: those that
0.1 shipped, that are better than what mu did in the last third of the log, and that do not ship now; in
brackets how many of them are offered a first step. The bound is that of the lift that leads the report: the
policy's or, where the log cannot carry the whole of it, that of the largest mixture that it can.

| world | users | false ships | before | false steps | held | lift | shipped (step) | before | lost (step) |
|---|---|---|---|---|---|---|---|---|---|
"""


def page(cases: Sequence[Judged]) -> str:
    """The document."""
    before = json.loads(BEFORE.read_text(encoding="utf-8")) if BEFORE.exists() else {}
    names = list(dict.fromkeys(case.world for case in cases))
    parts = [HEAD]
    for name in names:
        readings = sorted({case.told for case in cases if case.world == name})
        parts += [_line(name, told, cases, before) for told in readings]
    sizes = sorted(
        {len([case for case in cases if case.world == name and case.wanted == 0]) for name in names}
    )
    parts.append(
        "\nWithin the noise of 5 % are "
        + ", ".join(f"up to {allowed(total)} false ships of {total}" for total in sizes)
        + ". An interval that reaches far above 5 % means few logs, not many false ships; the environment "
        "variables of the benchmark make larger runs.\n"
    )
    parts.append(_all_lost(cases, before))
    parts.append("\n## Worlds, and where no gate can be right\n\n")
    for name in names:
        why = WORLDS[name].impossible
        parts.append(f"* **{name}**: {WORLDS[name].words}{f' *Impossible: {why}.*' if why else ''}\n")
    parts += ["\n## Propensities that are taken at their word\n\n", _at_their_word(cases)]
    parts.append("\n## What forbade to decide, without lift\n\n")
    for name in names:
        mine = [case for case in cases if case.world == name and case.wanted == 0 and not case.told]
        counts = Counter(why for case in mine for why in set(case.fatal))
        said = ", ".join(f"{why} {count / len(mine):.0%}" for why, count in counts.most_common()) or "nothing"
        decisions = Counter(case.decision for case in mine)
        verdicts = ", ".join(f"{word} {count / len(mine):.0%}" for word, count in decisions.most_common())
        parts.append(f"* {name}: {verdicts}; fatal: {said}\n")
    return "".join(parts)


def _at_their_word(cases: Sequence[Judged]) -> str:
    """How many ships state how few wrong propensities would undo them, with wrong and with right ones."""
    ships = [case for case in cases if case.decision == "ship" and case.at_their_word is not None]
    false, right = ([case for case in ships if (case.world == RARELY) == rarely] for rarely in (True, False))
    worlds = len({case.world for case in right})
    return (
        "A ship by logged propensities says how few decisions, changed afterwards in favour of the policy, "
        "would undo it, where the log could not show so few. It says so in "
        f"{sum(case.at_their_word is True for case in false)} of {len(false)} ships of '{RARELY}', and in "
        f"{sum(case.at_their_word is True for case in right)} of {len(right)} of {worlds} other worlds.\n"
    )


def _line(name: str, told: bool, cases: Sequence[Judged], before: dict[str, dict[str, list[int]]]) -> str:
    mine = [case for case in cases if case.world == name and case.told == told]
    none, better = ([case for case in mine if (case.wanted > 0) == lifted] for lifted in (False, True))
    steps = [case for case in mine if case.step_truth is not None]
    wrong = sum(case.step_truth <= 1e-9 for case in steps if case.step_truth is not None)
    held = sum(case.bound <= case.led for case in mine) / max(len(mine), 1)
    label = f"{name}, as its owner describes it" if told else name
    label += " (impossible)" if WORLDS[name].impossible else ""
    old = before.get(name, {}) if not told else {}
    was = ["{} of {}".format(*old[key]) if key in old else "" for key in ("none", "better")]
    shipped, first = (sum(case.decision == word for case in better) for word in ("ship", "first step"))
    return (
        f"| {label} | {max((case.users for case in mine), default=0):,} | "
        f"**{interval(sum(case.decision == 'ship' for case in none), len(none))}** | {was[0]} | "
        f"{wrong} of {len(mine)} | {held:.0%} | {WORLDS[name].better:+.0%} | "
        f"{shipped} ({first}) of {len(better)} | {was[1]} | {_lost(better, old)} |\n"
    )


def _lost(better: Sequence[Judged], old: dict[str, list[int]]) -> str:
    """How many policies 0.1 shipped rightly and the gate now does not, and how many get a first step."""
    if "shipped" not in old:
        return ""
    return "{} ({})".format(*_counted(lost(better, old)))


def lost(better: Sequence[Judged], old: dict[str, list[int]]) -> list[Judged]:
    """The policies that version 0.1 shipped rightly, and that are not shipped now."""
    return [
        case
        for case in better
        if case.seed in old.get("shipped", ())
        and case.decision != "ship"
        and (case.recent_truth or case.truth) > 0
    ]


def _counted(some: Sequence[Judged]) -> tuple[int, int]:
    return len(some), sum(case.decision == "first step" for case in some)


def _all_lost(cases: Sequence[Judged], before: dict[str, dict[str, list[int]]]) -> str:
    """The sum of the last column, and what the remaining policies wait for."""
    better = [case for case in cases if case.wanted > 0 and not case.told]
    names = dict.fromkeys(case.world for case in better)
    gone = [x for name in names for x in lost([o for o in better if o.world == name], before.get(name, {}))]
    endings = [case for case in gone if "endings" in case.fatal]
    false = [case for case in gone if case not in endings and "propensity balance" in case.fatal]
    rest = [case for case in gone if case not in endings and case not in false]
    return (
        "\nOf those that version 0.1 shipped rightly, {} do not ship now; {} of these are offered a first "
        "step. {} logs do not say how users end, and ship once their owner does; in {} the propensities fail "
        "their test, so nothing can be proven with them. Of the other {}, {} are offered a first step.\n"
    ).format(*_counted(gone), len(endings), len(false), *_counted(rest))
