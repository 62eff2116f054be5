"""Round robin: of those that want something, one at a time."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Signal

__all__ = ["in_turn"]


def in_turn(m: Module, want: Signal, turn: Signal) -> Signal:
    """One bit, that of the first of `want` from place `turn` on, going round; none where nobody wants anything.

    `turn`, a register of domain ``sync``, moves behind the one chosen.
    """
    n = len(want)
    orders = []
    for first in range(n):
        pick = Signal(n, name=f"pick_{first}")
        # The last assignment holds: the first of the order.
        for v in [(first + k) % n for k in reversed(range(n))]:
            with m.If(want[v]):
                m.d.comb += pick.eq(1 << v)
        orders.append(pick)
    chosen = Signal(n)
    m.d.comb += chosen.eq(Array(orders)[turn])
    for v in range(n):
        with m.If(chosen[v]):
            m.d.sync += turn.eq((v + 1) % n)
    return chosen
