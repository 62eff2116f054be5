"""Row reductions in the contract's order: sum, sum of squares, maximum, index of the maximum.

A row comes in blocks of one value per lane. Each lane combines its values, first block to last, into a partial result;
behind the row's last block a tree of pairs combines the partial results of the lanes. Masked lanes hold the identity.

A lane keeps partial results of ``SLOTS`` rows at a time, so that a new block can come every cycle although a sum takes
several: consecutive blocks of one row must be ``REVISIT`` cycles apart, and blocks of other rows go in between.
"""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out, Signature

from ..arith.format import FP32
from ..arith.fp32 import Fp32Add, Fp32Mul
from ..emit.grid import Grid
from ..vector_ops import Reduction
from .alu import clean, rank

__all__ = ["NO_INDEX", "ReduceLane", "ReduceTreeCell", "RowReducer", "reduce_latency"]

#: ARGMAX of nothing.
NO_INDEX = 0x7FFFFFFF
_MINUS_INF = 0xFF800000


def _is_sum(op: Value) -> Value:
    return (op == Reduction.SUM) | (op == Reduction.SUM_OF_SQUARES)


def _identity(op: Value) -> Value:
    return Mux(_is_sum(op), 0, _MINUS_INF)


class _Combine:
    """Combines two pairs of value and index; the result is known ``LATENCY`` cycles later, in registers."""

    LATENCY = Fp32Add.LATENCY + 1

    def __init__(self, m: Module, *, valid: Value, op: Value, a: tuple[Value, Value], b: tuple[Value, Value]) -> None:
        m.submodules.add = add = Fp32Add()
        summing = Signal()
        m.d.comb += [
            summing.eq(_is_sum(op)), add.in_valid.eq(valid & summing), add.a.eq(data.View(FP32.layout, a[0])),
            add.b.eq(data.View(FP32.layout, b[0])),
        ]  # fmt: skip
        x, y = Signal(32, name="clean_a"), Signal(32, name="clean_b")
        m.d.comb += [x.eq(clean(a[0])), y.eq(clean(b[0]))]
        # For the index zeros are equal, so that their order decides.
        index_op = Signal()
        m.d.comb += index_op.eq(op == Reduction.ARGMAX)

        def key(v: Value, name: str) -> Signal:
            positive = Signal(32, name=name)
            m.d.comb += positive.eq(Mux(index_op & ~v[:31].any(), 0, v))
            return positive

        kx, ky = key(x, "key_a"), key(y, "key_b")
        second = Signal()
        same = kx == ky
        # A NaN is 0x7FC00000 here, which ranks above all.
        m.d.comb += second.eq((rank(ky) > rank(kx)) | (index_op & same & (b[1] < a[1])))
        ok = [valid]
        for k in range(1, self.LATENCY):
            stage = Signal(name=f"combine_ok{k}")
            m.d.sync += stage.eq(ok[-1])
            ok.append(stage)
        value: Value = Mux(second, y, x)
        index: Value = Mux(second, b[1], a[1])
        for k in range(self.LATENCY - 1):
            kept = (Signal(32, name=f"value_{k + 1}", reset_less=True), Signal(32, name=f"index_{k + 1}",
                                                                               reset_less=True))  # fmt: skip
            with m.If(ok[k] & ~summing):
                m.d.sync += [kept[0].eq(value), kept[1].eq(index)]
            value, index = kept
        #: Before their registers, and the registers.
        self.next_value = Mux(summing, Value.cast(add.result), value)
        self.value = Signal(32, name="value", reset_less=True)
        self.index = Signal(32, name="index", reset_less=True)
        with m.If(ok[-1]):
            m.d.sync += self.value.eq(self.next_value)
            with m.If(~summing):
                m.d.sync += self.index.eq(index)
        self.next_index = index
        self.done = ok[-1]


class ReduceLane(Component):
    """One lane's partial results.

    Members (sides as the grid emitter names them)
    -------
    all : ``valid`` and ``op`` with a block; ``combine``, ``first``, ``slot`` and ``base``, what was said of this block,
        ``COMBINE_AT`` cycles later; ``store_slot``, its slot another ``_Combine.LATENCY - 1`` cycles later
    col : ``x``, 32 bits; ``keep``, whether it counts; ``lane``, the lane's number
    down : ``value``, ``index``: the partial result with this block, ``LATENCY`` cycles later
    """

    SLOTS = 8
    COMBINE_AT = Fp32Mul.LATENCY
    LATENCY = COMBINE_AT + _Combine.LATENCY
    REVISIT = _Combine.LATENCY

    def __init__(self) -> None:
        slots = (self.SLOTS - 1).bit_length()
        super().__init__({
            "all": In(Signature({
                "valid": Out(1), "op": Out(2), "combine": Out(1), "first": Out(1), "slot": Out(slots), "base": Out(32),
                "store_slot": Out(slots),
            })),
            "col": In(Signature({"x": Out(32), "keep": Out(1), "lane": Out(16)})),
            "down": Out(Signature({"value": Out(32), "index": Out(32)})),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        op, valid = self.all.op, self.all.valid
        squares = Signal()
        m.d.comb += squares.eq(op == Reduction.SUM_OF_SQUARES)
        m.submodules.square = square = Fp32Mul()
        x = data.View(FP32.layout, Value.cast(self.col.x))
        m.d.comb += [square.in_valid.eq(valid & squares & self.col.keep), square.a.eq(x), square.b.eq(x)]
        ok, value, keep = valid, Value.cast(self.col.x), Value.cast(self.col.keep)
        for k in range(1, self.COMBINE_AT + 1):
            later = (Signal(32, name=f"x_{k}", reset_less=True), Signal(name=f"keep_{k}", reset_less=True))
            with m.If(ok):
                m.d.sync += later[1].eq(keep)
                with m.If(~squares):
                    m.d.sync += later[0].eq(value)
            value, keep = later
            stage = Signal(name=f"ok_{k}")
            m.d.sync += stage.eq(ok)
            ok = stage

        identity = Signal(32)
        m.d.comb += identity.eq(_identity(op))
        values = Array(Signal(32, name=f"slot_value_{k}", reset_less=True) for k in range(self.SLOTS))
        indices = Array(Signal(32, name=f"slot_index_{k}", reset_less=True) for k in range(self.SLOTS))
        first, slot = self.all.first, self.all.slot
        partial = (Signal(32, name="partial_value"), Signal(32, name="partial_index"))
        new = (Signal(32, name="new_value"), Signal(32, name="new_index"))
        m.d.comb += [
            partial[0].eq(Mux(first, identity, values[slot])), partial[1].eq(Mux(first, NO_INDEX, indices[slot])),
            new[0].eq(Mux(keep, Mux(squares, Value.cast(square.result), value), identity)),
            new[1].eq(Mux(keep, self.all.base + self.col.lane, NO_INDEX)),
        ]  # fmt: skip
        result = _Combine(m, valid=self.all.combine, op=op, a=partial, b=new)
        with m.If(result.done):
            m.d.sync += values[self.all.store_slot].eq(result.next_value)
            with m.If(~_is_sum(op)):
                m.d.sync += indices[self.all.store_slot].eq(result.next_index)
        m.d.comb += [self.down.value.eq(result.value), self.down.index.eq(result.index)]
        return m


class ReduceTreeCell(Component):
    """Combines the partial results of two lanes, ``LATENCY`` cycles later.

    Members (sides as the grid emitter names them)
    -------
    all : ``valid``, ``op``
    col : ``a_value``, ``a_index``, ``b_value``, ``b_index``
    down : ``value``, ``index``
    """

    LATENCY = _Combine.LATENCY

    def __init__(self) -> None:
        super().__init__({
            "all": In(Signature({"valid": Out(1), "op": Out(2)})),
            "col": In(Signature({f"{side}_{what}": Out(32) for side in "ab" for what in ("value", "index")})),
            "down": Out(Signature({"value": Out(32), "index": Out(32)})),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        col = self.col
        result = _Combine(m, valid=self.all.valid, op=self.all.op, a=(col.a_value, col.a_index),
                          b=(col.b_value, col.b_index))  # fmt: skip
        m.d.comb += [self.down.value.eq(result.value), self.down.index.eq(result.index)]
        return m


def reduce_latency(cols: int) -> int:
    """Cycles from a row's last block to its result, of so many lanes."""
    return ReduceLane.LATENCY + (cols - 1).bit_length() * ReduceTreeCell.LATENCY


class RowReducer(Component):
    """Lanes and tree: blocks of rows in, one value per row out, in the order of the rows' last blocks.

    Parameters
    ----------
    cols
        Lanes.
    emission
        'structural' or 'loop'.

    Members
    -------
    in_valid : In(1)
        A block comes; the other inputs count.
    first, last : In(1)
        It is its row's first, last block.
    slot : In(3)
        Where the row's partial result is kept: free from the row's last block on. Blocks of one slot must come
        ``ReduceLane.REVISIT`` cycles apart at least.
    op : In(2)
        A :class:`~sluice_hw.vector_ops.Reduction`; stands still while blocks are inside.
    base : In(32)
        Index of the block's first value, for ARGMAX.
    x : In(32 * cols)
        Values, lane 0 first.
    keep : In(cols)
        Lanes that count.
    out_valid : Out(1)
        A row's result: ``latency`` cycles behind its last block.
    value, index : Out(32)
        The result: ``index`` of ARGMAX, ``value`` of the others (and the largest value of ARGMAX).

    Raises
    ------
    ValueError
        For less than one lane.
    """

    def __init__(self, *, cols: int, emission: str = "structural") -> None:
        if isinstance(cols, bool) or not isinstance(cols, int) or not 1 <= cols < 1 << 16:
            raise ValueError(f"RowReducer cols must be 1 to 65535, not {cols!r}")
        self._cols, self._emission = cols, emission
        slots = (ReduceLane.SLOTS - 1).bit_length()
        super().__init__({
            "in_valid": In(1), "first": In(1), "last": In(1), "slot": In(slots), "op": In(2), "base": In(32),
            "x": In(32 * cols), "keep": In(cols), "out_valid": Out(1), "value": Out(32), "index": Out(32),
        })  # fmt: skip

    @property
    def latency(self) -> int:
        """Cycles from a row's last block to its result."""
        return reduce_latency(self._cols)

    def elaborate(self, platform) -> Module:
        m = Module()
        cols = self._cols
        m.submodules.lanes = lanes = Grid(
            cell=ReduceLane(), name=f"reduce_lanes_{cols}", rows=1, cols=cols, emission=self._emission
        )
        # What is said of a block goes beside it, once for all lanes.
        control = Cat(self.in_valid, self.first, self.last, self.slot, self.base)
        stages = [control]
        depth = ReduceLane.LATENCY
        for k in range(1, depth + 1):
            stage = Signal(len(control), name=f"control_{k}")
            m.d.sync += stage.eq(stages[-1])
            stages.append(stage)
        slots = len(self.slot)

        def said(k: int) -> dict[str, Value]:
            word = stages[k]
            return {"valid": word[0], "first": word[1], "last": word[2], "slot": word[3 : 3 + slots],
                    "base": word[3 + slots :]}  # fmt: skip

        combine, store = said(ReduceLane.COMBINE_AT), said(depth - 1)
        m.d.comb += [
            lanes.all.valid.eq(self.in_valid), lanes.all.op.eq(self.op), lanes.all.combine.eq(combine["valid"]),
            lanes.all.first.eq(combine["first"]), lanes.all.slot.eq(combine["slot"]),
            lanes.all.base.eq(combine["base"]), lanes.all.store_slot.eq(store["slot"]), lanes.col.x.eq(self.x),
            lanes.col.keep.eq(self.keep), lanes.col.lane.eq(Cat(Const(k, 16) for k in range(cols))),
        ]  # fmt: skip

        valid = said(depth)["valid"] & said(depth)["last"]
        values = [lanes.down.value.word_select(k, 32) for k in range(cols)]
        indices = [lanes.down.index.word_select(k, 32) for k in range(cols)]
        while len(values) > 1:
            if len(values) % 2:
                values.append(_identity(self.op))
                indices.append(Const(NO_INDEX, 32))
            pairs = len(values) // 2
            level = Grid(
                cell=ReduceTreeCell(), name=f"reduce_tree_{pairs}", rows=1, cols=pairs, emission=self._emission
            )
            m.submodules[f"tree_{pairs}"] = level
            m.d.comb += [
                level.all.valid.eq(valid), level.all.op.eq(self.op),
                level.col.a_value.eq(Cat(Cat(v)[:32] for v in values[0::2])), level.col.a_index.eq(Cat(indices[0::2])),
                level.col.b_value.eq(Cat(Cat(v)[:32] for v in values[1::2])), level.col.b_index.eq(Cat(indices[1::2])),
            ]  # fmt: skip
            for k in range(ReduceTreeCell.LATENCY):
                stage = Signal(name=f"tree_{pairs}_ok{k + 1}")
                m.d.sync += stage.eq(valid)
                valid = stage
            values = [level.down.value.word_select(k, 32) for k in range(pairs)]
            indices = [level.down.index.word_select(k, 32) for k in range(pairs)]
        m.d.comb += [self.out_valid.eq(valid), self.value.eq(values[0]), self.index.eq(indices[0])]
        return m
