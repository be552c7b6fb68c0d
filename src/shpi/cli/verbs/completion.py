"""``shpi completion``: verbs, options and file names at the press of Tab."""

from __future__ import annotations

import argparse
from typing import Any

DESCRIPTION = """Print a script that lets your shell complete verbs, options and the choices of options."""

EXAMPLES = """examples:
  eval "$(shpi completion bash)"                               # now; in ~/.bashrc: always
  eval "$(shpi completion zsh)"                                # in ~/.zshrc, after compinit
  shpi completion fish > ~/.config/fish/completions/shpi.fish
"""

SHELLS = ("bash", "zsh", "fish")


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "completion",
        help="a script with which your shell completes verbs and options",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    from shpi.cli._shell.completion import script

    print(script(options.shell), end="")
    return 0
