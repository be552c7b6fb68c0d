"""Policies as ONNX files, which any runtime can evaluate, in float64.

    graph      nodes and constants of a graph, with numpy's names
    features   feature maps
    trees      boosted trees
    support    SPIBB, MBS, BCQ and tables
    heads      scores f(x, a) and probabilities
    export     to_onnx: write the file, and check it with onnxruntime

Needs the extra: ``pip install 'shpi[onnx]'``.
"""

from shpi.policies.onnx.export import to_onnx

__all__ = ["to_onnx"]
