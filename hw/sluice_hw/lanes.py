"""Moving bytes between lanes: rotation and masks of wide vectors.

Rotations are built from stages of powers of two and not from one variable shift: the hardware is the same, but every
bit of a variable shift depends on every other one for the tools that check the netlist, which takes minutes at a width
of 256 bytes.
"""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.utils import ceil_log2

__all__ = ["bytes_below", "lanes_below", "rotate_down", "rotate_up", "spread", "window"]


def lanes_below(count: Value, lanes: int) -> Value:
    """A bit per lane, set for the first ``count`` of ``lanes`` lanes; ``count`` is 0 to ``lanes``."""
    return Const((1 << lanes) - 1, lanes) >> (lanes - count)[: ceil_log2(lanes) + 1]


def bytes_below(count: Value, lanes: int) -> Value:
    """A byte per lane, all ones for the first ``count`` of ``lanes`` lanes; ``count`` is 0 to ``lanes``.

    One wide shift, where a mask of lanes stretched to bytes would have simulators make every bit by itself.
    """
    return lanes_below(count << 3, 8 * lanes)


def spread(value: Value, count: int) -> Value:
    """The first ``count`` bytes, each followed by a zero byte."""
    return Cat(Cat(value.word_select(k, 8), Const(0, 8)) for k in range(count))


def rotate_down(m: Module, name: str, value: Value, step: Value, width: int = 1) -> Signal:
    """``value`` with lane i moved to lane i - ``step``, modulo the number of lanes, a power of two; lanes of ``width``
    bits. ``name`` starts the names of the stages' signals."""
    for k in range(ceil_log2(len(value) // width)):
        cut = width << k
        stage = Signal(len(value), name=f"{name}_{k}")
        m.d.comb += stage.eq(Mux(step[k], Cat(value[cut:], value[:cut]), value))
        value = stage
    return value


def rotate_up(m: Module, name: str, value: Value, step: Value, width: int = 1) -> Signal:
    """As :func:`rotate_down`, with lane i moved to lane i + ``step``."""
    for k in range(ceil_log2(len(value) // width)):
        cut = len(value) - (width << k)
        stage = Signal(len(value), name=f"{name}_{k}")
        m.d.comb += stage.eq(Mux(step[k], Cat(value[cut:], value[:cut]), value))
        value = stage
    return value


def window(m: Module, name: str, low: Value, high: Value, start: Value, width: int = 8) -> Signal:
    """As many lanes as ``low`` has, from lane ``start`` of ``low`` on, followed by those of ``high``."""
    value = Cat(low, high)
    for k in reversed(range(ceil_log2(len(low) // width))):
        keep = len(low) + (width << k) - width
        stage = Signal(keep, name=f"{name}_{k}")
        m.d.comb += stage.eq(Mux(start[k], value[width << k :], value))
        value = stage
    return value
