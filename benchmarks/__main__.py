"""Run the benchmarks: all of them, or those named on the command line."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.report import Row, machine, show


def main() -> int:
    names = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {', '.join(names)} (default: all)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    unknown = set(options.names) - set(names)
    if unknown:
        parser.error(f"unknown benchmark {sorted(unknown)}; known: {', '.join(names)}")
    print(machine())
    figures: dict[str, list[dict[str, object]]] = {}
    missed = 0
    for name in options.names or names:
        rows = [
            row if isinstance(row, Row) else Row(*row)
            for row in import_module(f"benchmarks.bench_{name}").run()
        ]
        show(name, rows)
        figures[name] = [row._asdict() for row in rows]
        missed += sum(row.met is False for row in rows)
    if options.json:
        options.json.write_text(
            json.dumps({"machine": machine(), "figures": figures}, indent=1), encoding="utf-8"
        )
    print("every goal met" if not missed else f"{missed} goals missed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
