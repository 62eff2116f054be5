"""Streams that share banks of VMEM, regions of the accumulators, or HBM: alone they take as long as they ask for.

As long as no two streams under way can meet, each is a formula (*planned*). When two can, both go cycle by cycle, by
the priorities of :mod:`sluice_hw.vmem`, until one of them is through (*stepping*).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice_hw.config import ChipConfig

from .dram import TimedDram

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Banks", "Ports", "Stream"]

#: Cycles without any grant after which stepping gives up: the program hangs.
_HUNG = 1 << 14


class Banks:
    """Places that streams claim, as bit masks: banks (one bit each), accumulator regions, the memory's bus.

    ``regions`` masks say where a whole op may go: one bit for each region of VMEM, and the same bits for the rest.
    """

    def __init__(self, config: ChipConfig) -> None:
        self._word, self._group, self._rows = config.word_bytes, config.vmem_interleave, config.vmem_bank_rows
        self._size = config.vmem_region_bytes
        self._half = config.acc_region_rows
        self.bus = 1 << config.vmem_banks
        self.acc = (2 << config.vmem_banks, 4 << config.vmem_banks)
        self._masks: dict[int, int] = {}

    def _bank(self, word: int) -> int:
        group, index = divmod(word, self._group)
        return 1 << (group // self._rows * self._group + index)

    def narrow(self, addr: int, size: int | None = None) -> int:
        """A narrow port's access: a word, and the next one unless aligned (or as far as ``size`` bytes reach)."""
        word, offset = divmod(addr, self._word)
        key = word << 1 | (offset > 0 if size is None else offset + size > self._word)
        mask = self._masks.get(key)
        if mask is None:
            mask = self._bank(word) | (self._bank(word + 1) if key & 1 else 0)
            self._masks[key] = mask
        return mask

    def wide(self, addr: int, size: int) -> int:
        """``size`` bytes from ``addr`` on, all in one line."""
        mask = 0
        for word in range(addr // self._word, (addr + size - 1) // self._word + 1):
            mask |= self._bank(word)
        return mask

    def half(self, row: int) -> int:
        """An accumulator row's region."""
        return self.acc[row >= self._half]

    def regions(self, lo: int, hi: int) -> int:
        """Regions of bytes ``lo`` to ``hi``, both inclusive."""
        first, last = max(lo, 0) // self._size, max(hi, 0) // self._size
        return (2 << last) - (1 << first)

    def acc_regions(self, lo: int, hi: int) -> int:
        """Regions of accumulator rows ``lo`` to ``hi``, both inclusive."""
        return (self.half(lo) | self.half(hi)) << 64

    @property
    def bus_region(self) -> int:
        return self.bus << 64


class Bus:
    """The memory's beats: one a cycle, or fewer where the configuration's rate is less than its width.

    What is earned and not spent follows :class:`sluice_hw.hbm.sram.SliceMemory`.
    """

    def __init__(self, config: ChipConfig) -> None:
        self._beats, self._cycles = config.hbm_beat_rate
        #: A beat moves in every cycle in which one is wanted, whatever was before.
        self.full_rate = self._beats == self._cycles and not config.is_dram
        self._earned, self._time, self._moved = self._cycles - 1, 0, False

    def due(self, time: int) -> bool:
        """Whether a beat may move in a cycle, not before those asked about earlier."""
        if self.full_rate:
            return True
        while self._time < time:
            total = self._earned + self._beats
            if total < self._cycles:
                self._earned = total
            elif self._moved:
                self._earned = total - self._cycles
            else:
                self._earned, self._time = self._cycles - 1, time - 1  # and so it stays
            self._moved = False
            self._time += 1
        return self._earned + self._beats >= self._cycles

    def move(self) -> None:
        """A beat moves in the cycle asked about last."""
        self._moved = True


class Stream:
    """Accesses of one op.

    Attributes
    ----------
    priority
        Of its port, 0 first.
    regions
        Where it may go.
    fixed
        It never waits for others.
    """

    priority = 0
    regions = 0
    fixed = False
    #: Its own accesses can meet.
    meets_itself = False
    stepping = False

    def plan(self) -> None:
        """Nobody is in the way from this cycle on: work out the end."""

    def sync(self) -> None:
        """The plan does not hold from this cycle on: bring the state up to the cycle before."""

    def step(self, time: int, taken: int) -> int:
        """Do what is done in one cycle; ``taken`` is what ports of higher priority want; the same with its own."""
        raise NotImplementedError


class Ports:
    """All streams under way."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.banks, self.bus = Banks(engine.config), Bus(engine.config)
        self.dram = TimedDram(engine) if engine.config.is_dram else None
        self._active: list[Stream] = []
        self._stepping: list[Stream] = []
        self.busy = False
        self.progress = False
        self._time = 0
        self._in_cycle = False
        self._gone: list[Stream] = []

    def add(self, stream: Stream) -> None:
        """A stream begins in this cycle."""
        self._active.append(stream)
        self._active.sort(key=lambda s: s.priority)
        self._regroup(stream)

    def remove(self, stream: Stream) -> None:
        """A stream is through."""
        if self._in_cycle:  # it has its place in this cycle still
            self._gone.append(stream)
        elif stream in self._active:
            self._active.remove(stream)
            stream.stepping = False
            self._regroup(None)

    def _regroup(self, new: Stream | None) -> None:
        streams = self._active
        for s in streams:
            if s.fixed:
                continue
            meets = s.meets_itself or any(o.regions & s.regions for o in streams if o is not s)
            if meets and not s.stepping:
                if s is not new:
                    s.sync()
                s.stepping = True
            elif not meets and (s.stepping or s is new):
                s.stepping = False
                s.plan()
        reach = 0
        for s in streams:
            if s.stepping:
                reach |= s.regions
        self._stepping = [s for s in streams if s.stepping or (s.fixed and s.regions & reach)]
        self.busy = bool(reach)

    def run(self) -> bool:
        """Step the streams that can meet, up to the next event (true) or until one ends (false)."""
        engine = self._engine
        events = engine.events
        time = max(self._time, engine.now)
        quiet = 0
        steppers = self._stepping
        while not events or time < events[0][0]:
            engine.now = time
            taken = 0
            self.progress = False
            self._in_cycle = True
            for s in steppers:
                taken = s.step(time, taken)
            self._in_cycle = False
            time += 1
            if self._gone:
                engine.now = time
                gone, self._gone = self._gone, []
                for s in gone:
                    self._active.remove(s)
                    s.stepping = False
                self._regroup(None)
                self._time = time
                return False
            quiet = 0 if self.progress else quiet + 1
            if not events and quiet > _HUNG:
                self.busy = False
                break
        self._time = time
        return True
