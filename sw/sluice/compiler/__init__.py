"""The compiler: graph in, microcode out.

This package's front half holds the graph (`Graph`), the passes over it (`canonicalise`, `fuse`, `run_passes`), the
quantiser (`quantise`) and the executors that define what a graph means (`run_float`, `run_quantised`).
"""

from .graph import Graph, Node, NodeSpec, Tensor
from .passes_front import Pass, canonicalise, fuse, run_passes
from .quantise import quantise
from .reference import dequantise_array, quantise_array, run_float, run_quantised
from .tensors import GraphError, QuantParams, TensorType

__all__ = [
    "Graph",
    "GraphError",
    "Node",
    "NodeSpec",
    "Pass",
    "QuantParams",
    "Tensor",
    "TensorType",
    "canonicalise",
    "dequantise_array",
    "fuse",
    "quantise",
    "quantise_array",
    "run_float",
    "run_passes",
    "run_quantised",
]
