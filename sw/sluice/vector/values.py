"""What the tensors of a vector program are: who writes and reads each, and which memories that asks for.

A name can stand for several tensors one after the other (a step that writes all of a name makes a new one); each is a
:class:`Value` here. Steps that write a part of a name change its value in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sluice.compiler.errors import Unsupported
from sluice.golden.vector_program import Alu, Column, Matmul, Operand, Part, Pass, Row, Space, Step

__all__ = ["Analysis", "BoundAlu", "BoundMatmul", "BoundPass", "Tensor", "Value", "View", "analyse"]

#: Memories.
ACC, VMEM = "acc", "vmem"


@dataclass(frozen=True)
class Tensor:
    """What a program is given: ``(rows, cols)`` or ``(cols,)`` fp32 values, which are bf16 or not."""

    shape: tuple[int, ...]
    bf16: bool = False

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= 2 or any(n < 1 for n in self.shape):
            raise ValueError(f"a tensor's shape must be one or two positive sizes, not {self.shape!r}")


@dataclass(eq=False)
class Value:
    """A tensor, from the step that makes it to the last that reads it.

    Attributes
    ----------
    rows, cols
        Size; a vector (one dimension) is one row.
    bf16
        Whether the lower halves are zero.
    origin
        ``input``, ``matmul``, ``reduce``, ``pass`` or ``space``.
    last
        Number of the last step that uses it.
    needs
        Memories that its users ask for.
    partners
        Values that the same steps use: they should lie in other banks.
    loaded
        Of an input: some of what came from outside is read.
    flipped
        Of an input: it lies transposed in memory, by the host, because the array takes it so.
    by_rows
        Steps read some of its rows.
    reads, writes
        Number of each step that reads (writes) it, first row, one past the last.
    """

    name: str
    rows: int
    cols: int
    vector: bool
    bf16: bool
    origin: str
    first: int = 0
    last: int = -1
    needs: set[str] = field(default_factory=set)
    partners: list[Value] = field(default_factory=list)
    loaded: bool = False
    flipped: bool = False
    by_rows: bool = False
    reads: list[tuple[int, int, int]] = field(default_factory=list)
    writes: list[tuple[int, int, int]] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)
    covered: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.cols,) if self.vector else (self.rows, self.cols)

    def __repr__(self) -> str:
        kind = "bf16" if self.bf16 else "fp32"
        return f"{self.name!r} ({kind} {' x '.join(map(str, self.shape))})"


@dataclass(frozen=True)
class View:
    """Rows ``row`` to ``row + rows * step`` by ``step``, columns ``col`` to ``col + cols`` of a value."""

    value: Value
    row: int
    rows: int
    col: int
    cols: int
    step: int = 1

    def aligned(self, lanes: int) -> bool:
        """Whether its blocks are blocks of the value."""
        return self.col % lanes == 0 and (self.cols % lanes == 0 or self.col + self.cols == self.value.cols)


#: An operand: a number, or a view and how it goes along ("walk", "row", "column").
Bound = float | tuple[View, str]


@dataclass(frozen=True)
class BoundAlu:
    op: int
    b: Bound
    c: Bound


@dataclass(frozen=True)
class BoundPass:
    """A pass with its names resolved."""

    number: int
    step: Pass
    source: View
    first: BoundAlu | None
    second: BoundAlu | None
    dst: View | None
    reduce: Value | None


@dataclass(frozen=True)
class BoundMatmul:
    """A matmul with its names resolved."""

    number: int
    step: Matmul
    a: View
    b: View
    dst: View


@dataclass
class Analysis:
    """Steps with their tensors, inputs in the order of their first use, and the values that are asked for."""

    steps: list[BoundPass | BoundMatmul]
    inputs: list[Value]
    outputs: dict[str, Value]


def analyse(steps: Sequence[Step], tensors: Mapping[str, Tensor], outputs: Sequence[str], lanes: int) -> Analysis:
    """Resolve the names of a program.

    Raises
    ------
    Unsupported
        For a tensor that is not there, sizes that do not fit, or what is read before it is written; the message names
        step and tensor.
    """
    names = _Names(tensors, lanes)
    bound = []
    for number, step in enumerate(steps):
        try:
            found = names.bind(number, step)
        except ValueError as error:
            raise Unsupported(f"step {number}, {step}: {error}") from None
        if found is not None:
            bound.append(found)
    wanted = {}
    for name in outputs:
        if name not in names.now:
            raise Unsupported(f"there is no tensor {name!r} to give back; there are {', '.join(sorted(names.now))}")
        value = wanted[name] = names.now[name]
        value.last = len(steps)
        value.needs.add(VMEM)
        value.uses.add("output")
        if value.origin in ("input", "space"):
            names.read(View(value, 0, value.rows, 0, value.cols))
    inputs = sorted(
        (v for v in names.given if v.last >= 0 and (v.uses or v.loaded)), key=lambda v: (not v.loaded, v.first)
    )
    for value in inputs:
        value.flipped = value.uses == {"b transposed"}
        value.needs.add(VMEM)
    return Analysis(bound, inputs, wanted)


class _Names:
    def __init__(self, tensors: Mapping[str, Tensor], lanes: int) -> None:
        self.lanes = lanes
        self.now: dict[str, Value] = {}
        for name, tensor in tensors.items():
            rows, cols = (1, *tensor.shape)[-2:]
            self.now[name] = Value(name, rows, cols, len(tensor.shape) == 1, tensor.bf16, "input", first=-1)
        self.given = list(self.now.values())
        self.number = 0

    def bind(self, number: int, step: Step) -> BoundPass | BoundMatmul | None:
        self.number = number
        if isinstance(step, Space):
            value = Value(step.dst, step.rows, step.cols, False, True, "space", number)
            value.covered = np.zeros((step.rows, step.cols), bool)
            self.now[step.dst] = value
            return None
        if isinstance(step, Matmul):
            return self._matmul(step)
        return self._pass(step)

    # -- steps ---------------------------------------------------------------------------------------------------
    def _matmul(self, step: Matmul) -> BoundMatmul:
        a, b = self._use(step.a, "a"), self._use(step.b, "b transposed" if step.transposed else "b")
        for view in (a, b):
            if not view.value.bf16:
                raise ValueError(f"operands of a matmul must be bf16, and {view.value!r} is not")
            view.value.needs.add(VMEM)
        depth, width = (b.cols, b.rows) if step.transposed else (b.rows, b.cols)
        if a.cols != depth:
            raise ValueError(f"rows of a have {a.cols} values, and b has {depth} for them")
        if step.add:
            self.read(self._view(step.dst))
        dst = self._make(step.dst, a.rows, width, False, False, "matmul", inside=step.add)
        dst.value.needs.add(ACC)
        self._partners(a, b, dst)
        return BoundMatmul(self.number, step, a, b, dst)

    def _pass(self, step: Pass) -> BoundPass:
        source = self._use(step.src, "walk")
        first, second = (self._alu(stage, source) for stage in (step.first, step.second))
        value, dst, reduce = source.value, None, None
        if step.dst is not None:
            dst = self._make(step.dst, source.rows, source.cols, value.vector, step.bf16, "pass")
        if step.reduce is not None:
            reduce = self.now[step.reduce.dst] = Value(
                step.reduce.dst, 1, source.rows, True, False, "reduce", self.number, self.number, {ACC}
            )
        stages = [x for stage in (first, second) if stage for x in (stage.b, stage.c) if isinstance(x, tuple)]
        self._partners(source, *[view for view, _ in stages], *[v for v in (dst,) if v])
        return BoundPass(self.number, step, source, first, second, dst, reduce)

    def _alu(self, stage: Alu | None, source: View) -> BoundAlu | None:
        if stage is None:
            return None
        return BoundAlu(stage.op, self._operand(stage.b, source), self._operand(stage.c, source))

    def _operand(self, x: Operand, source: View) -> Bound:
        if isinstance(x, float):
            return x
        if isinstance(x, Column):
            view, how = self._use(x.name, "column"), "column"
            view.value.needs.add(ACC)
            if x.start is not None:
                if x.start % self.lanes:
                    raise ValueError(f"{x!r} must start at a multiple of the lanes, {self.lanes}")
                view = View(view.value, 0, 1, x.start, min(source.rows, view.cols - x.start))
            wanted, got = (source.rows,), (view.cols,) if view.value.vector else (view.rows, view.cols)
        else:
            shared = isinstance(x, Row) or (isinstance(x, Part) and isinstance(x.of, Row))
            how = "row" if shared else "walk"
            view = self._use(x, how)
            one = shared or source.rows == 1
            wanted = (1, source.cols) if one else (source.rows, source.cols)
            got = (view.rows, view.cols)
        if got != wanted:
            raise ValueError(f"operand {x!r} must have shape {wanted}, not {got}")
        return view, how

    # -- values --------------------------------------------------------------------------------------------------
    def _use(self, of: str | Row | Part, how: str) -> View:
        view = self._view(of)
        value = view.value
        value.last = self.number
        if value.first < 0:
            value.first = self.number
        value.uses.add(how)
        value.reads.append((self.number, view.row, view.row + view.rows * view.step))
        value.by_rows |= how in ("walk", "a") and view.rows * view.step < value.rows
        if how in ("walk", "row") and not view.aligned(self.lanes):
            value.needs.add(VMEM)
        self.read(view)
        return view

    def read(self, view: View) -> None:
        """Note that a view is read, and refuse what nobody has written."""
        value = view.value
        known = value.covered is not None and _of(value.covered, view).all()
        if value.origin == "input":
            value.loaded |= not known
        elif value.covered is not None and not known:
            raise ValueError(f"{value!r} is read where no step has written it")

    def _view(self, of: str | Row | Part) -> View:
        if isinstance(of, Part):
            whole = self._view(of.of)
            if not 0 <= of.start < of.stop <= whole.cols:
                raise ValueError(f"columns {of.start} to {of.stop} are not in {whole.value!r}")
            row, rows, step = whole.row, whole.rows, 1
            if of.rows is not None:
                first, end = of.rows
                if not 0 <= first < end <= whole.rows or of.step < 1:
                    raise ValueError(f"rows {first} to {end} by {of.step} are not in {whole.value!r}")
                row, rows, step = whole.row + first, -(-(end - first) // of.step), of.step
            return View(whole.value, row, rows, whole.col + of.start, of.stop - of.start, step)
        name = of.name if isinstance(of, Row) else of
        if name not in self.now:
            raise ValueError(f"there is no tensor {name!r}; there are {', '.join(sorted(self.now))}")
        value = self.now[name]
        return View(value, 0, value.rows, 0, value.cols)

    def _make(self, dst: str | Part, rows: int, cols: int, vector: bool, bf16: bool, origin: str, *,
              inside: bool = False) -> View:  # fmt: skip
        """What a step writes: a new value, or (a part, or ``inside``) a view of one that is there."""
        if isinstance(dst, str) and not inside:
            value = self.now[dst] = Value(dst, rows, cols, vector, bf16, origin, self.number, self.number)
            value.writes.append((self.number, 0, rows))
            return View(value, 0, rows, 0, cols)
        view = self._view(dst)
        value = view.value
        if (view.rows, view.cols) != (rows, cols):
            raise ValueError(f"{dst!r} must have shape {(rows, cols)}, not {(view.rows, view.cols)}")
        if value.bf16 and not bf16:
            if value.origin == "space":
                value.bf16 = False
            else:
                raise ValueError(f"{value!r} is bf16, and what is written into it is not")
        if value.covered is None:
            value.covered = np.full((value.rows, value.cols), value.origin != "input")
        _of(value.covered, view)[...] = True
        if value.first < 0:
            value.first = self.number
        value.last = self.number
        value.uses.add("part")
        value.writes.append((self.number, view.row, view.row + rows * view.step))
        if origin == "pass" and not view.aligned(self.lanes):
            value.needs.add(VMEM)
        return view

    @staticmethod
    def _partners(*views: View) -> None:
        for view in views:
            view.value.partners += [v.value for v in views if v.value is not view.value]


def _of(array: np.ndarray, view: View) -> np.ndarray:
    return array[view.row : view.row + view.rows * view.step : view.step, view.col : view.col + view.cols]
