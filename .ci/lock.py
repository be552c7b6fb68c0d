"""Turn pip's report of an installation (standard input) into requirements with hashes (standard output).

torch stays out: every processor and CUDA version has a build of its own, under one version number, so no hash
would hold elsewhere. It is pinned in constraints.txt and installed by itself; what it needs is in the lock.
"""

from __future__ import annotations

import json
import sys
from typing import Any

APART = ("torch",)
HEAD = """\
# What CI installs, each package with its hash, for Python {python} on {system}.
# Made by `make lock`; do not edit. torch is pinned in constraints.txt and installed by itself:
# its builds share a version, and no hash holds for all of them.
"""


def lines(report: dict[str, Any]) -> list[str]:
    """One requirement for every package that was resolved, in alphabetical order."""
    found = {}
    for item in report["install"]:
        name, version = item["metadata"]["name"].lower().replace("_", "-"), item["metadata"]["version"]
        where = item["download_info"]
        if name in APART or "dir_info" in where:  # torch, and shpi itself
            continue
        found[name] = f"{name}=={version} --hash=sha256:{where['archive_info']['hashes']['sha256']}"
    return [found[name] for name in sorted(found)]


def main() -> None:
    """Read the report, write the lock."""
    report = json.load(sys.stdin)
    where = report["environment"]
    system = f"{where['platform_system']} {where['platform_machine']}"
    sys.stdout.write(HEAD.format(python=where["python_version"], system=system))
    sys.stdout.write("\n".join(lines(report)) + "\n")


if __name__ == "__main__":
    main()
