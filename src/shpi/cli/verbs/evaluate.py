"""``shpi evaluate``: may this policy be shipped? Prints verdict, estimates, diagnostics; writes a report."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi.cli._shell.cautions import add_caution_options, with_looks
from shpi.cli._shell.reading import add_reading_options, read_logs
from shpi.cli._shell.shards import add_passes_options, forget, open_shards, passing
from shpi.cli._shell.spelling import spelled
from shpi.errors import ConfigError
from shpi.files.atomic import write_text
from shpi.report.terminal import render

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    from shpi.data.logged import LoggedData
    from shpi.data.shards import ShardedLog
    from shpi.ope.candidates import Comparison
    from shpi.ope.estimators.base import Estimator
    from shpi.ope.gate import Gate, Guard
    from shpi.ope.results import Evaluation, Per
    from shpi.policies import PolicyFile
    from shpi.protocols import Policy

DESCRIPTION = """Judge a policy from the log of another one, and say whether it may be shipped.

POLICY is a folder that `shpi fit` wrote. LOG is read as by `shpi audit`, or is a folder of shards;
it should hold users that the policy was not learned from. The verdict is printed first, then what every
estimator says, then what to beware of.
"""

EXAMPLES = """examples:
  shpi evaluate policies/today held-out.parquet
  shpi evaluate policies/today held-out.parquet --out report.html --json evaluation.json
  shpi evaluate policies/today log.parquet --gamma 0.95 --horizon 20 --min-lift 1%
  shpi evaluate policies/today log.parquet --guard click:-2% --guard complaints:+0
  shpi evaluate policies/today log.parquet --guard click/decision:-2%
  shpi evaluate policies/today log.parquet --against policies/other policies/third
  shpi evaluate policies/today log.parquet --anytime    every day, as the log grows
  shpi evaluate policies/today held-out-shards --jobs 2 --resume unfinished
  shpi evaluate policies/today log.parquet --estimators wdr,snpdis,shpi:5 --main WDR

exit codes:
  0 ship, 3 hold, 4 need more data, 5 first step: a part of the policy is proven
    (of POLICY, also where there are others to compare it with)
  2 the policy or the log could not be read, they do not belong together, or the command is wrong
"""

EXITS = {"ship": 0, "hold": 3, "need more data": 4, "first step": 5}
FEW_STEPS = 4  # k of the k-step estimator if a log has no sessions
_UNITS: dict[str, Per] = {"user": "user", "decision": "decision", "session": "session"}
ESTIMATORS = ("wdr", "shpi", "snpdis", "snips", "pdis", "ips", "dr", "magic", "fqe", "dm", "mis", "slope")


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "evaluate",
        help="may this policy be shipped? (exit code 0 ship, 3 hold, 4 need more data, 5 first step)",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("policy", type=Path, metavar="POLICY", help="a policy folder")
    add_reading_options(parser)
    add("--out", type=Path, metavar="FILE", help="write the report as one self-contained HTML file")
    add("--json", type=Path, metavar="FILE", help="write the evaluation as JSON")
    add("--against", type=Path, nargs="+", action="extend", default=[], metavar="POLICY",
        help="other candidates on the same users; the bounds then hold for all of them together")  # fmt: skip
    add("--per", choices=("user", "decision", "session"), default="user", help="the unit (default: user)")
    add("--gamma", type=float, default=1.0, metavar="G", help="the discount (default: 1)")
    add("--horizon", type=int, metavar="H", help="count at most H decisions of each trajectory")
    add("--truncated", choices=("censored", "complete"),
        help="a trajectory that stops early is censored or complete (default: as the log says)")  # fmt: skip
    add("--k", metavar="K", help='k of the k-step estimator: a number, or "session"')
    add("--estimators", metavar="A,B,C", help=f"among {', '.join(ESTIMATORS)}; shpi:5 means k = 5")
    add("--main", metavar="NAME", help="the estimator that decides, as the table calls it")
    add("--interval", choices=("skewed", "t", "heavy", "normal", "bootstrap", "bernstein"),
        default="skewed", help="how intervals are made (default: skewed, t with a correction)")  # fmt: skip
    add("--confidence", type=float, default=0.95, metavar="C", help="level of all bounds (default: 0.95)")
    add("--min-lift", default="0", metavar="L", help="ship only above this lift: a number, or e.g. 1%%")
    add("--guard", action="append", default=[], metavar="METRIC:±AMOUNT",
        help="a metric that must not fall by more (click:-2%%, click:-0.01) or must not rise by more "
        "(complaints:+0, must not rise at all); per user, or as click/decision:-2%%, click/session:-2%%; "
        "may be repeated")  # fmt: skip
    add_caution_options(parser)
    add_passes_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb: 0 ship, 3 hold, 4 need more data, 5 first step."""
    from shpi.ope.candidates import compare
    from shpi.policies import read_policy_file

    for name in ("out", "json"):  # before minutes of work, not after
        path: Path | None = getattr(options, name)
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise ConfigError(expected="a file in a folder that exists", found=str(path), where=f"--{name}")
    gate, places = gate_of(options), [options.policy, *options.against]
    k = parse_k(options.k)
    estimators_of(options.estimators, k)  # so that a misspelt name is an error before minutes of work
    names = distinct(places)
    saved = [read_policy_file(place) for place in places]
    logs: LoggedData | ShardedLog | None = open_shards(options)
    if logs is None:
        logs = read_logs(options, "evaluate", **encoding_of(saved[0], options))
    if logs is None:
        return 2
    policies = {
        name: opened(place, policy_file, logs)
        for name, place, policy_file in zip(names, places, saved, strict=True)
    }
    if options.estimators is not None and k is None:
        k = usual_k(logs)
    estimators = estimators_of(options.estimators, k)
    comparison = compare(
        policies,
        logs,
        gate,
        estimators=estimators,
        main=options.main,
        gamma=options.gamma,
        k=k,
        horizon=options.horizon,
        truncated=options.truncated,
        per=options.per,
        confidence=options.confidence,
        interval=options.interval,
        seed=options.seed,
        **passing(options),
    )
    comparison = with_looks(comparison, policies, logs, gate, options)
    write(comparison, options)  # before printing, which a broken pipe may end
    forget(options)
    show(comparison, gate)
    first = comparison.evaluations[0]
    assert first.verdict is not None
    return EXITS[first.verdict.decision]


# ---------------------------------------------------------------------- options


def gate_of(options: argparse.Namespace) -> Gate:
    """The gate that the options describe."""
    from shpi.ope.gate import Gate

    least, relative = parse_amount(options.min_lift, "--min-lift")
    planned = {} if options.planned_users is None else {"planned_users": options.planned_users}
    return Gate(
        min_lift=least,
        relative=relative,
        confidence=options.confidence,
        guards=tuple(parse_guard(text) for text in options.guard),
        anytime=options.anytime,
        hidden_cause=options.hidden_cause,
        cluster=options.cluster,
        **planned,
        seed=options.seed,
    )


def parse_guard(text: str) -> Guard:
    """Parse a guard: ``click:-2%`` may fall by 2 %, ``complaints:+0`` may not rise; ``a/session``: a rate."""
    from shpi.ope.gate import Guard

    metric, colon, change = text.rpartition(":")
    if not colon or not metric or change[:1] not in ("-", "+"):
        raise ConfigError(
            expected="--guard METRIC:-DROP (must not fall by more) or METRIC:+RISE (must not rise by more), "
            "e.g. click:-2% (of the present value), click:-0.01, complaints:+0",
            found=repr(text),
        )
    amount, relative = parse_amount(change[1:], "--guard")
    name, _, unit = metric.rpartition("/")
    per = _UNITS.get(unit) if name else None
    return Guard(
        metric=metric if per is None else name,
        max_rise=amount if change[0] == "+" else None,
        max_drop=amount if change[0] == "-" else None,
        relative=relative,
        per=per,
    )


def parse_amount(text: str, where: str) -> tuple[float, bool]:
    """Parse a number or a percentage: (0.02, True) for "2%"."""
    percent = text.endswith("%")
    try:
        amount = float(text.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount):
        raise ConfigError(expected=f"{where} to be a number or a percentage", found=repr(text))
    return amount, percent


def parse_k(text: str | None) -> Any:
    """Parse k: a number of steps, "session", or None."""
    if text is None or text == "session":
        return text
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise ConfigError(expected='k to be a number of at least 1, or "session"', found=repr(text))
    return int(text)


def usual_k(logs: LoggedData | ShardedLog) -> Any:
    """The default k of the k-step estimator: "session", or `FEW_STEPS` if the log has no sessions."""
    from shpi.ope._log.facts import raw_chunks

    several = any(chunk.n_sessions > chunk.n_trajectories for chunk in raw_chunks(logs))
    return "session" if several else FEW_STEPS


def estimators_of(text: str | None, k: Any) -> list[Estimator] | None:
    """The estimators by their names; None for all that suit the log."""
    if text is None:
        return None
    from shpi import ope

    plain: dict[str, Callable[[], Any]] = {
        "wdr": ope.WDR, "snpdis": ope.SNPDIS, "snips": ope.SNIPS, "pdis": ope.PDIS, "ips": ope.IPS,
        "dr": ope.DR, "magic": ope.MAGIC, "fqe": ope.FQE, "dm": ope.DirectMethod, "mis": ope.MIS,
        "slope": ope.SLOPE,
    }  # fmt: skip
    estimators: list[Estimator] = []
    for word in (entry.strip().lower() for entry in text.split(",") if entry.strip()):
        name, _, steps = word.partition(":")
        if name == "shpi":
            chosen = parse_k(steps) if steps else k
            estimators.append(ope.KStepSHPI() if chosen is None else ope.KStepSHPI(k=chosen))
        elif name in plain and not steps:
            estimators.append(plain[name]())
        else:
            raise ConfigError(expected=f"estimators among {', '.join(ESTIMATORS)}", found=repr(word))
    return estimators


# ---------------------------------------------------------------------- policies and log


def distinct(places: list[Path]) -> list[str]:
    """Short names of the policies: the folders' names, or the whole paths where those repeat."""
    names = [place.name or str(place) for place in places]
    names = names if len(set(names)) == len(names) else [str(place) for place in places]
    if len(set(names)) < len(names):
        raise ConfigError(expected="different policies to compare", found=", ".join(names))
    return names


def encoding_of(saved: PolicyFile, options: argparse.Namespace) -> dict[str, Any]:
    """The schema and actions of the policy's training log, with which a table is to be read."""
    if options.columns is None:
        return {}
    encoding = {"schema": saved.schema, "action_space": saved.actions}
    return {key: value for key, value in encoding.items() if value is not None}


def opened(place: Path, saved: PolicyFile, logs: LoggedData | ShardedLog) -> Policy:
    """Load a policy; an error if it does not fit the log."""
    from shpi.data.logged import LoggedData
    from shpi.ope import check_saved
    from shpi.policies import TrainingUsers, load_policy, training_users
    from shpi.policies.training_users import remember

    check_saved(saved, logs)
    policy = load_policy(place)
    unknown = not training_users(policy)  # saved by a version without hashes of the training users
    if unknown and isinstance(logs, LoggedData) and saved.notes.get("log") == logs.fingerprint():
        remember(policy, TrainingUsers.of(logs))
    return policy


# ---------------------------------------------------------------------- results


def show(comparison: Comparison, gate: Gate) -> None:
    """Print the verdicts, then the table and the diagnostics of each candidate."""
    several = len(comparison.evaluations) > 1
    for evaluation in comparison.evaluations if several else ():
        assert evaluation.verdict is not None
        print(f"{evaluation.verdict.decision.upper():<15} {evaluation.policy_name}: {_lift(evaluation)}")
    if several:
        print(f"best to ship: {comparison.best or 'none'}\n")
    for number, evaluation in enumerate(comparison.evaluations):
        print(("\n" if number else "") + spelled(render(evaluation, verdict_first=True)))


def _lift(evaluation: Evaluation) -> str:
    lead = evaluation.lead
    mixed = "" if evaluation.mixture is None else f" of {100 * lead.share:.3g} % of the decisions"
    return f"lift{mixed} {lead.estimate.lift:+.5g}"


def write(comparison: Comparison, options: argparse.Namespace) -> None:
    """Write the HTML report and the JSON file, where asked for."""
    first, *others = comparison.evaluations
    if options.json is not None:
        content = first.to_json() | ({"against": [other.to_json() for other in others]} if others else {})
        write_text(options.json, json.dumps(content, indent=1, allow_nan=False) + "\n")
        print(f"wrote {options.json}", file=sys.stderr)
    if options.out is not None:
        try:
            place = comparison.write_html(options.out) if others else first.write_html(options.out)
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("shpi.report"):
                raise
            raise ConfigError(
                expected="a version of shpi with reports, for --out", found="none", remedy="use --json"
            ) from None
        print(f"wrote {place}", file=sys.stderr)
