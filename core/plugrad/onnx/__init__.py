"""ONNX graphs, recorded: what is written over `Ops` becomes the nodes of a graph.

`Graph` is a graph under construction, and `ops` has the tensor functions that add nodes to it. The package `onnx` is
imported when a graph is made.
"""

from plugrad.onnx.graph import OPSET, Graph, OnnxTensor

__all__ = ["OPSET", "Graph", "OnnxTensor"]
