"""A memory behind the chip whose latency is anything and whose beats have gaps."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from sluice_hw.config import ChipConfig
from sluice_hw.hbm.sram import SliceMemory
from sluice_hw.interfaces import SlicePortSignature
from sluice_hw.isa import Cause

__all__ = ["SlowMemory"]

#: Taps of a shift register of 63 bits with the longest period (x^63 + x^62 + 1).
_BITS, _TAPS = 63, (62, 61)
#: Cycles between changes of how often streams are held up.
_REGIME = 128


class SlowMemory(wiring.Component):
    """A :class:`SliceMemory` behind gates that open at random, one for each of the port's streams.

    A gate that is open stays so until its stream has moved, so that every stream keeps its rules. Every 128 cycles
    another regime begins: gates always open, open in 1 of 2, 1 of 4 or 1 of 16 cycles, or, for up to 128 cycles, none.

    Parameters
    ----------
    config : ChipConfig
    seed : int
        Where the random sequence begins.
    """

    def __init__(self, config: ChipConfig, *, seed: int) -> None:
        self.config, self.seed = config, seed
        super().__init__({"port": In(SlicePortSignature(config)), "state": Out(Cause)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.inner = inner = SliceMemory(self.config)
        port, mine = self.port, inner.port
        # Steps of 16 bits a cycle, so that gates do not see each other's past.
        state = Signal(_BITS, init=1 + self.seed * 0x9E3779B97F4A7C15 % ((1 << _BITS) - 1))
        fresh = [state[_TAPS[0] - step] ^ state[_TAPS[1] - step] for step in reversed(range(16))]
        m.d.sync += state.eq(Cat(*fresh, state[:-16]))
        clock, regime = Signal(range(_REGIME)), Signal(3)
        m.d.sync += clock.eq(clock + 1)
        with m.If(clock == _REGIME - 1):
            m.d.sync += regime.eq(state[40:43])

        waiting = []

        def gate(name: str, giver, taker, number: int) -> None:
            dice = state[4 * number : 4 * number + 4]
            luck, open_ = Signal(name=f"{name}_luck"), Signal(name=f"{name}_open")
            chances = {0: ~dice.any(), 1: ~dice[:2].any(), 2: ~dice[:2].any(), 3: dice[0], 4: dice[0], 5: Const(0, 1)}
            with m.Switch(regime):
                for value, chance in chances.items():
                    with m.Case(value):
                        m.d.comb += luck.eq(chance)
                with m.Default():
                    m.d.comb += luck.eq(1)
            m.d.comb += [
                taker.valid.eq(giver.valid & open_),
                giver.ready.eq(taker.ready & open_),
                Value.cast(taker.payload).eq(Value.cast(giver.payload)),
            ]
            m.d.sync += open_.eq(Mux(giver.valid & taker.ready & open_, luck, open_ | luck))
            waiting.append(giver.valid & ~open_)

        gate("read", port.read, mine.read, 0)
        gate("write", port.write, mine.write, 1)
        gate("write_data", port.write_data, mine.write_data, 2)
        gate("read_data", mine.read_data, port.read_data, 3)
        gate("write_done", mine.write_done, port.write_done, 4)
        m.d.comb += self.state.eq(Mux((inner.state == Cause.IDLE) & Cat(waiting).any(), Cause.HBM, inner.state))
        return m
