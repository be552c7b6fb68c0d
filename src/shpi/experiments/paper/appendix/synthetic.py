"""The appendix table on behaviour policies: the synthetic task, logged with epsilon 0.3 and 1."""

from __future__ import annotations

from shpi.experiments._page.compare import for_readings, plain, shpi_beats, side_by_side
from shpi.experiments._page.figures import boxes
from shpi.experiments._run.cells import Cell
from shpi.experiments._run.experiment import Block, Experiment, Note, Results
from shpi.experiments._run.settings import (
    BCQ,
    CB,
    LOGGING,
    OURS,
    PAPER,
    RELEASED,
    REPAIRED,
    Method,
    Settings,
)
from shpi.experiments.paper import release

METHODS = (LOGGING, PAPER, RELEASED, REPAIRED, OURS, BCQ, CB)
AGENT = Method(name="online RL")  # the trained agent itself: the logging policy with epsilon 0
NAMES = (*(method.name for method in METHODS), AGENT.name)
REPORTED = {
    0.3: for_readings(
        {
            "logging": (5125.0, 316.0),
            "SHPI": (8411.0, 32.0),
            "BCQ": (8233.0, 271.0),
            "online RL": (8144.0, 311.0),
        }
    ),
    1.0: for_readings(
        {
            "logging": (77.0, 402.0),
            "SHPI": (8346.0, 180.0),
            "BCQ": (2669.0, 3085.0),
            "online RL": (8144.0, 311.0),
        }
    ),
}
AS_RUN = {  # the authors' released code in its own worlds: 10 seeds at 0.3, 8 at 1
    epsilon: {
        "logging": release.as_run(release.MU, epsilon),
        "SHPI, released()": release.as_run(release.DIFFERENCES, epsilon),
        "BCQ": bcq,
        "CB": bandit,
        "online RL": release.as_run(release.AGENT, epsilon),
    }
    for epsilon, bcq, bandit in (
        (0.3, "−55,710 ± 124,600", "−42,260 ± 65,610"),
        (1.0, "−51,190 ± 100,400", "−353 ± 834"),
    )
}
RIVALS = {"logging": "mu", "BCQ": "offline RL (BCQ)", "CB": "CB", "online RL": "online RL"}


def cells(settings: Settings) -> list[Cell]:
    """Every method on both logs, and the trained agent."""
    planned = [
        method.on(log, settings)
        for epsilon in REPORTED
        for log in settings.logs("synthetic", epsilon)
        for method in METHODS
    ]
    return planned + [AGENT.on(log, settings) for log in settings.logs("synthetic", 0.0)]


def show(results: Results) -> list[Block]:
    """One figure, one table and the claims per behaviour policy."""
    blocks: list[Block] = []
    for epsilon, reported in REPORTED.items():
        at_epsilon = with_agent(results, epsilon)
        title = f"Synthetic task, epsilon = {epsilon:g}: improvement Y_T - Y_0 of new users"
        blocks += [
            boxes(at_epsilon, f"synthetic-{epsilon:g}.svg", title, NAMES, paper=reported, label="Y_T - Y_0"),
            side_by_side(
                at_epsilon, title, NAMES, paper=reported, authors=AS_RUN[epsilon], reference=OURS.name
            ),
            *shpi_beats(at_epsilon, RIVALS, f"epsilon = {epsilon:g}: "),
        ]
    return blocks + _agents(results)


def _agents(results: Results) -> list[Block]:
    """A note on how good our logging policy is, beside the paper's."""
    score = results.values(method=LOGGING.name, epsilon=0.3)
    share = results.values("attained", method=LOGGING.name, epsilon=0.3)
    if not len(score):
        return []
    paper = REPORTED[0.3][LOGGING.name][0]
    return [
        Note(
            f"The logging policy is not the paper's: mu(0.3) scores {plain(float(score.mean()))}, which is "
            f"{share.mean():.1%} of what can be attained, where the paper reports {plain(paper)}. What "
            "is left to gain is the rest, and a policy that leaves the states of such a narrow log can lose "
            "far more."
        )
    ]


def with_agent(results: Results, epsilon: float) -> Results:
    """The rows of one behaviour policy, and those of the trained agent."""
    return Results(tuple(row for row in results.rows if row.epsilon == epsilon or row.method == AGENT.name))


EXPERIMENT = Experiment(
    name="synthetic",
    title="The synthetic task under two behaviour policies",
    source="Appendix, the table of behaviour policies",
    about='2,000 users and 150 decisions each. "Online RL" is the deep SARSA agent that was trained with '
    "1,000 users, and whose epsilon-greedy versions wrote the logs.",
    cells=cells,
    show=show,
)
