"""A matmul as a quantised graph of one node."""

from __future__ import annotations

import numpy as np

from sluice.golden import numerics

from .epilogue import Relu, Requantise
from .graph import Graph
from .tensors import GraphError, QuantParams

__all__ = ["matmul_graph"]


def matmul_graph(
    m: int,
    k: int,
    n: int,
    *,
    out: str = "int8",
    relu: bool = False,
    weights: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    scale: float | np.ndarray | None = None,
    dialect: str = "fixed",
    seed: int = 0,
) -> Graph:
    """``c[m, n] = a[m, k] @ weights[k, n] (+ bias)`` with input ``a`` int8 and output ``c``.

    Parameters
    ----------
    out
        ``"int8"``: the sums times ``scale``, rounded, saturated; ``"int32"``: the sums.
    relu
        Clamp below at 0.
    weights
        int8[k, n]; random from ``seed`` when None.
    bias
        int32[n]; none when None.
    scale
        Factor of the int8 results, one or one per column; when None, one that spreads results of random operands over
        int8.
    dialect
        ``"fixed"`` or ``"float"`` requantisation.

    Raises
    ------
    GraphError
        For sizes below 1, and for arrays of the wrong shape or type.
    """
    for name, value in (("m", m), ("k", k), ("n", n)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise GraphError(f"matmul {name} is {value!r}; allowed: an integer >= 1")
    if out not in ("int8", "int32"):
        raise GraphError(f"matmul out is {out!r}; allowed: int8, int32")
    if dialect not in ("fixed", "float"):
        raise GraphError(f"matmul dialect is {dialect!r}; allowed: fixed, float")
    if weights is None:
        weights = np.random.default_rng(seed).integers(-128, 128, (k, n), dtype=np.int8)
    weights, bias = np.asarray(weights), np.zeros(n, np.int32) if bias is None else np.asarray(bias)
    for name, array, dtype, shape in (("weights", weights, "int8", (k, n)), ("bias", bias, "int32", (n,))):
        if array.dtype.name != dtype or array.shape != shape:
            raise GraphError(f"matmul {name} are {array.dtype.name}{list(array.shape)}; allowed: {dtype}{list(shape)}")
    one = QuantParams((1.0,))
    if out == "int32":
        quant, epilogue = one, (Relu(),) if relu else ()
    else:
        if scale is None:
            scale = 40 / (74.0**2 * k**0.5)  # 74: standard deviation of uniform int8
        scale = np.asarray(scale, np.float64)
        if scale.shape not in ((), (n,)) or not (np.isfinite(scale).all() and (scale > 0).all()):
            raise GraphError(f"matmul scale is {scale!r}; allowed: a number > 0, or one for each of {n} columns")
        real = np.broadcast_to(scale, (n,))
        lo = 0 if relu else -128
        quant = QuantParams((float(1 / real.max()),))
        if dialect == "float":
            stage = Requantise("float", 0, lo, 127, scale=real.astype(np.float32))
        else:
            pairs = np.array([numerics.quantize_multiplier(r) for r in real], np.int32)
            m_, n_ = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
            stage = Requantise("fixed", 0, lo, 127, multiplier=m_, shift=n_)
        epilogue = (stage,)
    g = Graph("matmul")
    a = g.input("a", (m, k), "int8", one)
    w, b = g.constant(weights, "weights", one), g.constant(bias, "bias", one)
    g.output(g.add_node("qmatmul", (a, w, b), {"epilogue": epilogue, "quant": quant}, "matmul"), "c")
    return g
