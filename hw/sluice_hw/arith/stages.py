"""The registers of a pipelined lane."""

from __future__ import annotations

from amaranth.hdl import Module, ShapeLike, Signal, Value

__all__ = ["Stages"]


class Stages:
    """Registers of one pipeline: a value that is known ``at`` cycles after the input is loaded behind a valid one.

    Attributes
    ----------
    ok
        The valid bit, by the cycles since the input.
    """

    def __init__(self, m: Module, valid: Value, depth: int) -> None:
        self.m = m
        self.ok: list[Value] = [valid]
        for k in range(1, depth):
            ok = Signal(name=f"ok{k}")
            m.d.sync += ok.eq(self.ok[-1])
            self.ok.append(ok)

    def register(
        self, value, at: int, name: str, shape: ShapeLike | None = None, enable: Value | None = None
    ) -> Signal:
        """A value from cycle ``at`` on; ``enable``: kept only where that is set."""
        reg = Signal(Value.cast(value).shape() if shape is None else shape, name=f"{name}_{at}", reset_less=True)
        ok = self.ok[at - 1]
        with self.m.If(ok if enable is None else ok & enable):
            self.m.d.sync += reg.eq(value)
        return reg

    def later(self, value, since: int, until: int, name: str, enable: Value | None = None) -> Value:
        """A value that is known in cycle ``since``, in cycle ``until``."""
        for at in range(since + 1, until + 1):
            value = self.register(value, at, name, enable=enable)
        return value

    def wire(self, value, name: str, shape: ShapeLike | None = None) -> Signal:
        """A value by a name."""
        signal = Signal(Value.cast(value).shape() if shape is None else shape, name=name)
        self.m.d.comb += signal.eq(value)
        return signal
