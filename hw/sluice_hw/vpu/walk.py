"""Nested address walk: the loops of one VECTOR, one step at a time, innermost first."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

__all__ = ["Walker"]


class Walker(Component):
    """Affine walk over up to four nested loops, one position a cycle.

    ``start`` takes the counts, steps and base; from the next cycle on ``valid`` is high with the current ``addr`` until
    the last position was taken by ``step``. Addresses are kept per level (each level remembers where its iteration
    began), so that a step is one addition whatever the nesting.

    Parameters
    ----------
    levels : int
        Nested loops, innermost first.
    count_bits, step_bits, addr_bits : int
        Widths of counts, steps (signed) and addresses (modulo ``2**addr_bits``).

    Members
    -------
    start : In(1)
    base : In(addr_bits)
    counts : In(ArrayLayout(count_bits, levels)), each at least 1
    steps : In(ArrayLayout(signed(step_bits), levels))
    step : In(1)
    valid : Out(1)
    addr : Out(addr_bits)
    first, last : Out(levels): bit i is set while the loops 0..i are all at their first (last) position
    """

    def __init__(self, *, levels: int, count_bits: int, step_bits: int, addr_bits: int) -> None:
        if not 1 <= levels <= 8:
            raise ValueError(f"Walker levels must be 1 to 8, not {levels}")
        self._levels, self._count_bits, self._step_bits, self._addr_bits = levels, count_bits, step_bits, addr_bits
        super().__init__({
            "start": In(1),
            "base": In(addr_bits),
            "counts": In(data.ArrayLayout(count_bits, levels)),
            "steps": In(data.ArrayLayout(signed(step_bits), levels)),
            "step": In(1),
            "valid": Out(1),
            "addr": Out(addr_bits),
            "first": Out(levels),
            "last": Out(levels),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        n = self._levels
        left = [Signal(self._count_bits, name=f"left{i}", reset_less=True) for i in range(n)]
        count = [Signal(self._count_bits, name=f"count{i}", reset_less=True) for i in range(n)]
        stride = [Signal(signed(self._step_bits), name=f"stride{i}", reset_less=True) for i in range(n)]
        at = [Signal(self._addr_bits, name=f"at{i}", reset_less=True) for i in range(n)]
        fresh = [Signal(name=f"fresh{i}", reset_less=True) for i in range(n)]
        last, first = [], []
        for i in range(n):
            is_last = Signal(name=f"is_last{i}")
            is_first = Signal(name=f"is_first{i}")
            m.d.comb += is_last.eq((left[i] == 1) & (last[-1] if last else 1))
            m.d.comb += is_first.eq(fresh[i] & (first[-1] if first else 1))
            last.append(is_last)
            first.append(is_first)
        m.d.comb += [self.addr.eq(at[0])]
        for i in range(n):
            m.d.comb += [self.last[i].eq(last[i]), self.first[i].eq(first[i])]

        with m.If(self.start):
            m.d.sync += self.valid.eq(1)
            for i in range(n):
                m.d.sync += [
                    count[i].eq(self.counts[i]), left[i].eq(self.counts[i]), stride[i].eq(self.steps[i]),
                    at[i].eq(self.base), fresh[i].eq(1),
                ]
        with m.Elif(self.step & self.valid):
            with m.If(last[n - 1]):
                m.d.sync += self.valid.eq(0)
            for i in range(n):
                inner_done = last[i - 1] if i else 1
                # Level i advances when everything inside it is done and it is not at its own end.
                with m.If(inner_done & (left[i] != 1)):
                    following = Signal(self._addr_bits, name=f"following{i}")
                    m.d.comb += following.eq(at[i] + stride[i])
                    m.d.sync += [left[i].eq(left[i] - 1), fresh[i].eq(0)]
                    for j in range(i + 1):
                        m.d.sync += at[j].eq(following)
                    for j in range(i):
                        m.d.sync += [left[j].eq(count[j]), fresh[j].eq(1)]
        return m
