"""The operations of a transformer as programs of the vector unit: softmax, LayerNorm, RMSNorm, GELU, rotary embedding,
attention, and an encoder layer of them.

Each function gives the list of passes (see :mod:`.vector_program`); names of intermediate tensors begin with the
result's. ``docs/vector.md`` states how far they are from float64.
"""

from __future__ import annotations

import math

import numpy as np

from sluice.golden.functions import Function
from sluice.golden.vector_ops import AluOp, Reduction
from sluice.golden.vector_program import Alu, Column, Mask, Matmul, Part, Pass, Reduce, Row, Space, Step

__all__ = ["ENCODER_WEIGHTS", "attention", "encoder_layer", "gelu", "layer_norm", "rms_norm", "rotary", "softmax"]

_LOWEST = -float(np.finfo(np.float32).max)
_TINY = 2.0**-126

#: Tensors of an encoder layer, by name behind its prefix: matrices (out, in) in bf16, vectors in fp32.
ENCODER_WEIGHTS = (
    "query", "query.bias", "key", "key.bias", "value", "value.bias", "mix", "mix.bias", "mix.gamma", "mix.beta",
    "up", "up.bias", "down", "down.bias", "down.gamma", "down.beta",
)  # fmt: skip


def softmax(src: str | Part, dst: str, *, scale: float = 1.0, mask: Mask | None = None, bf16: bool = False
            ) -> list[Step]:  # fmt: skip
    """Softmax of ``scale * src`` over each row; three passes.

    Lanes outside of the mask become 0. A row in which nothing counts, or of -inf alone, becomes zeros (float64 by the
    textbook would give NaN); +inf and NaN give NaN in all of the row that counts.
    """
    top, total, inverse, scaled, powers = (f"{dst}.{name}" for name in ("max", "sum", "inverse", "scaled", "exp"))
    return [
        Pass(src, first=Alu(AluOp.MUL, scale), dst=scaled, reduce=Reduce(Reduction.MAX, top), mask=mask),
        # -inf minus a finite number is -inf, whose exponential is 0; -inf minus -inf would be NaN.
        Pass(top, first=Alu(AluOp.MAX, _LOWEST), dst=top),
        Pass(scaled, first=Alu(AluOp.SUB, Column(top)), function=Function.EXP, dst=powers,
             reduce=Reduce(Reduction.SUM, total), mask=mask),
        Pass(total, first=Alu(AluOp.MAX, _TINY), function=Function.RECIPROCAL, dst=inverse),
        Pass(powers, first=Alu(AluOp.MUL, Column(inverse)), dst=dst, mask=mask, bf16=bf16),
    ]  # fmt: skip


def layer_norm(src: str, dst: str, *, size: int, gamma: str, beta: str, eps: float = 1e-5, bf16: bool = False
               ) -> list[Step]:  # fmt: skip
    """LayerNorm of each row of ``size`` values, times the vector gamma, plus beta; three passes.

    The variance is the mean square of what is left when the mean is taken away, and not E[x^2] - E[x]^2, which cancels.
    """
    names = ("sum", "mean", "centred", "squares", "inverse")
    total, mean, centred, squares, inverse = (f"{dst}.{name}" for name in names)
    return [
        Pass(src, reduce=Reduce(Reduction.SUM, total)),
        Pass(total, first=Alu(AluOp.MUL, 1.0 / size), dst=mean),
        Pass(src, first=Alu(AluOp.SUB, Column(mean)), dst=centred, reduce=Reduce(Reduction.SUM_OF_SQUARES, squares)),
        Pass(squares, first=Alu(AluOp.MUL_ADD, 1.0 / size, float(eps)), function=Function.RSQRT, dst=inverse),
        Pass(centred, first=Alu(AluOp.MUL, Column(inverse)), second=Alu(AluOp.MUL_ADD, Row(gamma), Row(beta)), dst=dst,
             bf16=bf16),
    ]  # fmt: skip


def rms_norm(src: str, dst: str, *, size: int, gamma: str, eps: float = 1e-5, bf16: bool = False) -> list[Step]:
    """RMSNorm of each row of ``size`` values, times the vector gamma; two passes."""
    squares, inverse = f"{dst}.squares", f"{dst}.inverse"
    return [
        Pass(src, reduce=Reduce(Reduction.SUM_OF_SQUARES, squares)),
        Pass(squares, first=Alu(AluOp.MUL_ADD, 1.0 / size, float(eps)), function=Function.RSQRT, dst=inverse),
        Pass(src, first=Alu(AluOp.MUL, Column(inverse)), second=Alu(AluOp.MUL, Row(gamma)), dst=dst, bf16=bf16),
    ]


def gelu(src: str, dst: str, *, bias: str | None = None, bf16: bool = False) -> list[Step]:
    """GELU of each value, plus a vector before if wished; one pass."""
    first = None if bias is None else Alu(AluOp.ADD, Row(bias))
    return [Pass(src, first=first, function=Function.GELU, dst=dst, bf16=bf16)]


def rotary(src: str, dst: str, *, size: int, cos: str, sin: str, bf16: bool = False) -> list[Step]:
    """Rotary embedding of rows of ``size`` values, halves against each other; ``cos`` and ``sin`` are (rows, size / 2).

    y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin: four passes over half of the row. ``dst`` must be there.

    Raises
    ------
    ValueError
        For an odd size.
    """
    if size % 2:
        raise ValueError(f"rotary embedding pairs the halves of a row: size must be even, not {size}")
    half = size // 2
    x1, x2, y1, y2 = Part(src, 0, half), Part(src, half, size), Part(dst, 0, half), Part(dst, half, size)
    low, high = f"{dst}.low", f"{dst}.high"
    return [
        Pass(x2, first=Alu(AluOp.MUL, sin), dst=low),
        Pass(x1, first=Alu(AluOp.MUL, sin), dst=high),
        Pass(x1, first=Alu(AluOp.MUL_SUB, cos, low), dst=y1, bf16=bf16),
        Pass(x2, first=Alu(AluOp.MUL_ADD, cos, high), dst=y2, bf16=bf16),
    ]


def attention(q: str | Part, k: str | Part, v: str | Part, dst: str, *, size: int, causal: bool = False, past: int = 0
              ) -> list[Step]:  # fmt: skip
    """softmax(q k^T / sqrt(size)) v of one head: bf16 operands (queries, size), (keys, size), (keys, values).

    Parameters
    ----------
    size
        Length of a query and a key.
    causal
        Query i sees the keys 0 to ``past`` + i.
    """
    scores, weights = f"{dst}.scores", f"{dst}.weights"
    mask = Mask(past + 1, 1) if causal else None
    return [
        Matmul(scores, q, k, transposed=True),
        *softmax(scores, weights, scale=1.0 / math.sqrt(size), mask=mask, bf16=True),
        Matmul(dst, weights, v),
    ]


def encoder_layer(src: str, dst: str, *, weights: str, sequence: int, hidden: int, heads: int, eps: float = 1e-12,
                  causal: bool = False) -> list[Step]:  # fmt: skip
    """One layer of BERT's shape: attention of all heads, residual, LayerNorm; two matrices with GELU between, the same.

    The scores of all heads are the rows of one tensor, head after head, so that softmax is one sequence of passes. A
    causal mask begins anew with each head: then each has its own.

    Parameters
    ----------
    src
        (sequence, hidden), bf16.
    dst
        The result, (sequence, hidden), bf16.
    weights
        Prefix of the tensors' names in :data:`ENCODER_WEIGHTS`.

    Raises
    ------
    ValueError
        If the heads do not divide ``hidden``.
    """
    if hidden % heads:
        raise ValueError(f"heads must divide hidden: {heads} does not divide {hidden}")
    size = hidden // heads
    scale = 1.0 / math.sqrt(size)
    scores, probabilities, mixed, context = (f"{dst}.{name}" for name in ("scores", "weights", "heads", "context"))
    middle, normed = f"{dst}.middle", f"{dst}.normed"

    def linear(a: str, name: str, out: str) -> Matmul:
        return Matmul(out, a, f"{weights}{name}", transposed=True)

    def closing(a: str, name: str, residual: str, out: str) -> list[Step]:
        total = f"{out}.total"
        bias = Row(f"{weights}{name}.bias")
        return [
            linear(a, name, total),
            Pass(total, first=Alu(AluOp.ADD, bias), second=Alu(AluOp.ADD, residual), dst=total),
            *layer_norm(total, out, size=hidden, gamma=f"{weights}{name}.gamma", beta=f"{weights}{name}.beta", eps=eps,
                        bf16=True),
        ]  # fmt: skip

    def of_head(tensor: str, head: int) -> Part:
        return Part(f"{dst}.{tensor}", head * size, (head + 1) * size)

    def rows_of(tensor: str, head: int, cols: int = sequence) -> Part:
        return Part(tensor, 0, cols, rows=(head * sequence, (head + 1) * sequence))

    program: list[Step] = []
    for name in ("query", "key", "value"):
        out = f"{dst}.{name}"
        bias = Alu(AluOp.ADD, Row(f"{weights}{name}.bias"))
        program += [linear(src, name, out), Pass(out, first=bias, dst=out, bf16=True)]
    program.append(Space(scores, heads * sequence, sequence))
    for head in range(heads):
        program.append(Matmul(rows_of(scores, head), of_head("query", head), of_head("key", head), transposed=True))
    if not causal:
        program += softmax(scores, probabilities, scale=scale, bf16=True)
    program += [Space(mixed, heads * sequence, size), Space(context, sequence, hidden)]
    for head in range(heads):
        out, shares = rows_of(mixed, head, size), rows_of(probabilities, head)
        if causal:
            shares = f"{probabilities}{head}"
            program += softmax(rows_of(scores, head), shares, scale=scale, mask=Mask(1, 1), bf16=True)
        program += [Matmul(out, shares, of_head("value", head)), Pass(out, dst=of_head("context", head), bf16=True)]
    program += closing(context, "mix", src, normed)
    program += [linear(normed, "up", middle), *gelu(middle, middle, bias=f"{weights}up.bias", bf16=True)]
    return program + closing(middle, "down", normed, dst)
