"""The sections of the page: traffic, arms, policies, the last verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shpi.data.durations import describe
from shpi.report.page import Section, esc, figure, table
from shpi.report.plots.lines import lines
from shpi.serve.loop.control import Control
from shpi.serve.loop.monitor import Comparison, Monitor
from shpi.serve.loop.state import CycleState
from shpi.serve.loop.story import day

if TYPE_CHECKING:
    from shpi.serve.service import Service

_SHOWN = 12  # latest entries of the history on the page
_HOURS_OF_A_DAY = 24


def traffic(monitor: Monitor) -> Section:
    """Decisions and rewards per hour."""
    hours = sorted(monitor.hours)
    if len(hours) < 2:
        body = "<p>There is nothing to draw before the second hour.</p>"
    else:
        first, last = hours[0], hours[-1]
        span = range(first, last + 1)
        ago = [(hour - last) / _HOURS_OF_A_DAY for hour in span]
        series = {
            "decisions": [monitor.hours[h].decisions if h in monitor.hours else 0 for h in span],
            "rewards": [monitor.hours[h].rewards if h in monitor.hours else 0 for h in span],
        }
        body = figure(
            _drawn(ago, series, "Decisions and rewards per hour", "days before the last hour", "per hour")
        )
        body += figure(
            _drawn(
                ago,
                {"reward per decision": _smoothed(monitor, list(span))},
                "Reward per decision, over a day",
                "days before the last hour",
                "reward per decision",
            )
        )
    how = "Rewards follow decisions after a while. If one of the lines stops, look at the callers."
    return Section(key="traffic", title="Traffic", how=how, body=body)


def _smoothed(monitor: Monitor, span: list[int]) -> list[float]:
    """Reward per decision over the 24 hours up to each hour."""
    means, value, decisions = [], 0.0, 0
    for place, hour in enumerate(span):
        for number, sign in ((hour, 1), (span[place] - _HOURS_OF_A_DAY, -1)):
            entry = monitor.hours.get(number) if number >= span[0] else None
            if entry is not None:
                value, decisions = value + sign * entry.value, decisions + sign * entry.decisions
        means.append(value / decisions if decisions else float("nan"))
    return means


def _drawn(
    x: list[float],
    series: dict[str, list[float]] | dict[str, list[int]],
    title: str,
    x_label: str,
    y_label: str,
) -> Callable[[float], str]:
    values = {name: [float(value) for value in many] for name, many in series.items()}
    return lambda width: lines(
        x, values, title=title, zero=True, x_label=x_label, y_label=y_label, width=width, height=190
    )


def arms(service: Service) -> Section:
    """The arms, with their confidence sequences over time."""
    monitor, rules = service.monitor, service.settings.canary
    parts = []
    for comparison, words in (
        (monitor.canary or monitor.last_canary, "canary minus champion"),
        (monitor.hold_back, "champion minus hold-back"),
    ):
        parts.append(_sequence(comparison, words, 1 - rules.alpha))
    shares = f"{service.settings.decide.hold_back:.0%} of the users are held back"
    trial = service.canary_share
    shares += f", {trial:.0%} are in the canary." if trial else "; there is no canary."
    how = (
        f"{shares} The band holds at all looks together, at {1 - rules.alpha:.0%} on either side: below 0 "
        "means proven worse, above 0 proven better. A user counts from "
        f"{describe(service.settings.canary_window)} after the first decision on."
    )
    return Section(key="arms", title="Arms", how=how, body="".join(parts))


def _sequence(comparison: Comparison | None, words: str, level: float) -> str:
    if comparison is None:
        return f"<p>{esc(words.capitalize())}: there is none.</p>"
    looks = list(comparison.looks)
    if not looks:
        counted = sum(first.n + second.n for first, second in comparison.strata)
        return (
            f"<p>{esc(words.capitalize())}: {counted} users are counted and {comparison.waiting} are under "
            "way; 30 in each arm are needed.</p>"
        )
    last = looks[-1][1]
    sentence = (
        f"<p>{esc(words.capitalize())}: <b>{last.estimate:+.4g}</b> per user, {last.lower:+.4g} to "
        f"{last.upper:+.4g} at {level:.0%} over all looks ({last.users:,} against {last.others:,} users).</p>"
    )
    if len(looks) < 2:
        return sentence
    begin = looks[0][0]
    x = [(moment - begin) / 86_400e6 for moment, _ in looks]
    if x[-1] <= 0:
        return sentence
    rising = [0] + [i for i in range(1, len(x)) if x[i] > x[i - 1]]
    band = ([looks[i][1].lower for i in rising], [looks[i][1].upper for i in rising])

    def draw(width: float) -> str:
        return lines(
            [x[i] for i in rising],
            {words: [looks[i][1].estimate for i in rising]},
            bands={words: band},
            title=f"{words}, per user",
            zero=True,
            reference={"no difference": 0.0},
            x_label="days since the first look",
            y_label="reward per user",
            width=width,
            height=200,
        )

    return sentence + figure(draw)


def policies(control: Control, monitor: Monitor) -> Section:
    """The policies in use, how many decisions each has made, and the history."""
    served: Counter[tuple[str, str]] = Counter(monitor.by_policy)
    total = sum(served.values()) or 1
    rows = [
        [esc(policy), esc(arm), f"{count:,}", f"{count / total:.1%}"]
        for (policy, arm), count in served.most_common(_SHOWN)
    ]
    decided = table(["policy", "arm", "decisions", "share"], rows, caption="Who decided", numbers=(2, 3))
    past = [
        [esc(day(entry.time)), esc(entry.what), esc(entry.policy), esc(entry.why)]
        for entry in reversed(control.history[-_SHOWN:])
    ]
    history = table(["when", "what", "policy", "why"], past, caption="What happened")
    trial = "nobody" if control.canary is None else control.canary.policy
    served_by, start = esc(control.champion), esc(control.start)
    how = f"{served_by} serves, {esc(trial)} is on trial, the hold-back stays with {start}."
    none = "<p>No decision has been made since the server was started.</p>"
    return Section(key="policies", title="Policies", how=how, body=(decided if rows else none) + history)


def verdict(cycle: CycleState | None, folder: Path) -> Section:
    """What the last cycle found."""
    if cycle is None:
        body = (
            "<p>No cycle has run yet: <code>shpi serve cycle FOLDER</code>, or cycle.every in serve.toml.</p>"
        )
        return Section(key="verdict", title="Last verdict", how="What the last cycle found.", body=body)
    facts = cycle.facts or {}
    rows = [
        [esc(name.replace("_", " ")), esc(_fact(name, value))]
        for name, value in facts.items()
        if name in ("users", "decisions", "judged_users", "warnings", "policy", "decision", "estimator")
        or name in ("lift", "at_least", "effective_users")
    ]
    report = (cycle.place(folder) / "report.html").exists()
    link = '<p><a href="/report">The report of the last evaluation</a></p>' if report else ""
    outcome = esc(cycle.outcome or f"under way, at the step '{cycle.next_step}'", 900)
    body = f"<p>{outcome}</p>" + table(["", ""], rows, caption="The last cycle") + link
    how = f"Cycle {cycle.number}, of {esc(day(cycle.started))}."
    return Section(key="verdict", title="Last verdict", how=how, body=body)


def _fact(name: str, value: object) -> object:
    """Format counts with thousands separators and lifts with a sign."""
    if isinstance(value, int) or (name == "effective_users" and isinstance(value, float)):
        return f"{value:,.0f}"
    return f"{value:+.4g}" if isinstance(value, float) else value
