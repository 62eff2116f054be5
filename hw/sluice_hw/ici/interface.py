"""The seam between a router and a link, and between a router and its node.

**Router and link.** One direction of one link is a :class:`FlitPort`: flits one way, credits the other. Routers, links
and test benches all speak it, so that two routers can be wired to each other directly (that is a link of latency 1) or
through any number of things that keep its rules.

- A flit moves in every cycle in which ``valid`` is high; there is no ready. The sender holds one credit of the flit's
  virtual channel for it, and gives it up.
- ``credit`` has a bit per virtual channel. High in a cycle means one credit: a pulse, not a level.
- A sender starts with no credits; the receiver gives them after its reset, as many per virtual channel as it has
  places. At no time has it more than ``TorusConfig.vc_depth`` outstanding for a channel: that is as far as senders
  count.
- Flits of one virtual channel arrive in the order in which they were sent; packets of one channel do not mix.
- ``dead`` says that the receiver is gone for good: what is sent is lost, credits are void. ``ended`` says that the
  sender is gone for good and that no flit will follow: packets that lack their tail will never get it. Both stay high
  until reset. Between routers wired directly they are constant 0.

**Who owns the receive buffer.** A router has ``vc_depth`` places for each virtual channel of each link, at its input,
where each channel is an input of the crossbar of its own; that covers the one cycle between neighbours on a board. The
receive pool that covers the round trip of a longer link, shared by the channels with a reserve for each, belongs to the
receiving end of the link. It passes flits on to the router as the router gives credits. The sending end of the link
knows what is free in that pool and gives its router credits accordingly, the reserve first (so a reserve is at least
``vc_depth``), then from what is shared, never more than ``vc_depth`` outstanding per channel.

A link that dies keeps ``dead`` up towards the router that sends into it at once, lets its receiving end pass on what
is in the pool, and raises ``ended`` behind the last flit. The router then closes packets that were cut short by a tail
with ``error`` set.

**Router and node.** A node has one lane per link, each with a :class:`amaranth.lib.stream` of flits in either direction
for each message class: see :class:`sluice_hw.ici.router.Router`.
"""

from __future__ import annotations

import enum

from amaranth.lib.wiring import In, Out, Signature

from .config import TorusConfig
from .flit import flit_layout

__all__ = ["FlitPort", "Port"]


class Port(enum.IntEnum):
    """Links of a router, named after the neighbour: x + 1, x - 1, y + 1, y - 1."""

    XP = 0
    XM = 1
    YP = 2
    YM = 3

    @property
    def opposite(self) -> Port:
        """The port by which the neighbour has the same link."""
        return Port(self ^ 1)


class FlitPort(Signature):
    """Sender's view of one direction of a link; rules in the text of this module.

    Members
    -------
    valid : Out(1)
    flit : Out(flit_layout(config))
    ended : Out(1)
    credit : In(config.vcs)
    dead : In(1)
    """

    def __init__(self, config: TorusConfig) -> None:
        self.config = config
        super().__init__({
            "valid": Out(1),
            "flit": Out(flit_layout(config)),
            "ended": Out(1),
            "credit": In(config.vcs),
            "dead": In(1),
        })

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FlitPort) and self.config == other.config
