"""The receive pool: one memory of flits, a queue per virtual channel threaded through it.

Any flit can lie in any place. Free places are in a queue of their own; a queue of a channel is a list whose links are
in a second memory. Credits see to it that a place is free for each flit that arrives (:mod:`.credit`).
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .link_config import LinkConfig
from .store import Store
from .turns import in_turn

__all__ = ["FreeList", "Pool"]


class FreeList(wiring.Component):
    """Numbers 0..pool-1, each given out and taken back.

    Members
    -------
    slot : Out
        The next free place, if ``free`` is not 0.
    take : In(1)
    give, give_slot : In
    free : Out
        Free places.
    """

    def __init__(self, config: LinkConfig) -> None:
        self.config = config
        super().__init__({
            "slot": Out(config.slot_bits),
            "take": In(1),
            "give": In(1),
            "give_slot": In(config.slot_bits),
            "free": Out(range(config.pool + 1), init=config.pool),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        size = self.config.pool
        m.submodules.queue = queue = Store(depth=size, width=self.config.slot_bits, bypass=True)
        fresh = Signal(range(size + 1))  # places from here on were never used
        read, write = Signal(range(size)), Signal(range(size))
        read_next = Signal.like(read)
        virgin = fresh != size

        def following(place):
            return Mux(place == size - 1, 0, place + 1)

        m.d.comb += [
            self.slot.eq(Mux(virgin, fresh, queue.rdata)),
            read_next.eq(Mux(self.take & ~virgin, following(read), read)),
            queue.raddr.eq(read_next),
            queue.we.eq(self.give), queue.waddr.eq(write), queue.wdata.eq(self.give_slot),
        ]
        m.d.sync += [read.eq(read_next), self.free.eq(self.free - self.take + self.give)]
        with m.If(self.take & virgin):
            m.d.sync += fresh.eq(fresh + 1)
        with m.If(self.give):
            m.d.sync += write.eq(following(write))
        return m


class Pool(wiring.Component):
    """Stores flits, appends them to their channel's queue when their turn has come, and passes them on.

    Members
    -------
    slot : Out
        The place that a flit stored in this cycle takes.
    store, flit : In
        Store a flit.
    append, append_slot, append_vc : In
        The flit in this place is the next of its channel.
    credit : In(vcs)
        The router can take one more flit of these channels.
    discard : In(1)
        Nobody takes flits: drop what is queued.
    out_valid, out_flit : Out
        A flit for the router.
    freed : Out
        For each channel, how many flits have left (modulo its width).
    queued : Out(1)
        There are flits in the queues.
    stalled : Out(1)
        Flits are queued, and the router has no credit for any.
    overflow : Out(1)
        A flit came and no place was free; or the router gave more credits than it may.
    """

    def __init__(self, config: LinkConfig) -> None:
        self.config = config
        super().__init__({
            "slot": Out(config.slot_bits),
            "store": In(1),
            "flit": In(config.flit_bits),
            "append": In(1),
            "append_slot": In(config.slot_bits),
            "append_vc": In(config.vc_bits),
            "credit": In(config.vcs),
            "discard": In(1),
            "out_valid": Out(1),
            "out_flit": Out(config.flit_bits),
            "freed": Out(config.count_bits).array(config.vcs),
            "queued": Out(1),
            "stalled": Out(1),
            "overflow": Out(1),
        })
        #: Here, so that checks can name it.
        self.places = FreeList(config)

    def elaborate(self, platform) -> Module:
        m = Module()
        c = self.config
        m.submodules.flits = flits = Store(depth=c.pool, width=c.flit_bits)
        m.submodules.links = links = Store(depth=c.pool, width=c.slot_bits)
        m.submodules.places = places = self.places

        # A flit without a place is dropped and reported; its note will point at a place that is not its own.
        full = places.free == 0
        m.d.comb += [
            self.slot.eq(places.slot), places.take.eq(self.store & ~full),
            flits.we.eq(self.store & ~full), flits.waddr.eq(places.slot), flits.wdata.eq(self.flit),
        ]

        # Per channel: the queue, and the credits of the router.
        has = Signal(c.vcs)
        pop = in_turn(m, has, Signal(range(c.vcs), name="turn"))
        counts, heads, excess = [], [], []
        for v in range(c.vcs):
            count = Signal(range(c.pool + 1), name=f"count_{v}")
            head, tail = Signal(c.slot_bits, name=f"head_{v}"), Signal(c.slot_bits, name=f"tail_{v}")
            head_now = Signal(c.slot_bits, name=f"head_now_{v}")
            popped = Signal(name=f"popped_{v}")  # the head is what the memory of links shows now
            credits = Signal(range(c.vc_depth + 1), name=f"credits_{v}")
            push = self.append & (self.append_vc == v)
            excess.append(self.credit[v] & (credits == c.vc_depth) & ~pop[v])

            m.d.comb += [head_now.eq(Mux(popped, links.rdata, head)), has[v].eq((count != 0) & ((credits != 0)
                         | self.discard))]  # fmt: skip
            counts.append(count)
            heads.append(head_now)
            m.d.sync += [
                count.eq(count + push - pop[v]),
                head.eq(head_now), popped.eq(pop[v]),
                credits.eq(credits + self.credit[v] - (pop[v] & (credits != 0))),
            ]
            with m.If(push):
                m.d.sync += tail.eq(self.append_slot)
                with m.If(count == pop[v]):  # nothing stays before it
                    m.d.sync += [head.eq(self.append_slot), popped.eq(0)]
                with m.Else():
                    m.d.comb += [links.we.eq(1), links.waddr.eq(tail), links.wdata.eq(self.append_slot)]
            with m.If(pop[v]):
                m.d.sync += self.freed[v].eq(self.freed[v] + 1)

        place = Signal(c.slot_bits)
        for v in range(c.vcs):
            with m.If(pop[v]):
                m.d.comb += place.eq(heads[v])
        m.d.comb += [
            links.raddr.eq(place), flits.raddr.eq(place),
            places.give.eq(pop.any()), places.give_slot.eq(place),
            self.out_flit.eq(flits.rdata),
            self.queued.eq(Cat(count != 0 for count in counts).any()),
            self.stalled.eq(self.queued & ~pop.any()),
            self.overflow.eq((self.store & full) | Cat(excess).any()),
        ]
        m.d.sync += self.out_valid.eq(pop.any() & ~self.discard)
        return m
