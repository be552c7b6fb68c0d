"""``shpi init``: write a column map for a table, guessed or answered, with a comment beside every line."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi.errors import ColumnError, ConfigError

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    import polars as pl

DESCRIPTION = """Say which column of a table means what, once, in a file that every other verb reads.

The names of the columns give a first guess. In a terminal every part of it is asked about: Enter takes the
guess, another name takes that column, - takes none. With --yes, or outside a terminal, the guess is written
as it is. Read the file before you go on: the comments say what every line means.
"""

EXAMPLES = """examples:
  shpi init events.csv
  shpi init 'events/*.parquet' --out map.toml --yes

then:
  shpi audit events.csv --columns map.toml
"""

# The questions in order: a key of the map, and the meaning of its column.
ROLES = {
    "user": "who saw it: users are the independent units of every interval",
    "time": "when it was decided",
    "action": "what was shown: the item, the arm, the treatment",
    "reward": "what came of it: higher is better",
    "propensity": "the probability with which the item was chosen",
    "session": "the visit that it belongs to (a pause makes one where there is none)",
}
NEEDED = ("action",)
# Comments for keys whose column the table does not seem to have.
ABSENT = {
    "user": "without it every row is a user of its own, and later rewards are unknown",
    "time": "without it the rows are taken as they come",
    "reward": "without it nothing can be learned",
    "propensity": "not logged? The verbs take --estimate-propensities",
    "terminated": "true in the last row of a user who is gone for good",
}
GAP = "30m"
# Lines that cannot be guessed from column names: key, line, comment.
LATER = (
    ("terminated", 'terminated = "…"', ABSENT["terminated"]),
    ("churn_after", 'churn_after = "30d"', "or: a user silent for longer has left; the audit proposes one"),
    ("metric", 'metric = "reward in 30d"', "the question: what is one user worth, over which time?"),
)
EXTRAS = {
    "time_unit": "what the numbers of the time count, since 1970",
    "order": "breaks ties in time",
    "candidates": "the items that could have been shown",
    "terminated": ABSENT["terminated"],
    "truncated": "true where the log stops though the user goes on",
    "metrics": "further outcomes, such as metrics that must not fall; never known before the decision",
    "context": "what was known BEFORE the decision, and nothing else",
    "session_gap": "a longer pause starts a new session",
}
WIDTH = 34  # characters of a line before its comment
EARLIEST = 1e8  # seconds since 1970 (a day in 1973): smaller numbers are counts of steps
SAMPLE = 5000  # rows that the guess is based on
# A text column with more distinct values than this in the sample, or half as many as rows, is an id.
MANY = 100
# Commented lines for rewards in a second table; a TOML table must come last.
EVENTS = """# Is the reward in a second table, of purchases or conversions? Then say where in these lines:
# [[events]]
# table = "purchases.csv"           # its path, relative to this file
# name = "bought"                   # what it is called from now on; metric = "bought in 30d" asks for it
# user = "user_id"                  # in that table
# time = "bought_at"
# within = "7d"                     # an event belongs to a decision at most this much earlier
"""


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "init",
        help="a column map for your table, with comments",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("log", nargs="+", metavar="LOG", help="file, glob or folder; several are joined")
    add("--out", type=Path, default=Path("map.toml"), metavar="FILE", help="what to write (map.toml)")
    add("-y", "--yes", action="store_true", help="ask nothing, take the guess")
    add("--overwrite", action="store_true", help="replace a map that is there already")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    from shpi.data._read.sources import open_table
    from shpi.data.columns import Columns
    from shpi.report.files import write_whole

    if options.out.exists() and not options.overwrite:
        raise ConfigError(
            expected="no file of this name yet",
            found=str(options.out),
            remedy="--overwrite replaces it, --out FILE names another",
        )
    table = open_table(options.log[0] if len(options.log) == 1 else options.log).frame
    sample = table.head(SAMPLE).collect()
    guess = guessed(sample)
    if not options.yes and sys.stdin.isatty():
        guess = asked(guess, sample, lambda question: input(question))
    if any(key not in guess for key in NEEDED):
        likely = [name for name in sample.columns if 2 <= sample[name].n_unique() <= MANY]
        raise ColumnError(
            expected="a column that says what was shown (action)",
            found=f"none that is called so among {', '.join(sample.columns)}",
            remedy='run shpi init in a terminal, which asks, or write the map by hand: action = "…". '
            f"Columns of few values: {', '.join(likely) or 'none'}",
        )
    text = as_toml(guess, sample, " ".join(options.log), options.out)
    Columns.from_mapping(tomllib.loads(text), where="the map")
    write_whole(options.out, text)
    print(text)
    print(f"wrote {options.out}. Read it, correct what is wrong, then:")
    print(f"next: shpi audit {' '.join(options.log)} --columns {options.out}")
    return 0


def guessed(sample: pl.DataFrame) -> dict[str, Any]:
    """The guess of `shpi.data._read.guess`, with a session gap if no column holds the session."""
    from shpi.data._read.guess import guess_columns

    scattered = [name for name in sample.columns if is_scattered(sample[name])]
    columns: dict[str, Any] = tomllib.loads(guess_columns(sample.columns, sample.schema, scattered))
    if "time" in columns:
        unit = unit_of(sample[columns["time"]])
        columns |= {} if unit is None else {"time_unit": unit}
        if "session" not in columns and is_calendar(sample[columns["time"]]):
            columns.setdefault("session_gap", GAP)
    return columns


def unit_of(times: pl.Series) -> str | None:
    """The unit of numeric times since 1970; None for dates and for counts of steps."""
    from shpi.data._read.times import units_that_fit

    if not times.dtype.is_numeric():
        return None
    middle = float(times.drop_nulls().cast(float).median() or 0)  # type: ignore[arg-type]
    return next(iter(units_that_fit(middle)), None) if middle >= EARLIEST else None


def is_scattered(values: pl.Series) -> bool:
    """Whether text values hardly repeat, as ids do, whatever the column is called."""
    if str(values.dtype) != "String":
        return False
    different = values.drop_nulls().n_unique()
    return different > min(MANY, max(len(values) // 2, 20))


def is_calendar(times: pl.Series) -> bool:
    """Whether times are dates, dates as text, or numbers since 1970, rather than counts of steps."""
    return unit_of(times) is not None if times.dtype.is_numeric() else not times.dtype.is_nested()


# ---------------------------------------------------------------------- questions


def asked(guess: Mapping[str, Any], sample: pl.DataFrame, ask: Callable[[str], str]) -> dict[str, Any]:
    """The guess after the user's corrections."""
    print("Enter takes what is in [brackets], - takes none. The columns, with the values of the first row:")
    for name in sample.columns:
        print(f"  {name:24s} {sample[name].dtype!s:12s} {example(sample, name)}")
    answers = dict(guess)
    for role, about in ROLES.items():
        column = _column(role, about, answers.get(role), sample.columns, ask)
        answers.pop(role, None)
        if column is not None:
            answers[role] = column
    if "session" in answers:
        answers.pop("session_gap", None)
    elif "time" in answers:
        answers["session_gap"] = ask(f"session_gap, a pause that ends a visit [{GAP}]: ").strip() or GAP
    answers["context"] = _context(answers, sample.columns, ask)
    return answers


def _column(
    role: str, about: str, guess: str | None, names: list[str], ask: Callable[[str], str]
) -> str | None:
    """Ask for a column until the answer exists."""
    import difflib

    while True:
        word = ask(f"{role}, {about} [{guess or '-'}]: ").strip() or guess or "-"
        if word in names:
            return word
        if word == "-" and role not in NEEDED:
            return None
        close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
        print(f"  There is no column '{word}'." + (f" Did you mean {' or '.join(close)}?" if close else ""))


def _context(answers: Mapping[str, Any], names: list[str], ask: Callable[[str], str]) -> list[str]:
    """Ask for the columns that were known before the decision."""
    taken = {value for key, value in answers.items() if key != "context" and isinstance(value, str)}
    usual = [name for name in answers.get("context", []) if name not in taken]
    while True:
        question = f"context, {EXTRAS['context']}, with commas between [{', '.join(usual) or '-'}]: "
        text = ask(question).strip()
        chosen = usual if not text else [w.strip() for w in text.split(",") if w.strip() not in ("", "-")]
        absent = [word for word in chosen if word not in names and not any(sign in word for sign in "*?[")]
        if not absent:
            return chosen
        print(f"  There is no column {', '.join(absent)}.")


def example(sample: pl.DataFrame, name: str) -> str:
    """The first value that is not missing, shortened."""
    values = sample[name].drop_nulls()
    text = str(values[0]) if len(values) else "(all missing)"
    return text if len(text) <= 40 else text[:39] + "…"


# ---------------------------------------------------------------------- the file


def as_toml(
    answers: Mapping[str, Any], sample: pl.DataFrame, source: str, place: Path = Path("map.toml")
) -> str:
    """The column map as TOML, with a comment beside every line."""
    lines = [
        f"# Which column of {source} means what. Every verb reads this file: --columns {place}",
        "",
    ]
    for key, about in ROLES.items():
        if key in answers:
            lines.append(_line(key, answers[key], about))
        elif key in ABSENT:
            lines.append(f'# {key} = "…"'.ljust(WIDTH) + f"  # {ABSENT[key]}")
    rest = [key for key in (*EXTRAS, *answers) if key not in ROLES]
    present = [key for key in dict.fromkeys(rest) if key in answers]
    lines += [_line(key, answers[key], EXTRAS.get(key, "")) for key in present]
    lines += [f"# {line}".ljust(WIDTH) + f"  # {about}" for key, line, about in LATER if key not in answers]
    unused = _unused(answers, sample.columns)
    if unused:
        lines += ["", f"# Not used: {', '.join(unused)}"]
    text = "\n".join(lines) + "\n"
    return text if "reward" in answers else f"{text}\n{EVENTS}"


def _line(key: str, value: Any, about: str) -> str:
    text = f"{key} = {_toml(value)}"
    return text.ljust(WIDTH) + f"  # {about}" if about else text


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _unused(answers: Mapping[str, Any], names: list[str]) -> list[str]:
    named: set[str] = set()
    for value in answers.values():
        named |= {value} if isinstance(value, str) else set(value) if isinstance(value, list) else set()
    return [name for name in names if name not in named]
