"""Links: no flit lost, duplicated or out of order whatever the channel does; credits and pool keep their accounts.

By induction, for all time: the account of credits (never more places given than the pool has; a channel that holds less
than its reserve gets the next credit but at most one for each other channel) and the windows of the numbers, both with
a far end that says anything. Up to a bound of cycles from reset, for every pattern of faults and traffic: that flits
leave the receiver once and in order, and that the pool's queues keep theirs. The contents of memories are beyond
induction; bounds and sizes stand at each test. Frames that are damaged are taken for lost here: the checksum is checked
by ``verif/unit/ici/test_link_crc.py``.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Assert, Assume, Cover, Elaboratable, Module, Mux, ResetSignal, Signal
from amaranth.lib import data

from sluice_hw.ici.credit import CreditAccount
from sluice_hw.ici.link_config import LinkConfig
from sluice_hw.ici.pool import Pool
from sluice_hw.ici.reorder import Reorder
from sluice_hw.ici.replay import ReplaySender
from verif.formal.sat import check
from verif.formal.sby import ProofFailed, prove

pytestmark = pytest.mark.formal


def soak(*values) -> object:
    """Parameters for `make soak` only."""
    return pytest.param(*values, marks=pytest.mark.soak)


def config(*, vcs: int, vc_depth: int = 1, window: int = 2, pool: int = 4, reserve: int = 1, map_bits: int = 2,
           data_bits: int = 2) -> LinkConfig:  # fmt: skip
    layout = data.StructLayout({"data": data_bits, "vc": max(1, (vcs - 1).bit_length())})
    return LinkConfig(flit=layout, vcs=vcs, vc_depth=vc_depth, window=window, pool=pool, reserve=reserve,
                      map_bits=map_bits)  # fmt: skip


class AccountCheck(Elaboratable):
    """The account, with a router that only sends what it has credits for, and a far end that says anything."""

    def __init__(self, config: LinkConfig, *, flaw: str = "") -> None:
        self.dut, self.flaw = CreditAccount(config), flaw

    @property
    def ports(self) -> list[Signal]:
        d = self.dut
        return [d.enable, d.room, d.taken, d.taken_vc, d.freed_valid, d.freed_vc, d.freed]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = d = self.dut
        c = d.config
        for v in range(c.vcs):
            m.d.comb += Assume(~(d.taken & (d.taken_vc == v)) | (d.at_router[v] != 0))
            waited = Signal(range(c.vcs + 1), name=f"waited_{v}")
            # It has a place of its own, and the router can take its credit: others get one before it, each once.
            due = (d.held[v] < c.reserve) & (d.at_router[v] < c.vc_depth)
            m.d.sync += waited.eq(Mux(due & ~d.grant[v], waited + (d.grant != 0), 0))
            limit = c.vcs - (1 if self.flaw != "turn" else 2)
            to_go = Signal(range(c.vcs), name=f"to_go_{v}")
            m.d.comb += to_go.eq(Mux(d.turn <= v, v - d.turn, v + c.vcs - d.turn))
            m.d.comb += [
                Assert(d.at_router[v] <= d.held[v]), Assert(d.at_router[v] <= c.vc_depth),
                Assert(d.held[v] <= c.pool),
                Assert(waited + to_go <= limit), Assert(~(due & d.enable & d.room) | (d.grant != 0)),
            ]  # fmt: skip
        m.d.comb += Assume(~d.taken | (d.taken_vc < c.vcs))
        over = [Mux(h > c.reserve, h - c.reserve, 0) for h in d.held]
        m.d.comb += [
            Assert(d.shared_used == sum(over)),
            Assert(d.shared_used <= c.shared - (self.flaw == "shared")),
            Assert(sum(d.held) <= c.pool),
            Assert((d.grant & (d.grant - 1)) == 0),
        ]
        m.d.comb += Cover((sum(d.held) == c.pool) & ~ResetSignal())
        return m


class NumbersCheck(Elaboratable):
    """The sender alone: a far end that says anything never brings its numbers out of their windows."""

    def __init__(self, config: LinkConfig) -> None:
        self.dut = ReplaySender(config)

    @property
    def ports(self) -> list[Signal]:
        d = self.dut
        return [d.put, d.put_flit, d.enable, d.feedback_valid, d.feedback.as_value()]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = d = self.dut
        window = d.config.window
        m.d.comb += [Assume(~d.put | (d.waiting < window)), Assert(d.waiting <= window)]
        n = d.numbers
        unsent = Signal(d.config.seq_bits)
        steps = {name: Signal(d.config.seq_bits, name=f"{name}_step")
                 for name in ("next_number", "heard", "settled", "last")}
        m.d.comb += [step.eq(n[name] - n["oldest"]) for name, step in steps.items()]
        m.d.comb += [
            unsent.eq(n["unsent"] - n["acked"]), Assert(unsent <= d.waiting),
            Assert(steps["next_number"] + n["resend"] <= window), Assert(steps["heard"] <= steps["next_number"]),
            Assert(steps["settled"] <= steps["heard"]),
            Assert((n["first"] == n["last"]) | (steps["last"] <= steps["settled"])),
        ]  # fmt: skip
        return m


class FlowCheck(Elaboratable):
    """Sender and receiver with a channel that passes, loses or repeats each frame as the solver likes, both ways.

    Flits count; a place in the pool stands for the flit in it.
    """

    #: Cycles of a good channel within which something is acknowledged.
    PATIENCE = 14

    def __init__(self, config: LinkConfig, *, flaw: str = "") -> None:
        self.tx, self.rx, self.flaw = ReplaySender(config), Reorder(config), flaw
        self.config = config
        self.put, self.pass_there, self.pass_back = Signal(), Signal(), Signal()
        self.again_there, self.again_back = Signal(), Signal()

    @property
    def ports(self) -> list[Signal]:
        return [self.put, self.pass_there, self.pass_back, self.again_there, self.again_back]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.tx = tx = self.tx
        m.submodules.rx = rx = self.rx
        c = self.config
        bits = c.slot_bits
        count, expect = Signal(bits), Signal(bits)
        room = c.window + (self.flaw == "window")
        m.d.comb += [
            Assume(~ResetSignal()), rx.clear.eq(~rx.cleared),
            tx.enable.eq(rx.cleared), tx.put.eq(self.put & rx.cleared & (tx.waiting < room)),
            tx.put_flit.eq(count),
        ]  # fmt: skip
        m.d.sync += count.eq(count + tx.put)

        # There: one register, which the frame after may overtake never.
        frame = data.StructLayout({"data": 1, "number": c.seq_bits, "seq": c.seq_bits, "flit": c.flit_bits})
        now, there = Signal(frame), Signal(frame)
        m.d.comb += [now.data.eq(tx.data), now.number.eq(tx.number), now.seq.eq(tx.seq), now.flit.eq(tx.flit)]
        with m.If(~self.again_there):
            m.d.sync += there.eq(now)
        arrives = Signal()
        m.d.sync += arrives.eq(self.pass_there & rx.cleared)
        m.d.comb += [
            rx.frame.eq(arrives), rx.data.eq(there.data), rx.number.eq(there.number), rx.seq.eq(there.seq),
            rx.flit.eq(there.flit), rx.slot.eq(rx.flit_out[:bits]),
        ]  # fmt: skip
        # Back.
        said = Signal.like(tx.feedback)
        comes = Signal()
        with m.If(~self.again_back):
            m.d.sync += [said.ack.eq(rx.ack), said.heard.eq(rx.heard), said.map.eq(rx.map)]
        m.d.sync += comes.eq(self.pass_back & rx.cleared)
        m.d.comb += [tx.feedback_valid.eq(comes), tx.feedback.eq(said)]

        with m.If(rx.next_valid):
            m.d.sync += expect.eq(expect + 1)
            m.d.comb += Assert(rx.next_slot == expect)
        m.d.comb += Assert(~tx.nonsense)
        with m.If(tx.again):
            m.d.comb += Assert(self.flaw != "retry")
        # A channel that has become good delivers within a round trip and what is on the way.
        good = self.pass_there & self.pass_back & ~self.again_there & ~self.again_back
        patience = Signal(range(self.PATIENCE + 1))
        m.d.sync += patience.eq(Mux(good & (tx.waiting != 0) & ~tx.progress, patience + 1, 0))
        m.d.comb += Assert(patience < self.PATIENCE)
        return m


class PoolCheck(Elaboratable):
    """The pool with every order of arrivals: places are given once, each channel's flits leave in order."""

    def __init__(self, config: LinkConfig, *, flaw: bool = False) -> None:
        self.dut, self.flaw = Pool(config), flaw
        self.come, self.vc, self.credit = Signal(), Signal(), Signal(config.vcs)

    @property
    def ports(self) -> list[Signal]:
        return [self.come, self.vc, self.credit]

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = d = self.dut
        c = d.config
        layout = c.flit
        inside = Signal(range(c.pool + 2))
        waiting, slot, vc = Signal(), Signal(c.slot_bits), Signal()
        flit = Signal(layout)
        pop = Signal()
        counts = [Signal(2, name=f"count_{v}") for v in range(c.vcs)]
        expects = [Signal(2, name=f"expect_{v}") for v in range(c.vcs)]
        come = Signal()
        m.d.comb += [
            Assume(~ResetSignal()),
            # A place is free for each that comes; a flit that left is told so one cycle later at the earliest.
            come.eq(self.come & (inside < c.pool + self.flaw)),
            flit.vc.eq(self.vc), d.store.eq(come), d.flit.eq(flit.as_value()),
            d.append.eq(waiting), d.append_slot.eq(slot), d.append_vc.eq(vc),
            d.credit.eq(self.credit), pop.eq(d.out_valid),
        ]
        m.d.sync += [waiting.eq(come), slot.eq(d.slot), vc.eq(self.vc), inside.eq(inside + come - pop)]
        came_out = data.View(layout, d.out_flit)
        for v in range(c.vcs):
            with m.If(self.vc == v):
                m.d.comb += flit.data.eq(counts[v])
                m.d.sync += counts[v].eq(counts[v] + come)
            with m.If(pop & (came_out.vc == v)):
                m.d.sync += expects[v].eq(expects[v] + 1)
                m.d.comb += Assert(came_out.data == expects[v])
            credits = Signal(range(c.vc_depth + 1), name=f"router_{v}")
            m.d.comb += Assume(~self.credit[v] | (credits < c.vc_depth))
            m.d.sync += credits.eq(credits + self.credit[v] - (pop & (came_out.vc == v)))
            m.d.comb += Assert(~(pop & (came_out.vc == v)) | (credits != 0))
        m.d.comb += [Assert(~d.overflow), Assert(~(come & (d.places.free == 0)))]
        return m


@pytest.mark.parametrize(("vcs", "depth", "pool", "reserve"), [
    (2, 2, 7, 2), soak(2, 1, 4, 1), soak(4, 1, 6, 1), soak(4, 2, 14, 3),
])  # fmt: skip
def test_credits(vcs, depth, pool, reserve):
    check = AccountCheck(config(vcs=vcs, vc_depth=depth, pool=pool, reserve=reserve, window=16))
    prove(check, name=f"link_credits_{vcs}_{pool}", depth=vcs + 2, ports=check.ports)


def test_a_full_pool_is_reached():
    check = AccountCheck(config(vcs=2, pool=4))
    prove(check, name="link_credits_cover", mode="cover", depth=10, ports=check.ports)


@pytest.mark.parametrize("flaw", ["shared", "turn"])
def test_a_flaw_of_credits_is_found(flaw):
    check = AccountCheck(config(vcs=2, pool=4), flaw=flaw)
    with pytest.raises(ProofFailed):
        prove(check, name=f"link_credits_{flaw}", mode="bmc", depth=8, ports=check.ports)


@pytest.mark.parametrize(("window", "map_bits"), [soak(2, 1), (4, 2), soak(8, 4)])
def test_numbers(window, map_bits):
    check = NumbersCheck(config(vcs=2, window=window, map_bits=map_bits))
    prove(check, name=f"link_numbers_{window}", depth=2, ports=check.ports)


@pytest.mark.parametrize(("window", "map_bits", "bound"), [(2, 1, 17), (4, 2, 14)])
def test_flow(window, map_bits, bound):
    flow = FlowCheck(config(vcs=1, window=window, pool=4 * window, map_bits=map_bits))
    check(flow, name=f"link_flow_{window}_{map_bits}", depth=bound, ports=flow.ports)


@pytest.mark.soak
@pytest.mark.parametrize(("window", "map_bits", "bound"), [(2, 1, 27), (2, 2, 25), (4, 2, 22)])
def test_flow_longer(window, map_bits, bound):
    flow = FlowCheck(config(vcs=1, window=window, pool=4 * window, map_bits=map_bits))
    check(flow, name=f"link_flow_long_{window}_{map_bits}", depth=bound, ports=flow.ports, timeout_s=3600)


@pytest.mark.parametrize(("flaw", "bound"), [("window", 20), ("retry", 16)])
def test_a_flaw_of_flow_is_found(flaw, bound):
    """One flit too many in the window; and a claim that no flit is ever sent again, refuted within the bound."""
    flow = FlowCheck(config(vcs=1, window=2, pool=8, map_bits=1), flaw=flaw)
    with pytest.raises(ProofFailed, match="does not hold"):
        check(flow, name=f"link_flow_{flaw}", depth=bound, ports=flow.ports)


@pytest.mark.parametrize(("pool", "depth", "bound"), [(2, 1, 10)])
def test_pool(pool, depth, bound):
    queues = PoolCheck(config(vcs=2, vc_depth=depth, reserve=depth, pool=pool))
    check(queues, name=f"link_pool_{pool}_{depth}", depth=bound, ports=queues.ports)


@pytest.mark.soak
@pytest.mark.parametrize(("pool", "depth", "bound"), [(2, 1, 16), (3, 1, 15), (4, 2, 14)])
def test_pool_longer(pool, depth, bound):
    queues = PoolCheck(config(vcs=2, vc_depth=depth, reserve=depth, pool=pool))
    check(queues, name=f"link_pool_long_{pool}_{depth}", depth=bound, ports=queues.ports, timeout_s=3600)


def test_a_flaw_of_the_pool_is_found():
    queues = PoolCheck(config(vcs=2, pool=2), flaw=True)
    with pytest.raises(ProofFailed, match="does not hold"):
        check(queues, name="link_pool_flaw", depth=10, ports=queues.ports)
