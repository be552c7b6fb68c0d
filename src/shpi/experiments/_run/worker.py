"""A worker process: ``python -m shpi.experiments._run.worker`` reads a cell per line and writes its outcome.

Lines are JSON. Output that a library prints goes to standard error, so that it is not taken for an outcome.
Cells of one log come one after the other, so the last log is kept and simulated only once.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
import traceback
from dataclasses import asdict

from shpi._core.memory import forget_peak, peak_memory
from shpi.errors import ShpiError
from shpi.experiments._run.cells import Cell, Outcome


def main() -> int:
    """Run cells until standard input ends."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        answers.write(json.dumps(asdict(attempt(Cell.from_json(line)))) + "\n")
        answers.flush()
    return 0


def _end_with_parent(parent: int) -> None:
    """End this process if its parent is killed; else a cell could go on for an hour."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def attempt(cell: Cell) -> Outcome:
    """Run a cell; an error becomes its outcome."""
    from shpi.experiments._run.work import run

    forget_peak()
    try:
        outcome = run(cell)
    except ShpiError as error:
        return Outcome(message=str(error))
    except Exception as error:
        traceback.print_exc()
        return Outcome(message=f"{type(error).__name__}: {error}")
    odd = [name for name, value in outcome.values.items() if not math.isfinite(value)]
    if odd:
        return Outcome(message=f"not a finite number: {', '.join(odd)}")
    peak = peak_memory()
    return Outcome(
        values=outcome.values, seconds=outcome.seconds, peak_mb=None if peak is None else peak / 1e6
    )


if __name__ == "__main__":
    sys.exit(main())
