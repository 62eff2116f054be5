"""The processing element (PE): one int8 multiply-add with a stationary, double-buffered weight.

Every port is an edge of the cell towards a neighbour (``left``, ``right``, ``up``, ``down``), which is the form that
:mod:`sluice_hw.emit.grid` places in arrays.

Weight loading
--------------
A tile of R rows is streamed into the top of the array, row 0 first, one row per cycle. Nothing is shifted into place:
the stream passes every PE, `L` cycles per array row (as fast as the partial sums), while a capture token (``w_start``,
entering with row 0) needs ``L + 1`` cycles per array row and so falls back by one weight row at each. A PE captures
what passes when the token passes: array row r captures stream row r, in column c at ``T + r(L+1) + c`` for a stream
that begins at T.

``swap`` travels with the first activation row of a pass. An activation row that enters the array at t is at PE (r, c)
in ``t + rL + c``. Captured in time means ``T + r(L+1) + c < t + rL + c`` for all r, that is **t >= T + R**. A next
stream T' must not capture before the swap: ``T' + r(L+1) + c >= t + rL + c``, that is **T' >= t**; in the same cycle is
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
        Capture token; enters with row 0 of a tile.
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
        Its weights: where the capture token meets no valid weight, zero is captured, so a stream shorter than the
        array leaves zeros in the rest.
    down : Out(ColumnSignature(psum_width(rows))), and in it ``valid : Out(1)``
        Weights `latency` cycles, the token ``latency + 1`` cycles later than at ``up``. ``valid`` means that
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
        with m.If(up.w_start):
            m.d.sync += shadow.eq(Mux(up.w_valid, up.w_data, 0))

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
        w_valid, w_data = pipe("w", up.w_valid, up.w_data)
        token = up.w_start
        for stage in range(self.latency + 1):
            next_token = Signal(name=f"token{stage}")
            m.d.sync += next_token.eq(token)
            token = next_token
        m.d.comb += [
            down.valid.eq(psum_valid),
            down.psum.eq(psum),
            down.w_valid.eq(w_valid),
            down.w_data.eq(w_data),
            down.w_start.eq(token),
        ]
        return m
