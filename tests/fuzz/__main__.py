"""Attack for longer: ``python -m tests.fuzz 20000`` mutations of each kind, or ``--minutes 60`` for all.

Prints what was accepted, refused and found; a finding is printed with the seed that makes it again:
``python -m tests.fuzz --target log --seed 123``.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.targets import TARGETS


def attack(name: str, seeds: range, until: float = float("inf")) -> Counter[str]:
    """Run one target for a range of seeds; count the outcomes."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            if time.monotonic() > until:
                break
            try:
                counts[TARGETS[name](random.Random(seed), Path(folder))] += 1
            except Exception as error:
                counts["FOUND"] += 1
                if counts["FOUND"] <= 5:
                    place = traceback.extract_tb(error.__traceback__)[-1]
                    where = f"{Path(place.filename).name}:{place.lineno}"
                    what = f"{type(error).__name__} at {where}: {str(error)[:300]}"
                    print(f"  {name}, seed {seed}: {what}", flush=True)
    return counts


def main() -> int:
    """Attack, and say what came of it; exit code 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=1000)
    parser.add_argument("--minutes", type=float, help="share this time among the targets instead")
    parser.add_argument("--target", choices=list(TARGETS), action="append")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one only")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    chosen = options.target or list(TARGETS)
    for name in chosen:
        first = options.first if options.seed is None else options.seed
        seeds = range(first, first + (options.count if options.seed is None else 1))
        until = float("inf")
        if options.minutes is not None:
            seeds, until = range(first, first + 10**9), time.monotonic() + 60 * options.minutes / len(chosen)
        counts = attack(name, seeds, until)
        total += counts
        print(f"{name}: {sum(counts.values())} mutations, {dict(counts)}", flush=True)
    return 1 if total["FOUND"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
