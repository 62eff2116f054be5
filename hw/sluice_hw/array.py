"""The systolic array: weight-stationary PEs, with the skew of what enters and the deskew of what leaves."""

from amaranth import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .arith.multiply_add import array_type
from .emit.grid import Grid
from .pe import PE

__all__ = ["Delay", "SystolicArray"]


class Delay(wiring.Component):
    """One cycle of delay for a valid bit, a tag that is always passed on, and data that the valid bit gates.

    Parameters
    ----------
    width : int
        Bits of the data.

    Members
    -------
    left, right : In and Out of (valid : 1, tag : 1, data : width)
    """

    def __init__(self, *, width: int) -> None:
        signature = wiring.Signature({"valid": Out(1), "tag": Out(1), "data": Out(width)})
        super().__init__({"left": In(signature), "right": Out(signature)})

    def elaborate(self, platform) -> Module:
        m = Module()
        valid = Signal()
        tag = Signal()
        payload = Signal(self.left.data.shape(), reset_less=True)
        m.d.sync += [valid.eq(self.left.valid), tag.eq(self.left.tag)]
        with m.If(self.left.valid):
            m.d.sync += payload.eq(self.left.data)
        m.d.comb += [self.right.valid.eq(valid), self.right.tag.eq(tag), self.right.data.eq(payload)]
        return m


class SystolicArray(wiring.Component):
    """`rows` x `cols` PEs. Rows of activations enter whole and rows of sums leave whole.

    For an activation row ``a`` and the weight tile ``w`` of its pass, ``p_data[c] == sum(a[r] * w[r][c])``,
    :attr:`latency` cycles later: exactly for int8, in the order of the rows for bf16. Nothing stalls: a cycle without
    ``a_valid`` is a bubble that comes out as a cycle without ``p_valid``.

    A tile is streamed as `rows` rows, row 0 first and with ``w_start``, with any bubbles between them. The first
    activation row of the pass (``a_swap``) may come in the cycle after the tile's last row or later, and the next
    tile's ``w_start`` in the same cycle as that row or later (:mod:`sluice_hw.pe` derives it): tiles follow each other
    every max(M, rows) cycles.

    Parameters
    ----------
    rows, cols : int
        Size.
    latency : int
        Cycles from a PE's partial sum to the next, see :class:`~sluice_hw.pe.PE`.
    dtype : str
        Type of the operands, see :mod:`sluice_hw.arith.multiply_add`.
    emission : str
        ``"structural"`` or ``"loop"``, see :mod:`sluice_hw.emit.grid`; they behave the same, cycle by cycle.

    Members
    -------
    a_valid : In(1)
    a_swap : In(1)
        With ``a_valid``: from this row on the tile loaded last counts.
    a_bf16 : In(1)
        With dtype ``int8+bf16`` only: this row and the weights are bf16; otherwise int8, in the low bits.
    a_data : In(ArrayLayout(weight, rows))
        Activations have the shape of weights: ``signed(8)``, or 16 bits where bf16 is among the types.
    w_valid : In(1)
    w_start : In(1)
    w_data : In(ArrayLayout(weight, cols))
        Row r of a tile: the weights of array row r.
    p_valid : Out(1)
    p_data : Out(ArrayLayout(psum, cols))
        ``signed(psum_width)``; 32 bits where bf16 is among the types, fp32 or a sign-extended integer.

    Raises
    ------
    TypeError, ValueError
        If a size or the latency is not a positive integer, or `dtype` or `emission` is unknown.
    """

    def __init__(self, *, rows: int, cols: int, latency: int = 1, dtype: str = "int8",
                 emission: str = "structural") -> None:
        pe = PE(rows=rows, latency=latency, dtype=dtype)
        kind = array_type(dtype)
        self._rows, self._cols, self._pe_latency, self._emission = rows, cols, latency, emission
        self._kind, self._product_latency = kind, pe.product_latency
        # Unique among all arrays that a design may hold.
        self._name = (f"sluice_array_{rows}x{cols}" + (f"_{dtype.replace('+', '_')}" if dtype != "int8" else "")
                      + (f"_l{latency}" if latency > 1 else "") + ("_loop" if emission == "loop" else ""))
        self._pes = Grid(cell=pe, name=f"{self._name}_pes", rows=rows, cols=cols, emission=emission)
        psum = kind.psum(rows)
        self._skew_a = self._triangle("skew_a", kind.activation.width, [row * latency for row in range(rows)])
        self._skew_w = self._triangle("skew_w", kind.weight.width, list(range(cols)))
        self._deskew = self._triangle("deskew", psum.width, list(reversed(range(cols))))
        super().__init__({
            "a_valid": In(1),
            "a_swap": In(1),
            **({"a_bf16": In(1)} if kind.both else {}),
            "a_data": In(data.ArrayLayout(kind.weight, rows)),
            "w_valid": In(1),
            "w_start": In(1),
            "w_data": In(data.ArrayLayout(kind.weight, cols)),
            "p_valid": Out(1),
            "p_data": Out(data.ArrayLayout(psum, cols)),
        })

    def _triangle(self, name: str, width: int, lengths: list[int]) -> Grid:
        """Delays of different lengths, one row each."""
        return Grid(cell=Delay(width=width), name=f"{self._name}_{name}", rows=len(lengths), cols=max(1, *lengths),
                    row_lengths=lengths, emission=self._emission)

    @property
    def rows(self) -> int:
        """Rows: the length of a dot product."""
        return self._rows

    @property
    def cols(self) -> int:
        """Columns: the dot products per row of activations."""
        return self._cols

    @property
    def psum_width(self) -> int:
        """Bits of a sum."""
        return self._kind.psum(self._rows).width

    @property
    def emission(self) -> str:
        """``"structural"`` or ``"loop"``."""
        return self._emission

    @property
    def latency(self) -> int:
        """Cycles from ``a_valid`` to the ``p_valid`` of that row: ``rows * L + cols - 1``, and the product's."""
        return self._rows * self._pe_latency + self._product_latency + self._cols - 1

    @property
    def grids(self) -> dict[str, Grid]:
        """The grids that the array consists of, by the name of their submodule."""
        return {"pes": self._pes, "skew_a": self._skew_a, "skew_w": self._skew_w, "deskew": self._deskew}

    @property
    def weight_lead(self) -> int:
        """Cycles from ``w_start`` to the first ``a_swap`` that may use the tile, when it has no bubbles: `rows`."""
        return self._rows

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.pes = pes = self._pes
        m.submodules.skew_a = skew_a = self._skew_a
        m.submodules.skew_w = skew_w = self._skew_w
        m.submodules.deskew = deskew = self._deskew
        a_data = self.a_data
        if self._kind.both:
            a_data = Cat(*(Cat(self.a_data[row], self.a_bf16) for row in range(self.rows)))
        m.d.comb += [
            skew_a.left.valid.eq(self.a_valid.replicate(self.rows)),
            skew_a.left.tag.eq(self.a_swap.replicate(self.rows)),
            skew_a.left.data.eq(a_data),
            pes.left.valid.eq(skew_a.right.valid),
            pes.left.swap.eq(skew_a.right.tag),
            pes.left.data.eq(skew_a.right.data),

            skew_w.left.valid.eq(self.w_valid.replicate(self.cols)),
            skew_w.left.tag.eq(self.w_start.replicate(self.cols)),
            skew_w.left.data.eq(self.w_data),
            pes.up.psum.eq(0),
            pes.up.w_valid.eq(skew_w.right.valid),
            pes.up.w_start.eq(skew_w.right.tag),
            pes.up.w_data.eq(skew_w.right.data),

            deskew.left.valid.eq(pes.down.valid),
            deskew.left.tag.eq(0),
            deskew.left.data.eq(pes.down.psum),
            # All columns of a row leave in the same cycle.
            self.p_valid.eq(deskew.right.valid[0]),
            self.p_data.eq(deskew.right.data),
        ]
        return m
