"""The processing element (PE): one int8 multiply-add with a stationary, double-buffered weight.

Every port is an edge of the cell towards a neighbour (``left``, ``right``, ``up``, ``down``), which is the form that
:mod:`sluice_hw.emit.grid` places in arrays.

Weight loading
--------------
A tile of R rows is streamed into the top of the array, row 0 first, in any R cycles: there may be bubbles between the
rows. Nothing is shifted into place: the stream travels down `L` cycles per array row, as fast as the partial sums. Each
PE keeps the first weight of a tile that reaches it (``w_start``), passes on the others, and marks the next one as the
first for the PE below. So array row r keeps stream row r: when that entered the array at T_r, in column c at
``T_r + rL + c``.

``swap`` travels with the first activation row of a pass. An activation row that enters the array at t is at PE (r, c)
in ``t + rL + c``. Captured in time means ``T_r + rL + c < t + rL + c`` for all r, that is **t > T_(R-1)**. A next
stream T' must not capture before the swap: ``T'_r + rL + c >= t + rL + c``, that is **T'_0 >= t**; in the same cycle is
allowed, since a swap takes the old contents of the shadow. From both, t' >= t + R: a new tile may enter every
max(M, R) cycles, for every L.
"""

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["ActivationSignature", "ColumnSignature", "PE", "psum_width"]


def psum_width(rows: int) -> int:
    """Bits of an exact sum of `rows` int8 products: 16 + ceil(log2(rows)).

    Raises
    ------
    TypeError, ValueError
        If `rows` is not a positive integer.
    """
    if isinstance(rows, bool) or not isinstance(rows, int):
        raise TypeError(f"Number of rows must be an integer, not {rows!r}")
    if rows < 1:
        raise ValueError(f"Number of rows must be at least 1, not {rows}")
    return 16 + ceil_log2(rows)


class ActivationSignature(wiring.Signature):
    """Activations, which travel to the right.

    Members
    -------
    valid : Out(1)
        An activation is here in this cycle.
    swap : Out(1)
        With `valid`: from this row on the newly loaded weights count.
    data : Out(signed(8))
    """

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "swap": Out(1), "data": Out(signed(8))})


class ColumnSignature(wiring.Signature):
    """Partial sums and the weight stream, which travel down.

    Parameters
    ----------
    width : int
        Bits of a partial sum.

    Members
    -------
    psum : Out(signed(width))
    w_valid : Out(1)
        A weight is here in this cycle.
    w_start : Out(1)
        With ``w_valid``: the first weight of a tile that this PE sees, its own.
    w_data : Out(signed(8))
    """

    def __init__(self, width: int) -> None:
        super().__init__({"psum": Out(signed(width)), "w_valid": Out(1), "w_start": Out(1), "w_data": Out(signed(8))})


class PE(wiring.Component):
    """One multiply-add: ``down.psum`` is ``up.psum + left.data * weight``, `latency` cycles after ``left.valid``.

    Data registers are written only together with the valid bit of what they take, so that a starved array toggles
    none, and they have no reset; valid, swap and start bits have.

    Parameters
    ----------
    rows : int
        Rows of the array that this PE is for; they set the width of the partial sums (:func:`psum_width`).
    latency : int
        Cycles `L` from a partial sum at the top to the one below it, at least 1. Beyond 1 the adder is followed by
        registers, for a synthesiser to retime.

    Members
    -------
    left : In(ActivationSignature())
    right : Out(ActivationSignature())
        ``left``, one cycle later.
    up : In(ColumnSignature(psum_width(rows)))
        The weight with ``w_start`` is kept. A tile must have a weight for every PE of the column: where the stream is
        shorter, the weights below stay those of the tile before.
    down : Out(ColumnSignature(psum_width(rows))), and in it ``valid : Out(1)``
        The other weights, `latency` cycles later; ``w_start`` with the first of them. ``valid`` means that
        ``down.psum`` is new in this cycle; the PE below knows that from its own activation.

    Raises
    ------
    TypeError, ValueError
        If `rows` or `latency` is not a positive integer.
    """

    def __init__(self, *, rows: int, latency: int = 1) -> None:
        width = psum_width(rows)
        if isinstance(latency, bool) or not isinstance(latency, int):
            raise TypeError(f"PE latency must be an integer, not {latency!r}")
        if latency < 1:
            raise ValueError(f"PE latency must be at least 1, not {latency}")
        self._rows, self._latency = rows, latency
        super().__init__({
            "left": In(ActivationSignature()),
            "right": Out(ActivationSignature()),
            "up": In(ColumnSignature(width)),
            "down": Out(wiring.Signature({**ColumnSignature(width).members, "valid": Out(1)})),
        })

    @property
    def rows(self) -> int:
        """Rows of the array this PE is for."""
        return self._rows

    @property
    def latency(self) -> int:
        """Cycles from ``up.psum`` to ``down.psum``."""
        return self._latency

    def elaborate(self, platform) -> Module:
        m = Module()
        left, right, up, down = self.left, self.right, self.up, self.down
        valid = Signal()
        swap = Signal()
        data = Signal(signed(8), reset_less=True)
        m.d.comb += [right.valid.eq(valid), right.swap.eq(swap), right.data.eq(data)]
        m.d.sync += [valid.eq(left.valid), swap.eq(left.swap)]

        shadow = Signal(signed(8), reset_less=True)
        active = Signal(signed(8), reset_less=True)
        weight = Signal(signed(8))
        m.d.comb += weight.eq(Mux(left.swap, shadow, active))
        with m.If(left.valid):
            m.d.sync += data.eq(left.data)
            with m.If(left.swap):
                m.d.sync += active.eq(shadow)
        ours = Signal()
        passes = Signal()
        next_is_first = Signal()
        m.d.comb += [ours.eq(up.w_valid & up.w_start), passes.eq(up.w_valid & ~up.w_start)]
        with m.If(ours):
            m.d.sync += shadow.eq(up.w_data)
        with m.If(up.w_valid):
            m.d.sync += next_is_first.eq(ours)

        # What travels down, stage by stage: a valid bit, and the data it gates.
        def pipe(name, valid, data):
            for stage in range(self.latency):
                next_valid = Signal(name=f"{name}_valid{stage}")
                next_data = Signal(data.shape(), reset_less=True, name=f"{name}{stage}")
                m.d.sync += next_valid.eq(valid)
                with m.If(valid):
                    m.d.sync += next_data.eq(data)
                valid, data = next_valid, next_data
            return valid, data

        total = Signal.like(up.psum)
        m.d.comb += total.eq(up.psum + left.data * weight)
        psum_valid, psum = pipe("psum", left.valid, total)
        w_valid, w_data = pipe("w", passes, up.w_data)
        w_start = passes & next_is_first
        for stage in range(self.latency):
            next_start = Signal(name=f"w_start{stage}")
            m.d.sync += next_start.eq(w_start)
            w_start = next_start
        m.d.comb += [
            down.valid.eq(psum_valid),
            down.psum.eq(psum),
            down.w_valid.eq(w_valid),
            down.w_data.eq(w_data),
            down.w_start.eq(w_start),
        ]
        return m
