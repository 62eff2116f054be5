"""The weight loader stays inside VMEM, whatever legal LOAD_WEIGHTS it is given.

Row i of a tile is read at vmem + i x pitch, its `n` bytes (of a transposed tile: its `k` elements of two bytes) lie
inside VMEM and in one access, and no more rows are read than the tile has: `k`, or transposed one for each column. This
is so for pitches of either sign, and for whatever fields the decoder lets pass: an odd `n`, or int8 with `transpose`.

Bounds: arrays of 2 x 3 (both types; soak: 2 x 2, int8), VMEM of 192 bytes; addresses and pitches of full width. FIFOs
and what turns tiles are any. Unbounded in time, by induction.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Assume, Module, Mux, Signal, Value, signed

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.weights import WeightLoader
from verif.formal.claims import AnyQueue, Check, altered, open_up, prove_bites, prove_checks
from verif.formal.test_weights import AnyTurner

pytestmark = pytest.mark.formal

#: The number of the row at hand, by a name that the array's side does not use.
_ROW = ("        asked_valid = Signal()\n", "        asked_valid = Signal()\n        reading_row = row\n")


class LoaderCheck(Check):
    """The loader beside the tile that it reads."""

    def __init__(self, dtype: str, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.config = ChipConfig(rows=2, cols=2 if dtype == "int8" else 3, dtype=dtype, vmem_bytes=192, vmem_banks=8,
                                 acc_bytes=6 * 24)
        self.unit = altered(WeightLoader, _ROW, *bugs, TileTurner=AnyTurner,
                            fifo=SimpleNamespace(SyncFIFO=AnyQueue, SyncFIFOBuffered=AnyQueue))

    def describe(self, m: Module) -> None:
        config = self.config
        AnyQueue.made.clear()
        dut = self.unit(config)
        m.submodules.dut, inside = open_up(dut)
        self.free_queues(m)
        self.free_inputs(m, dut)
        if config.is_float:
            turner = AnyTurner.last
            m.d.comb += [turner.any_there.eq(self.free(1, "row_there")),
                         turner.any_row.eq(self.free(len(turner.any_row), "row"))]
        ask = dut.start.payload
        ranges = {field.name: isa.field_range(field, config) for field in isa.OPS[isa.Op.LOAD_WEIGHTS].fields}
        m.d.comb += [Assume((ask[name] >= ranges[name][0]) & (ask[name] <= ranges[name][1]))
                     for name in ask.shape().members if name in ranges and name != "vmem"]

        # The tile that waits; of the one being read where the next row lies, its bytes, rows, and those walked.
        waits = Signal.like(Value.cast(ask))
        with m.If(dut.start.valid & dut.start.ready):
            m.d.sync += waits.eq(ask)
        tile = type(ask)(ask.shape(), waits)
        transpose = tile.transpose if config.is_float else 0
        at, pitch = Signal(32), Signal(signed(isa.STRIDE_BITS))
        size, rows, row, turns = Signal(11), Signal(11), Signal(11), Signal()
        with m.If(inside["walk"]):
            m.d.sync += [at.eq(at + pitch), row.eq(row + 1)]
        with m.If(inside["begin"]):
            m.d.sync += [
                at.eq(tile.vmem), pitch.eq(tile.pitch), row.eq(0), turns.eq(transpose),
                size.eq(Mux(transpose, tile.k << 1, tile.n)), rows.eq(Mux(transpose, (tile.n + 1) >> 1, tile.k)),
            ]
        # What was asked for.
        asked_at, asked_size, asked_row, asked_rows = (Signal(n, name=name) for n, name in (
            (32, "asked_at"), (11, "asked_size"), (11, "asked_row"), (11, "asked_rows")))
        with m.If(inside["walk"]):
            m.d.sync += [asked_at.eq(at), asked_size.eq(size), asked_row.eq(row), asked_rows.eq(rows)]
        with m.If(dut.vmem.req.valid):
            self.claim(m, (dut.vmem.req.payload.addr == asked_at) & (asked_at + asked_size <= config.vmem_bytes))
            self.claim(m, (asked_row < asked_rows) & (asked_size <= config.word_bytes))
        self.claim_held(m, dut.vmem.req, "vmem")
        if self.mutant:
            return
        mine, asked = inside["tile"], inside["asked"]
        with m.If(inside["waiting_valid"]):
            self.invariant(m, Value.cast(inside["waiting"]) == waits)
            for name in ("k", "n"):
                self.invariant(m, (tile[name] >= 1) & (tile[name] <= ranges[name][1]))
        with m.If(inside["active"]):
            self.invariant(m, (mine.vmem == at) & (mine.pitch == pitch) & (mine.n == size) & (mine.k == rows))
            self.invariant(m, (inside["reading_row"] == row) & (row < Mux(turns, rows, config.rows)))
            self.invariant(m, (size <= config.word_bytes) & (rows <= max(config.rows, config.cols)))
            self.invariant(m, turns == (mine.transpose if config.is_float else 0))
        with m.If(inside["asked_valid"] & inside["asked_real"]):
            self.invariant(m, (asked.addr == asked_at) & (asked_at + asked_size <= config.vmem_bytes))
            self.invariant(m, (asked_row < asked_rows) & (asked_size <= config.word_bytes))


def test_loader():
    prove_checks("loader_bounds", {"both": LoaderCheck("int8+bf16")}, depth=1)


@pytest.mark.soak
def test_loader_of_int8():
    prove_checks("loader_bounds_soak", {"int8": LoaderCheck("int8")}, depth=1)


BUGS = {
    "only the first byte is looked at": ("tile.vmem + tile.n > config", "tile.vmem > config"),
    "a transposed row is as long as a direct one": ("tile.n.eq(waiting.k << 1)", "tile.n.eq(waiting.k)"),
    "a row too many": ("real.eq((row < tile.k)", "real.eq((row <= tile.k)"),
    "rows of a transposed tile": ("tile.k.eq((waiting.n + 1) >> 1)", "tile.k.eq(waiting.n)"),
    "the address goes on while it waits": ("(~asked_valid | done)", "(~asked_valid | asked_valid)"),
}


@pytest.mark.soak
@pytest.mark.parametrize("what", BUGS)
def test_bug_is_found(what):
    prove_bites("loader_bounds_bites", LoaderCheck("int8+bf16", BUGS[what]), depth=10)
