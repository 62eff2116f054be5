"""Address registers: affine and ring addresses that the hardware loops step.

A register holds ``cur``. At the END of level l, with ``stride`` the register's stride of that level, modulo 2^32:

- affine (``ring`` = 0): ``cur += stride`` when another iteration follows, ``cur -= stride x (count - 1)`` when the loop
  ends;
- ring: always ``cur += stride``, then ``cur -= ring`` when ``cur >= base + ring``.

No multiplier is needed: beside ``cur`` each register keeps, per open level, how far that level's ENDs have moved it,
and a ring register how far it is from its end. Only an ADDR that gives a register a stride for a level which is open
and past its first iteration has a product to make, bit by bit (:attr:`AddressRegisters.busy`).
"""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from . import isa
from .interfaces import ADDR_BITS
from .loops import COUNT_BITS

__all__ = ["AddressRegister", "AddressRegisters", "set_layout"]

_LEVELS = isa.LOOP_LEVELS


def set_layout() -> data.StructLayout:
    """What ADDR writes: ``base`` (parameter added), strides by level, ``ring``."""
    return data.StructLayout({
        "base": unsigned(ADDR_BITS),
        "strides": data.ArrayLayout(signed(isa.STRIDE_BITS), _LEVELS),
        "ring": unsigned(isa.STRIDE_BITS),
    })


class AddressRegister(wiring.Component):
    """One register.

    Members
    -------
    clear : In(1)
        cur, strides and ring become 0.
    set, values : In
        ADDR: take ``values``; every level's movement is forgotten.
    open : In(6)
        A loop of this level opens: its movement is 0.
    step, level, last : In
        END of ``level``; ``last`` when the loop ends.
    fix, level, fix_value : In
        Set the movement of ``level`` (the sequencer of :class:`AddressRegisters` does, after ``set``).
    cur : Out(32)
    """

    def __init__(self) -> None:
        super().__init__({
            "clear": In(1),
            "set": In(1),
            "values": In(set_layout()),
            "open": In(_LEVELS),
            "step": In(1),
            "level": In(range(_LEVELS)),
            "last": In(1),
            "fix": In(1),
            "fix_value": In(ADDR_BITS),
            "cur": Out(ADDR_BITS),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.moved = moved = memory.Memory(shape=unsigned(ADDR_BITS), depth=8, init=[])
        read = moved.read_port(domain="comb")
        write = moved.write_port()
        known = Signal(_LEVELS)  # a level whose bit is 0 has moved by 0

        strides = Signal(data.ArrayLayout(signed(isa.STRIDE_BITS), _LEVELS))
        ring = Signal(isa.STRIDE_BITS)
        left = Signal(isa.STRIDE_BITS)  # ring: bytes from cur to base + ring

        stride = Signal(signed(isa.STRIDE_BITS))
        so_far = Signal(ADDR_BITS)
        m.d.comb += [
            read.addr.eq(self.level),
            write.addr.eq(self.level),
            stride.eq(Array(strides[i] for i in range(_LEVELS))[self.level]),
            so_far.eq(Mux(known.bit_select(self.level, 1), read.data, 0)),
        ]
        m.d.sync += known.eq(known & ~self.open)
        with m.If(self.clear):
            m.d.sync += [self.cur.eq(0), strides.eq(0), ring.eq(0), known.eq(0)]
        with m.Elif(self.set):
            m.d.sync += [
                self.cur.eq(self.values.base),
                strides.eq(self.values.strides),
                ring.eq(self.values.ring),
                left.eq(self.values.ring),
                known.eq(0),
            ]
        with m.Elif(self.fix):
            m.d.comb += [write.data.eq(self.fix_value), write.en.eq(1)]
            m.d.sync += known.bit_select(self.level, 1).eq(1)
        with m.Elif(self.step):
            with m.If(ring != 0):
                wraps = stride.as_unsigned() >= left
                m.d.sync += [
                    self.cur.eq(self.cur + stride - Mux(wraps, ring, 0)),
                    left.eq(left - stride.as_unsigned() + Mux(wraps, ring, 0)),
                ]
            with m.Elif(self.last):
                m.d.sync += [self.cur.eq(self.cur - so_far), known.bit_select(self.level, 1).eq(0)]
            with m.Else():
                m.d.comb += [write.data.eq(so_far + stride), write.en.eq(1)]
                m.d.sync += [self.cur.eq(self.cur + stride), known.bit_select(self.level, 1).eq(1)]
        return m


class AddressRegisters(wiring.Component):
    """All registers. At most one of ``set``, ``open``, ``step`` in a cycle, none while ``busy``.

    Members
    -------
    clear : In(1)
        All registers become 0.
    set, reg, values : In
        ADDR.
    open : In(6)
        One-hot: a loop of this level opens.
    step, level, last : In
        END.
    active, done : In(6), array of In(32)
        Which levels are open, and their finished iterations (looked at from ``set`` until ``busy`` falls).
    busy : Out(1)
        After ``set``: products under way, 34 cycles each; none for a register set outside of loops, or with stride 0
        in the loops it stands in, or in their first iterations.
    cur : Out(ArrayLayout(32, 16))
    """

    def __init__(self) -> None:
        super().__init__({
            "clear": In(1),
            "set": In(1),
            "reg": In(range(isa.ADDRESS_REGISTERS)),
            "values": In(set_layout()),
            "open": In(_LEVELS),
            "step": In(1),
            "level": In(range(_LEVELS)),
            "last": In(1),
            "active": In(_LEVELS),
            "done": In(COUNT_BITS).array(_LEVELS),
            "busy": Out(1),
            "cur": Out(data.ArrayLayout(unsigned(ADDR_BITS), isa.ADDRESS_REGISTERS)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        todo = Signal(_LEVELS)
        level = Signal(range(_LEVELS))
        chosen = Signal.like(self.reg)
        strides = Signal.like(self.values.strides)  # of the register that was set last
        stride = Signal(signed(isa.STRIDE_BITS))
        bits = Signal(COUNT_BITS)
        product = Signal(ADDR_BITS)
        count = Signal(range(COUNT_BITS + 1))
        fix = Signal()
        running = Signal()

        for i in range(isa.ADDRESS_REGISTERS):
            r = AddressRegister()
            m.submodules[f"r{i}"] = r
            m.d.comb += [
                r.clear.eq(self.clear),
                r.set.eq(self.set & (self.reg == i)),
                r.values.eq(self.values),
                r.open.eq(self.open),
                r.step.eq(self.step),
                r.level.eq(Mux(self.busy, level, self.level)),
                r.last.eq(self.last),
                r.fix.eq(fix & (chosen == i)),
                r.fix_value.eq(product),
                self.cur[i].eq(r.cur),
            ]

        m.d.comb += self.busy.eq(todo.any())
        for i in reversed(range(_LEVELS)):
            with m.If(todo[i]):
                m.d.comb += level.eq(i)
        with m.If(self.clear):
            m.d.sync += [todo.eq(0), running.eq(0)]
        with m.Elif(self.set):
            m.d.sync += [
                chosen.eq(self.reg),
                strides.eq(self.values.strides),
                todo.eq(Cat(
                    self.active[i] & (self.done[i] != 0) & (self.values.strides[i] != 0) & (self.values.ring == 0)
                    for i in range(_LEVELS))),
            ]
        with m.Elif(self.busy & ~running):
            m.d.sync += [
                running.eq(1),
                stride.eq(Array(strides[i] for i in range(_LEVELS))[level]),
                bits.eq(Array(self.done)[level]),
                product.eq(0),
                count.eq(COUNT_BITS),
            ]
        with m.Elif(running & (count != 0)):
            m.d.sync += [
                product.eq((product << 1) + Mux(bits[-1], stride, 0)),
                bits.eq(bits << 1),
                count.eq(count - 1),
            ]
        with m.Elif(running):
            m.d.comb += fix.eq(1)
            m.d.sync += [running.eq(0), todo.bit_select(level, 1).eq(0)]
        return m
