"""A pass as its setup words: shape, arithmetic, streams."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.compiler.errors import Unsupported
from sluice.compiler.tiles import ceil_div
from sluice.golden.vector_program import Mask
from sluice_hw.isa import Format, Op, Operand, Source, Stream
from sluice_hw.vector_ops import AluOp

from .hazards import Span
from .nodes import Address, Setup
from .placement import Home
from .values import ACC, Bound, BoundAlu, BoundPass, View

__all__ = ["Operands", "Place", "mode_setup", "operands_of", "packed_setup", "shape_setup"]

#: Operations that look at a alone, and those that look at c too.
_ALONE = {AluOp.PASS, AluOp.ABS, AluOp.NEG, AluOp.CLEAN, AluOp.TO_BF16, AluOp.TO_INT32, AluOp.IABS, AluOp.I_TO_FP32,
          AluOp.I_TO_INT8, AluOp.INT8_TO_I}  # fmt: skip
_THREE = {AluOp.SELECT, AluOp.MUL_ADD, AluOp.MUL_SUB}


@dataclass(frozen=True)
class Place:
    """Where a view lies; ``shared``: all rows of the pass read its one row."""

    view: View
    home: Home
    lanes: int
    shared: bool = False

    @property
    def address(self) -> int:
        view, home = self.view, self.home
        if home.memory == ACC:
            return home.addr + view.row * home.row_step + view.col // self.lanes * home.block_step
        return home.addr + view.row * home.row_step + view.col * (home.block_step // self.lanes)

    @property
    def row_step(self) -> int:
        return 0 if self.shared else self.home.row_step * self.view.step

    @property
    def spans(self) -> list[Span]:
        """What is touched."""
        view, home, at = self.view, self.home, self.address
        far = (view.rows - 1) * home.row_step * view.step
        if home.memory == ACC:
            blocks = ceil_div(view.cols, self.lanes)
            starts = [at + j * home.block_step for j in range(blocks)]
            return [Span(ACC, start, start + far + 1) for start in starts]
        width = view.cols * (home.block_step // self.lanes)
        return [Span(home.memory, at, at + far + width, home.row_step, width)]

    def setup(self, stream: Stream) -> Setup:
        """Its PASS_STREAM."""
        form = Format.BF16 if self.view.value.bf16 and self.home.memory != ACC else Format.WORD
        fields = {
            "stream": stream, "memory": Source.ACC if self.home.memory == ACC else Source.VMEM, "format": form,
            "row_step": self.row_step, "block_step": self.home.block_step,
        }  # fmt: skip
        address = (("addr", Address(self.address)),)
        return Setup((Op.PASS_STREAM, stream), Op.PASS_STREAM, tuple(fields.items()), address)


def packed_setup(stream: Stream, addr: int) -> Setup:
    """PASS_STREAM of one value per row, in accumulator rows from ``addr`` on."""
    fields = (("stream", stream), ("memory", Source.ACC), ("format", Format.WORD))
    return Setup((Op.PASS_STREAM, stream), Op.PASS_STREAM, fields, (("addr", Address(addr)),))


def shape_setup(rows: int, cols: int, lanes: int, mask: Mask | None) -> Setup:
    """PASS_SHAPE of ``rows`` rows of ``cols`` values.

    Raises
    ------
    Unsupported
        For more than the word can say.
    """
    blocks = ceil_div(cols, lanes)
    if rows >= 1 << 16 or blocks >= 1 << 10:
        raise Unsupported(f"a pass takes up to 65535 rows of up to 1023 blocks of {lanes}, not {rows} of {blocks}")
    fields = {"rows": rows, "blocks": blocks, "tail": cols - (blocks - 1) * lanes}
    if mask is not None:
        if not (-(1 << 23) <= mask.base < 1 << 23 and -(1 << 16) <= mask.step < 1 << 16):
            raise Unsupported(f"a mask's base must be within 2**23 and its step within 2**16, not {mask}")
        fields |= {"masked": 1, "mask_base": mask.base, "mask_step": mask.step}
    return Setup((Op.PASS_SHAPE,), Op.PASS_SHAPE, tuple(fields.items()))


@dataclass
class Operands:
    """Operands of both ALUs as the ISA names them, and what stands behind the names."""

    codes: dict[str, tuple[Operand, Operand]]
    constants: list[int]
    streams: dict[Stream, tuple[View, str]]


def operands_of(bound: BoundPass) -> Operands:
    """Give the operands of a pass to constants and streams.

    Raises
    ------
    Unsupported
        For more than there are: two constants, two tensors, one column; each tensor and column serves one ALU.
    """
    constants: list[int] = []
    streams: dict[Stream, tuple[View, str]] = {}
    owner: dict[Stream, str] = {}

    def code(x: Bound, used: bool, alu: str) -> Operand:
        if not used:
            return Operand.K0
        if isinstance(x, float):
            bits = int(np.float32(x).view(np.uint32))
            if bits not in constants:
                if len(constants) == 2:
                    raise Unsupported("a pass has two constants, not three")
                constants.append(bits)
            return Operand(constants.index(bits))
        choices = (Stream.COLUMN,) if x[1] == "column" else (Stream.X, Stream.Y)
        for stream in choices:
            if stream not in streams or (streams[stream] == x and owner[stream] == alu):
                streams[stream], owner[stream] = x, alu
                return Operand[stream.name]
        what = "one column" if x[1] == "column" else "two tensors or vectors"
        raise Unsupported(f"a pass has {what} beside its source, each for one ALU; {x[0].value!r} is one too many")

    codes = {}
    for name, alu in (("first", bound.first), ("second", bound.second)):
        if alu is not None:
            codes[name] = code(alu.b, alu.op not in _ALONE, name), code(alu.c, alu.op in _THREE, name)
    return Operands(codes, constants, streams)


def mode_setup(bound: BoundPass, operands: Operands) -> Setup:
    """PASS_MODE of a pass."""
    step, fields = bound.step, {}

    def stage(name: str, alu: BoundAlu | None) -> None:
        if alu is not None:
            b, c = operands.codes[name]
            fields.update({f"use_{name}": 1, f"{name}_op": int(alu.op), f"{name}_b": b, f"{name}_c": c})

    stage("first", bound.first)
    stage("second", bound.second)
    if step.function is not None:
        fields |= {"use_function": 1, "function": int(step.function)}
    if step.reduce is not None:
        fields |= {"use_reduce": 1, "reduction": int(step.reduce.op)}
    if bound.dst is not None:
        fields |= {"store": 1, "round": int(step.bf16)}
    fields |= {f"k{i}": bits for i, bits in enumerate(operands.constants)}
    return Setup((Op.PASS_MODE,), Op.PASS_MODE, tuple(fields.items()))
