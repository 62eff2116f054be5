"""The floating-point adder of the numerics contract, cut into as many stages as its place allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from .float_lane import FloatLane, FloatOps
from .format import FP32, FloatFormat
from .shift import normalise_left, shift_right_sticky

__all__ = ["MAX_ADD_LATENCY", "Fp32Add", "add_stages", "check_add_latency"]

# The steps, in order, and behind which of them a register stands, by latency; one more stands behind the last.
_ORDER, _ALIGN, _ADD, _COARSE, _NORMALISE = range(5)
_CUTS: dict[int, tuple[int, ...]] = {
    1: (),
    2: (_ADD,),
    3: (_ALIGN, _NORMALISE),
    4: (_ORDER, _ADD, _NORMALISE),
    5: (_ORDER, _ALIGN, _ADD, _NORMALISE),
    6: (_ORDER, _ALIGN, _ADD, _COARSE, _NORMALISE),
}

MAX_ADD_LATENCY = max(_CUTS)
"""Stages that the adder can be cut into."""


def check_add_latency(latency: int) -> None:
    """Refuse a number of stages that the adder cannot have.

    Raises
    ------
    TypeError, ValueError
        Naming it.
    """
    if isinstance(latency, bool) or not isinstance(latency, int):
        raise TypeError(f"adder latency must be an int, not {latency!r}")
    if latency not in _CUTS:
        raise ValueError(f"adder latency must be 1 to {MAX_ADD_LATENCY}, not {latency}")


class _Stages:
    """Puts a register behind a step, or none."""

    def __init__(self, m: Module, valid: Sequence[Value], prefix: str) -> None:
        self.m, self.valid, self.prefix = m, valid, prefix
        self.latency = len(valid) - 1
        self.done = 0

    def __call__(self, step: int, values: Mapping[str, tuple]) -> list:
        """Values by name, each with its shape; what the next step sees of them."""
        cut = step in _CUTS[self.latency]
        out = []
        for name, (shape, _) in values.items():
            out.append(Signal(shape, name=f"{self.prefix}{name}", reset_less=True))
        statements = [
            Value.cast(signal).eq(Value.cast(value)) for signal, (_, value) in zip(out, values.values(), strict=True)
        ]
        if cut:
            with self.m.If(self.valid[self.done]):
                self.m.d.sync += statements
            self.done += 1
        else:
            self.m.d.comb += statements
        return out


def add_stages(
    m: Module, *, fmt: FloatFormat, a: data.View, b: data.View, valid: Sequence[Value], prefix: str = "",
    instead: tuple[Value, Value] | None = None,
) -> data.View:  # fmt: skip
    """Add the stages of ``a + b`` to a module.

    Parameters
    ----------
    fmt
        Format of operands and result.
    a, b
        Operands.
    valid
        Element k says that the data entering stage k are valid; the last one, that the result is. So there is one more
        than there are stages.
    prefix
        Goes before the names of the registers.
    instead
        A condition, and what the result's register takes where it holds, both in the last stage.

    Returns
    -------
    amaranth.lib.data.View
        The result, registered.
    """
    check_add_latency(len(valid) - 1)
    ops = FloatOps(fmt)
    bits = fmt.significand_bits
    stage = _Stages(m, valid, prefix)
    flags = data.StructLayout({"sign": 1, "subtract": 1, "special": 1, "nan": 1})

    # Constants are chosen by masks, not at a register, of which Yosys would make parts with resets of their own.
    def named(name: str, shape, value) -> Signal:
        signal = Signal(shape, name=f"{prefix}{name}")
        m.d.comb += signal.eq(value)
        return signal

    # Order by magnitude, so that the difference is never negative and only the smaller one is shifted.
    swap = named("swap", 1, Cat(b.man, b.exp) > Cat(a.man, a.exp))
    large, small = named("large", fmt.layout, Mux(swap, b, a)), named("small", fmt.layout, Mux(swap, a, b))
    # Guard, round and sticky bits below the significand. A larger distance leaves only the sticky bit.
    wide = bits + 3
    distance_bits = min(wide.bit_length(), fmt.exp_bits)
    far = 2**distance_bits - 1
    distance = named("distance", fmt.exp_bits, large.exp - small.exp)
    # The larger magnitude is an infinity or a NaN if either operand is, and a NaN if either is; two infinities are
    # equal magnitudes.
    special = large.exp == fmt.exp_special
    subtract = named("subtract", 1, a.sign ^ b.sign)
    flags_0 = Signal(flags, name=f"{prefix}flags_0")
    m.d.comb += [
        flags_0.sign.eq(large.sign),
        flags_0.subtract.eq(subtract),
        flags_0.special.eq(special),
        flags_0.nan.eq(special & ((large.man != 0) | (subtract & (small.exp == fmt.exp_special)))),
    ]
    sig_large, sig_small, near, exp, flag = stage(_ORDER, {
        "sig_large_1": (bits, Cat(large.man, Const(1, 1)) & Mux(ops.is_zero(large), 0, 2**bits - 1)),
        "sig_small_1": (bits, Cat(small.man, Const(1, 1)) & Mux(ops.is_zero(small), 0, 2**bits - 1)),
        "distance_1": (distance_bits, distance[:distance_bits] | Mux(distance > far, far, 0)),
        "exp_1": (fmt.exp_bits, large.exp),
        "flags_1": (flags, flags_0),
    })  # fmt: skip

    aligned = shift_right_sticky(m, Cat(Const(0, 3), sig_small), near, name=f"{prefix}align")
    sig_large, aligned, exp, flag = stage(_ALIGN, {
        "sig_large_2": (bits, sig_large),
        "aligned_2": (wide, aligned),
        "exp_2": (fmt.exp_bits, exp),
        "flags_2": (flags, flag),
    })  # fmt: skip

    minuend = Cat(Const(0, 3), sig_large)
    total, exp, flag = stage(_ADD, {
        "total": (wide + 1, Mux(flag.subtract, minuend - aligned, minuend + aligned)),
        "exp_3": (fmt.exp_bits, exp),
        "flags_3": (flags, flag),
    })  # fmt: skip

    # Normalise. The top bit of total is a carry, hence the exponent's + 1. After a cancellation of more than one place
    # the operands were at most one place apart, so the bits shifted in are exact.
    if _COARSE in _CUTS[stage.latency]:
        steps = wide.bit_length()
        shifted, high = normalise_left(m, total, name=f"{prefix}coarse", steps=range(steps // 2, steps))
        shifted, high, exp, flag = stage(_COARSE, {
            "coarse": (wide + 1, shifted),
            "count": (len(high), high),
            "exp_coarse": (fmt.exp_bits, exp),
            "flags_coarse": (flags, flag),
        })  # fmt: skip
        shifted, low = normalise_left(m, shifted, name=f"{prefix}normalise", steps=range(steps // 2))
        count = Cat(low, high)
    else:
        shifted, count = normalise_left(m, total, name=f"{prefix}normalise")
    count = named("places", len(count), count)
    normal, exp, underflow, flag = stage(_NORMALISE, {
        "normal": (wide + 1, shifted),
        "exp_4": (fmt.exp_bits, exp + 1 - count),
        # Below the normal range, where every sum of normal numbers is exact: it is flushed, never rounded up.
        "underflow": (1, count > exp),
        "flags_4": (flags, flag),
    })  # fmt: skip

    # Round: a carry out of the fraction is one more in the exponent.
    body = fmt.exp_bits + fmt.man_bits
    rounded = named("rounded", body + 1, Cat(normal[4:-1], exp) + (normal[3] & (normal[:3].any() | normal[4])))
    lost = underflow | ~normal[-1]
    huge = named("huge", 1, flag.special | (~underflow & (rounded[fmt.man_bits :] >= fmt.exp_special)))
    infinity, nan = fmt.exp_special << fmt.man_bits, fmt.exp_special << fmt.man_bits | fmt.nan_man
    forced = Mux(flag.nan, nan, Mux(huge, infinity, 0))
    kept = Mux(lost | huge, 0, 2**body - 1)
    # Whatever cancels exactly is +0.
    sign = flag.sign & ~flag.nan & (normal[-1] | ~flag.subtract)
    result = Signal(fmt.layout, reset_less=True, name=f"{prefix}result")
    out: Value = Cat((rounded[:body] & kept) | forced, sign)
    if instead is not None:
        out = Mux(instead[0], instead[1], out.as_signed())
    with m.If(valid[stage.latency - 1]):
        m.d.sync += Value.cast(result).eq(out)
    return result


class Fp32Add(FloatLane):
    """``a + b``; an exact zero from operands of unlike sign is +0.

    Parameters
    ----------
    fmt
        Format of operands and result.
    latency
        Stages, 1 to :data:`MAX_ADD_LATENCY`; by default five: order, align, add, normalise, round.

    Members
    -------
    a, b : In(fmt.layout)
    result : Out(fmt.layout)
    """

    LATENCY = 5

    def __init__(self, *, fmt: FloatFormat = FP32, latency: int = LATENCY) -> None:
        check_add_latency(latency)
        super().__init__(fmt=fmt, inputs={"a": fmt.layout, "b": fmt.layout}, result=fmt.layout)
        self.LATENCY = latency

    def elaborate(self, platform) -> Module:
        m = Module()
        valid = self.valid_pipeline(m)
        m.d.comb += self.result.eq(add_stages(m, fmt=self.fmt, a=self.a, b=self.b, valid=valid))
        return m
