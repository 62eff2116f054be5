"""DRAM behind a chip in one piece: the slice controller, and channels that do what its pins say, without judging it.

The channels keep their data in one RAM, slice after slice, as the chip's usual memory does, so that it can be looked at
and filled in the same way. What the controller may do is the business of ``dram.cpp``.
"""

from __future__ import annotations

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from sluice_hw.hbm.controller import DramController
from sluice_hw.hbm.dram import ColumnOp, RowOp
from sluice_hw.hbm.dram_config import DramConfig
from sluice_hw.interfaces import SlicePortSignature
from sluice_hw.isa import Cause
from sluice_hw.ram import Ram1R1W

__all__ = ["DramBehind"]


class DramBehind(wiring.Component):
    """In the place of a :class:`~sluice_hw.hbm.sram.SliceMemory`. The RAM is ``store``.

    Parameters
    ----------
    config : DramConfig
    """

    def __init__(self, config: DramConfig) -> None:
        self.config = config
        super().__init__({"port": In(SlicePortSignature(config.chip)), "state": Out(Cause)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config, timing, chip = self.config, self.config.timing, self.config.chip
        m.submodules.controller = controller = DramController(config)
        connect(m, flipped(self.port), controller.port)
        m.d.comb += [controller.lo.eq(0), controller.hi.eq(chip.hbm_slices), self.state.eq(controller.state)]
        pins = controller.dram
        m.submodules.store = ram = Ram1R1W(depth=chip.hbm_slices * chip.slice_beats, width=8 * chip.hbm_beat_bytes)

        # Both pseudo-channels do the same; the rows that are open in the first say it all.
        rows = Array(Signal(ceil_log2(timing.rows), name=f"row{i}") for i in range(timing.banks))
        with m.If((pins.row.op == RowOp.ACT) & (pins.row.pc == 0)):
            m.d.sync += rows[pins.row.bank].eq(pins.row.row)

        # DramConfig.place, backwards.
        sets, run, units = ceil_log2(config.sets), ceil_log2(config.run), ceil_log2(config.units)
        bursts = ceil_log2(config.schedule.bank_bursts)
        bank, column = pins.column.bank, pins.column.column
        bank_set, group = bank[:sets], bank[sets:]
        at = Cat(column[bursts:], rows[bank])
        number = Cat(at[units : units + run], bank_set, at[units + run :])
        beat = Cat(group[0], column[:bursts], group[1], at[:units], number)  # in pairs: a burst
        first = (pins.column.pc == 0) & (pins.column.op != ColumnOp.NOP)
        command = Cat(first, pins.column.op == ColumnOp.WR, beat)

        def later(value: Value, clocks: int, name: str) -> Value:
            for i in range(clocks):
                held = Signal(len(value), name=f"{name}{i}")
                m.d.sync += held.eq(value)
                value = held
            return value

        read = later(command, timing.rl + config.phy_clocks - 1, "read")
        write = later(command, timing.wl + 1, "write")
        read_again, write_again = later(read, 1, "read_again"), later(write, 1, "write_again")
        reads = [line[0] & ~line[1] for line in (read, read_again)]
        writes = [line[0] & line[1] for line in (write, write_again)]
        channels = range(config.channels)

        def half(value: Value, pc: int) -> Value:
            return Cat(value.word_select(2 * c + pc, 128) for c in channels)

        low = later(pins.write_data[0], 1, "low")
        valid = later(reads[0] | reads[1], 1, "valid")
        m.d.comb += [
            ram.re.eq(reads[0] | reads[1]),
            ram.raddr.eq(Mux(reads[0], Cat(Const(0, 1), read[2:]), Cat(Const(1, 1), read_again[2:]))),
            pins.read_data[0].eq(half(ram.rdata, 0)), pins.read_data[1].eq(later(half(ram.rdata, 1), 1, "high")),
            pins.read_valid.eq(Cat(valid, later(valid, 1, "second"))),
            ram.we.eq(writes[0] | writes[1]),
            ram.waddr.eq(Mux(writes[0], Cat(Const(0, 1), write[2:]), Cat(Const(1, 1), write_again[2:]))),
            ram.wdata.eq(Cat(
                Cat(part.word_select(c, 128) for part in (low, pins.write_data[1])) for c in channels
            )),
        ]  # fmt: skip
        return m
