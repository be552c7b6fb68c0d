"""Results of `bench_wins` as JSON lines, one file per method, from which a killed run resumes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import shpi

FOLDER = Path(__file__).resolve().parent / "wins"


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one method on one log."""

    world: str
    seed: int
    method: str
    users: int
    headline: float
    value: float  # the metric of the lift: the discounted sum of rewards per user
    mu_headline: float
    mu_value: float
    optimum: float | None  # largest possible value
    lift_error: float  # standard error of value - mu_value, 0 if both are exact
    seconds: float  # CPU seconds of the fit alone
    code: str  # digest of the package that was run
    proven: bool | None = None
    lift: float | None = None  # lift that the policy states
    lift_lower: float | None = None


def path_of(method: str) -> Path:
    """The file of a method."""
    return FOLDER / f"{method}.jsonl"


def load(method: str) -> list[Result]:
    """The results of a method; the last line of a (world, seed) counts, incomplete lines do not."""
    path, kept = path_of(method), {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        try:
            result = Result(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue
        kept[result.world, result.seed] = result
    return list(kept.values())


def append(result: Result) -> None:
    """Add a result to the file of its method."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = path_of(result.method)
    broken = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if broken else "") + json.dumps(asdict(result)) + "\n")


def code_digest() -> str:
    """Ten characters that change whenever a file of the package does."""
    folder, digest = Path(shpi.__file__).parent, hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:10]
