"""The walk of a pass over its rows, by groups of eight, and where the blocks of a stream lie.

Rows are taken in groups; in a group block by block, in a block row by row. So a reduction, which cannot take the next
block of a row at once, finds seven other rows in between, and a vector that all rows share is read once for eight rows.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from .. import isa
from .reduce import ReduceLane

__all__ = ["GROUP", "BlockCounter", "BlockWalker", "shape_layout"]

#: Rows of a group.
GROUP = ReduceLane.SLOTS
_SLOT_BITS = (GROUP - 1).bit_length()


def shape_layout() -> data.StructLayout:
    """Rows of a pass, blocks of a row, lanes of its last block."""
    fields = isa.word_layout(isa.Op.PASS_SHAPE).members
    return data.StructLayout({name: fields[name] for name in ("rows", "blocks", "tail")})


def _position() -> dict:
    return {
        "valid": Out(1), "row": Out(16), "slot": Out(_SLOT_BITS), "first_block": Out(1), "last_block": Out(1),
        "last_row": Out(1), "last": Out(1),
    }  # fmt: skip


class BlockCounter(Component):
    """Position in the walk.

    Members
    -------
    start : In(1)
        Takes ``shape`` (In) and ``shared`` (In(1): a group has one row); ``valid`` from the next cycle on.
    step : In(1)
        Goes on; ``valid`` falls behind the last block.
    row, slot : Out
        Row, and its place in the group.
    first_block, last_block, last_row, last : Out(1)
        Of the row, of the row, of the group, of all.
    """

    def __init__(self) -> None:
        super().__init__({"start": In(1), "shape": In(shape_layout()), "shared": In(1), "step": In(1), **_position()})

    def elaborate(self, platform) -> Module:
        m = Module()
        slot = Signal(_SLOT_BITS, reset_less=True)
        group = Signal(16 - _SLOT_BITS, reset_less=True)
        left = Signal(16, reset_less=True)  # rows from the group's first one on
        blocks, blocks_left = Signal(10, reset_less=True), Signal(10, reset_less=True)
        shared, fresh = Signal(reset_less=True), Signal(reset_less=True)
        last_group = Signal()
        m.d.comb += [
            self.row.eq(Cat(slot, group)), self.slot.eq(slot), self.first_block.eq(fresh),
            self.last_block.eq(blocks_left == 1), last_group.eq(left <= GROUP),
            self.last_row.eq(shared | (slot == Mux(last_group, left - 1, GROUP - 1)[:_SLOT_BITS])),
            self.last.eq(self.last_row & self.last_block & last_group),
        ]  # fmt: skip
        with m.If(self.start):
            m.d.sync += [
                self.valid.eq(1), slot.eq(0), group.eq(0), left.eq(self.shape.rows), blocks.eq(self.shape.blocks),
                blocks_left.eq(self.shape.blocks), shared.eq(self.shared), fresh.eq(1),
            ]  # fmt: skip
        with m.Elif(self.step & self.valid):
            with m.If(~self.last_row):
                m.d.sync += slot.eq(slot + 1)
            with m.Elif(~self.last_block):
                m.d.sync += [slot.eq(0), blocks_left.eq(blocks_left - 1), fresh.eq(0)]
            with m.Else():
                m.d.sync += [
                    slot.eq(0), blocks_left.eq(blocks), fresh.eq(1), group.eq(group + 1), left.eq(left - GROUP),
                    self.valid.eq(~last_group),
                ]  # fmt: skip
        return m


class BlockWalker(Component):
    """As :class:`BlockCounter`, with a number that is affine in row and block.

    Parameters
    ----------
    bits
        Of the number, which wraps.

    Members
    -------
    base, row_step, block_step : In
        Taken with ``start``; steps are signed.
    at : Out(bits)
        base + row x row_step + block x block_step
    """

    def __init__(self, *, bits: int) -> None:
        self._bits = bits
        super().__init__({
            "start": In(1), "shape": In(shape_layout()), "shared": In(1), "step": In(1), "base": In(bits),
            "row_step": In(signed(isa.STRIDE_BITS)), "block_step": In(signed(isa.STRIDE_BITS)), **_position(),
            "at": Out(bits),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.counter = counter = BlockCounter()
        m.d.comb += [
            counter.start.eq(self.start), counter.shape.eq(self.shape), counter.shared.eq(self.shared),
            counter.step.eq(self.step), *(getattr(self, name).eq(getattr(counter, name)) for name in _position()),
        ]  # fmt: skip
        # Where the row, its block of the group's first row, and the group's first row begin.
        row_at = Signal(self._bits, reset_less=True)
        block_at, group_at = Signal.like(row_at), Signal.like(row_at)
        row_step = Signal(signed(isa.STRIDE_BITS), reset_less=True)
        block_step = Signal.like(row_step)
        from_at, by, following = Signal.like(row_at), Signal(signed(isa.STRIDE_BITS + _SLOT_BITS)), Signal.like(row_at)
        with m.If(~self.last_row):
            m.d.comb += [from_at.eq(row_at), by.eq(row_step)]
        with m.Elif(~self.last_block):
            m.d.comb += [from_at.eq(block_at), by.eq(block_step)]
        with m.Else():
            m.d.comb += [from_at.eq(group_at), by.eq(row_step << _SLOT_BITS)]
        m.d.comb += [following.eq(from_at + by), self.at.eq(row_at)]
        with m.If(self.start):
            m.d.sync += [
                row_at.eq(self.base), block_at.eq(self.base), group_at.eq(self.base), row_step.eq(self.row_step),
                block_step.eq(self.block_step),
            ]  # fmt: skip
        with m.Elif(self.step & self.valid):
            m.d.sync += row_at.eq(following)
            with m.If(self.last_row):
                m.d.sync += block_at.eq(following)
                with m.If(self.last_block):
                    m.d.sync += group_at.eq(following)
        return m
