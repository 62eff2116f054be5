"""Token counters: no token is lost or made, none beyond the top goes unreported. By induction, for all time."""

from __future__ import annotations

import pytest
from amaranth.hdl import Assert, Cat, Cover, Elaboratable, Module, ResetSignal, Signal

from sluice_hw.isa import Unit
from sluice_hw.tokens import TokenCounters
from verif.formal.sby import ProofFailed, prove

pytestmark = pytest.mark.formal

N = len(Unit)


class TokenCheck(Elaboratable):
    """The counters beside the number of tokens given and taken, of every pair, modulo 256."""

    def __init__(self, top: int, *, flaw: str = "") -> None:
        self.dut = TokenCounters(token_max=top)
        self.flaw = flaw

    @property
    def ports(self) -> list[Signal]:
        d = self.dut
        return [d.enable, *d.give, *d.give_pc, *(p for t in d.take for p in (t.valid, t.payload))]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        overflow = Signal()
        for frm in range(N):
            for to in range(N):
                take = dut.take[to]
                count = dut.counts[frm][to]
                given, taken = Signal(8, name=f"given_{frm}_{to}"), Signal(8, name=f"taken_{frm}_{to}")
                up = dut.give[frm][to]
                down = take.valid & take.ready & take.payload[frm]
                beyond = up & ~down & (count == dut.token_max)
                with m.If(beyond):
                    m.d.comb += overflow.eq(1)
                    if self.flaw == "unreported":
                        m.d.comb += Assert(~dut.fault_valid | (dut.fault.info != to))
                with m.If(up & (~beyond if self.flaw != "lost" else 1)):
                    m.d.sync += given.eq(given + 1)
                with m.If(down):
                    m.d.sync += taken.eq(taken + 1)
                m.d.comb += [
                    Assert(((given - taken) & 0xFF) == count),
                    Assert(count <= dut.token_max),
                    # All or nothing: whoever is served finds a token of everyone asked.
                    Assert(~down | (count != 0)),
                    Assert(~down | dut.enable),
                ]
        for to in range(N):
            take = dut.take[to]
            absent = Cat(take.payload[f] & (dut.counts[f][to] == 0) for f in range(N)).any()
            m.d.comb += Assert(take.ready | ~(take.valid & dut.enable & ~absent))
        m.d.comb += Assert(dut.fault_valid == overflow)
        m.d.comb += Cover(dut.fault_valid & ~ResetSignal())
        return m


@pytest.mark.parametrize("top", [1, 5, 255])
def test_tokens(top):
    check = TokenCheck(top)
    prove(check, name=f"tokens_{top}", depth=2, ports=check.ports)


def test_overflow_is_reached():
    check = TokenCheck(2)
    prove(check, name="tokens_cover", mode="cover", depth=8, ports=check.ports)


@pytest.mark.parametrize("flaw", ["lost", "unreported"])
def test_a_flaw_is_found(flaw):
    check = TokenCheck(1, flaw=flaw)
    with pytest.raises(ProofFailed):
        prove(check, name=f"tokens_{flaw}", mode="bmc", depth=6, ports=check.ports)
