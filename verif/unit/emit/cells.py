"""Cells that are not the PE: what a grid emitter must cope with."""

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["Accumulate", "AllWays", "Broadcast", "Everything", "Lookup", "Maximum", "Shift"]


class Shift(wiring.Component):
    """Two registers in a row: 2 cycles per cell, to the right."""

    def __init__(self):
        super().__init__({"left": In(wiring.Signature({"data": Out(7)})),
                          "right": Out(wiring.Signature({"data": Out(7)}))})

    def elaborate(self, platform):
        m = Module()
        first = Signal(7, init=3)
        second = Signal(7, init=5, reset_less=True)
        m.d.sync += [first.eq(self.left.data), second.eq(first)]
        m.d.comb += self.right.data.eq(second)
        return m


class Maximum(wiring.Component):
    """The larger of two signed numbers goes down, the smaller to the right; one result is only seen at the edge."""

    def __init__(self):
        number = wiring.Signature({"x": Out(signed(9))})
        super().__init__({"left": In(number), "right": Out(number), "up": In(number),
                          "down": Out(wiring.Signature({"x": Out(signed(9)), "swapped": Out(1)}))})

    def elaborate(self, platform):
        m = Module()
        high = Signal(signed(9))
        low = Signal(signed(9))
        swapped = Signal()
        swap = self.left.x > self.up.x
        m.d.sync += [high.eq(Mux(swap, self.left.x, self.up.x)), low.eq(Mux(swap, self.up.x, self.left.x)),
                     swapped.eq(swap)]
        m.d.comb += [self.down.x.eq(high), self.right.x.eq(low), self.down.swapped.eq(swapped)]
        return m


class Accumulate(wiring.Component):
    """Adds row times column, inputs that all cells of a row or a column share, and drains upwards."""

    def __init__(self):
        total = wiring.Signature({"total": Out(signed(20))})
        super().__init__({"down": In(total), "up": Out(total),
                          "row": In(wiring.Signature({"factor": Out(signed(8)), "valid": Out(1)})),
                          "col": In(wiring.Signature({"factor": Out(signed(8))})),
                          "all": In(wiring.Signature({"drain": Out(1), "clear": Out(1)}))})

    def elaborate(self, platform):
        m = Module()
        total = Signal(signed(20))
        with m.If(self.all.clear):
            m.d.sync += total.eq(-1)
        with m.Elif(self.all.drain):
            m.d.sync += total.eq(self.down.total)
        with m.Elif(self.row.valid):
            m.d.sync += total.eq(total + self.row.factor * self.col.factor)
        m.d.comb += self.up.total.eq(total)
        return m


class AllWays(wiring.Component):
    """Flows in all four directions; what leaves is computed behind the registers."""

    def __init__(self):
        super().__init__({
            "left": Out(wiring.Signature({"r": In(5), "l": Out(5)})),
            "right": Out(wiring.Signature({"r": Out(5), "l": In(5)})),
            "up": Out(wiring.Signature({"d": In(5), "u": Out(5)})),
            "down": Out(wiring.Signature({"d": Out(5), "u": In(5)}))})

    def elaborate(self, platform):
        m = Module()
        r, l, d, u = (Signal(5, name=name, init=index) for index, name in enumerate("rldu", 9))  # noqa: E741
        m.d.sync += [r.eq(self.left.r + self.up.d), l.eq(self.right.l ^ r), d.eq(self.up.d - self.down.u),
                     u.eq(self.down.u | self.right.l)]
        m.d.comb += [self.right.r.eq(r ^ d), self.left.l.eq(l), self.down.d.eq(d + l), self.up.u.eq(~u)]
        return m


class Broadcast(wiring.Component):
    """One register that leaves to the right under two names, whose inputs differ, and constant bits beside it."""

    def __init__(self):
        super().__init__({"left": In(wiring.Signature({"a": Out(4), "b": Out(4)})),
                          "right": Out(wiring.Signature({"a": Out(4), "b": Out(4)})),
                          "down": Out(wiring.Signature({"c": Out(6)}))})

    def elaborate(self, platform):
        m = Module()
        state = Signal(4)
        m.d.sync += state.eq(self.left.a + (self.left.b << 1))
        m.d.comb += [self.right.a.eq(state), self.right.b.eq(state), self.down.c.eq(Cat(state[1:3], 1, 0, state[0]))]
        return m


class Everything(wiring.Component):
    """Every operator with a rule, signed and unsigned, operands narrower and wider than the result; a submodule."""

    def __init__(self):
        numbers = wiring.Signature({"a": Out(6), "b": Out(signed(5)), "s": Out(3)})
        super().__init__({"left": In(numbers), "right": Out(numbers)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = Module()
        a, b, s = self.left.a, self.left.b, self.left.s
        wide = Signal(signed(12))
        results = [
            a + b, a - b, b - a, a * b, b * b, -b, ~a, a & b, a | b, a ^ b, a.as_signed() & b, ~(a ^ b),
            a << s, b << s, a >> s, b >> s, (a << 3) >> s, a.any(), a.all(), a.xor(), b.bool(), ~b.any(),
            a == b, a != b, a < b, a <= b, b > a, b >= a, b < s.as_signed(), b <= b[:3], a[1:3] == s[:2],
            b.as_unsigned() < a,
            Mux(s, a, b), Mux(a > 5, b, s), a.bit_select(s, 2), b.word_select(s[:1], 2), abs(b), a.rotate_left(2),
        ]
        total = 0
        for index, result in enumerate(results):
            # Each in a word of its own size, so that cutting and extending are seen.
            word = Signal((result.shape().width + index % 3 - 1) or 1, name=f"word{index}")
            inner.d.comb += word.eq(result)
            total = total ^ (word << index % 5)
        inner.d.comb += wide.eq(total)
        x, y, z = Signal(6), Signal(signed(5)), Signal(3)
        with m.Switch(s):
            with m.Case(0, 3):
                m.d.sync += x.eq(wide)
            with m.Case("1-0"):
                m.d.sync += [x.eq(a + 1), y.eq(wide >> 3)]
            with m.Case(7):
                m.d.sync += z.eq(wide >> 7)
            with m.Default():
                m.d.sync += [x.eq(~a), z.eq(s + 1)]
        with m.If(a[0] & b[1]):
            m.d.sync += y.eq(wide + 1)
        m.d.comb += [self.right.a.eq(x), self.right.b.eq(y), self.right.s.eq(z)]
        return m


class Lookup(wiring.Component):
    """Two tables: one with two readers, one whose length is no power of two."""

    def __init__(self):
        numbers = wiring.Signature({"a": Out(5), "b": Out(signed(7))})
        super().__init__({"left": In(numbers), "right": Out(numbers)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.squares = squares = Memory(shape=5, depth=32, init=[k * k % 29 for k in range(32)])
        m.submodules.odd = odd = Memory(shape=signed(7), depth=11, init=[5 * k - 30 for k in range(11)])
        first, second, third = (store.read_port(domain="comb") for store in (squares, squares, odd))
        a, b = Signal(5), Signal(signed(7))
        m.d.comb += [first.addr.eq(self.left.a), second.addr.eq(self.left.b),
                     third.addr.eq(Mux(self.left.a[:4] > 10, 10, self.left.a[:4]))]
        m.d.sync += [a.eq(first.data ^ second.data), b.eq(third.data - self.left.b)]
        m.d.comb += [self.right.a.eq(a), self.right.b.eq(b)]
        return m
