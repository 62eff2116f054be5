"""Parameters of a memory of DRAM channels behind the slice controller, and what follows from them and a chip's."""

from __future__ import annotations

from dataclasses import dataclass

from ..config import ChipConfig
from .dram_fit import CHANNEL_BEAT, check_fit, schedule_of, timing_of
from .schedule import Schedule
from .timing import TIMINGS, DramTiming

__all__ = ["CHANNEL_BEAT", "DramConfig"]

#: From a request to its slice's being first of its direction; from RL behind the first RD's clock to the beat's showing
#: on the port: command and data registers, the second pseudo-channel, the buffer; a queue between two clocks.
QUEUE_CLOCKS, PIN_CLOCKS, CROSSING_CLOCKS = 2, 6, 4


@dataclass(frozen=True, kw_only=True)
class DramConfig:
    """One controller of ``chip.hbm_beat_bytes / 32`` channels in step.

    Channels in step get the same commands; a slice lies in all of them.

    Raises
    ------
    ValueError
        For what cannot be built; the message names the field, its value and what is allowed.
    """

    chip: ChipConfig
    #: A key of :data:`TIMINGS`, or timings.
    timing: DramTiming = TIMINGS["hbm2-4gb"]
    #: ``per-bank``: sets of banks are refreshed while others work. ``all-bank``: everything stands.
    refresh: str = "per-bank"
    #: Refreshes of all banks that are done at once, each time they are due.
    refresh_group: int = 2
    #: Slices of a direction after which, at the end of a train, the other may have its turn; and after which it has it.
    turn_min: int = 1
    turn_max: int = 16
    #: Clocks that the physical layer adds between a command's register and the data it brings back.
    phy_clocks: int = 0
    #: The port carries check bits beside the data, a byte for each 64-bit word (``coded.py``), and so do the pins.
    coded: bool = False
    #: Memory clocks in so many core clocks. Equal: one clock. Else the memory has a clock of its own.
    clock_ratio: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        if not isinstance(self.chip, ChipConfig):
            raise TypeError(f"chip must be a ChipConfig, not {self.chip!r}")
        if isinstance(self.timing, str):
            if self.timing not in TIMINGS:
                raise ValueError(f"timing must be one of {', '.join(TIMINGS)}, not {self.timing!r}")
            object.__setattr__(self, "timing", TIMINGS[self.timing])
        elif not isinstance(self.timing, DramTiming):
            raise TypeError(f"timing must be a DramTiming or a name, not {self.timing!r}")

        def need(ok: bool, field: str, allowed: str) -> None:
            if not ok:
                raise ValueError(f"{field} must be {allowed}, not {getattr(self, field)!r}")

        need(self.refresh in ("per-bank", "all-bank"), "refresh", "'per-bank' or 'all-bank'")
        need(type(self.refresh_group) is int and 1 <= self.refresh_group <= 4, "refresh_group", "1 to 4")
        need(type(self.turn_max) is int and 1 <= self.turn_max <= 256, "turn_max", "1 to 256")
        need(type(self.turn_min) is int and 1 <= self.turn_min <= self.turn_max, "turn_min", "1 to turn_max")
        need(type(self.phy_clocks) is int and 0 <= self.phy_clocks <= 32, "phy_clocks", "0 to 32")
        need(isinstance(self.coded, bool), "coded", "True or False")
        ratio = self.clock_ratio
        need(
            type(ratio) is tuple and len(ratio) == 2 and all(type(n) is int and 1 <= n <= 64 for n in ratio),
            "clock_ratio", "two integers of 1 to 64",
        )  # fmt: skip
        check_fit(
            self.timing, bytes_per_cycle=self.chip.hbm_bytes_per_cycle, slice_bytes=self.chip.slice_bytes,
            hbm_bytes=self.chip.hbm_bytes,
        )  # fmt: skip

    @classmethod
    def of(cls, chip: ChipConfig) -> DramConfig:
        """The controller of a chip whose ``memory`` is DRAM, as its configuration says."""
        return cls(
            chip=chip, timing=timing_of(chip.memory, chip.dram_gigabits), refresh=chip.dram_refresh,
            coded=chip.ecc == "sideband", clock_ratio=(chip.memory_clocks, chip.core_clocks),
        )  # fmt: skip

    @property
    def schedule(self) -> Schedule:
        return schedule_of(self.timing)

    @property
    def crosses(self) -> bool:
        """Whether the memory has a clock of its own."""
        return self.clock_ratio[0] != self.clock_ratio[1]

    @property
    def channels(self) -> int:
        """Channels in step."""
        return self.chip.hbm_beat_bytes // CHANNEL_BEAT

    @property
    def units(self) -> int:
        """Units of a slice."""
        return self.chip.slice_beats // self.schedule.unit

    @property
    def sets(self) -> int:
        """Sets of four banks in a pseudo-channel."""
        return self.timing.banks_per_group

    @property
    def row_parts(self) -> int:
        """Units that a row of every bank of a set holds."""
        return self.timing.row_bursts // self.schedule.bank_bursts

    @property
    def run(self) -> int:
        """Consecutive slices in one set before the next set follows: four units at least, so that a stream leaves every
        set time for its refresh."""
        return max(1, 4 // self.units)

    def place(self, number: int, unit: int = 0) -> tuple[int, int, int]:
        """Set, row and part of the row of a slice's unit. A slice lies in one set."""
        block, at = divmod(number, self.run)
        row_block, bank_set = divmod(block, self.sets)
        at = ((row_block * self.run) + at) * self.units + unit
        return bank_set, at // self.row_parts, at % self.row_parts

    @property
    def check_bits(self) -> int:
        """Check bits of a beat on the port."""
        return self.chip.hbm_beat_bytes if self.coded else 0

    @property
    def latency(self) -> int:
        """Clocks from the grant of a slice to its last beat in the read buffer, which is also when a write counts as
        done: the same for every address and history."""
        s, t = self.schedule, self.timing
        # To the last column command, through its register and the pins, and the second pseudo-channel's clock.
        return (self.units - 1) * s.unit + s.column + s.unit + t.rl + self.phy_clocks + 2

    @property
    def grant_to_beat(self) -> int:
        """Clocks from a slice's grant to its first beat on the port, when those before it have been taken."""
        return self.schedule.column + self.timing.rl + self.phy_clocks + PIN_CLOCKS

    @property
    def first_beat(self) -> int:
        """Core cycles from a read request to the first beat on the port, when nothing is in the way: the queue, the
        grant, the pins, the buffer; and the registers between two clocks where there are two."""
        clocks = QUEUE_CLOCKS + self.grant_to_beat
        if not self.crosses:
            return clocks
        memory, core = self.clock_ratio
        return -(-(clocks + CROSSING_CLOCKS) * core // memory) + CROSSING_CLOCKS

    @property
    def wait_bound(self) -> int:
        """Most clocks that a slice waits for its grant, from when it is the first of its direction, the slice before
        it has been granted, and its beats or the room for them are there. Derived in docs/memory.md."""
        s, t = self.schedule, self.timing
        slice_clocks = self.units * s.unit
        turn = max(rule.index(True) for rule in s.follow.values()) - s.unit
        # One slice under way, the other direction's turn, and a direction to turn before it, within it and after it:
        # its slices may each come a little later than the one before ends, too early for a turn.
        others = (1 + self.turn_max) * (slice_clocks + turn) + turn
        # Where a stall ends among the last unit's row commands.
        row_bus = s.span + 1 - s.unit - turn
        if self.refresh == "per-bank":
            # Refreshes of the slice's own banks, and the slice that the other direction begins during the last one.
            pause = row_bus + s.refresh_in_unit + s.own_after_refresh
            return others + pause * (2 + others // (t.refi - pause)) + slice_clocks + turn
        pause = s.refresh_all + 1 - s.unit + self.refresh_group * t.rfc
        return others + row_bus + pause * -(-others // (self.refresh_group * t.refi - pause))

    @property
    def scrub_bound(self) -> int:
        """Most clocks that trains wait for one scrub: a slice is read and written back, and nothing else is under way
        (``scrub.py``). ``8``: the registers of the code and of the scrubber."""
        s = self.schedule
        pause = (
            s.own_after_refresh
            if self.refresh == "per-bank"
            else s.refresh_all + 1 + self.refresh_group * self.timing.rfc
        )
        return 2 * (pause + self.latency + self.units * s.unit + 8)
