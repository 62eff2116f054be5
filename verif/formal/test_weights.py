"""Double buffering of weights: no pass ever mixes the weights of two tiles, and every pass gets its own.

Two proofs share the work. Here: whatever the interleaving of loads, swaps and bubbles, the weight loader keeps the
rules of :mod:`sluice_hw.pe` (whole tiles, row 0 marked, no swap before a tile has entered, no next tile before the
swap) and the n-th swap finds the n-th tile. ``test_column.py``: under these rules a column uses exactly the tile of the
last swap.

Bounds: the array's side of the loader (behind its FIFO, whose order ``test_fifo.py`` checks, and of bf16 behind what
turns transposed tiles, ``test_transpose.py``) with tiles of 2 and 3 rows, unbounded, by induction. The whole loader of
int8 with a VMEM that refuses at will, in front of a column of 2 PEs: the first WHOLE cycles, time for two tiles and the
swap of the second.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal

from sluice_hw.config import ChipConfig
from sluice_hw.feeder import FEED_LATENCY
from sluice_hw.interfaces import VMEM_LATENCY
from sluice_hw.pe import PE
from sluice_hw.turner import TileTurner
from sluice_hw.weights import TILES, WeightLoader
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal

#: Cycles of the whole loader from its reset, in `make test` and in `make soak`.
WHOLE, WHOLE_SOAK = 15, 20



class AnyRows(Elaboratable):
    """In place of a FIFO: ``r_data`` is driven by the check, ``r_rdy`` is any."""

    def __init__(self, *, width: int, depth: int) -> None:
        self.w_data, self.w_rdy, self.w_en = Signal(width), Signal(init=1), Signal()
        self.r_data, self.r_rdy, self.r_en = Signal(width), Signal(), Signal()
        QUEUES.append(self)

    def elaborate(self, platform) -> Module:
        return Module()


QUEUES: list[AnyRows] = []


class AnyTurner(TileTurner):
    """In place of what turns tiles: which rows leave is any."""

    last: AnyTurner

    def __init__(self, **sizes) -> None:
        super().__init__(**sizes)
        self.any_there, self.any_row = Signal(), Signal(len(self.output.payload))
        AnyTurner.last = self

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [self.output.valid.eq(self.any_there), self.output.payload.eq(self.any_row)]
        return m


class FeedCheck(Check):
    """The array's side of the loader, and the rules of the array."""

    def __init__(self, rows: int, *bugs: tuple[str, str], dtype: str = "int8") -> None:
        super().__init__()
        self.config = ChipConfig(rows=rows, cols=1, acc_bytes=64, dtype=dtype)
        self.unit = altered(
            WeightLoader, *bugs, fifo=SimpleNamespace(SyncFIFOBuffered=AnyRows, SyncFIFO=AnyRows), TileTurner=AnyTurner)

    def describe(self, m: Module) -> None:
        count = self.config.rows
        QUEUES.clear()
        dut = self.unit(self.config)
        m.submodules.dut, inside = open_up(dut)
        rows, sizes = QUEUES
        self.free_inputs(m, dut, but=("swap",))
        # What the FIFO gives: rows in order, each marked with its tile and its place in it.
        tile, place = Signal(6), Signal(2)
        there, row_data, taken = rows.r_rdy, rows.r_data, rows.r_en
        if self.config.is_float:
            turner = AnyTurner.last
            there, row_data, taken = turner.any_there, turner.any_row, turner.output.ready
        m.d.comb += [
            there.eq(self.free(1, "row_there")), row_data.eq(Cat(place, tile)),
            sizes.r_data.eq(self.free(len(sizes.r_data), "size")),
        ]
        with m.If(there & taken):
            m.d.sync += place.eq(Mux(place == count - 1, 0, place + 1))
            with m.If(place == count - 1):
                m.d.sync += tile.eq(tile + 1)
        # The feeder swaps when the loader says so; its row enters the array FEED_LATENCY cycles later.
        wants = self.free(1, "swap")
        m.d.comb += dut.swap.eq(wants & dut.tile_ready)
        swap = self.delayed(m, dut.swap, FEED_LATENCY, "swap")

        # At the array's edge.
        row, full, loaded, swapped = Signal(2), Signal(), Signal(6), Signal(6)
        with m.If(swap):
            m.d.sync += [full.eq(0), swapped.eq(swapped + 1)]
            self.claim(m, full)
            # `loaded` tiles have entered completely, the last of them is number `loaded` - 1.
            self.claim(m, loaded == (swapped + 1)[:6])
        with m.If(dut.w_valid):
            self.claim(m, ~full | swap)
            self.claim(m, dut.w_start == (row == 0))
            self.claim(m, dut.w_data[0].as_unsigned() == Cat(row, loaded))  # the low byte, of bf16
            m.d.sync += row.eq(row + 1)
            with m.If(row == count - 1):
                m.d.sync += [row.eq(0), full.eq(1), loaded.eq(loaded + 1)]
        ended = Signal()
        m.d.comb += ended.eq(dut.w_valid & (row == count - 1))
        self.claim(m, dut.fed == ended)

        if not self.mutant:
            self.link_both_ends(m, inside, tile, place, loaded, row, full, swapped, dut.swap)

    def link_both_ends(self, m: Module, inside: dict, tile, place, loaded, row, full, swapped, issue) -> None:
        """For the induction: FIFO and array count alike, but for what is under way between them."""
        count = self.config.rows
        at_tile, at_row = loaded, row
        for moving in (inside["feeding1"], inside["feeding0"]):
            ends = at_row == count - 1
            at_tile, at_row = (at_tile + (moving & ends))[:6], Mux(moving, Mux(ends, 0, at_row + 1), at_row)[:2]
        self.invariant(m, (at_tile == tile) & (at_row == place))
        issued, under_way = Signal(6), 0
        m.d.sync += issued.eq(issued + issue)
        now = issue
        for k in range(FEED_LATENCY):
            later = Signal(name=f"under_way{k}")
            m.d.sync += later.eq(now)
            now = later
            under_way = under_way + later
        self.invariant(m, ((swapped + under_way)[:6]) == issued)
        self.invariant(m, (place < count) & (row < count))
        self.invariant(m, inside["row"] == place)
        self.invariant(m, tile == (issued + inside["full"])[:6])
        self.invariant(m, ~inside["full"] | (place == 0))
        self.invariant(m, loaded == (swapped + full)[:6])


class WholeCheck(Check):
    """Loader, VMEM and a column."""

    ROWS = 2

    def __init__(self, *, loader: type = WeightLoader, pe: type = PE) -> None:
        super().__init__()
        self.config = ChipConfig(rows=self.ROWS, cols=1, acc_bytes=64)
        self.loader, self.pe = loader, pe

    def describe(self, m: Module) -> None:
        m.submodules.dut = dut = self.loader(self.config)
        # LOAD_WEIGHTS: row r of tile n is the byte n * ROWS + r of VMEM, which contains its address.
        started, fed = Signal(8), Signal(8)
        m.d.comb += [
            dut.start.valid.eq(self.free(1, "start") & (started - fed < TILES)),
            dut.start.payload.vmem.eq(started << 1), dut.start.payload.pitch.eq(1),
            dut.start.payload.k.eq(self.ROWS), dut.start.payload.n.eq(1),
        ]
        m.d.sync += [started.eq(started + (dut.start.valid & dut.start.ready)), fed.eq(fed + dut.fed)]
        read = Signal()
        m.d.comb += [dut.vmem.req.ready.eq(self.free(1, "granted")), read.eq(dut.vmem.req.valid & dut.vmem.req.ready)]
        m.d.comb += [
            dut.vmem.rsp_valid.eq(self.delayed(m, read, VMEM_LATENCY, "read")),
            dut.vmem.rsp_data[0].eq(self.delayed(m, dut.vmem.req.payload.addr[:8], VMEM_LATENCY, "byte")),
        ]
        # Rows of activations.
        issue, wants = self.free(1, "issue"), self.free(1, "swap")
        swap = Signal()
        m.d.comb += [swap.eq(wants & dut.tile_ready), dut.swap.eq(swap)]
        current = Signal(8, init=0xFF)
        tile = Signal(8)
        m.d.comb += tile.eq(current + swap)
        m.d.sync += current.eq(tile)
        valid = Signal()
        m.d.comb += valid.eq(swap | (issue & (current != 0xFF)))

        above = None
        for r in range(self.ROWS):
            pe = self.pe(rows=self.ROWS)
            m.submodules[f"pe{r}"], inside = open_up(pe)
            late = FEED_LATENCY + r
            m.d.comb += [
                pe.left.valid.eq(self.delayed(m, valid, late, f"valid{r}")),
                pe.left.swap.eq(self.delayed(m, swap, late, f"swap{r}")),
            ]
            if above is None:
                m.d.comb += [pe.up.w_valid.eq(dut.w_valid), pe.up.w_start.eq(dut.w_start),
                             pe.up.w_data.eq(dut.w_data[0])]
            else:
                m.d.comb += [pe.up.w_valid.eq(above.down.w_valid), pe.up.w_start.eq(above.down.w_start),
                             pe.up.w_data.eq(above.down.w_data)]
            expected = self.delayed(m, (tile * self.ROWS + r)[:8], late, f"expected{r}")
            with m.If(pe.left.valid):
                self.claim(m, inside["weight"].as_unsigned() == expected)
            above = pe


def test_rules_of_the_array():
    prove_checks("weights", {
        "rows2": FeedCheck(2), "rows3": FeedCheck(3), "bf16": FeedCheck(2, dtype="bf16"),
    }, depth=6)  # fmt: skip


def test_whole():
    prove_checks("weights_whole", {"whole": WholeCheck()}, mode="bmc", depth=WHOLE)


@pytest.mark.soak
def test_whole_for_longer():
    prove_checks("weights_whole_soak", {"whole": WholeCheck()}, mode="bmc", depth=WHOLE_SOAK)


BUGS = {
    "a tile too early": ("feed.eq(there & ~full)", "feed.eq(there)"),
    "ready a row early": ("completes.eq(feed & (row == config.rows - 1))", "completes.eq(feed & (row == 0))"),
    "a swap is lost": ("with m.If(self.swap):", "with m.If(self.swap & ~completes):"),
    "mark on every row": ("feed, feed & (row == 0), completes", "feed, feed, completes"),
    "a cycle too late": ("LOAD_LATENCY = FEED_LATENCY - 1", "LOAD_LATENCY = FEED_LATENCY + 1"),
    "a cycle too early": ("LOAD_LATENCY = FEED_LATENCY - 1", "LOAD_LATENCY = FEED_LATENCY - 2"),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    prove_bites("weights_bites", FeedCheck(2, bug), depth=14)


WHOLE_BUGS = {
    "a row is lost": (WeightLoader, ("(~asked_valid | done)", "(~asked_valid | asked_valid)")),
    "keeps every weight": (PE, ("ours.eq(up.w_valid & up.w_start)", "ours.eq(up.w_valid)")),
}


@pytest.mark.parametrize("bug", planted(WHOLE_BUGS))
def test_bug_of_the_whole_is_found(bug):
    unit, change = bug
    parts = {"loader" if unit is WeightLoader else "pe": altered(unit, change)}
    prove_bites("weights_whole_bites", WholeCheck(**parts), depth=16)
