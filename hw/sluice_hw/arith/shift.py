"""Shifters that keep what rounding needs, as combinational pieces of a module."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, unsigned

__all__ = ["normalise_left", "shift_right_sticky"]


def normalise_left(m: Module, value: Value, *, name: str) -> tuple[Value, Value]:
    """Shift ``value`` left until its top bit is set.

    Returns
    -------
    shifted
        As wide as ``value``; 0 if ``value`` is 0.
    count
        Places shifted; meaningless if ``value`` is 0.
    """
    width = len(value)
    steps = []
    shifted = value
    for k in reversed(range(max(width - 1, 1).bit_length())):
        distance = 1 << k
        if distance >= width:
            steps.append(0)
            continue
        step = Signal(name=f"{name}_by_{distance}")
        after = Signal(unsigned(width), name=f"{name}_after_{distance}")
        m.d.comb += step.eq(shifted[width - distance :] == 0)
        m.d.comb += after.eq(Mux(step, shifted << distance, shifted))
        steps.append(step)
        shifted = after
    return shifted, Cat(*reversed(steps))


def shift_right_sticky(m: Module, value: Value, amount: Value, *, name: str) -> Value:
    """Shift ``value`` right; bit 0 of the result also says whether a 1 was shifted out. Any amount is allowed."""
    width = len(value)
    shifted = value
    for k in range(len(amount)):
        distance = 1 << k
        lost = shifted[: min(distance, width)].any()
        rest = shifted[distance:] if distance < width else 0
        after = Signal(unsigned(width), name=f"{name}_after_{distance}")
        m.d.comb += after.eq(Mux(amount[k], rest | lost, shifted))
        shifted = after
    return shifted
