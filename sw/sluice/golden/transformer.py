"""The operations of a transformer as programs of the vector unit: softmax, LayerNorm, RMSNorm, GELU, rotary embedding,
attention, and an encoder layer of them.

Each function gives the list of passes (see :mod:`.vector_program`); names of intermediate tensors begin with the
result's. ``docs/vector.md`` states how far they are from float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sluice.golden.functions import Function
from sluice.golden.vector_ops import AluOp, Reduction
from sluice.golden.vector_program import Alu, Column, Mask, Matmul, Part, Pass, Reduce, Row, Space, Step

__all__ = [
    "ENCODER_WEIGHTS", "attention", "by_rows", "encoder_layer", "gelu", "layer_norm", "rms_norm", "rotary", "softmax",
]  # fmt: skip

_LOWEST = -float(np.finfo(np.float32).max)
_TINY = 2.0**-126

#: Tensors of an encoder layer, by name behind its prefix: matrices (out, in) in bf16, vectors in fp32.
ENCODER_WEIGHTS = (
    "query", "query.bias", "key", "key.bias", "value", "value.bias", "mix", "mix.bias", "mix.gamma", "mix.beta",
    "up", "up.bias", "down", "down.bias", "down.gamma", "down.beta",
)  # fmt: skip


def by_rows(build: Callable[[tuple[int, int], str], list[Step]], dst: str, *, rows: int, cols: int, at_once: int
            ) -> list[Step]:  # fmt: skip
    """A program of rows by parts of ``at_once`` rows, so that loads, passes and stores go at one time.

    Parameters
    ----------
    build
        Gives the steps for rows (first, one past the last) into a tensor of the name that it is given; the last step
        makes that.
    dst
        The result, (rows, cols).
    """
    program: list[Step] = [Space(dst, rows, cols)]
    for first in range(0, rows, at_once):
        part = first, min(first + at_once, rows)
        *steps, last = build(part, f"{dst}{first}")
        program += [*steps, replace(last, dst=Part(dst, 0, cols, rows=part))]
    return program


def softmax(src: str | Part, dst: str, *, scale: float = 1.0, mask: Mask | None = None, bf16: bool = False,
            inverse: str | None = None) -> list[Step]:  # fmt: skip
    """Softmax of ``scale * src`` over each row; three passes.

    Lanes outside of the mask become 0. A row in which nothing counts, or of -inf alone, becomes zeros (float64 by the
    textbook would give NaN); +inf and NaN give NaN in all of the row that counts.

    Parameters
    ----------
    inverse
        Leave out the last pass: ``dst`` is to be multiplied by this vector, a value per row.
    """
    top, total, scaled = (f"{dst}.{name}" for name in ("max", "sum", "scaled"))
    powers, one_over = (f"{dst}.exp", f"{dst}.inverse") if inverse is None else (dst, inverse)
    program: list[Step] = [
        Pass(src, first=Alu(AluOp.MUL, scale), dst=scaled, reduce=Reduce(Reduction.MAX, top), mask=mask),
        # -inf minus a finite number is -inf, whose exponential is 0; -inf minus -inf would be NaN.
        Pass(top, first=Alu(AluOp.MAX, _LOWEST), dst=top),
        Pass(scaled, first=Alu(AluOp.SUB, Column(top)), function=Function.EXP, dst=powers,
             reduce=Reduce(Reduction.SUM, total), mask=mask, bf16=bf16 and inverse is not None),
        Pass(total, first=Alu(AluOp.MAX, _TINY), function=Function.RECIPROCAL, dst=one_over),
    ]  # fmt: skip
    if inverse is None:
        program.append(Pass(powers, first=Alu(AluOp.MUL, Column(one_over)), dst=dst, mask=mask, bf16=bf16))
    return program


def layer_norm(src: str | Part, dst: str, *, size: int, gamma: str, beta: str, eps: float = 1e-5, bf16: bool = False,
               summed: str | None = None) -> list[Step]:  # fmt: skip
    """LayerNorm of each row of ``size`` values, times the vector gamma, plus beta; three passes.

    The variance is the mean square of what is left when the mean is taken away, and not E[x^2] - E[x]^2, which cancels.

    Parameters
    ----------
    summed
        The rows' sums, where the pass that made ``src`` has reduced it: two passes are left.
    """
    names = ("sum", "mean", "centred", "squares", "inverse")
    total, mean, centred, squares, inverse = (f"{dst}.{name}" for name in names)
    summing = [] if summed else [Pass(src, reduce=Reduce(Reduction.SUM, total))]
    return [
        *summing,
        Pass(summed or total, first=Alu(AluOp.MUL, 1.0 / size), dst=mean),
        Pass(src, first=Alu(AluOp.SUB, Column(mean)), dst=centred, reduce=Reduce(Reduction.SUM_OF_SQUARES, squares)),
        Pass(squares, first=Alu(AluOp.MUL_ADD, 1.0 / size, float(eps)), function=Function.RSQRT, dst=inverse),
        Pass(centred, first=Alu(AluOp.MUL, Column(inverse)), second=Alu(AluOp.MUL_ADD, Row(gamma), Row(beta)), dst=dst,
             bf16=bf16),
    ]  # fmt: skip


def rms_norm(src: str | Part, dst: str, *, size: int, gamma: str, eps: float = 1e-5, bf16: bool = False) -> list[Step]:
    """RMSNorm of each row of ``size`` values, times the vector gamma; two passes."""
    squares, inverse = f"{dst}.squares", f"{dst}.inverse"
    return [
        Pass(src, reduce=Reduce(Reduction.SUM_OF_SQUARES, squares)),
        Pass(squares, first=Alu(AluOp.MUL_ADD, 1.0 / size, float(eps)), function=Function.RSQRT, dst=inverse),
        Pass(src, first=Alu(AluOp.MUL, Column(inverse)), second=Alu(AluOp.MUL, Row(gamma)), dst=dst, bf16=bf16),
    ]


def gelu(src: str | Part, dst: str | Part, *, bias: str | Part | None = None, bf16: bool = False) -> list[Step]:
    """GELU of each value, plus a vector (or a part of a :class:`Row`) before if wished; one pass."""
    first = None if bias is None else Alu(AluOp.ADD, Row(bias) if isinstance(bias, str) else bias)
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


def attention(q: str | Part, k: str | Part, v: str | Part, dst: str, *, size: int, causal: bool = False, past: int = 0,
              queries: int | None = None, at_once: int | None = None) -> list[Step]:  # fmt: skip
    """softmax(q k^T / sqrt(size)) v of one head: bf16 operands (queries, size), (keys, size), (keys, size).

    Parameters
    ----------
    size
        Length of a query, a key and a value.
    causal
        Query i sees the keys 0 to ``past`` + i.
    queries, at_once
        Take ``at_once`` of the ``queries`` at a time, so that the array works on some while the vector unit does on
        others. Causal ones take the keys up to the last that one of them sees: there must be ``past`` + ``queries``.
        The bits are the same (as long as keys and values are finite that no query sees).

    Raises
    ------
    ValueError
        For ``at_once`` without ``queries``.
    """
    def keys(first: int) -> Mask | None:
        return Mask(past + 1 + first, 1) if causal else None

    scale = 1.0 / math.sqrt(size)
    if at_once is None:
        scores, weights = f"{dst}.scores", f"{dst}.weights"
        return [
            Matmul(scores, q, k, transposed=True),
            *softmax(scores, weights, scale=scale, mask=keys(0), bf16=True),
            Matmul(dst, weights, v),
        ]
    if queries is None or not isinstance(q, str):
        raise ValueError("attention by parts must know the number of queries, and q as a whole tensor")
    starts = list(range(0, queries, at_once))
    rows = {start: Part(q, 0, size, rows=(start, min(start + at_once, queries))) for start in starts}

    def seen(tensor: str | Part, start: int) -> str | Part:
        """Rows of k or v up to the last that counts."""
        last = past + min(start + at_once, queries)
        return Part(tensor, 0, size, rows=(0, max(1, last))) if causal else tensor

    def score(start: int) -> Matmul:
        return Matmul(f"{dst}.scores{start}", rows[start], seen(k, start), transposed=True)

    program: list[Step] = [Space(dst, queries, size), score(0)]
    for number, start in enumerate(starts):
        if number + 1 < len(starts):
            program.append(score(starts[number + 1]))
        scores, weights = f"{dst}.scores{start}", f"{dst}.weights{start}"
        program += softmax(scores, weights, scale=scale, mask=keys(start), bf16=True)
        program.append(Matmul(Part(dst, 0, size, rows=rows[start].rows), weights, seen(v, start)))
    return program


def encoder_layer(src: str, dst: str, *, weights: str, sequence: int, hidden: int, heads: int, eps: float = 1e-12,
                  causal: bool = False, lanes: int | None = None) -> list[Step]:  # fmt: skip
    """One layer of BERT's shape: attention of all heads, residual, LayerNorm; two matrices with GELU between, the same.

    Steps are cut and ordered so that the array and the vector unit work at one time: softmax goes over several heads,
    whose scores are the rows of one tensor, while the array multiplies for the heads before and behind; what ``up``
    gives is taken in four pieces, and ``down`` adds what each brings. A causal mask begins anew with each head: then
    softmax goes over one.

    Parameters
    ----------
    src
        (sequence, hidden), bf16.
    dst
        The result, (sequence, hidden), bf16.
    weights
        Prefix of the tensors' names in :data:`ENCODER_WEIGHTS`.
    lanes
        Of the vector unit that it is for, and rows of the array. If they divide ``sequence``, softmax's division is
        left to the pass that takes a head's result, which can then find the head's divisors.

    Raises
    ------
    ValueError
        If the heads do not divide ``hidden``.
    """
    if hidden % heads:
        raise ValueError(f"heads must divide hidden: {heads} does not divide {hidden}")
    late = lanes is not None and sequence % lanes == 0
    layer = _Layer(dst, weights, sequence, hidden, hidden // heads, eps, late)
    names = ("normed", "context", "middle", "attend", "last")
    normed, context, middle, attend, last = (f"{dst}.{name}" for name in names)
    step = 1 if causal else max(1, min(heads, _SOFTMAX_ROWS // sequence))
    groups = [range(first, min(first + step, heads)) for first in range(0, heads, step)]
    mask = Mask(1, 1) if causal else None

    # The share of ``mix`` that belongs to a group of heads is added when it is there, if it is whole tiles of K.
    by_groups = lanes is not None and all(len(group) * layer.size % lanes == 0 for group in groups)
    mixes = [slice(g.start * layer.size, g.stop * layer.size) for g in groups] if by_groups else [slice(0, hidden)]

    program: list[Step] = [Space(context, sequence, hidden), Space(middle, sequence, 4 * hidden)]
    for name in ("query", "key", "value"):
        program += layer.projection(src, name)
    for group in groups:
        program += layer.scores(group)
    for number, group in enumerate(groups):
        program += layer.shares(group, mask)
        if number:
            program += layer.gathered(groups[number - 1])
        program += layer.mixed(group)
        if number and by_groups:
            program.append(layer.product(attend, context, "mix", mixes[number - 1]))
    program += [*layer.gathered(groups[-1]), layer.product(attend, context, "mix", mixes[-1])]
    program += layer.closing(attend, "mix", src, normed)

    pieces = [slice(at, at + hidden) for at in range(0, 4 * hidden, hidden)]
    for number, piece in enumerate(pieces):
        name, rows = f"{middle}{number}", Part(f"{weights}up", 0, hidden, rows=(piece.start, piece.stop))
        program.append(Matmul(name, normed, rows, transposed=True))
        bias = Part(Row(f"{weights}up.bias"), piece.start, piece.stop)
        program += gelu(name, Part(middle, piece.start, piece.stop), bias=bias, bf16=True)
        if number:
            program.append(layer.product(last, middle, "down", pieces[number - 1]))
    program.append(layer.product(last, middle, "down", pieces[-1]))
    return program + layer.closing(last, "down", normed, dst)


#: Rows of the scores that one softmax takes: few enough to overlap, enough to hide what a pass costs to begin.
_SOFTMAX_ROWS = 512


@dataclass(frozen=True)
class _Layer:
    """Steps of an encoder layer."""

    dst: str
    weights: str
    sequence: int
    hidden: int
    size: int
    eps: float
    late: bool

    def _head(self, tensor: str, head: int) -> Part:
        return Part(f"{self.dst}.{tensor}", head * self.size, (head + 1) * self.size)

    def _rows(self, tensor: str, group: range, head: int, cols: int) -> Part:
        at = (head - group.start) * self.sequence
        return Part(f"{self.dst}.{tensor}{group.start}", 0, cols, rows=(at, at + self.sequence))

    def projection(self, src: str, name: str) -> tuple[Step, Step]:
        out, weights = f"{self.dst}.{name}", f"{self.weights}{name}"
        bias = Alu(AluOp.ADD, Row(f"{weights}.bias"))
        return Matmul(out, src, weights, transposed=True), Pass(out, first=bias, dst=out, bf16=True)

    def product(self, dst: str, src: str, name: str, part: slice) -> Matmul:
        """A part of K of ``src @ weights.T``: written, or added to what the parts before gave."""
        rows, start, stop = f"{self.weights}{name}", part.start, part.stop
        return Matmul(dst, Part(src, start, stop), Part(rows, start, stop), transposed=True, add=start > 0)

    def scores(self, group: range) -> list[Step]:
        steps: list[Step] = [Space(f"{self.dst}.scores{group.start}", len(group) * self.sequence, self.sequence)]
        for head in group:
            scores = self._rows("scores", group, head, self.sequence)
            steps.append(Matmul(scores, self._head("query", head), self._head("key", head), transposed=True))
        return steps

    def shares(self, group: range, mask: Mask | None) -> list[Step]:
        scores, shares = (f"{self.dst}.{name}{group.start}" for name in ("scores", "shares"))
        inverse = f"{shares}.inverse" if self.late else None
        return softmax(scores, shares, scale=1.0 / math.sqrt(self.size), mask=mask, bf16=True, inverse=inverse)

    def mixed(self, group: range) -> list[Step]:
        steps: list[Step] = [Space(f"{self.dst}.mixed{group.start}", len(group) * self.sequence, self.size)]
        for head in group:
            shares = self._rows("shares", group, head, self.sequence)
            steps.append(Matmul(self._rows("mixed", group, head, self.size), shares, self._head("value", head)))
        return steps

    def gathered(self, group: range) -> list[Step]:
        steps: list[Step] = []
        for head in group:
            inverse = Column(f"{self.dst}.shares{group.start}.inverse", (head - group.start) * self.sequence)
            divide = Alu(AluOp.MUL, inverse) if self.late else None
            source = self._rows("mixed", group, head, self.size)
            steps.append(Pass(source, first=divide, dst=self._head("context", head), bf16=True))
        return steps

    def closing(self, src: str, name: str, residual: str, out: str) -> list[Step]:
        total, weights = f"{out}.total", f"{self.weights}{name}"
        return [
            Pass(src, first=Alu(AluOp.ADD, Row(f"{weights}.bias")), second=Alu(AluOp.ADD, residual), dst=total,
                 reduce=Reduce(Reduction.SUM, f"{out}.sum")),
            *layer_norm(total, out, size=self.hidden, gamma=f"{weights}.gamma", beta=f"{weights}.beta", eps=self.eps,
                        bf16=True, summed=f"{out}.sum"),
        ]  # fmt: skip
