"""Shifters that keep what rounding needs, as combinational pieces of a module."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned

__all__ = ["normalise_left", "shift_right_sticky"]


def normalise_left(m: Module, value: Value, *, name: str, steps: range | None = None) -> tuple[Value, Value]:
    """Shift ``value`` left until its top bit is set.

    Parameters
    ----------
    steps
        Only by 2**k places for the k in here, the largest first: one part of the shifter.

    Returns
    -------
    shifted
        As wide as ``value``; 0 if ``value`` is 0.
    count
        Places shifted (in units of the smallest step); meaningless if ``value`` is 0.
    """
    width = len(value)
    taken = []
    shifted = value
    steps = range(max(width - 1, 1).bit_length()) if steps is None else steps
    last = steps[0]
    for k in reversed(steps):
        distance = 1 << k
        if distance >= width:
            taken.append(0)
            continue
        step = Signal(name=f"{name}_by_{distance}")
        after = Signal(unsigned(width), name=f"{name}_after_{distance}")
        m.d.comb += step.eq(shifted[width - distance :] == 0)
        moved = Cat(Const(0, distance), shifted[: width - distance])
        if k == last:
            # By masks: of a choice with zeros Yosys would make a reset of a part of the register behind it.
            ones = 2**width - 1
            m.d.comb += after.eq((moved & Mux(step, ones, 0)) | (shifted & Mux(step, 0, ones)))
        else:
            m.d.comb += after.eq(Mux(step, moved, shifted))
        taken.append(step)
        shifted = after
    return shifted, Cat(*reversed(taken))


def shift_right_sticky(m: Module, value: Value, amount: Value, *, name: str) -> Value:
    """Shift ``value`` right; bit 0 of the result also says whether a 1 was shifted out. Any amount is allowed."""
    width = len(value)
    # Ones below `amount`, from as many ones as it can count: shifted down by what is left of them, which is ~amount.
    ones = 2 ** len(amount) - 1
    lost = Signal(width, name=f"{name}_lost")
    m.d.comb += lost.eq(value & (Const(2**ones - 1, ones) >> ~amount))
    shifted = Signal(width, name=f"{name}_shifted")
    m.d.comb += shifted.eq((value >> amount) | lost.any())
    return shifted
