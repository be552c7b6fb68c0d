"""``shpi mix``: mix a new policy with the present one, as a first step towards shipping it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shpi._core.progress import progress_bar
from shpi.cli._shell.reading import add_reading_options, read_logs
from shpi.cli.verbs.fit import check_target
from shpi.errors import ConfigError

if TYPE_CHECKING:  # imported when the verb runs, so that `shpi --help` is quick
    from shpi.protocols import Policy

DESCRIPTION = """Mix a policy with the one that decides today, and write the mixture as a policy.

Of every hundred decisions, so many as --share says are the new policy's, the others are the present one's.
A small share is a small risk, and the log of such a step says more about the new policy than any log of the
present one. The present policy is recovered from its log (LOG), or is itself a policy folder (--with), or
picks at random (--with uniform). Evaluate the mixture like any other policy.
"""

EXAMPLES = """examples:
  shpi mix policies/today train.parquet --share 0.1 --out policies/first-step
  shpi mix policies/today --with policies/yesterday --share 10% --out policies/first-step
  shpi mix policies/today --with uniform --share 0.9 --out policies/with-exploration

then:
  shpi evaluate policies/first-step held-out.parquet --out report.html
"""


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "mix",
        help="a first step: a policy in part of the traffic, the present one in the rest",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("policy", type=Path, metavar="POLICY", help="a policy folder")
    add_reading_options(parser, required=False)
    add = parser.add_argument
    add("--with", dest="other", metavar="POLICY", help="the present policy: a folder, or uniform")
    add("--share", default="0.1", metavar="S", help="of the decisions for POLICY: 0.1 (the default) or 10%%")
    add("--out", type=Path, metavar="DIR", required=True, help="the policy folder to write")
    add("--overwrite", action="store_true", help="replace a policy that is there already")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    from shpi.policies import Mixture, load_policy, read_policy_file, save_policy

    share = parse_share(options.share)
    if (options.other is None) == (not options.log):
        raise ConfigError(
            expected="the present policy, once: its LOG, or --with POLICY",
            found="neither" if options.other is None else "both",
            remedy="shpi mix --help shows some examples",
        )
    check_target(options.out, overwrite=options.overwrite)
    saved, new = read_policy_file(options.policy), load_policy(options.policy)
    present = present_policy(options, saved, new)
    if present is None:
        return 2
    mixture = Mixture((new, present), (share, 1 - share))
    notes = {**saved.notes, "mixed": {"policy": str(options.policy), "share": share}}
    save_policy(
        mixture,
        options.out,
        schema=saved.schema,
        actions=saved.actions,
        notes=notes,
        overwrite=options.overwrite,
    )
    print(f"wrote {options.out}: {share:.3g} of the decisions by {options.policy}, the rest as today")
    return 0


def parse_share(text: str) -> float:
    """Parse a share such as 0.1 or 10%: above 0, at most 1."""
    from shpi.cli.verbs.evaluate import parse_amount

    share, _ = parse_amount(text, "--share")
    if not 0 < share <= 1:
        raise ConfigError(expected="--share above 0 and at most 1", found=repr(text))
    return share


def present_policy(options: argparse.Namespace, saved: Any, new: Policy) -> Policy | None:
    """The policy in use today; None if a guess of a missing column map was printed instead."""
    from shpi.cli.verbs.evaluate import encoding_of
    from shpi.learners import BehaviourCloning
    from shpi.ope import check_saved
    from shpi.policies import UniformPolicy, load_policy

    if options.other == "uniform":
        return UniformPolicy(new.n_actions)
    if options.other is not None:
        return load_policy(Path(options.other))
    logs = read_logs(options, "mix", **encoding_of(saved, options))
    if logs is None:
        return None
    check_saved(saved, logs)
    with progress_bar("recovering the present policy", None):
        return BehaviourCloning(seed=options.seed).fit(logs)
