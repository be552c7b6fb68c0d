"""The nodes and constants of an ONNX graph, added one by one. Names of values are plain text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shpi.errors import MissingExtraError

OPSET = 18  # version of ONNX's operators
Value = str  # the name of a value in the graph


def onnx_module() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "onnx") from None
    return onnx


class Graph:
    """A graph under construction: contexts [n, d] and candidates [n, A] come in."""

    contexts: Value = "contexts"

    def __init__(self) -> None:
        self._onnx = onnx_module()
        self.candidates: Value = "candidates"
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._count = 0

    def _name(self, kind: str) -> Value:
        self._count += 1
        return f"{kind}_{self._count}"

    def add(self, kind: str, *inputs: Value, **attributes: Any) -> Value:
        """A node with one output."""
        name = self._name(kind.lower())
        self.nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, values: ArrayLike, dtype: Any = np.float64) -> Value:
        """An array as a value."""
        name = self._name("constant")
        array = (
            np.ascontiguousarray(values, dtype=dtype) if np.ndim(values) else np.array(values, dtype=dtype)
        )
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    @contextmanager
    def allowing(self, candidates: Value) -> Iterator[None]:
        """For a while, other candidates than those that come in."""
        before, self.candidates = self.candidates, candidates
        yield
        self.candidates = before

    # ------------------------------------------------------------------ arithmetic

    def row_max(self, x: Value) -> Value:
        """[n, A] to [n, 1]."""
        return self.add("ReduceMax", x, self.constant([1], np.int64), keepdims=1)

    def row_sum(self, x: Value) -> Value:
        """[n, A] to [n, 1]."""
        return self.add("ReduceSum", x, self.constant([1], np.int64), keepdims=1)

    def where(self, condition: Value, x: Value, other: float) -> Value:
        """X where a condition holds, and a number elsewhere."""
        return self.add("Where", condition, x, self.constant(other))

    def real(self, x: Value) -> Value:
        """Truth values or whole numbers as float64."""
        return self.add("Cast", x, to=self._onnx.TensorProto.DOUBLE)

    def single(self, x: Value) -> Value:
        """As float32."""
        return self.add("Cast", x, to=self._onnx.TensorProto.FLOAT)

    def whole(self, x: Value) -> Value:
        """As int64."""
        return self.add("Cast", x, to=self._onnx.TensorProto.INT64)

    def any_of(self, x: Value) -> Value:
        """Whether anything in a row of truth values holds, [n, A] to [n, 1]."""
        return self.add("Greater", self.row_sum(self.real(x)), self.constant(0.0))

    def everything(self) -> Value:
        """Truth in the shape of the candidates."""
        return self.add("Or", self.candidates, self.add("Not", self.candidates))

    def scaled(self, x: Value, factor: float) -> Value:
        """Factor x."""
        return x if factor == 1 else self.add("Mul", x, self.constant(factor))

    def normalised(self, x: Value) -> Value:
        """Rows that sum to 1."""
        return self.add("Div", x, self.row_sum(x))

    def softmax(self, logits: Value) -> Value:
        """The softmax of each row."""
        return self.normalised(self.add("Exp", self.add("Sub", logits, self.row_max(logits))))

    def one_hot_max(self, scores: Value, n_actions: int) -> Value:
        """1 at the first greatest score of each row, 0 elsewhere."""
        best = self.add("ArgMax", scores, axis=1, keepdims=1)
        places = self.constant(np.arange(n_actions)[None], np.int64)
        return self.real(self.add("Equal", best, places))

    def model(self, probs: Value, width: int | None, n_actions: int) -> Any:
        """The finished model, checked."""
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        last = helper.make_node("Identity", [probs], ["probabilities"])
        graph = helper.make_graph(
            [*self.nodes, last],
            "policy",
            [
                helper.make_tensor_value_info(self.contexts, kinds.DOUBLE, ["n", width or "d"]),
                helper.make_tensor_value_info("candidates", kinds.BOOL, ["n", n_actions]),
            ],
            [helper.make_tensor_value_info("probabilities", kinds.DOUBLE, ["n", n_actions])],
            self.constants,
        )
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, producer_name="shpi", ir_version=9)
        self._onnx.checker.check_model(model)
        return model
