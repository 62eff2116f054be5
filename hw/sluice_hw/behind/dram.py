"""DRAM channels that do what their pins say, without judging it.

They keep their data in one RAM, slice after slice, as the memory inside a chip does, so that it can be looked at and
filled in the same way. What a controller may do is the business of a checker (``verif/models/dram.cpp``).
"""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.utils import ceil_log2

from ..hbm.dram import ColumnOp, RowOp, pin_members
from ..hbm.dram_config import DramConfig
from ..hbm.ecc import check_of
from ..ram import Ram1R1W

__all__ = ["DramChannels"]


class DramChannels(wiring.Component):
    """The other side of the ports :func:`~..hbm.dram.pin_members`. The RAM is ``store``.

    Check bits are those of the data that are read: what is written through the pins comes back so, and what a host puts
    into the RAM is right by itself.

    Parameters
    ----------
    config : DramConfig
    """

    def __init__(self, config: DramConfig) -> None:
        self.config = config
        super().__init__({name: member.flip() for name, member in pin_members(config).items()})

    def silent(self, m: Module, read: Value) -> Value:
        """Whether reads are answered by nothing, given whether there is one: never, but a test may have it so."""
        return Const(0, 1)

    def elaborate(self, platform) -> Module:
        m = Module()
        config, timing, chip = self.config, self.config.timing, self.config.chip
        m.submodules.store = ram = Ram1R1W(depth=chip.hbm_slices * chip.slice_beats, width=8 * chip.hbm_beat_bytes)

        # Both pseudo-channels do the same; the rows that are open in the first say it all.
        rows = Array(Signal(ceil_log2(timing.rows), name=f"row{i}") for i in range(timing.banks))
        with m.If((self.dram_row_op == RowOp.ACT) & (self.dram_row_pc == 0)):
            m.d.sync += rows[self.dram_row_bank].eq(self.dram_row_row)

        # DramConfig.place, backwards.
        sets, run, units = ceil_log2(config.sets), ceil_log2(config.run), ceil_log2(config.units)
        bursts = ceil_log2(config.schedule.bank_bursts)
        bank, column = self.dram_column_bank, self.dram_column_column
        bank_set, group = bank[:sets], bank[sets:]
        at = Cat(column[bursts:], rows[bank])
        number = Cat(at[units : units + run], bank_set, at[units + run :])
        beat = Cat(group[0], column[:bursts], group[1], at[:units], number)  # in pairs: a burst
        first = (self.dram_column_pc == 0) & (self.dram_column_op != ColumnOp.NOP)
        writes = self.dram_column_op == ColumnOp.WR
        command = Cat(first, writes, ~writes & self.silent(m, first & ~writes), beat)

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
        answers = [now & ~line[2] for now, line in zip(reads, (read, read_again), strict=True)]
        writes = [line[0] & line[1] for line in (write, write_again)]
        channels = range(config.channels)

        def half(value: Value, pc: int) -> Value:
            return Cat(value.word_select(2 * c + pc, 128) for c in channels)

        low = later(self.dram_write_data0, 1, "low")
        valid = later(answers[0] | answers[1], 1, "valid")
        m.d.comb += [
            ram.re.eq(reads[0] | reads[1]),
            ram.raddr.eq(Mux(reads[0], Cat(Const(0, 1), read[3:]), Cat(Const(1, 1), read_again[3:]))),
            self.dram_read_data0.eq(half(ram.rdata, 0)),
            self.dram_read_data1.eq(later(half(ram.rdata, 1), 1, "high")),
            self.dram_read_valid.eq(Cat(valid, later(valid, 1, "second"))),
            ram.we.eq(writes[0] | writes[1]),
            ram.waddr.eq(Mux(writes[0], Cat(Const(0, 1), write[3:]), Cat(Const(1, 1), write_again[3:]))),
            ram.wdata.eq(Cat(
                Cat(part.word_select(c, 128) for part in (low, self.dram_write_data1)) for c in channels
            )),
        ]  # fmt: skip
        if config.coded:
            for data, check in ((self.dram_read_data0, self.dram_read_check0),
                                (self.dram_read_data1, self.dram_read_check1)):  # fmt: skip
                m.d.comb += check.eq(Cat(check_of(data.word_select(i, 64)) for i in range(2 * config.channels)))
        return m
