"""``shpi serve``: serve decisions over HTTP, and run the loop that learns from them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from shpi.errors import ConfigError, MissingExtraError

DESCRIPTION = """Serve decisions over HTTP, store what was decided and what came of it, and learn from it.

FOLDER holds everything: settings (serve.toml, written with comments at the first start), policies, events and
the state. An answer leaves when it is on the disk. The first policy is uniform, or with start = "apprentice"
the caller's own first choice; a cycle learns another one, the gate and a canary decide whether it may serve.
"""

EXAMPLES = """examples:
  shpi serve shop                        start; the page is at http://127.0.0.1:8400/
  shpi serve --demo                      the same with a simulated shop that sends traffic
  shpi serve cycle shop                  compact, audit, fit, evaluate, gate; then a canary, if it may
  shpi serve compact shop                the events as a log of shpi: shop/log.parquet
  shpi serve rollback shop               take the canary back, or the champion; under a second
  shpi serve forget shop USER            remove everything about a user
  shpi serve status shop                 which policy serves, and why

exit codes: 0 done, 1 a cycle that changed nothing, 2 bad input
"""

ACTIONS = ("cycle", "compact", "rollback", "forget", "status")


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "serve",
        help="decisions over HTTP, with a log and a loop that learns from it",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "words", nargs="*", metavar="[ACTION] FOLDER", help=f"a folder; before it one of {', '.join(ACTIONS)}"
    )
    add("--host", help="overrides server.host")
    add("--port", type=int, help="overrides server.port")
    add("--demo", action="store_true", help="with a simulated shop that sends traffic")
    add("--why", default="by hand", metavar="TEXT", help="of a rollback, for the history")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    try:
        import msgspec  # noqa: F401
    except ImportError:
        raise MissingExtraError("msgspec", "serve") from None
    words = list(options.words)
    action = words.pop(0) if words and words[0] in ACTIONS and len(words) > 1 else "start"
    if options.demo and action == "start":
        from shpi.serve.demo import run_demo

        return run_demo(Path(words[0]) if words else None, port=options.port)
    wanted = 2 if action == "forget" else 1
    if len(words) != wanted:
        raise ConfigError(
            expected="FOLDER and USER" if wanted == 2 else "one FOLDER",
            found=" ".join(options.words) or "nothing",
            remedy="shpi serve --help shows some examples",
        )
    folder = Path(words[0])
    if action == "start":
        from shpi.serve.web.server import serve

        return serve(folder, host=options.host, port=options.port)
    if not folder.is_dir():
        raise ConfigError(
            expected="the folder of a service",
            found=f"no folder '{folder}'",
            remedy="shpi serve FOLDER makes one",
        )
    return _ACTIONS[action](folder, words[1:], options)


def _rollback(folder: Path, _: list[str], options: argparse.Namespace) -> int:
    from shpi.serve.loop.control import changing, now_us

    with changing(folder) as control:
        after = control.rolled_back(options.why, now_us())
        after.write(folder)
    print(f"{folder}: '{after.history[-1].policy}' was rolled back; '{after.champion}' serves")
    return 0


def _status(folder: Path, _: list[str], __: argparse.Namespace) -> int:
    from shpi.serve.loop.control import Control
    from shpi.serve.loop.story import sentence

    control = Control.read(folder)
    trial = "none" if control.canary is None else f"{control.canary.policy}, stage {control.canary.stage + 1}"
    print(f"champion: {control.champion}\ncanary:   {trial}\n{sentence(folder, control)}")
    return 0


def _compact(folder: Path, _: list[str], __: argparse.Namespace) -> int:
    from shpi.serve.loop.compact import compact

    logs, path = compact(folder)
    print(f"wrote {path}: {logs}", file=sys.stderr)
    return 0


def _cycle(folder: Path, _: list[str], __: argparse.Namespace) -> int:
    from shpi.serve.loop.cycle import run_cycle

    cycle = run_cycle(folder)
    print(cycle)
    return 0 if cycle.changed else 1


def _forget(folder: Path, words: list[str], _: argparse.Namespace) -> int:
    from shpi.serve.loop.forget import forget

    print(f"removed {forget(folder, words[0]):,} records")
    return 0


_ACTIONS = {
    "rollback": _rollback,
    "status": _status,
    "compact": _compact,
    "cycle": _cycle,
    "forget": _forget,
}
