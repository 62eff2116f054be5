"""Fair turns without knowing who else is on the way: stamps.

A packet gets a stamp when it comes to the head of its lane into the network. A lane that always has something to send
counts its stamp up by one for every flit; whoever has sent less is earlier, and every router lets the earliest go
first. So all sources that meet anywhere get equal shares of the link they meet at, however far away they are, which
round robin at each router does not give (it halves the share at every merge).

A lane that had nothing to send must not come back with a claim on the past: its stamp follows that of the packets
that leave by its link (self-clocked fair queueing, Golestani 1994), and a busy lane is allowed to be behind them by
``SLACK`` at most.

Stamps are compared modulo 2**stamp_bits: a is before b if a - b is negative as a two's complement number.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["EarliestArbiter", "LaneStamp"]

#: How far a busy lane may lag behind its link, in flits.
SLACK = 16


def before(a: Value, b: Value, bits: int) -> Value:
    """Whether stamp ``a`` is before ``b``."""
    return (a - b)[bits - 1]


class LaneStamp(wiring.Component):
    """The stamp of the packet at the head of a lane.

    Members
    -------
    link : In(bits)
        Stamp of the packet that last started on the lane's link.
    sent : In(1)
        A flit leaves the lane.
    idle : In(1)
        The lane is empty and between packets.
    stamp : Out(bits)
    """

    def __init__(self, bits: int) -> None:
        self._bits = bits
        super().__init__({"link": In(bits), "sent": In(1), "idle": In(1), "stamp": Out(bits)})

    def elaborate(self, platform) -> Module:
        m = Module()
        bits, slack = self._bits, min(SLACK, 1 << (self._bits - 2))
        floor = Signal(bits)
        with m.If(self.sent):
            m.d.comb += floor.eq(self.link - slack)
            m.d.sync += self.stamp.eq(Mux(before(self.stamp, floor, bits), floor, self.stamp) + 1)
        with m.Elif(self.idle):
            m.d.comb += floor.eq(self.link + 1)
            with m.If(before(self.stamp, floor, bits)):
                m.d.sync += self.stamp.eq(floor)
        return m


class EarliestArbiter(wiring.Component):
    """Picks the earliest of the candidates; equal stamps: the lowest index.

    Nobody waits for ever: the arbiter watches one candidate at a time that wants something, and when it was passed over
    for ``2 ** patience_bits`` cycles, counted also while it lacks a credit, it goes before any other in the first cycle
    in which it can. Candidates that wait for the same channel must be able to go in the same cycles, so that no other
    takes away what the favoured one waits for.

    Members
    -------
    want : In(n)
        Candidates that have something for this output; each stays until it was granted.
    can : In(n)
        Of these, those that could go in this cycle.
    stamps : In(bits), array of n
    grant : Out(n)
        One of ``can``, or none.
    index : Out
        Its number.
    any : Out(1)
        Whether there is one.
    """

    def __init__(self, n: int, *, bits: int, patience_bits: int) -> None:
        self._n, self._bits, self._patience_bits = n, bits, patience_bits
        # Here, so that proofs can name them.
        self._watch, self._waited = Signal(range(n)), Signal(patience_bits + 1)
        super().__init__({
            "want": In(n), "can": In(n), "stamps": In(bits).array(n),
            "grant": Out(n), "index": Out(range(n)), "any": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        bits = self._bits
        waited, watch, favoured = self._waited, self._watch, Signal()
        watched_want, watched_can = Signal(), Signal()
        m.d.comb += [
            watched_want.eq(self.want.bit_select(watch, 1)), watched_can.eq(self.can.bit_select(watch, 1)),
            favoured.eq(waited[-1] & watched_want), self.any.eq(self.can.any()),
        ]  # fmt: skip
        with m.If(~watched_want | (self.any & (self.index == watch))):
            m.d.sync += [waited.eq(0), watch.eq(Mux(watch == self._n - 1, 0, watch + 1))]
        with m.Elif(~waited[-1]):
            m.d.sync += waited.eq(waited + 1)
        # A tournament: pairs, then pairs of winners.
        entries = [(self.can[i], self.stamps[i], i) for i in range(self._n)]
        level = 0
        while len(entries) > 1:
            winners = []
            for pair in range(0, len(entries), 2):
                if pair + 1 == len(entries):
                    winners.append(entries[pair])
                    continue
                (a_can, a_stamp, a), (b_can, b_stamp, b) = entries[pair : pair + 2]
                second = Signal(name=f"second_{level}_{pair}")
                can = Signal(name=f"can_{level}_{pair}")
                stamp = Signal(bits, name=f"stamp_{level}_{pair}")
                index = Signal(range(self._n), name=f"index_{level}_{pair}")
                m.d.comb += [
                    second.eq(b_can & (~a_can | before(b_stamp, a_stamp, bits))), can.eq(a_can | b_can),
                    stamp.eq(Mux(second, b_stamp, a_stamp)), index.eq(Mux(second, b, a)),
                ]  # fmt: skip
                winners.append((can, stamp, index))
            entries, level = winners, level + 1
        m.d.comb += self.index.eq(Mux(favoured & watched_can, watch, entries[0][2]))
        m.d.comb += self.grant.eq(self.any << self.index)
        return m
