"""The sending end's account of the far pool: whom to give the next credit.

A place is taken when its credit is given to the router, and free again when the far end says that the flit has left the
pool. Each channel has ``reserve`` places of its own and takes them first; all share the rest. So a channel that holds
fewer than its reserve can always have one more, whatever the others do.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .link_config import LinkConfig
from .turns import in_turn

__all__ = ["CreditAccount"]


class CreditAccount(wiring.Component):
    """One credit per cycle at most, the channels in turn.

    Members
    -------
    enable : In(1)
        Give credits.
    room : In(1)
        The replay window has a place that no credit was given for.
    taken, taken_vc : In
        The router sent a flit: it has one credit less.
    freed_valid, freed_vc, freed : In
        The far end's count of flits of a channel that have left its pool. Counts that cannot be are ignored.
    grant : Out(vcs)
        A bit per channel: one credit.
    outstanding : Out
        Credits that the router holds, all channels together.
    starved : Out(1)
        A channel has no credit, and it is the pool that has no place for it.
    """

    def __init__(self, config: LinkConfig) -> None:
        self.config = config
        super().__init__({
            "enable": In(1),
            "room": In(1),
            "taken": In(1),
            "taken_vc": In(config.vc_bits),
            "freed_valid": In(1),
            "freed_vc": In(config.vc_bits),
            "freed": In(config.count_bits),
            "grant": Out(config.vcs),
            "outstanding": Out(range(config.vcs * config.vc_depth + 1)),
            "starved": Out(1),
        })
        #: For checks. Per channel: places held, credits at the router.
        self.held = [Signal(config.count_bits, name=f"held_{v}") for v in range(config.vcs)]
        self.at_router = [Signal(range(config.vc_depth + 1), name=f"at_router_{v}") for v in range(config.vcs)]
        self.shared_used = Signal(range(config.pool + 1))
        #: The channel that comes first.
        self.turn = Signal(range(config.vcs))

    def elaborate(self, platform) -> Module:
        m = Module()
        c = self.config
        may = Signal(c.vcs)  # window, pool and router have a place
        m.d.comb += self.grant.eq(in_turn(m, may, self.turn))

        starving, over = [], []
        for v in range(c.vcs):
            held, at_router = self.held[v], self.at_router[v]
            known = Signal(c.count_bits, name=f"freed_{v}")
            place = (held < c.reserve) | (self.shared_used < c.shared)
            m.d.comb += may[v].eq(self.enable & self.room & place & (at_router < c.vc_depth))
            starving.append(~place & (at_router == 0))

            news = Signal(c.count_bits, name=f"news_{v}")
            update = Signal(name=f"update_{v}")
            after = Signal(c.count_bits, name=f"after_{v}")
            m.d.comb += [
                news.eq(self.freed - known),
                # Only what the router has sent can have left the pool.
                update.eq(self.freed_valid & (self.freed_vc == v) & (news <= held - at_router)),
                after.eq(held + self.grant[v] - Mux(update, news, 0)),
            ]
            m.d.sync += held.eq(after)
            with m.If(update):
                m.d.sync += known.eq(self.freed)
            m.d.sync += at_router.eq(at_router + self.grant[v] - (self.taken & (self.taken_vc == v)))
            over.append(Mux(after > c.reserve, after - c.reserve, 0))
        m.d.sync += self.shared_used.eq(sum(over))
        m.d.comb += [self.outstanding.eq(sum(self.at_router)), self.starved.eq(Cat(starving).any())]
        return m
