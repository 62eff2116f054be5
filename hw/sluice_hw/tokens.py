"""Token counters: the order between units.

One counter for every ordered pair (from, to) of units. A unit that needs tokens holds its ``take`` stream with the mask
of units it wants one from and gets all of them in the cycle it sees ``ready``, or none; a unit gives with one-cycle
pulses.
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from . import isa
from .config import ChipConfig
from .interfaces import fault_layout

__all__ = ["TokenCounters", "token_cause"]

_N = len(isa.Unit)


def token_cause(m: Module, unit: isa.Unit, missing: Value) -> Signal:
    """State of a unit that waits for tokens: which unit it lacks one from, the lowest-numbered where it is several."""
    cause = Signal(isa.Cause, init=isa.Cause.IDLE, name="token_cause")
    for other in reversed(isa.Unit):
        if other != unit:
            with m.If(missing[other]):
                m.d.comb += cause.eq(isa.Cause[f"TOKEN_{other.name}"])
    return cause


class TokenCounters(wiring.Component):
    """The counters between all units.

    A take and a give of the same pair in one cycle leave the counter as it is, also at its top. A token given in cycle
    t can be taken from cycle t + 1 on.

    Parameters
    ----------
    token_max : int
        Largest value of a counter, :attr:`ChipConfig.token_max`.

    Members
    -------
    enable : In(1)
        No take succeeds while it is low (the chip has stopped).
    take : array of In(stream), one per :class:`isa.Unit`
        Mask of units from which the unit wants one token each.
    give : array of In(4)
        Mask of units that get a token from this unit in this cycle.
    give_pc : array of In(16)
        Microcode address of the op that gives, for the fault.
    counts : Out(ArrayLayout(ArrayLayout(bits, to), from))
    missing : array of Out(4)
        Of the mask on ``take``, the units whose counter is at zero; 0 without a take.
    fault_valid, fault, fault_unit : Out
        A give beyond ``token_max``: TOKEN_OVERFLOW, ``info`` is the receiving unit, ``fault_unit`` the giver. The
        counter stays at the top.

    Raises
    ------
    TypeError, ValueError
        If ``token_max`` is not an integer from 1 to 255.
    """

    def __init__(self, *, token_max: int) -> None:
        if not isinstance(token_max, int) or isinstance(token_max, bool):
            raise TypeError(f"token_max must be an integer, not {token_max!r}")
        if not 1 <= token_max <= 255:
            raise ValueError(f"token_max must be 1 to 255, not {token_max}")
        self._token_max = token_max
        count = data.ArrayLayout(unsigned(token_max.bit_length()), _N)
        super().__init__({
            "enable": In(1, init=1),
            "take": In(stream.Signature(unsigned(_N))).array(_N),
            "give": In(_N).array(_N),
            "give_pc": In(16).array(_N),
            "counts": Out(data.ArrayLayout(count, _N)),
            "missing": Out(_N).array(_N),
            "fault_valid": Out(1),
            "fault": Out(fault_layout()),
            "fault_unit": Out(2),
        })

    @classmethod
    def for_config(cls, config: ChipConfig) -> TokenCounters:
        return cls(token_max=config.token_max)

    @property
    def token_max(self) -> int:
        return self._token_max

    def elaborate(self, platform) -> Module:
        m = Module()
        for to in range(_N):
            take = self.take[to]
            lacking = [take.payload[frm] & (self.counts[frm][to] == 0) for frm in range(_N)]
            for frm in range(_N):
                m.d.comb += self.missing[to][frm].eq(take.valid & lacking[frm])
            m.d.comb += take.ready.eq(self.enable & ~self.missing[to].any())
        # Written from the last pair to the first, so that the lowest pair's fault stands where several meet.
        for frm in reversed(range(_N)):
            for to in reversed(range(_N)):
                count = self.counts[frm][to]
                take = self.take[to]
                up = self.give[frm][to]
                down = take.valid & take.ready & take.payload[frm]
                with m.If(up & ~down):
                    with m.If(count == self.token_max):
                        m.d.comb += [
                            self.fault_valid.eq(1),
                            self.fault.code.eq(isa.Error.TOKEN_OVERFLOW),
                            self.fault.pc.eq(self.give_pc[frm]),
                            self.fault.info.eq(to),
                            self.fault_unit.eq(frm),
                        ]
                    with m.Else():
                        m.d.sync += count.eq(count + 1)
                with m.Elif(down & ~up):
                    m.d.sync += count.eq(count - 1)
        return m
