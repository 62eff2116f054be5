"""Programs of the vector unit at the level of passes over rows, and what they compute, bit for bit.

A pass walks the rows of a source tensor. Each row goes, block by block of lanes, through up to four stages in this
order, each an operation that a lane has: ALU, function, ALU, and the store or a reduction of the row (or both). The
first ALU's operand a is the source; every later stage's is what the stage before gave. Operands b and c come from
another tensor (walked alike), from a vector that is the same for all rows (:class:`Row`), from a value per row that is
the same for all lanes (:class:`Column`), or from the op itself (a float). A mask says how many lanes of each row count:
the others hold the identity in the reduction, and are stored as +0.

Tensors are uint32 patterns: 2D, one-dimensional for a :class:`Row` or :class:`Column`; the results of a reduction are
one-dimensional, contiguous, so that later passes take them as one row of their own.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

import numpy as np

from sluice.golden.functions import Function, apply
from sluice.golden.numerics_bf16 import matmul_bf16
from sluice.golden.numerics_float import fp32_bits, fp32_from_bits
from sluice.golden.vector_ops import AluOp, Reduction, alu, as_bits, reduce_rows

__all__ = [
    "Alu", "Column", "Mask", "Matmul", "Operand", "Part", "Pass", "Reduce", "Resolved", "Row", "Space", "Step",
    "resolve", "run", "store",
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A vector that all rows share."""

    name: str


@dataclass(frozen=True)
class Column:
    """A value per row, for all lanes; with ``start``, as many as there are rows from there on."""

    name: str
    start: int | None = None


@dataclass(frozen=True)
class Part:
    """Columns ``start`` up to ``stop`` of a tensor or of a shared vector: another address, the same walk.

    ``rows``, first and one past the last, are those of a tensor that belong to it, every ``step``-th; None: all.
    """

    of: str | Row
    start: int
    stop: int
    rows: tuple[int, int] | None = None
    step: int = 1


Operand = str | Row | Column | Part | float


@dataclass(frozen=True)
class Alu:
    """A lane operation with operands b and c."""

    op: AluOp
    b: Operand = 0.0
    c: Operand = 0.0


@dataclass(frozen=True)
class Reduce:
    """A reduction of every row into ``dst``, one value each."""

    op: Reduction
    dst: str


@dataclass(frozen=True)
class Mask:
    """Lanes that count: the first ``base + step * row``, limited to the row."""

    base: int
    step: int = 0

    def lanes(self, rows: int, cols: int) -> np.ndarray:
        """As booleans (rows, cols)."""
        return np.arange(cols) < self.base + self.step * np.arange(rows)[:, None]


@dataclass(frozen=True)
class Pass:
    """One walk over the rows of ``src``; see the module's text.

    ``bf16`` rounds what is stored to bf16 (fp32 patterns whose lower half is zero); a reduction sees it before.
    """

    src: str | Part
    first: Alu | None = None
    function: Function | None = None
    second: Alu | None = None
    dst: str | Part | None = None
    reduce: Reduce | None = None
    mask: Mask | None = None
    bf16: bool = False


@dataclass(frozen=True)
class Matmul:
    """``dst = a @ b`` (or ``a @ b.T``) on the array: bf16 operands (fp32 patterns that are bf16), fp32 result.

    A part as ``dst`` must have been made by a :class:`Space`. With ``add`` the sums of the tiles of K are added to what
    is in ``dst``, one after the other: K cut at a multiple of the array's rows gives the bits of one matmul.
    """

    dst: str | Part
    a: str | Part
    b: str | Part
    transposed: bool = False
    add: bool = False


@dataclass(frozen=True)
class Space:
    """A new tensor of zeros, for steps that write parts of it."""

    dst: str
    rows: int
    cols: int


Step = Pass | Matmul | Space


def run(program: Sequence[Step], memory: MutableMapping[str, np.ndarray], *, lanes: int, rows: int = 128) -> None:
    """Execute a program.

    Parameters
    ----------
    memory
        Tensors by name: uint32, int32 or float32; results are added as uint32 patterns.
    lanes
        Lanes of the vector unit; sums depend on it.
    rows
        Rows of the array; matmuls depend on it.

    Raises
    ------
    ValueError
        For a tensor that is not there, or operands whose shapes do not fit a pass; the message names the step.
    """
    for number, step in enumerate(program):
        try:
            if isinstance(step, Space):
                memory[step.dst] = np.zeros((step.rows, step.cols), np.uint32)
            elif isinstance(step, Matmul):
                a, b = _bf16(_tensor(memory, step.a)), _bf16(_tensor(memory, step.b))
                held = fp32_from_bits(_tensor(memory, step.dst)) if step.add else None
                result = fp32_bits(matmul_bf16(a, b.T if step.transposed else b, rows=rows, acc=held))
                _put(memory, step.dst, result)
            else:
                _pass(step, memory, lanes)
        except ValueError as error:
            raise ValueError(f"step {number}, {step}: {error}") from None


@dataclass(frozen=True)
class Resolved:
    """What a pass takes from memory: uint32 patterns (rows, cols), operands of stages that it has; lanes that count."""

    source: np.ndarray
    first: tuple[np.ndarray, np.ndarray] | None
    second: tuple[np.ndarray, np.ndarray] | None
    keep: np.ndarray | None


def resolve(step: Pass, memory: MutableMapping[str, np.ndarray]) -> Resolved:
    """Find a pass's operands.

    Raises
    ------
    ValueError
        As :func:`run`.
    """
    source = _tensor(memory, step.src)
    source = source.reshape(1, -1) if source.ndim == 1 else source

    def operands(stage: Alu | None) -> tuple[np.ndarray, np.ndarray] | None:
        if stage is None:
            return None
        b, c = (np.broadcast_to(_operand(memory, x, source.shape), source.shape) for x in (stage.b, stage.c))
        return b, c

    keep = None if step.mask is None else step.mask.lanes(*source.shape)
    return Resolved(source, operands(step.first), operands(step.second), keep)


def _pass(step: Pass, memory: MutableMapping[str, np.ndarray], lanes: int) -> None:
    operands = resolve(step, memory)
    value, keep = operands.source, operands.keep
    if step.first is not None:
        value = alu(step.first.op, value, *operands.first)
    if step.function is not None:
        value = fp32_bits(apply(step.function, value))
    if step.second is not None:
        value = alu(step.second.op, value, *operands.second)
    if step.reduce is not None:
        memory[step.reduce.dst] = reduce_rows(step.reduce.op, value, lanes=lanes, mask=keep)
    if step.dst is not None:
        value = alu(AluOp.TO_BF16, value) if step.bf16 else value
        store(memory, step, value if keep is None else np.where(keep, value, np.uint32(0)))


def store(memory: MutableMapping[str, np.ndarray], step: Pass, rows: np.ndarray) -> None:
    """Put the rows that a pass gives where its ``dst`` is."""
    _put(memory, step.dst, rows[0] if _tensor(memory, step.src).ndim == 1 else rows)


def _put(memory: MutableMapping[str, np.ndarray], dst: str | Part, value: np.ndarray) -> None:
    if isinstance(dst, str):
        memory[dst] = value
        return
    whole = _tensor(memory, dst.of).copy()
    part = _columns(whole, dst)
    if part.shape != value.shape:
        raise ValueError(f"{dst!r} must have shape {value.shape}, not {part.shape}")
    part[...] = value
    memory[dst.of] = whole


def _tensor(memory: MutableMapping[str, np.ndarray], of: str | Row | Part) -> np.ndarray:
    if isinstance(of, Part):
        return _columns(_tensor(memory, of.of), of)
    name = of.name if isinstance(of, Row) else of
    if name not in memory:
        raise ValueError(f"there is no tensor {name!r}; there are {', '.join(sorted(memory))}")
    return as_bits(memory[name])


def _columns(whole: np.ndarray, part: Part) -> np.ndarray:
    if not 0 <= part.start < part.stop <= whole.shape[-1]:
        raise ValueError(f"columns {part.start} to {part.stop} are not in {part.of!r}, which has {whole.shape[-1]}")
    if part.rows is not None:
        first, end = part.rows
        if whole.ndim != 2 or not 0 <= first < end <= len(whole) or part.step < 1:
            raise ValueError(f"rows {first} to {end} by {part.step} are not in {part.of!r}, which has {len(whole)}")
        whole = whole[first : end : part.step]
    return whole[..., part.start : part.stop]


def _operand(memory: MutableMapping[str, np.ndarray], x: Operand, shape: tuple[int, int]) -> np.ndarray:
    if isinstance(x, float):
        return as_bits(np.full((1, 1), x, np.float32))
    if isinstance(x, Column):
        value, wanted = _tensor(memory, x.name), shape[:1]
        if x.start is not None:
            value = value[x.start : x.start + shape[0]]
    else:
        shared = isinstance(x, Row) or (isinstance(x, Part) and isinstance(x.of, Row)) or shape[0] == 1
        value, wanted = _tensor(memory, x), shape[1:] if shared else shape
        value = value[0] if shared and value.ndim == 2 and value.shape[0] == 1 else value
    if value.shape != wanted:
        raise ValueError(f"operand {x!r} must have shape {wanted}, not {value.shape}")
    return value[:, None] if isinstance(x, Column) else value


def _bf16(bits: np.ndarray) -> np.ndarray:
    if (bits & np.uint32(0xFFFF)).any():
        raise ValueError("operands of a matmul must be bf16: store them with bf16=True")
    return (bits >> np.uint32(16)).astype(np.uint16)
