"""docs/outsiders-logs.md: what was learned, what is true, what was estimated, and the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.strangers.way import Outcome

HEAD = """# Four logs of outsiders

Written by `python -m benchmarks strangers`. Four simulators write what teams really have, each with a planted
long-term effect (`benchmarks/strangers`): **shop**, a semicolon CSV of clicks, no propensities; **push**,
notifications with conversions in a second table; **news**, one of ten candidates out of 200 articles;
**personalizer**, JSON lines of a decision service. Users enter over time, so many are observed for less than
the metric's window. Every log goes from raw files to a verdict with four commands: `shpi audit`, `split`,
`fit` and `evaluate`, with the question in the column map. What a policy is worth is known from 40,000 new
users, what the logging policy is worth from 400,000.

*mu* is the value of the logging policy: as the report states it (mean over the logs), and in truth. *In the
interval*: how often the 95 % interval that leads the report contains the true lift of what it is about: the
policy or, where the log cannot carry the whole of it over the whole window, the largest mixture with the
logging policy that it can (in brackets, how many). *Estimated*: of the runs that the policy itself
leads. *Verdicts*: of the gate with its defaults. *Wrong*: shipped though not better.

| log | runs | mu, stated / true | true lift | estimated | in the interval | verdicts | wrong |
|---|---|---|---|---|---|---|---|
"""

TAIL = """
The shop's propensities are estimated. A hidden cause that changes the odds of an action by 1.3 could undo
what they show, and by default that is no ship ([why](gate-checks.md)).
"""


def page(outcomes: Sequence[Outcome], mu: Mapping[str, float]) -> str:
    """The page for all runs.

    Args:
        outcomes: of every run.
        mu: what the logging policy of each world is worth.
    """
    names = list(dict.fromkeys(outcome.world for outcome in outcomes))
    lines = [_line(name, [run for run in outcomes if run.world == name], mu[name]) for name in names]
    covered = sum(outcome.covered for outcome in outcomes)
    total = f"\nAll together the true lift is in its interval in {covered} of {len(outcomes)} runs.\n"
    return HEAD + "\n".join(lines) + "\n" + total + TAIL


def _line(name: str, runs: Sequence[Outcome], mu: float) -> str:
    alone = [run for run in runs if run.share == 1]
    verdicts = Counter(run.verdict for run in runs)
    wrong = sum(run.verdict == "ship" and run.lift <= 0 for run in runs)
    cells = (
        name,
        str(len(runs)),
        f"{np.mean([run.by_hand for run in runs]):.3f} / {mu:.3f}",
        f"{np.mean([run.lift for run in runs]) / mu:+.0%}",
        f"{np.mean([run.estimate for run in alone]) / mu:+.0%}" if alone else "",
        f"{sum(run.covered for run in runs)} of {len(runs)} ({len(runs) - len(alone)})",
        ", ".join(f"{verdict} {count}" for verdict, count in verdicts.most_common()),
        str(wrong),
    )
    return f"| {' | '.join(cells)} |"
