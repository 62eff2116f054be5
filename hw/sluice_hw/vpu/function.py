"""One lane of the function unit: exp, log, tanh, sigmoid, erf, gelu, silu, reciprocal, rsqrt, sqrt of fp32.

The datapath is that of ``docs/functions.md``, step for step; Q a.b is a fixed-point number with a bits before and b
behind the point. The lane is a pipeline without stalls, placed once per column by the grid emitter.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Const, Module, Mux, Shape, Signal, Value, signed
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import Component, In, Out, Signature
from amaranth.utils import ceil_log2

from ..arith.shift import normalise_left
from ..arith.stages import Stages
from ..functions import (
    DEGREE,
    INDEX_BITS,
    LN2,
    LN2_BITS,
    LOG2E,
    LOG2E_BITS,
    SECTIONS,
    Z_BITS,
    Function,
    base,
    coefficients,
)

__all__ = ["FunctionLane"]

_BIAS = 127
_INF, _NAN = 0x7F800000, 0x7FC00000
#: Fraction bits of |x| and x^2 / 2.
_AX_BITS = 32
#: LOG2E is used in two parts, of which this is the lower, so that no product is wider than 64 bits.
_LOW_BITS = 18
_R_BITS = Z_BITS - INDEX_BITS - 1
#: Fraction bits of the magnitude that is rounded, and all of its bits.
_MAGNITUDE_POINT, _MAGNITUDE_BITS = 54, 62

#: Registers between the input and a value.
_SQUARE = 1
_AX = _SQUARE + 1
_SPLIT = _AX + 1
_T = _SPLIT + 1
_CUBIC = DEGREE + 1
_U = _T + _CUBIC
_ALIGNED = _U + 1
_Z = _ALIGNED + 1
_P = _Z + _CUBIC
_W = _P + 1
_C = _W + 1
_PRODUCT = _C + 1
_TOTAL = _PRODUCT + 1
_MAGNITUDE = _TOTAL + 1
_NORMAL = _MAGNITUDE + 1
_RESULT = _NORMAL + 1

_OCTAVES = {Function.TANH: "tanh", Function.ERF: "erf", Function.GELU: "tail"}
_EXPONENTIAL = (Function.EXP, Function.SIGMOID, Function.SILU, Function.GELU)
_ROOTS = (Function.RSQRT, Function.SQRT)


def _clip(value: Value, most: int, bits: int) -> Value:
    return Mux(value > most, most, value[:bits])


class _Operand:
    """The operand, as it stands ``at`` cycles after it came: its parts, and what they mean to the functions."""

    def __init__(self, pipe: Stages, x: Value, at: int, is_: dict[Function, Signal]) -> None:
        self.man, self.stored, self.sign = x[:23], x[23:31], x[31]
        self.zero = pipe.wire(self.stored == 0, f"zero_{at}")
        self.e = pipe.wire(self.stored - _BIAS, f"e_{at}", signed(9))
        self.sig = Mux(self.zero, 0, Cat(self.man, Const(1, 1)))  # Q1.23
        self.special = self.stored == 255
        # Unit of a section that has octaves, and whether the function is 1 from there on.
        self.octave = Signal(3, name=f"octave_{at}")
        self.saturated = Signal(name=f"saturated_{at}")
        for function, section in _OCTAVES.items():
            last = SECTIONS[section] - 2
            with pipe.m.If(is_[function]):
                pipe.m.d.comb += self.octave.eq(Mux(self.e < 0, 0, Mux(self.e > last, last, self.e[:2]) + 1))
                if function is not Function.GELU:
                    pipe.m.d.comb += self.saturated.eq(self.e > last)


class FunctionLane(Component):
    """A function of one fp32 value, ``LATENCY`` cycles later.

    Members (sides as the grid emitter names them)
    -------
    all : ``valid``; ``function`` (a :class:`~sluice_hw.functions.Function`) and ``bf16`` (round to bf16 instead of to
        fp32), which stand still while values are inside
    col : ``x``, 32 bits
    down : ``result``, 32 bits; a bf16 result has zeros in its lower half
    """

    LATENCY = _RESULT

    def __init__(self) -> None:
        super().__init__({
            "all": In(Signature({"valid": Out(1), "function": Out(4), "bf16": Out(1)})),
            "col": In(Signature({"x": Out(32)})),
            "down": Out(Signature({"result": Out(32)})),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        self._pipe = pipe = Stages(m, self.all.valid, self.LATENCY)
        self._is = {f: pipe.wire(self.all.function == f, f"is_{f.name.lower()}") for f in Function}
        x = [Value.cast(self.col.x)]
        for at in range(1, _C + 1):
            x.append(pipe.register(x[-1], at, "x"))
        self._at = {at: _Operand(pipe, x[at], at, self._is)
                    for at in (0, _SQUARE, _SPLIT, _U, _ALIGNED, _P, _W, _C)}  # fmt: skip

        ua, n = self._exponential(m)
        near, far, p = self._table(m, ua, n[_U])
        magnitude, sign = self._products(near, far, p)
        exponent = self._exponent(n[_C])
        self._round(m, magnitude, sign, pipe.later(exponent, _PRODUCT, _MAGNITUDE, "exponent"))
        return m

    def _any(self, *functions: Function) -> Value:
        return Cat(self._is[f] for f in functions).any()

    def _cubic(self, m: Module, name: str, start: int, row: Value, z: Value, table: Sequence[Sequence[int]]) -> Signal:
        """Value of a segment, Q2.32, known DEGREE + 1 cycles after ``row`` and ``z``."""
        pipe, at = self._pipe, start + 1
        low = z[: Z_BITS - INDEX_BITS]
        r = pipe.register(low - (1 << _R_BITS), at, f"{name}_r", signed(_R_BITS + 1))
        c = []
        for k in range(DEGREE + 1):
            column = [row_[k] for row_ in table]
            width = max(v.bit_length() for v in column) + 1
            memory = Memory(shape=signed(width), depth=len(column), init=column)
            m.submodules[f"{name}_c{k}"] = memory
            port = memory.read_port(domain="comb")
            m.d.comb += port.addr.eq(row)
            c.append(pipe.register(port.data, at, f"{name}_c{k}", signed(width)))
        value = c.pop()
        while c:
            at += 1
            step = (value * r)[_R_BITS:].as_signed()
            width = max(Shape.cast(c[-1].shape()).width, Shape.cast(step.shape()).width) + bool(c[1:])
            value = pipe.register(c.pop() + step, at, f"{name}_sum", signed(width))
            r = pipe.register(r, at, f"{name}_r")
            c = [pipe.register(v, at, f"{name}_c{k}") for k, v in enumerate(c)]
        return value

    def _exponential(self, m: Module) -> tuple[Value, dict[int, Value]]:
        """2^n ua = 2^t, t = +-|x| log2(e) or -x^2 / 2 log2(e): ua, known at _U, and n by when it is known."""
        pipe, is_, gelu = self._pipe, self._is, self._is[Function.GELU]
        x = self._at[0]
        square = pipe.register(x.sig * x.sig, _SQUARE, "square", 48)
        x = self._at[_SQUARE]
        # Both have their top bit, 39, at 2^e or 2^2e / 2; in ax it is worth 2^7.
        top = Mux(gelu, square >> 8, x.sig << 16)[:40]
        distance = pipe.wire(
            Mux(gelu, 7 + 2 * _BIAS - (x.stored << 1), 7 + _BIAS - x.stored), "ax_distance", signed(11)
        )
        ax = pipe.register(top >> _clip(distance, 63, 6), _AX, "ax", 40)  # Q8.32
        large = pipe.later(pipe.register(distance < 0, _AX, "large"), _AX, _SPLIT, "large")
        high = pipe.register(ax * (LOG2E >> _LOW_BITS), _SPLIT, "t_high", 60)
        low = pipe.register((ax * (LOG2E & ((1 << _LOW_BITS) - 1))) >> _LOW_BITS, _SPLIT, "t_low", 40)
        total = pipe.wire(high + low, "t_sum", 61)
        t = Mux(large, (1 << 39) - 1, total[_AX_BITS + LOG2E_BITS - _LOW_BITS - Z_BITS :])  # Q9.30
        t = pipe.wire(t, "t", 39)
        v = pipe.wire(Mux(is_[Function.EXP] & ~self._at[_SPLIT].sign, t, -t), "v", signed(40))
        n = {_T: pipe.register(v[Z_BITS:], _T, "n", signed(10))}
        for at in range(_T + 1, _C + 1):
            n[at] = pipe.register(n[at - 1], at, "n")
        f = pipe.register(v[:Z_BITS], _T, "f", Z_BITS)
        rows = coefficients()[: 1 << INDEX_BITS]
        assert base("exp2") == 0
        return self._cubic(m, "exp2", _T, f[Z_BITS - INDEX_BITS :], f, rows)[:34], n

    def _table(self, m: Module, ua: Value, n: Value) -> tuple[Value, Value, Value]:
        """2^n ua and ua, Q2.30, known at _ALIGNED, and the table's value, Q1.31, known at _P."""
        pipe, is_, x = self._pipe, self._is, self._at[_U]
        distance = pipe.wire(2 - n, "near_distance", signed(11))
        near = pipe.register(ua >> _clip(distance, 63, 6), _ALIGNED, "near", 32)
        far = pipe.register(ua >> 2, _ALIGNED, "far", 32)

        below = pipe.wire(-x.e, "below", signed(10))
        in_octaves = self._any(*_OCTAVES)
        own = Mux(in_octaves & (x.e < 0), (x.sig << (Z_BITS - 23)) >> _clip(below, 63, 6), x.man << (Z_BITS - 23))
        own = pipe.register(own, _ALIGNED, "z_own", Z_BITS)
        sections = {Function.LOG: "log", Function.RSQRT: "rsqrt", Function.SQRT: "rsqrt", **_OCTAVES}
        first = base("reciprocal")
        units = Array(base(sections.get(f, "reciprocal")) - first for f in Function)
        unit = units[self.all.function] + Mux(self._any(*_ROOTS), x.e[0], x.octave)
        unit = pipe.register(unit, _ALIGNED, "unit", 5)

        of_u = self._any(Function.SIGMOID, Function.SILU)
        z = pipe.register(Mux(of_u, _clip(near, (1 << Z_BITS) - 1, Z_BITS), own), _Z, "z", Z_BITS)
        unit = pipe.register(unit, _Z, "unit", 5)
        rows = coefficients()[first << INDEX_BITS :]
        row = Cat(z[Z_BITS - INDEX_BITS :], unit)[: ceil_log2(len(rows))]
        cubic = self._cubic(m, "table", _Z, row, z, rows)
        p = Mux(is_[Function.EXP] | self._at[_P].saturated, 1 << 31, cubic[1:33])
        return near, far, pipe.wire(p, "p", 32)

    def _products(self, near: Value, far: Value, p: Value) -> tuple[Value, Value]:
        """Magnitude, Q8.54, and sign of the result before its exponent, known at _MAGNITUDE."""
        pipe, is_ = self._pipe, self._is
        negative = self._at[_ALIGNED].sign
        gelu = is_[Function.GELU]
        use_far = is_[Function.EXP] | (negative & self._any(*_EXPONENTIAL))
        a = pipe.wire(Mux(use_far, far, Mux(gelu, near, 1 << 30)), "a", 32)  # Q2.30
        a = pipe.later(a, _ALIGNED, _P, "a")
        product = pipe.wire(a * p, "a_product", 64)
        w = pipe.register(product[31:], _W, "w", 32)  # Q2.30
        x = self._at[_W]
        complement = pipe.wire((1 << 30) - (w >> x.octave), "complement", 32)
        w = pipe.register(Mux(gelu & ~x.sign, complement, w), _C, "w", 32)

        x, log = self._at[_C], is_[Function.LOG]
        upper = x.man[-1]  # m in [3/2, 2) is halved
        less_one = Mux(upper, (1 << 23) - x.man, x.man << 1)[:24]  # |m - 1|, Q0.24
        b = Mux(log, less_one, Mux(self._times_x(x), x.sig, 1 << 23))
        b = pipe.wire(b, "b", 24)
        product = pipe.register(b * w, _PRODUCT, "b_product", 56)
        whole = pipe.register((x.e + upper) * LN2, _PRODUCT, "whole", signed(46))
        minus = pipe.register(upper, _PRODUCT, "minus")
        own_sign = pipe.register(x.sign & ~self._any(Function.EXP, Function.SIGMOID), _PRODUCT, "own_sign")
        part = pipe.wire(Mux(minus, -product, product), "log_part", signed(57))
        shifted = Cat(Const(0, _MAGNITUDE_POINT - LN2_BITS), whole).as_signed()
        total = pipe.wire(Mux(log, shifted + part, product << 1), "total", signed(64))
        total = pipe.register(total, _TOTAL, "total", signed(64))
        own_sign = pipe.register(own_sign, _TOTAL, "own_sign")
        # log of zero comes out negative, of infinity positive, which is the sign that their infinities need.
        sign = Mux(log, total < 0, own_sign)
        magnitude = pipe.register(Mux(total < 0, -total, total), _MAGNITUDE, "magnitude", _MAGNITUDE_BITS)
        return magnitude, pipe.register(sign, _MAGNITUDE, "sign")

    def _times_x(self, x: _Operand) -> Value:
        small = self._any(Function.TANH, Function.ERF) & (x.e < 0)
        return self._any(Function.SILU, Function.GELU, Function.SQRT) | small

    def _exponent(self, n: Value) -> Value:
        """The result's exponent, known at _PRODUCT."""
        is_, x = self._is, self._at[_C]
        half = x.e >> 1
        exponent = Signal(signed(11), name="exponent")
        m, functions = self._pipe.m, Function
        octave = Mux(is_[Function.GELU], x.octave, 0)
        from_x = Mux(self._times_x(x), x.e, 0)
        from_u = Mux(x.sign, n - octave, 0)
        with m.Switch(self.all.function):
            with m.Case(functions.EXP):
                m.d.comb += exponent.eq(n)
            with m.Case(functions.SIGMOID):
                m.d.comb += exponent.eq(from_u)
            with m.Case(functions.SILU, functions.GELU):
                m.d.comb += exponent.eq(from_u + x.e)
            with m.Case(functions.TANH, functions.ERF):
                m.d.comb += exponent.eq(from_x)
            with m.Case(functions.RECIPROCAL):
                m.d.comb += exponent.eq(-x.e)
            with m.Case(functions.RSQRT):
                m.d.comb += exponent.eq(-half)
            with m.Case(functions.SQRT):
                m.d.comb += exponent.eq(half + x.e[0])
        return self._pipe.register(exponent, _PRODUCT, "exponent", signed(11))

    def _overrides(self) -> tuple[Value, Value, Value]:
        """Whether the result is NaN, an infinity or a zero whatever was computed; known at _MAGNITUDE."""
        pipe, is_, x = self._pipe, self._is, self._at[_C]
        inf, nan = x.special & (x.man == 0), x.special & (x.man != 0)
        negative = x.sign & ~x.zero & self._any(Function.LOG, *_ROOTS)
        poles = self._any(Function.LOG, Function.RECIPROCAL, Function.RSQRT)
        flags = (
            ("nan", nan | negative),
            ("inf", (x.zero & poles) | (inf & self._any(Function.LOG, Function.SQRT))),
            ("zero", inf & is_[Function.RSQRT]),
        )
        nan, inf, zero = (
            pipe.later(pipe.register(value, _PRODUCT, name), _PRODUCT, _MAGNITUDE, name) for name, value in flags
        )
        return nan, inf, zero

    def _round(self, m: Module, magnitude: Value, sign: Value, exponent: Value) -> None:
        """Normalise, round to nearest even, flush, pack."""
        pipe, bf16 = self._pipe, self.all.bf16
        nan, inf, zero = self._overrides()
        shifted, count = normalise_left(m, magnitude, name="normalise")
        normal = pipe.register(shifted, _NORMAL, "normal", _MAGNITUDE_BITS)
        top = _MAGNITUDE_BITS - 1 - _MAGNITUDE_POINT + _BIAS
        stored = pipe.register(exponent + top - count, _NORMAL, "stored", signed(12))
        sign, nan, inf, zero = (
            pipe.register(value, _NORMAL, name)
            for name, value in (("sign", sign), ("nan", nan), ("inf", inf), ("zero", zero))
        )
        bits = _MAGNITUDE_BITS
        rescued = (stored == 0) & normal[bits - 24 :].all()
        wide_up = (normal[bits - 25] & (normal[: bits - 25].any() | normal[bits - 24])) | rescued
        narrow_up = (normal[bits - 9] & (normal[: bits - 9].any() | normal[bits - 8])) | rescued
        wide = pipe.wire(normal[bits - 24 :] + wide_up, "wide", 25)
        narrow = pipe.wire(normal[bits - 8 :] + narrow_up, "narrow", 9)
        carry = Mux(bf16, narrow[-1], wide[-1])
        rounded = pipe.wire(stored + carry, "rounded", signed(13))
        fraction = Mux(bf16, Cat(Const(0, 16), narrow[:7]), wide[:23])
        flushed = zero | ~normal[-1] | (stored < 0) | ((stored == 0) & ~rescued)
        result = Signal(32)
        with m.If(nan):
            m.d.comb += result.eq(_NAN)
        with m.Elif(inf | ((rounded >= 255) & ~flushed)):
            m.d.comb += result.eq(Cat(Const(_INF, 31), sign))
        with m.Elif(flushed):
            m.d.comb += result.eq(Cat(Const(0, 31), sign))
        with m.Else():
            m.d.comb += result.eq(Cat(fraction, rounded[:8], sign))
        m.d.comb += self.down.result.eq(pipe.register(result, _RESULT, "result", 32))
