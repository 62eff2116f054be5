"""The compiler: graph in, microcode out.

The front half holds the graph (`Graph`), the passes over it (`canonicalise`, `fuse`, `run_passes`), the quantiser
(`quantise`) and the executors that define what a graph means (`run_float`, `run_quantised`). The back half (`compile`)
partitions a quantised graph, lays out and places its tensors, tiles, schedules and emits microcode (`Compiled`).
"""

from .compiled import Compiled, Constant, TensorSpec
from .driver import compile
from .errors import CompileError, DoesNotFit, ProgramTooLong, Unsupported
from .graph import Graph, Node, NodeSpec, Tensor
from .matmul_graph import matmul_graph
from .passes_front import Pass, canonicalise, fuse, run_passes
from .quantise import quantise
from .reference import dequantise_array, quantise_array, run_float, run_quantised
from .tensors import GraphError, QuantParams, TensorType

__all__ = [
    "CompileError",
    "Compiled",
    "Constant",
    "DoesNotFit",
    "Graph",
    "GraphError",
    "Node",
    "NodeSpec",
    "Pass",
    "ProgramTooLong",
    "QuantParams",
    "Tensor",
    "TensorSpec",
    "TensorType",
    "Unsupported",
    "canonicalise",
    "compile",
    "dequantise_array",
    "fuse",
    "matmul_graph",
    "quantise",
    "quantise_array",
    "run_float",
    "run_passes",
    "run_quantised",
]
