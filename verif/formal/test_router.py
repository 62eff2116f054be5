"""The torus's router: credits are neither made nor lost, flits neither lost, doubled nor overtaken, turns come in time.

Buffer and arbiter are proven by themselves, for all time, by induction. The router, at its smallest (a 2 x 2 torus, XY
only, two places per channel), is checked as a whole to a bound: everything that can happen in the first cycles behind
reset, with any requests by two links that keep the rules of the ports.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Assert, Assume, Cat, Cover, Elaboratable, Module, Mux, ResetSignal, Signal

from sluice_hw.ici.buffer import InputBuffer
from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.fair import EarliestArbiter
from sluice_hw.ici.flit import header_of
from sluice_hw.ici.interface import Port
from sluice_hw.ici.router import Router
from verif.formal.sby import ProofFailed, prove

pytestmark = pytest.mark.formal

SMALL = TorusConfig(rows=2, cols=2, data_bits=16, orders=1, vc_depth=2, stamp_bits=4, patience_bits=1)


class Sender:
    """Assumptions of one port's sender: it has a credit, and its packets are whole. ``level`` credits it has."""

    def __init__(self, m: Module, port, config: TorusConfig, name: str) -> None:
        self.level = [Signal(8, name=f"{name}_level{vc}") for vc in range(config.vcs)]
        for vc, level in enumerate(self.level):
            sends = port.valid & (port.flit.vc == vc)
            inside = Signal(name=f"{name}_inside{vc}")
            m.d.sync += level.eq(level + port.credit[vc] - sends)
            m.d.comb += Assume(~sends | ((level != 0) & (port.flit.head == ~inside)))
            with m.If(sends):
                m.d.sync += inside.eq(~port.flit.tail)


class BufferCheck(Elaboratable):
    def __init__(self, depth: int, *, flaw: bool = False) -> None:
        self.config = TorusConfig(rows=2, cols=2, data_bits=16, orders=1, vc_depth=depth, stamp_bits=4)
        self.dut = InputBuffer(self.config)
        self.flaw = flaw

    @property
    def ports(self):
        port = self.dut.port
        return [port.valid, port.flit.as_value(), port.ended, self.dut.pop]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        sender = Sender(m, dut.port, self.config, "sender")
        m.d.comb += Assume((dut.pop & ~dut.valid) == 0)
        for vc, level in enumerate(sender.level):
            inside = Signal(len(dut._firsts[vc]), name=f"inside{vc}")
            m.d.comb += [
                inside.eq(dut._lasts[vc] - dut._firsts[vc]),
                Assert(level + inside + self.flaw == dut._granted),
                Assert(dut._granted <= self.config.vc_depth),
                Assert(~dut.valid[vc] | (inside != 0)),
                Assert(dut.valid[vc] | (inside == 0) | (dut._granted != self.config.vc_depth)),
            ]
        m.d.comb += Cover((sender.level[1] == 0) & (dut._granted == self.config.vc_depth) & ~ResetSignal())
        return m


class BufferOrderCheck(Elaboratable):
    """One flit's way through channel 1."""

    def __init__(self) -> None:
        self.config = TorusConfig(rows=2, cols=2, data_bits=16, orders=1, vc_depth=2, stamp_bits=4)
        self.dut = InputBuffer(self.config)
        self.follow = Signal()

    @property
    def ports(self):
        port = self.dut.port
        return [self.follow, port.valid, port.flit.as_value(), port.ended, self.dut.pop]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        Sender(m, dut.port, self.config, "sender")
        m.d.comb += Assume((dut.pop & ~dut.valid) == 0)
        flit, out = dut.port.flit, dut.flits[1]
        push, pop = dut.port.valid & (flit.vc == 1), dut.pop[1]
        m.d.comb += Assume(flit.vc == 1)
        whole = Cat(flit.data, flit.head, flit.tail, flit.error)
        followed, done, kept = Signal(), Signal(), Signal(len(whole))
        ahead, inside = Signal(4), Signal(4)
        m.d.sync += inside.eq(inside + push - pop)
        with m.If(push & self.follow & ~followed & ~done):
            m.d.sync += [followed.eq(1), kept.eq(whole), ahead.eq(inside - pop)]
        with m.Elif(followed & pop):
            m.d.sync += ahead.eq(ahead - 1)
            with m.If(ahead == 0):
                m.d.sync += [followed.eq(0), done.eq(1)]
                m.d.comb += Assert(Cat(out.data, out.head, out.tail, out.error) == kept)
        m.d.comb += Assert(~followed | (ahead < inside))
        return m


class ArbiterCheck(Elaboratable):
    """Grants are one of those that can; a candidate that can always go waits for ``n`` turns at most."""

    N, BITS, PATIENCE = 4, 3, 1

    def __init__(self, *, flaw: bool = False) -> None:
        self.dut = EarliestArbiter(self.N, bits=self.BITS, patience_bits=self.PATIENCE)
        self.which = Signal(range(self.N))
        self.flaw = flaw

    @property
    def ports(self):
        return [self.which, self.dut.want, self.dut.can, *self.dut.stamps]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        n, turn = self.N, (1 << self.PATIENCE) + 1
        kept, known, waited = Signal.like(self.which), Signal(), Signal(8)
        m.d.sync += [known.eq(1), kept.eq(self.which)]
        m.d.comb += Assume(~known | (kept == self.which))
        want = dut.want.bit_select(kept, 1)[0]
        granted = dut.grant.bit_select(kept, 1)[0]
        m.d.comb += [
            Assume(dut.want == dut.can),
            Assume((waited == 0) | want),  # it stays
            Assert((dut.grant & ~dut.can) == 0),
            Assert((dut.grant & (dut.grant - 1)) == 0),
            Assert(dut.any == dut.can.any()), Assert(dut.any == dut.grant.any()),
        ]  # fmt: skip
        m.d.sync += waited.eq(Mux(want & ~granted, waited + 1, 0))
        turns = Signal(8)
        watch = dut._watch
        m.d.comb += turns.eq(Mux(kept >= watch, kept - watch, kept + n - watch))
        m.d.comb += [
            Assert(~known | (waited + turns * turn + (turn - 1 - dut._waited) <= n * turn - self.flaw * turn)),
            Assert(dut._waited <= turn - 1), Assert(watch < n),
            Assert(waited <= n * turn),
        ]  # fmt: skip
        m.d.comb += Cover(waited == 5)
        return m


class RouterCheck(Elaboratable):
    """The small router with free ports; two marked flits of one packet, or of two in a row, come by link XM.

    Marks are the top bits of the data; nothing else carries them.
    """

    def __init__(self, *, flaw: str = "") -> None:
        self.dut = Router(SMALL)
        self.flaw = flaw
        self.first, self.second = Signal(), Signal()

    @property
    def ports(self):
        d = self.dut
        ports = [self.first, self.second]
        for p in Port:
            ports += [d.link_in[p].valid, d.link_in[p].flit.as_value(), d.link_out[p].credit]
            for message in (0, 1):
                lane = d.inject[p][message]
                ports += [lane.valid, lane.payload.as_value(), d.eject[p][message].ready]
        return ports

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        config = SMALL
        # Node (0, 0) of the 2 x 2 torus.
        m.d.comb += [dut.x.eq(0), dut.y.eq(0), dut.last_x.eq(1), dut.last_y.eq(1)]
        vc = 1
        marks = [Signal(2, name=f"marks{k}") for k in range(12)]
        ins, outs = [], []
        for p in Port:
            link = dut.link_in[p]
            sender = Sender(m, link, config, f"in{p}")
            for level in sender.level:
                m.d.comb += Assert(level <= config.vc_depth)
            ins.append((link.valid, link.flit))
            out = dut.link_out[p]
            for v in range(config.vcs):
                # Credits that the neighbour has given and not got back: never below zero, by its own account.
                held, away = Signal(4, name=f"held{p}_{v}"), Signal(4, name=f"away{p}_{v}")
                sends = out.valid & (out.flit.vc == v)
                m.d.sync += held.eq(held + out.credit[v] - sends)
                m.d.comb += [away.eq(held + out.credit[v]), Assume(away <= config.vc_depth),
                             Assert(~sends | (held > (1 if self.flaw == "credit" else 0)))]  # fmt: skip
            outs.append((out.valid, out.flit))
            for message in (0, 1):
                lane, eject = dut.inject[p][message], dut.eject[p][message]
                inside, waits = Signal(name=f"lane{p}_{message}_inside"), Signal(name=f"lane{p}_{message}_waits")
                before = Signal.like(lane.payload, name=f"lane{p}_{message}_before")
                m.d.comb += Assume(~lane.valid | ((lane.payload.head == ~inside) & (lane.payload.vc[1] == message)))
                m.d.comb += Assume(~waits | (lane.valid & (lane.payload.as_value() == before.as_value())))
                m.d.sync += [waits.eq(lane.valid & ~lane.ready), before.eq(lane.payload)]
                with m.If(lane.valid & lane.ready):
                    m.d.sync += inside.eq(~lane.payload.tail)
                ins.append((lane.valid, lane.payload))
                outs.append((eject.valid & eject.ready, eject.payload))
        # The marked flits enter by XM on one channel, the second behind the first.
        link = dut.link_in[Port.XM]
        came = Signal(2)
        enters = [link.valid & (link.flit.vc == vc) & self.first & ~came[0],
                  link.valid & (link.flit.vc == vc) & self.second & came[0] & ~came[1]]  # fmt: skip
        # To keep the solver's work small: traffic comes by two links, requests only.
        active = {3 * Port.XM, 3 * Port.YP}
        for k, (valid, flit) in enumerate(ins):
            m.d.comb += Assume(~valid | (flit.vc < 2) if k in active else ~valid)
            wanted = Cat(enters) if k == 3 * Port.XM else 0
            m.d.comb += [marks[k].eq(flit.data[-2:]), Assume(~valid | (marks[k] == wanted))]
        m.d.sync += came.eq(came | Cat(enters))
        left = Signal(2)
        seen = [Signal(2, name=f"seen{k}") for k in range(len(outs))]
        for k, (valid, flit) in enumerate(outs):
            m.d.comb += seen[k].eq(Mux(valid, flit.data[-2:], 0))
        where = [Cat(s[bit] for s in seen) for bit in (0, 1)]
        for bit in (0, 1):
            m.d.sync += left[bit].eq(left[bit] | where[bit].any())
            m.d.comb += [
                # Not twice: neither again nor in two places; not before it came.
                Assert(~where[bit].any() | (came[bit] & ~left[bit])),
                Assert((where[bit] & (where[bit] - 1)) == 0),
            ]
        # In order: of one flow, whose headers differ in their stamps alone.
        m.d.comb += Assert(~where[1].any() | (~left[0] if self.flaw == "order" else left[0]))
        header = header_of(config, link.flit)
        flow = link.flit.data[: config.header_bits - config.stamp_bits]
        kept_x, kept_y, kept = Signal(), Signal(), Signal(len(flow))
        m.d.comb += Assume(~enters[1] | ~link.flit.head | (flow == kept))
        with m.If(enters[0]):
            m.d.sync += [kept_x.eq(header.dst_x), kept_y.eq(header.dst_y), kept.eq(flow)]
            m.d.comb += Assume(link.flit.head)
        # Where the header says.
        right = [where[0][3 * Port.XP], where[0][3 * Port.YP] | where[0][3 * Port.YM],
                 where[0][3 * Port.XM + 1] | where[0][3 * Port.XM + 2]]  # fmt: skip
        m.d.comb += Assert(~where[0].any() | Mux(kept_x, right[0], Mux(kept_y, right[1], right[2])))
        m.d.comb += Cover(left[0] & where[1].any())
        return m


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_credits_are_conserved(depth):
    check = BufferCheck(depth)
    prove(check, name=f"router_credits_{depth}", depth=2, ports=check.ports)


def test_a_credit_too_many_is_found():
    check = BufferCheck(2, flaw=True)
    with pytest.raises(ProofFailed):
        prove(check, name="router_credits_flaw", mode="bmc", depth=3, ports=check.ports)


def test_channels_keep_order():
    check = BufferOrderCheck()
    prove(check, name="router_buffer_order", mode="bmc", depth=5, ports=check.ports)


def test_grants_are_bounded():
    check = ArbiterCheck()
    prove(check, name="router_arbiter", depth=2, ports=check.ports)


def test_a_shorter_bound_does_not_hold():
    check = ArbiterCheck(flaw=True)
    with pytest.raises(ProofFailed):
        prove(check, name="router_arbiter_flaw", mode="bmc", depth=12, ports=check.ports)


def test_no_flit_is_lost_doubled_or_overtaken():
    check = RouterCheck()
    prove(check, name="router_flits", mode="bmc", depth=4, ports=check.ports)


@pytest.mark.soak
def test_flits_do_leave():
    check = RouterCheck()
    prove(check, name="router_flits_cover", mode="cover", depth=4, ports=check.ports)


@pytest.mark.soak
@pytest.mark.parametrize("flaw", ["order", "credit"])
def test_a_flaw_in_the_router_is_found(flaw):
    check = RouterCheck(flaw=flaw)
    with pytest.raises(ProofFailed):
        prove(check, name=f"router_flits_{flaw}", mode="bmc", depth=4, ports=check.ports)
