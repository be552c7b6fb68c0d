"""``shpi export``: a policy for other runtimes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from shpi.errors import ConfigError

DESCRIPTION = """Write a policy as an ONNX file, for any runtime that decides without Python.

The model takes contexts [n, d] in float64, encoded as the policy's schema says, and a mask of candidates
[n, A], and gives probabilities [n, A]. It is compared with the policy before it is written.
"""

EXAMPLES = """examples:
  shpi export policies/today --onnx today.onnx
"""


def add_parser(verbs: Any) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "export",
        help="a policy for other runtimes (ONNX)",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("policy", type=Path, metavar="POLICY", help="a policy folder")
    parser.add_argument("--onnx", type=Path, metavar="FILE", help="the file to write")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the verb."""
    if options.onnx is None:
        raise ConfigError(expected="--onnx FILE", found="none", remedy="shpi export --help has an example")
    from shpi.policies import load_policy
    from shpi.policies.onnx import to_onnx

    error = to_onnx(load_policy(options.policy), options.onnx)
    size = options.onnx.stat().st_size
    print(f"wrote {options.onnx}: {size:,} bytes; onnxruntime agrees with the policy to {error:.1g}")
    return 0
