"""Weight loader: streams the tiles of LOAD_WEIGHTS into the second weight registers of the array.

Rows go through a small FIFO: its write side reads VMEM ahead, across tiles, and so hides the latency and an occasional
refused grant; its read side feeds the array and knows nothing but that every tile has R rows. The array takes rows with
bubbles between them, so the two sides need no agreement. Where elements are bf16, a tile may lie transposed in VMEM:
then its rows, as read, turn on a square of registers between the FIFO and the array (:mod:`sluice_hw.turner`).

With T_r the cycle in which row r of a tile enters the array and t the one of the activation row that swaps it in, a
tile may be swapped in when T_(R-1) < t, and the next may enter from T'_0 >= t on (:mod:`sluice_hw.pe`). Weights take
:data:`LOAD_LATENCY` cycles from the FIFO to the array, one less than rows of activations from their issue, so that both
conditions look at registers of the cycle before, and tiles still follow each other every R cycles.
"""

from __future__ import annotations

from amaranth import Module, Mux, Signal, Value, signed
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from . import isa
from .config import ChipConfig
from .feeder import FEED_LATENCY, access_fault_layout
from .interfaces import ADDR_BITS, VMEM_LATENCY, VmemReadSignature
from .lanes import bytes_below, spread
from .turner import TileTurner

__all__ = ["LOAD_LATENCY", "TILES", "WeightLoader", "tile_layout"]

#: Cycles from a row's leaving the FIFO to the cycle in which it enters the array.
LOAD_LATENCY = FEED_LATENCY - 1
#: Rows of the FIFO: the cycles from a request to a row's leaving, and some for refused grants.
ROWS_AHEAD = 16
#: Tiles that may be started and not completely fed; more than one or two only help an array of a few rows.
TILES = 8
SIZE_BITS = 11


def tile_layout(config: ChipConfig) -> data.StructLayout:
    """A LOAD_WEIGHTS for the loader: address of row 0, bytes from row to row, rows and bytes of each that count, and,
    of bf16, whether what lies there is the tile transposed; with both types, whether it is int8."""
    return data.StructLayout({
        "vmem": ADDR_BITS, "pitch": signed(isa.STRIDE_BITS), "k": SIZE_BITS, "n": SIZE_BITS, "pc": 16,
        **({"transpose": 1} if config.is_float else {}), **({"int8": 1} if config.both else {}),
    })


class WeightLoader(wiring.Component):
    """Reads weight tiles and feeds each into the array as soon as the one before has been swapped in.

    Parameters
    ----------
    config : ChipConfig
    emission : str
        Form of the square that turns tiles: 'structural' or 'loop'.

    Members
    -------
    start : In(stream)
        A LOAD_WEIGHTS. At most TILES may be started and not reported by ``fed``; who starts them counts.
    vmem : Out(VmemReadSignature(word_bytes))
    w_valid, w_start, w_data : Out
        To the array: ``rows`` rows a tile, ``w_start`` with row 0.
    swap : In(1)
        The row that swaps in the tile was issued in this cycle: it enters the array FEED_LATENCY cycles later.
    tile_ready : Out(1)
        A tile is in the array completely for a row that is issued in this cycle, and was not swapped in yet.
    tile_macs : Out
        With ``tile_ready``: rows x columns of the tile that count.
    fed : Out(1)
        The last row of a tile has entered the array.
    fault_valid, fault : Out
        A row has bytes outside VMEM. It is not read and counts as zeros.

    Raises
    ------
    TypeError
        If ``config`` is not a ChipConfig.
    """

    def __init__(self, config: ChipConfig, emission: str = "structural") -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self._config = config
        self._turner = TileTurner(
            rows=config.rows, cols=config.cols, tiles=TILES, emission=emission) if config.is_float else None
        super().__init__({
            "start": In(stream.Signature(tile_layout(config))),
            "vmem": Out(VmemReadSignature(config.word_bytes)),
            "w_valid": Out(1),
            "w_start": Out(1),
            "w_data": Out(data.ArrayLayout(signed(8), config.col_bytes)),
            "swap": In(1),
            "tile_ready": Out(1),
            "tile_macs": Out(range(config.rows * config.cols + 1)),
            "fed": Out(1),
            "fault_valid": Out(1),
            "fault": Out(access_fault_layout()),
        })

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        turner = self._turner
        width = len(turner.input.payload.as_value()) if turner else 8 * self._config.col_bytes
        m.submodules.rows = rows = fifo.SyncFIFOBuffered(width=width, depth=ROWS_AHEAD)
        m.submodules.sizes = sizes = fifo.SyncFIFO(width=len(self.tile_macs), depth=TILES)
        self._read(m, rows, sizes)
        if turner is None:
            self._feed(m, sizes, rows.r_rdy, rows.r_en, rows.r_data)
        else:
            m.submodules.turner = turner
            m.d.comb += [
                turner.input.valid.eq(rows.r_rdy), turner.input.payload.eq(rows.r_data),
                rows.r_en.eq(turner.input.ready),
            ]
            self._feed(m, sizes, turner.output.valid, turner.output.ready, turner.output.payload)
        return m

    def _read(self, m: Module, rows, sizes) -> None:
        """VMEM side. A tile's rows beyond k pass through like the others, as reads of no columns; of a transposed tile,
        only the rows that lie in VMEM do."""
        config, turner = self._config, self._turner
        waiting_valid, waiting = Signal(), Signal(tile_layout(config), reset_less=True)
        # Of a transposed tile, k and n are rows and bytes as they are read.
        active, tile = Signal(), Signal(tile_layout(config), reset_less=True)
        row = Signal(range(config.rows if turner is None else max(config.rows, config.cols)), reset_less=True)
        last = row == (config.rows - 1 if turner is None else Mux(tile.transpose, tile.k - 1, config.rows - 1))

        row_bytes = config.col_bytes if turner is None else max(config.row_bytes, config.col_bytes)
        asked_valid = Signal()
        asked = Signal(data.StructLayout({"addr": ADDR_BITS, "n": row_bytes.bit_length()}), reset_less=True)
        asked_real = Signal(reset_less=True)
        request = self.vmem.req
        m.d.comb += [request.valid.eq(asked_valid & asked_real), request.payload.addr.eq(asked.addr)]
        done = Signal()
        m.d.comb += done.eq(asked_valid & (request.ready | ~asked_real))

        # Rows between here and the array side; a request must find room when its data arrive.
        ahead = Signal(range(ROWS_AHEAD + 1))
        walk = Signal()
        m.d.comb += walk.eq(active & (ahead != ROWS_AHEAD) & (~asked_valid | done))
        m.d.sync += ahead.eq(ahead + walk - (rows.r_en & rows.r_rdy))

        real = Signal()
        beyond = Signal()
        m.d.comb += [
            beyond.eq(tile.vmem + tile.n > config.vmem_bytes),
            real.eq((row < tile.k) & ~beyond),
        ]
        m.d.sync += self.fault_valid.eq(0)
        with m.If(walk):
            m.d.sync += [
                asked.addr.eq(tile.vmem),
                asked.n.eq(0),
                asked_real.eq(real),
                tile.vmem.eq(tile.vmem + tile.pitch),
                row.eq(row + 1),
            ]
            with m.If(real):
                m.d.sync += asked.n.eq(tile.n)
            with m.Elif(row < tile.k):
                m.d.sync += [self.fault_valid.eq(1), self.fault.addr.eq(tile.vmem), self.fault.pc.eq(tile.pc)]
        with m.If(walk | done):
            m.d.sync += asked_valid.eq(walk)

        # A tile waits behind the one being read, so that the next row can be asked for in the next cycle.
        begin = Signal()
        m.d.comb += begin.eq(waiting_valid & (~active | (walk & last)))
        m.d.comb += self.start.ready.eq(~waiting_valid | begin)
        with m.If(walk & last):
            m.d.sync += active.eq(0)
        with m.If(begin):
            m.d.sync += [active.eq(1), tile.eq(waiting), row.eq(0), waiting_valid.eq(0)]
            if turner is not None:
                with m.If(waiting.transpose):
                    m.d.sync += [tile.k.eq((waiting.n + 1) >> 1), tile.n.eq(waiting.k << 1)]
        with m.If(self.start.valid & self.start.ready):
            m.d.sync += [waiting_valid.eq(1), waiting.eq(self.start.payload)]
        columns_read = waiting.n[1:] if config.is_float else waiting.n
        if config.both:
            columns_read = Mux(waiting.int8, waiting.n, columns_read)
        m.d.comb += [sizes.w_en.eq(begin), sizes.w_data.eq(waiting.k * columns_read)]

        arrived, n = done, asked.n
        for stage in range(VMEM_LATENCY):
            next_arrived = Signal(name=f"arrived{stage}")
            next_n = Signal.like(asked.n, name=f"arrived_n{stage}", reset_less=True)
            m.d.sync += [next_arrived.eq(arrived), next_n.eq(n)]
            arrived, n = next_arrived, next_n
        columns = Signal(8 * row_bytes)
        m.d.comb += [columns.eq(bytes_below(n, row_bytes)), rows.w_en.eq(arrived)]
        read = Value.cast(self.vmem.rsp_data) & columns
        if turner is None:
            m.d.comb += rows.w_data.eq(read)
        else:
            self._mark(m, rows, walk, tile, read)
            m.d.comb += [
                turner.tile_valid.eq(begin), turner.tile.transpose.eq(waiting.transpose), turner.tile.k.eq(waiting.k)]

    def _mark(self, m: Module, rows, walk: Value, tile, read: Value) -> None:
        """Rows as the turner takes them: with what they are part of, which goes along with the read."""
        entry = data.View(self._turner.input.payload.shape(), rows.w_data)
        fields = {"transpose": tile.transpose, "rows": tile.k, "cols": tile.n >> 1}
        shape = {name: len(entry[name]) for name in fields}
        marks = Signal(data.StructLayout(shape | ({"int8": 1} if self._config.both else {})), reset_less=True)
        with m.If(walk):
            m.d.sync += [marks[name].eq(value) for name, value in fields.items()]
            if self._config.both:
                m.d.sync += marks.int8.eq(tile.int8)
        for stage in range(VMEM_LATENCY):
            later = Signal.like(marks, name=f"arrived_marks{stage}", reset_less=True)
            m.d.sync += later.eq(marks)
            marks = later
        if self._config.both:
            read = Mux(marks.int8, spread(read, self._config.cols), read)
        m.d.comb += [entry.row.eq(read), *(entry[name].eq(marks[name]) for name in fields)]

    def _feed(self, m: Module, sizes, there: Value, take: Value, row_in: Value) -> None:
        """Array side: rows as they come, whole tiles after another."""
        config = self._config
        row = Signal(range(config.rows))
        full = Signal()  # a tile waits in the array for its swap
        feed = Signal()
        completes = Signal()
        macs = Signal.like(self.tile_macs, reset_less=True)
        m.d.comb += [
            feed.eq(there & ~full),
            completes.eq(feed & (row == config.rows - 1)),
            take.eq(feed),
            sizes.r_en.eq(feed & (row == 0)),
            self.tile_ready.eq(full | completes),
            self.tile_macs.eq(macs),
        ]
        with m.If(feed):
            m.d.sync += row.eq(row + 1)
            with m.If(row == 0):
                m.d.sync += macs.eq(sizes.r_data)
        with m.If(completes):
            m.d.sync += [row.eq(0), full.eq(1)]
        with m.If(self.swap):
            m.d.sync += full.eq(0)

        valid, first, entered = feed, feed & (row == 0), completes
        row_data = row_in
        for stage in range(LOAD_LATENCY):
            next_valid, next_first, next_entered = (
                Signal(name=f"{name}{stage}") for name in ("feeding", "first", "entered"))
            next_data = Signal(8 * config.col_bytes, name=f"row{stage}", reset_less=True)
            m.d.sync += [next_valid.eq(valid), next_first.eq(first), next_entered.eq(entered)]
            with m.If(valid):
                m.d.sync += next_data.eq(row_data)
            valid, first, entered, row_data = next_valid, next_first, next_entered, next_data
        m.d.comb += [
            self.w_valid.eq(valid),
            self.w_start.eq(first),
            self.fed.eq(entered),
            Value.cast(self.w_data).eq(row_data),
        ]
