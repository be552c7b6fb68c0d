"""`to_onnx`: write a policy as an ONNX file, after trying it with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shpi.errors import DataError, MissingExtraError
from shpi.files.atomic import new_file
from shpi.policies.base import context_width
from shpi.policies.onnx.graph import Graph
from shpi.policies.onnx.heads import probabilities
from shpi.protocols import Policy

TOLERANCE = 1e-6  # Fourier features are single precision in shpi; everything else agrees to 1e-12
_TRIED = 16  # contexts on which the exported graph is compared with the policy


def to_onnx(policy: Policy, path: str | Path, *, check: bool = True) -> float:
    """Write a policy as an ONNX file, and return the largest difference to ``action_probs``.

    The model takes ``contexts`` [n, d] in float64 and ``candidates`` [n, A], and gives ``probabilities``
    [n, A]. Float32 would move probabilities near a bound by 3e-6.

    Args:
        policy: made of shpi's own parts.
        path: the file.
        check: compare with onnxruntime on some random contexts before anything is written.
    """
    graph = Graph()
    width = context_width(policy)
    model = graph.model(probabilities(graph, policy), width, policy.n_actions).SerializeToString()
    error = _tried(policy, model, 1 if width is None else width) if check else float("nan")
    if error > TOLERANCE:
        raise DataError(
            expected=f"probabilities that agree to {TOLERANCE:g}",
            found=f"a difference of {error:.3g}",
            where="to_onnx",
            remedy="report this as a bug, with the policy",
        )
    with new_file(path) as file:
        file.write(model)
    return error


def run_onnx(model: bytes, contexts: Any, candidates: Any) -> Any:
    """The probabilities that onnxruntime computes."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("onnxruntime", "onnx") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = {"contexts": contexts, "candidates": candidates}
    wanted = {tensor.name for tensor in session.get_inputs()}
    return session.run(None, {name: value for name, value in inputs.items() if name in wanted})[0]


def _tried(policy: Policy, model: bytes, width: int) -> float:
    rng = np.random.default_rng(0)
    mask = rng.random((_TRIED, policy.n_actions)) < 0.6
    mask[: _TRIED // 2] = True
    mask[np.arange(_TRIED), rng.integers(0, policy.n_actions, _TRIED)] = True
    x = rng.normal(size=(_TRIED, width))
    try:
        wanted = policy.action_probs(x, mask)
    except DataError:  # a policy over states: they are numbered from 0
        x = np.zeros((_TRIED, width))
        wanted = policy.action_probs(x, mask)
    return float(np.abs(run_onnx(model, x, mask) - wanted).max())
