"""The processing element (PE): one multiply-add with a stationary, double-buffered weight.

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

from amaranth import Module, Mux, Shape, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .arith.multiply_add import array_type, float_stages, psum_width, valid_stages

__all__ = ["ActivationSignature", "ColumnSignature", "PE", "psum_width"]


class ActivationSignature(wiring.Signature):
    """Activations, which travel to the right.

    Parameters
    ----------
    shape : Shape
        Of an activation.

    Members
    -------
    valid : Out(1)
        An activation is here in this cycle.
    swap : Out(1)
        With `valid`: from this row on the newly loaded weights count.
    data : Out(shape)
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__({"valid": Out(1), "swap": Out(1), "data": Out(shape)})


class ColumnSignature(wiring.Signature):
    """Partial sums and the weight stream, which travel down.

    Parameters
    ----------
    psum, weight : Shape
        Of a partial sum and of a weight.

    Members
    -------
    psum : Out(psum)
    w_valid : Out(1)
        A weight is here in this cycle.
    w_start : Out(1)
        With ``w_valid``: the first weight of a tile that this PE sees, its own.
    w_data : Out(weight)
    """

    def __init__(self, psum: Shape, weight: Shape) -> None:
        super().__init__({"psum": Out(psum), "w_valid": Out(1), "w_start": Out(1), "w_data": Out(weight)})


class PE(wiring.Component):
    """One multiply-add: ``down.psum`` is ``up.psum + left.data * weight``, `latency` cycles after ``up.psum``.

    ``up.psum`` comes :attr:`product_latency` cycles after ``left.data``, in every row: that shifts all sums alike and
    nothing else.

    Data registers are written only together with the valid bit of what they take, so that a starved array toggles
    none, and they have no reset; valid, swap and start bits have.

    Parameters
    ----------
    rows : int
        Rows of the array that this PE is for; they set the width of the partial sums (:func:`psum_width`).
    latency : int
        Cycles `L` from a partial sum at the top to the one below it, at least 1. Beyond 1 the int8 adder is followed by
        registers, for a synthesiser to retime; the fp32 adder is cut into stages, at most 6.
    dtype : str
        Type of the operands, see :mod:`sluice_hw.arith.multiply_add`.

    Members
    -------
    left : In(ActivationSignature(activation))
    right : Out(ActivationSignature(activation))
        ``left``, one cycle later.
    up : In(ColumnSignature(psum, weight))
        The weight with ``w_start`` is kept. A tile must have a weight for every PE of the column: where the stream is
        shorter, the weights below stay those of the tile before.
    down : Out(ColumnSignature(psum, weight)), and in it ``valid : Out(1)``
        The other weights, `latency` cycles later; ``w_start`` with the first of them. ``valid`` means that
        ``down.psum`` is new in this cycle; the PE below knows that from its own activation.

    Raises
    ------
    TypeError, ValueError
        If `rows` or `latency` is not a positive integer, the latency is too large, or `dtype` unknown.
    """

    def __init__(self, *, rows: int, latency: int = 1, dtype: str = "int8") -> None:
        kind = array_type(dtype)
        psum = kind.psum(rows)
        if isinstance(latency, bool) or not isinstance(latency, int):
            raise TypeError(f"PE latency must be an integer, not {latency!r}")
        if latency < 1:
            raise ValueError(f"PE latency must be at least 1, not {latency}")
        if kind.max_latency is not None and latency > kind.max_latency:
            raise ValueError(f"PE latency must be at most {kind.max_latency} for {dtype}, not {latency}")
        self._rows, self._latency, self._kind = rows, latency, kind
        column = ColumnSignature(psum, kind.weight)
        super().__init__({
            "left": In(ActivationSignature(kind.activation)),
            "right": Out(ActivationSignature(kind.activation)),
            "up": In(column),
            "down": Out(wiring.Signature({**column.members, "valid": Out(1)})),
        })

    @property
    def rows(self) -> int:
        """Rows of the array this PE is for."""
        return self._rows

    @property
    def latency(self) -> int:
        """Cycles from ``up.psum`` to ``down.psum``."""
        return self._latency

    @property
    def product_latency(self) -> int:
        """Cycles from ``left.data`` to the ``up.psum`` that its product is added to."""
        return self._kind.product_latency

    def elaborate(self, platform) -> Module:
        m = Module()
        left, right, up, down = self.left, self.right, self.up, self.down
        valid = Signal()
        swap = Signal()
        data = Signal(self._kind.activation, reset_less=True)
        m.d.comb += [right.valid.eq(valid), right.swap.eq(swap), right.data.eq(data)]
        m.d.sync += [valid.eq(left.valid), swap.eq(left.swap)]

        shadow = Signal(self._kind.weight, reset_less=True)
        active = Signal(self._kind.weight, reset_less=True)
        weight = Signal(self._kind.weight)
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

        if self._kind.is_float:
            psum_valid, psum = float_stages(
                m, self._kind, rows=self.rows, latency=self.latency, valid=left.valid, activation=left.data,
                weight=weight, psum=up.psum)
        else:
            total = Signal.like(up.psum)
            m.d.comb += total.eq(up.psum + left.data * weight)
            psum_valid, psum = pipe("psum", left.valid, total)
        w_valid, w_data = pipe("w", passes, up.w_data)
        w_start = valid_stages(m, "w_start", passes & next_is_first, self.latency)[-1]
        m.d.comb += [
            down.valid.eq(psum_valid),
            down.psum.eq(psum),
            down.w_valid.eq(w_valid),
            down.w_data.eq(w_data),
            down.w_start.eq(w_start),
        ]
        return m
