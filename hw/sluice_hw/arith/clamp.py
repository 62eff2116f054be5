"""The end of every requantisation: add the output zero point, clamp."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed

from .lane import Lane

__all__ = ["ZeroPointClamp"]


class ZeroPointClamp(Lane):
    """``min(max(value + zero_point, lo), hi)``; the sum never wraps.

    Parameters
    ----------
    value_width
        Bits of the value, more than ``out_width + 1``.
    out_width
        Bits of zero point, bounds and result, >= 2.

    Members
    -------
    value : In(signed(value_width))
    zero_point, lo, hi : In(signed(out_width))
        If ``lo > hi`` the result is ``hi``.
    result : Out(signed(out_width))
    """

    LATENCY = 2

    def __init__(self, *, value_width: int = 32, out_width: int = 8) -> None:
        for name, value in (("value_width", value_width), ("out_width", out_width)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, not {value!r}")
        if out_width < 2:
            raise ValueError(f"out_width must be at least 2, not {out_width}")
        if value_width <= out_width + 1:
            raise ValueError(f"value_width must be more than out_width + 1 = {out_width + 1}, not {value_width}")
        self._value_width = value_width
        self._out_width = out_width
        small = signed(out_width)
        inputs = {"value": signed(value_width), "zero_point": small, "lo": small, "hi": small}
        super().__init__(inputs=inputs, result=small)

    @property
    def value_width(self) -> int:
        """Bits of the value."""
        return self._value_width

    @property
    def out_width(self) -> int:
        """Bits of zero point, bounds and result."""
        return self._out_width

    def elaborate(self, platform) -> Module:
        m = Module()
        valid = self.valid_pipeline(m)

        # Cut to one bit more than the result first, so that the adder and comparators stay short: for int8, 255 - 128
        # still reaches every hi, and -256 + 127 every lo.
        cut_width = self._out_width + 1
        top = 2 ** (cut_width - 1) - 1
        cut = Signal(signed(cut_width))
        with m.If(self.value > top):
            m.d.comb += cut.eq(top)
        with m.Elif(self.value < -top - 1):
            m.d.comb += cut.eq(-top - 1)
        with m.Else():
            m.d.comb += cut.eq(self.value)

        total = Signal(signed(cut_width + 1), reset_less=True)
        lo = Signal(signed(self._out_width), reset_less=True)
        hi = Signal(signed(self._out_width), reset_less=True)
        with m.If(valid[0]):
            m.d.sync += [total.eq(cut + self.zero_point), lo.eq(self.lo), hi.eq(self.hi)]

        raised = Signal.like(total)
        m.d.comb += raised.eq(Mux(total < lo, lo, total))
        result = Signal(signed(self._out_width), reset_less=True)
        with m.If(valid[1]):
            m.d.sync += result.eq(Mux(raised > hi, hi, raised))
        m.d.comb += self.result.eq(result)
        return m
