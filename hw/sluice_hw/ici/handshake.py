"""Life of one end of a link: clear, greet, up, dead.

In HELLO an end sends its parameters and a nonce that differs from that of its last life, and repeats the nonce that it
hears from the other. It is UP when it hears its own nonce back, since nothing that was under way before can hold that,
and the channel keeps the order. An end that is UP still answers greetings of one that is not, so that one lost greeting
does not keep the other waiting. A greeting with another nonce says that the other end started anew, and with it all
counts of this end are void: this end dies. DEAD lasts until reset, and is told to the other end in every cycle.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .frame import Parameter, Reason, State, hello_layout, parameters
from .link_config import LinkConfig

__all__ = ["Handshake"]


class Handshake(wiring.Component):
    """Decides the state of the link.

    Members
    -------
    cleared : In(1)
        The receiver is ready.
    hello, greeting : In
        A valid greeting came.
    frame : In(1)
        A valid frame came.
    waiting, progress : In(1)
        Flits wait for an acknowledgement; one came.
    overflow, close : In(1)
        Reasons to die.
    say_hello, say : Out
        Send this greeting in place of a frame.
    state : Out(State)
    ready : Out(1)
        The other end is up, too: flits sent before would be lost on it and sent again.
    reason : Out(Reason)
    mismatch : Out(Parameter)
        The first parameter that differs, with ``theirs`` its value at the other end.
    theirs : Out(16)
    """

    def __init__(self, config: LinkConfig) -> None:
        self.config = config
        super().__init__({
            "cleared": In(1),
            "hello": In(1),
            "greeting": In(hello_layout()),
            "frame": In(1),
            "waiting": In(1),
            "progress": In(1),
            "overflow": In(1),
            "close": In(1),
            "say_hello": Out(1),
            "say": Out(hello_layout()),
            "state": Out(2),
            "ready": Out(1),
            "reason": Out(3),
            "mismatch": Out(3),
            "theirs": Out(16),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        c = self.config
        mine = parameters(c)

        # Neither is reset: a new life must not repeat the nonce of the last one.
        nonce = Signal(8, reset_less=True)
        newborn = Signal(init=1)
        m.d.sync += newborn.eq(0)
        with m.If(newborn):
            m.d.sync += nonce.eq(nonce + 1)

        theirs, met = Signal(8), Signal()  # the nonce of the other end, heard
        quiet = Signal(range(max(c.dead_after, c.hello_after) + 1))
        stalled = Signal(range(c.stall_after + 1))

        # The last assignment holds: the first difference.
        differs = Signal(3)
        value = Signal(16)
        for parameter, own in reversed(mine.items()):
            other = self.greeting[parameter.name.lower()]
            with m.If(other != own):
                m.d.comb += [differs.eq(parameter), value.eq(other)]

        def die(reason: Reason) -> None:
            m.d.sync += [self.state.eq(State.DEAD), self.reason.eq(reason)]

        heard = self.hello | self.frame
        with m.Switch(self.state):
            with m.Case(State.CLEAR):
                m.d.sync += quiet.eq(0)
                with m.If(self.cleared):
                    m.d.sync += self.state.eq(State.HELLO)
            with m.Case(State.HELLO):
                m.d.sync += quiet.eq(quiet + 1)
                with m.If(quiet == c.hello_after):
                    die(Reason.SILENT)
                with m.If(self.hello & ~self.greeting.dead):
                    m.d.sync += [met.eq(1), theirs.eq(self.greeting.nonce)]
                    with m.If(self.greeting.seen & (self.greeting.echo == nonce)):
                        m.d.sync += [self.state.eq(State.UP), quiet.eq(0)]
                with m.If(self.hello & (differs != Parameter.NONE)):
                    die(Reason.MISMATCH)
                    m.d.sync += [self.mismatch.eq(differs), self.theirs.eq(value)]
                with m.If(self.close):
                    die(Reason.CLOSED)
            with m.Case(State.UP):
                m.d.sync += quiet.eq(Mux(heard, 0, quiet + 1))
                with m.If(self.frame | (self.hello & self.greeting.up)):
                    m.d.sync += self.ready.eq(1)
                m.d.sync += stalled.eq(Mux(self.waiting & ~self.progress, stalled + 1, 0))
                with m.If(quiet == c.dead_after):
                    die(Reason.SILENT)
                with m.If(stalled == c.stall_after):
                    die(Reason.NO_PROGRESS)
                with m.If(self.hello & (self.greeting.nonce != theirs)):
                    die(Reason.PEER_RESTART)
                with m.If(self.hello & (self.greeting.nonce == theirs) & self.greeting.dead):
                    die(Reason.PEER_DEAD)
                with m.If(self.close):
                    die(Reason.CLOSED)
                with m.If(self.overflow):
                    die(Reason.OVERFLOW)

        dead = self.state == State.DEAD
        answer = (self.state == State.UP) & self.hello & ~self.greeting.up & ~self.greeting.dead
        m.d.comb += [
            self.say_hello.eq((self.state != State.UP) | answer),
            self.say.nonce.eq(nonce), self.say.echo.eq(theirs), self.say.seen.eq(met),
            self.say.up.eq(self.state == State.UP), self.say.dead.eq(dead),
        ]
        m.d.comb += [self.say[parameter.name.lower()].eq(own) for parameter, own in mine.items()]
        return m
