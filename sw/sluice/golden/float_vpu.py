"""VPU of chips of bf16: passes over rows through the floating-point lanes, and transposed blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sluice.asm.pass_mode import mode_problem, needed_streams
from sluice_hw.functions import Function
from sluice_hw.isa import Error, Op, Operand, Stream
from sluice_hw.vector_ops import AluOp, Reduction

from .faults import UnitFault
from .functions import apply
from .numerics_float import fp32_bits
from .streams import PackedValues, RowStream, Shape
from .units import Active, MicroOp, UnitModel
from .vector_ops import alu, reduce_rows

__all__ = ["FloatVectorUnit"]

_VALUES = (Stream.COLUMN, Stream.REDUCED)


@dataclass(frozen=True)
class _Pass:
    """A VECTOR_PASS with the setup that it has taken."""

    shape: Shape
    mode: Mapping[str, int]
    #: (rows, lanes): which lanes count; None: all.
    keep: np.ndarray | None
    streams: Mapping[Stream, RowStream | PackedValues]


class FloatVectorUnit(UnitModel):
    """VECTOR_PASS and TRANSPOSE, one after the other."""

    STAGES = {Op.VECTOR_PASS: ("finish",), Op.TRANSPOSE: ("transposed",)}

    shape: Mapping[str, int] | None = None
    mode: Mapping[str, int] | None = None

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        #: Fields and address of each stream's PASS_STREAM.
        self.streams: dict[Stream, tuple[Mapping[str, int], int]] = {}

    def setup(self, uop: MicroOp) -> None:
        if uop.op is Op.PASS_SHAPE:
            self.shape = uop.fields
        elif uop.op is Op.PASS_MODE:
            self.mode = uop.fields
        else:
            self.streams[Stream(uop.fields["stream"])] = uop.fields, uop.address["addr"]

    def blocked(self, uop: MicroOp) -> str | None:
        if uop.op is Op.SYNC or all(a.uop.op is Op.SYNC for a in self.flight):
            return None
        return "the op before it"

    def begin(self, active: Active) -> None:
        if active.uop.op is Op.TRANSPOSE:
            self._check_block(active)
            if active.early[0]:
                self._read_block(active)
                if active.early[1]:
                    self._write_block(active)
            return
        active.data["pass"] = self._pass()
        if active.early[0]:
            self._compute(active)
            if active.early[1]:
                self._write(active)

    # -- VECTOR_PASS ---------------------------------------------------------------------------------------------
    def finish(self, active: Active) -> None:
        if "results" not in active.data:
            self._compute(active)
        if "written" not in active.data:
            self._write(active)
        shape = active.data["pass"].shape
        self.machine.counters.vector_rows += shape.rows * shape.blocks

    def _pass(self) -> _Pass:
        """The pass as it is set up now.

        Raises
        ------
        UnitFault
            When setup is missing or contradicts itself, or a stream leaves its memory.
        """
        for fields, op in ((self.shape, Op.PASS_SHAPE), (self.mode, Op.PASS_MODE)):
            if fields is None:
                raise UnitFault(Error.ILLEGAL_FIELD, 0, f"needs {op.name} before it")
        problem = mode_problem(self.mode)
        if problem is not None:
            raise UnitFault(Error.ILLEGAL_FIELD, 0, problem)
        s, machine = self.shape, self.machine
        shape = Shape(s["rows"], s["blocks"], s["tail"], machine.config.cols)
        streams: dict[Stream, RowStream | PackedValues] = {}
        for stream in needed_streams(self.mode):
            if stream not in self.streams:
                raise UnitFault(Error.ILLEGAL_FIELD, 0, f"needs PASS_STREAM stream={stream.name.lower()} before it")
            fields, address = self.streams[stream]
            if stream in _VALUES:
                streams[stream] = PackedValues(machine.acc, address, shape.rows, shape.cols)
            else:
                streams[stream] = RowStream(machine.vmem, machine.acc, address, fields, shape)
            streams[stream].check()
        keep = None
        if s["masked"]:
            count = s["mask_base"] + s["mask_step"] * np.arange(shape.rows)
            keep = np.arange(shape.lanes) < count[:, None]
        return _Pass(shape, self.mode, keep, streams)

    def _compute(self, active: Active) -> None:
        this: _Pass = active.data["pass"]
        mode, keep = this.mode, this.keep
        operands: dict[Operand, np.ndarray | int] = {Operand.K0: mode["k0"], Operand.K1: mode["k1"]}
        for operand in (Operand.X, Operand.Y):
            stream = this.streams.get(Stream[operand.name])
            if stream is not None:
                operands[operand] = stream.read(keep)
        column = this.streams.get(Stream.COLUMN)
        if column is not None:
            operands[Operand.COLUMN] = column.read()

        def stage(name: str, a: np.ndarray) -> np.ndarray:
            b, c = (operands[Operand(mode[f"{name}_{which}"])] for which in "bc")
            return alu(AluOp(mode[f"{name}_op"]), a, b, c)

        value = this.streams[Stream.SOURCE].read(keep)
        if mode["use_first"]:
            value = stage("first", value)
        if mode["use_function"]:
            value = fp32_bits(apply(Function(mode["function"]), value))
        if mode["use_second"]:
            value = stage("second", value)
        results: dict[Stream, np.ndarray] = {}
        if mode["use_reduce"]:
            results[Stream.REDUCED] = reduce_rows(Reduction(mode["reduction"]), value, lanes=this.shape.cols, mask=keep)
        if mode["store"]:
            if mode["round"] or this.streams[Stream.RESULT].bf16:
                value = alu(AluOp.TO_BF16, value)
            results[Stream.RESULT] = value if keep is None else np.where(keep, value, np.uint32(0))
        active.data["results"] = results

    def _write(self, active: Active) -> None:
        for stream, values in active.data["results"].items():
            active.data["pass"].streams[stream].write(values)
        active.data["written"] = True

    # -- TRANSPOSE -----------------------------------------------------------------------------------------------
    def transposed(self, active: Active) -> None:
        if "block" not in active.data:
            self._read_block(active)
        if "written" not in active.data:
            self._write_block(active)

    def _check_block(self, active: Active) -> None:
        f, address = active.uop.fields, active.uop.address
        self.machine.vmem.check(address["src"], (f["k"],), (f["src_pitch"],), 2 * f["n"])
        self.machine.vmem.check(address["dst"], (f["n"],), (f["dst_pitch"],), 2 * f["k"])

    def _read_block(self, active: Active) -> None:
        f = active.uop.fields
        rows = self.machine.vmem.read(active.uop.address["src"], (f["k"],), (f["src_pitch"],), 2 * f["n"])
        active.data["block"] = np.ascontiguousarray(np.ascontiguousarray(rows).view("<u2").T).view(np.uint8)

    def _write_block(self, active: Active) -> None:
        f = active.uop.fields
        self.machine.vmem.write(active.uop.address["dst"], (f["n"],), (f["dst_pitch"],), active.data["block"])
        active.data["written"] = True
