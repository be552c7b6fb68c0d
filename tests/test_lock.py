"""The lock of CI has every package that the tests need; `make matrix LOWEST=1` has the lowest versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
REMEDY = "run `make lock`"


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {normal(line.split("==")[0]): line.split("==")[1].split()[0] for line in lines}


def requirements(extra: str) -> list[str]:
    """What the core and an extra ask for, with the extras that it is made of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed: list[str] = []
    for requirement in [*project["dependencies"], *project["optional-dependencies"][extra]]:
        match = re.match(r"shpi\[(.*)\]", requirement)
        if match is None:
            listed.append(requirement)
        else:
            listed += [needed for inner in match[1].split(",") for needed in requirements(inner)]
    return listed


def needed(extra: str) -> set[str]:
    """The names that an extra asks for."""
    return {normal(re.split(r"[ \[<>=!~;]", requirement)[0]) for requirement in requirements(extra)}


def test_the_lock_has_all_that_is_needed() -> None:
    missing = needed("dev") - set(pins(ROOT / "requirements-ci.txt")) - {"torch"}
    assert not missing, REMEDY


def test_the_lock_and_the_constraints_agree() -> None:
    locked, wanted = pins(ROOT / "requirements-ci.txt"), pins(ROOT / "constraints.txt")
    assert {name: locked.get(name) for name in wanted if name != "torch"} == {
        name: version for name, version in wanted.items() if name != "torch"
    }, REMEDY


def test_every_line_of_the_lock_has_a_hash() -> None:
    lines = (ROOT / "requirements-ci.txt").read_text().splitlines()
    packages = [line for line in lines if not line.startswith("#")]
    assert len(packages) > 50
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}$", line) for line in packages)


def test_the_lowest_versions_are_those_that_the_project_allows() -> None:
    allowed = {}
    for requirement in [*requirements("test"), *requirements("all")]:
        match = re.match(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", requirement)
        assert match is not None, f"{requirement} has no lower bound"
        allowed[normal(match[1])] = without_zeros(match[2])
    tested = pins(ROOT / "constraints-lowest.txt")
    assert {name: without_zeros(version) for name, version in tested.items()} == allowed


def without_zeros(version: str) -> str:
    return re.sub(r"(\.0)+$", "", version)
