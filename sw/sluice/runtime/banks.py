"""Which banks of DRAM a slice lies in, and what it costs when streams of slices meet there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sluice.errors import UsageError
from sluice_hw.config import ChipConfig
from sluice_hw.hbm.dram_config import CHANNEL_BEAT, DramConfig
from sluice_hw.hbm.dram_fit import timing_of
from sluice_hw.hbm.timing import TIMINGS, DramTiming

__all__ = ["BANKS", "BankMap"]

#: Steps of streams that are looked at: a period of sets and rows is much shorter.
_STEPS = 4096
#: Banks by name: the slice controller, whose schedule hides the opening of rows, and memories that keep rows open.
BANKS = ("slices", "open-rows")


@dataclass(frozen=True, kw_only=True)
class BankMap:
    """Slices of a memory of DRAM channels in step: a slice lies in all channels, and in each in one set of banks.

    A set is four banks, one of each bank group, in both pseudo-channels. ``run`` consecutive slices lie in a set, the
    next in the following set, and when all sets have had theirs, in the next row (or the rest of the same).

    Attributes
    ----------
    channels, sets, run
        Channels in step; sets of banks in each; consecutive slices in a set.
    rows, row_bytes
        Rows of a bank; bytes of a row of all banks of a set in all channels.
    slice_bytes, slice_clocks
        Of a slice; memory clocks that its data take.
    turn_clocks
        Clocks lost when a set in use must close a row and open another; 0 where the schedule hides that.
    """

    channels: int
    sets: int
    run: int
    rows: int
    row_bytes: int
    slice_bytes: int
    slice_clocks: int
    turn_clocks: int = 0

    def __post_init__(self) -> None:
        for name in ("channels", "sets", "run", "rows", "row_bytes", "slice_bytes", "slice_clocks"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} of a bank map must be a positive integer, not {value!r}")
        if self.turn_clocks < 0:
            raise UsageError(f"turn_clocks of a bank map must be at least 0, not {self.turn_clocks}")

    @classmethod
    @cache
    def of(cls, config: ChipConfig, banks: str = "slices", *, timing: DramTiming | str | None = None) -> BankMap:
        """The map of a chip's memory, of as many channels as its beat is wide.

        Parameters
        ----------
        banks
            ``slices``: behind the slice controller. ``open-rows``: behind a controller that leaves rows open, as those
            of vendors do that answer to AXI4; a change of row costs tRP + tRCD of ``timing``.
        timing
            By default those of the chip's DRAM, or HBM2 of 4 Gb for a chip that has none.

        Raises
        ------
        UsageError
            For other words.
        """
        if banks not in BANKS:
            raise UsageError(f"banks must be {' or '.join(BANKS)}, not {banks!r}")
        if timing is None:
            timing = timing_of(config.memory, config.dram_gigabits) if config.is_dram else TIMINGS["hbm2-4gb"]
        if isinstance(timing, str):
            if timing not in TIMINGS:
                raise UsageError(f"timing must be one of {', '.join(TIMINGS)}, not {timing!r}")
            timing = TIMINGS[timing]
        channels = max(1, config.hbm_beat_bytes // CHANNEL_BEAT)
        try:
            run = DramConfig(chip=config, timing=timing).run
        except ValueError:  # slices that the slice controller would not take: each in a set of its own
            run = 1
        return cls(
            channels=channels, sets=timing.banks_per_group, run=run, rows=timing.rows,
            row_bytes=2 * timing.bank_groups * timing.row_bytes * channels, slice_bytes=config.slice_bytes,
            slice_clocks=-(-config.slice_bytes // (CHANNEL_BEAT * channels)),
            turn_clocks=timing.rp + timing.rcd_rd if banks == "open-rows" else 0,
        )  # fmt: skip

    def place(self, number: int) -> tuple[int, int]:
        """Set and row of a slice's first byte."""
        block, at = divmod(number, self.run)
        row_block, bank_set = divmod(block, self.sets)
        return bank_set, (row_block * self.run + at) * self.slice_bytes // self.row_bytes

    @property
    def period(self) -> int:
        """Slices after which the sets come round."""
        return self.sets * self.run

    def bandwidth(self, streams: Sequence[tuple[int, int]]) -> float:
        """Part of the time in which data move when streams of slices, (first, count) each, take turns slice by slice.

        A change of row is hidden behind the slices of other sets since this one was last used, as far as they last.
        An estimate: refresh and the turning of the bus between reads and writes are left out.
        """
        if not streams or not self.turn_clocks:
            return 1.0
        open_rows: dict[int, tuple[int, int]] = {}  # set -> its row, and when it was done
        clock = data = 0
        for step in range(min(_STEPS, max(count for _, count in streams))):
            for first, count in streams:
                if step >= count:
                    continue
                bank_set, row = self.place(first + step)
                before = open_rows.get(bank_set)
                if before is not None and before[0] != row:
                    clock += max(0, self.turn_clocks - (clock - before[1]))
                clock += self.slice_clocks
                data += self.slice_clocks
                open_rows[bank_set] = (row, clock)
        return data / clock
