"""A pass of the vector unit: blocks of rows through ALU, function, ALU, into the store and into a reduction.

Stages that a pass does not use are gone around, so that its latency is that of what it uses. What is said of a block
(its row's slot, how many lanes count) waits in a queue beside the lanes.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import Component, In, Out, Signature

from ..emit.grid import Grid
from ..lanes import lanes_below
from .alu import AluLane, clean, to_bf16
from .function import FunctionLane
from .reduce import ReduceLane, RowReducer

__all__ = ["FloatPipe", "StoreLane", "pass_layout"]


def pass_layout() -> data.StructLayout:
    """What a pass does, the same for all its blocks."""
    return data.StructLayout({
        "use_first": 1, "first_op": 5, "use_function": 1, "function": 4, "use_second": 1, "second_op": 5, "bf16": 1,
        "use_reduce": 1, "reduction": 2,
    })  # fmt: skip


class StoreLane(Component):
    """What one lane stores, a cycle later: the value, or rounded to bf16, or +0 where it does not count.

    Members (sides as the grid emitter names them)
    -------
    all : ``valid``, ``bf16``
    col : ``x``, 32 bits; ``keep``
    down : ``result``, 32 bits
    """

    LATENCY = 1

    def __init__(self) -> None:
        super().__init__({
            "all": In(Signature({"valid": Out(1), "bf16": Out(1)})),
            "col": In(Signature({"x": Out(32), "keep": Out(1)})),
            "down": Out(Signature({"result": Out(32)})),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        x = Signal(32)
        m.d.comb += x.eq(clean(Value.cast(self.col.x)))
        result = Signal(32, reset_less=True)
        with m.If(self.all.valid):
            m.d.sync += result.eq(Mux(self.col.keep, Mux(self.all.bf16, to_bf16(x), self.col.x), 0))
        m.d.comb += self.down.result.eq(result)
        return m


class FloatPipe(Component):
    """Lanes for passes over rows, a block a cycle.

    Parameters
    ----------
    cols
        Lanes, at least 2.
    emission
        'structural' or 'loop'.

    Members
    -------
    mode : In(pass_layout())
        Stands still while blocks are inside.
    in_valid : In(1)
        A block comes; the inputs below count.
    first, last, slot, base
        As :class:`~.reduce.RowReducer` has them, of use where the pass reduces.
    count : In
        The first so many lanes count, 0 to ``cols``.
    a, b, c : In(32 * cols)
        The source, and the first ALU's other operands.
    second_valid : Out(1)
        A block enters the second ALU, whose other operands ``second_b`` and ``second_c`` (In(32 * cols)) must be there
        in this cycle.
    out_valid, row : Out
        A block to be stored, in the order in which they came.
    reduced_valid, value, index : Out
        A row's reduction, see RowReducer.
    busy : Out(1)
        Blocks are inside (reductions apart).

    Raises
    ------
    ValueError
        For less than two lanes.
    """

    #: Most cycles from a block to its store.
    MAX_LATENCY = 2 * AluLane.LATENCY + FunctionLane.LATENCY + StoreLane.LATENCY

    def __init__(self, *, cols: int, emission: str = "structural") -> None:
        if isinstance(cols, bool) or not isinstance(cols, int) or not 2 <= cols < 1 << 16:
            raise ValueError(f"FloatPipe cols must be 2 to 65535, not {cols!r}")
        self._cols, self._emission = cols, emission
        row = 32 * cols
        slots = (ReduceLane.SLOTS - 1).bit_length()
        self._said = data.StructLayout({
            "first": 1, "last": 1, "slot": slots, "base": 32, "count": cols.bit_length(),
        })  # fmt: skip
        super().__init__({
            "mode": In(pass_layout()), "in_valid": In(1), "first": In(1), "last": In(1), "slot": In(slots),
            "base": In(32), "count": In(cols.bit_length()), "a": In(row), "b": In(row), "c": In(row),
            "second_valid": Out(1), "second_b": In(row), "second_c": In(row), "out_valid": Out(1), "row": Out(row),
            "reduced_valid": Out(1), "value": Out(32), "index": Out(32), "busy": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        cols, mode = self._cols, self.mode

        def grid(cell, name: str) -> Grid:
            lanes = Grid(cell=cell, name=f"{name}_{cols}", rows=1, cols=cols, emission=self._emission)
            m.submodules[name] = lanes
            return lanes

        def later(valid: Value, cycles: int, name: str) -> Value:
            for k in range(cycles):
                stage = Signal(name=f"{name}_{k + 1}")
                m.d.sync += stage.eq(valid)
                valid = stage
            return valid

        # Both ALUs are the same grid of the same cell, and so one module.
        valid, x = self.in_valid, self.a
        alus = [Grid(cell=AluLane(), name=f"alu_lanes_{cols}", rows=1, cols=cols, emission=self._emission)
                for _ in range(2)]  # fmt: skip
        m.submodules.first_alu, m.submodules.second_alu = first_alu, second_alu = alus
        function = grid(FunctionLane(), "function_lanes")
        store = grid(StoreLane(), "store_lanes")

        into = Signal()
        m.d.comb += [
            into.eq(valid & mode.use_first), first_alu.all.valid.eq(into), first_alu.all.op.eq(mode.first_op),
            first_alu.col.a.eq(x), first_alu.col.b.eq(self.b), first_alu.col.c.eq(self.c),
        ]  # fmt: skip
        valid = Mux(mode.use_first, later(into, AluLane.LATENCY, "first_ok"), valid)
        x = Mux(mode.use_first, first_alu.down.result, x)

        into = Signal()
        m.d.comb += [
            into.eq(valid & mode.use_function), function.all.valid.eq(into), function.all.function.eq(mode.function),
            function.all.bf16.eq(0), function.col.x.eq(x),
        ]  # fmt: skip
        valid = Mux(mode.use_function, later(into, FunctionLane.LATENCY, "function_ok"), valid)
        x = Mux(mode.use_function, function.down.result, x)

        into = Signal()
        m.d.comb += [
            into.eq(valid & mode.use_second), self.second_valid.eq(into), second_alu.all.valid.eq(into),
            second_alu.all.op.eq(mode.second_op), second_alu.col.a.eq(x), second_alu.col.b.eq(self.second_b),
            second_alu.col.c.eq(self.second_c),
        ]  # fmt: skip
        after = later(into, AluLane.LATENCY, "second_ok")
        end_valid, end = Signal(), Signal(32 * cols)
        m.d.comb += [
            end_valid.eq(Mux(mode.use_second, after, valid)), end.eq(Mux(mode.use_second, second_alu.down.result, x)),
        ]  # fmt: skip

        # What was said of a block, in the order in which blocks end. A pass without stages needs it in the same cycle.
        m.submodules.said = queue = SyncFIFO(width=self._said.size, depth=1 << self.MAX_LATENCY.bit_length())
        given = Signal(self._said)
        m.d.comb += [
            given.first.eq(self.first), given.last.eq(self.last), given.slot.eq(self.slot), given.base.eq(self.base),
            given.count.eq(self.count),
        ]  # fmt: skip
        direct = Signal()
        m.d.comb += [
            direct.eq(~(mode.use_first | mode.use_function | mode.use_second)),
            queue.w_data.eq(given), queue.w_en.eq(self.in_valid & ~direct), queue.r_en.eq(end_valid & ~direct),
            self.busy.eq(queue.r_rdy | self.out_valid),
        ]  # fmt: skip
        said = Signal(self._said)
        m.d.comb += said.eq(Mux(direct, given, queue.r_data))
        keep = Signal(cols)
        m.d.comb += keep.eq(lanes_below(said.count, cols))

        m.d.comb += [
            store.all.valid.eq(end_valid), store.all.bf16.eq(mode.bf16), store.col.x.eq(end), store.col.keep.eq(keep),
            self.row.eq(store.down.result), self.out_valid.eq(later(end_valid, 1, "store_ok")),
        ]  # fmt: skip
        m.submodules.reducer = reducer = RowReducer(cols=cols, emission=self._emission)
        m.d.comb += [
            reducer.in_valid.eq(end_valid & mode.use_reduce), reducer.first.eq(said.first), reducer.last.eq(said.last),
            reducer.slot.eq(said.slot), reducer.base.eq(said.base), reducer.op.eq(mode.reduction), reducer.x.eq(end),
            reducer.keep.eq(keep), self.reduced_valid.eq(reducer.out_valid), self.value.eq(reducer.value),
            self.index.eq(reducer.index),
        ]  # fmt: skip
        return m
