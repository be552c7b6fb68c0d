"""The versions that a result depends on besides data and settings: shpi's code and its libraries."""

from __future__ import annotations

import platform
from functools import cache
from hashlib import blake2b
from pathlib import Path

import shpi


@cache
def versions() -> dict[str, str]:
    """Python, shpi, its code, numpy, scipy and polars of this process."""
    import numpy
    import polars
    import scipy

    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "shpi": shpi.__version__,
        "code of shpi": _code(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "polars": polars.__version__,
    }


def _code() -> str:
    """A digest of all sources: two checkouts may have the same version number."""
    folder = Path(shpi.__file__).parent
    digest = blake2b(digest_size=8)
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
