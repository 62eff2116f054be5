"""A Verilated slice controller with DRAM behind its pins, every command judged and every beat compared."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import numpy as np

from sluice_hw.emit.verilog import to_verilog
from sluice_hw.hbm.dram_config import DramConfig
from sluice_hw.hbm.dram_memory import DramMemory
from verif.models.driven import build_driven
from verif.models.part import defines

__all__ = ["TABLE_FIELDS", "Checker", "Counts", "DramBench", "build"]

#: Fields of the checker's tables, in their order there, as the controller's timings call them.
TABLE_FIELDS = (
    "bank_groups", "banks_per_group", "rows", "row_bursts", "rl", "wl", "burst", "rcd_rd", "rcd_wr", "rp", "ras", "rc",
    "rrd_s", "rrd_l", "faw", "ccd_s", "ccd_l", "wtr_s", "wtr_l", "rtw", "rtp", "wr", "rfc", "rfc_sb", "rrefd", "refi",
    "postpone",
)  # fmt: skip

#: Names in the checker's own table.
TABLES = ("hbm2-2gb", "hbm2-4gb", "hbm2-8gb", "hbm3-4gb")

_ROW = {"ACT": 1, "PRE": 2, "PREA": 3, "REF": 4, "REFSB": 5}
_COLUMN = {"RD": 1, "WR": 2}


class Counts(ctypes.Structure):
    """What happened since the last :meth:`DramBench.clear`; see the driver's struct."""

    _fields_ = [
        *[(name, ctypes.c_uint64) for name in (
            "cycles", "read_slices", "write_slices", "read_trains", "write_trains", "refused", "errors", "wrong",
            "broken_rules", "columns",
        )],
        ("latencies", ctypes.c_uint64 * 8), ("latency_count", ctypes.c_uint64),
        ("port_latencies", ctypes.c_uint64 * 8), ("port_latency_count", ctypes.c_uint64),
        ("worst_wait", ctypes.c_uint64 * 2),
        *[(name, ctypes.c_uint64) for name in (
            "longest_done", "corrected", "detected", "stuck", "wrong_checks", "scrubbed", "repaired",
        )],
        ("row_commands", ctypes.c_uint64 * 6),
    ]  # fmt: skip

    @property
    def utilisation(self) -> float:
        """Column commands per clock: each moves what the pins can in a clock."""
        return self.columns / self.cycles

    @property
    def distinct_latencies(self) -> list[int]:
        """Clocks from grant to the last beat, all values that were seen."""
        return list(self.latencies[: self.latency_count])

    @property
    def distinct_port_latencies(self) -> list[int]:
        """The same for reads, to the last beat on the slice port; of runs whose sink is always ready."""
        return list(self.port_latencies[: self.port_latency_count])


def build(config: DramConfig, *, ecc: bool = False, opt: str = "-O1") -> Path:
    """Compile the controller and the driver, or take them from the cache.

    Parameters
    ----------
    ecc
        As for :class:`~sluice_hw.hbm.dram_memory.DramMemory`.
    """
    text = to_verilog(DramMemory(config, ecc=ecc), name="sluice_dram")
    chip = config.chip
    constants = {
        "CHANNELS": config.channels, "SLICE_BEATS": chip.slice_beats, "SLICES": f"{chip.hbm_slices}u",
        "TABLE": TABLES.index(config.timing.name), "PHY": config.phy_clocks,
        "BANK_BITS": 2 + (config.sets - 1).bit_length(),
        "MEMORY_CLOCKS": config.clock_ratio[0], "CORE_CLOCKS": config.clock_ratio[1],
    }  # fmt: skip
    folder = Path(__file__).parent
    driver = (folder / "dram.cpp").read_text() + (folder / "dram_driver.cpp").read_text()
    return build_driven(
        "dram", text, "sluice_dram", defines(constants) + driver, opt=opt,
        verilator_args=["-O3", "-Wno-WIDTHEXPAND", "-Wno-WIDTHTRUNC"],
    )  # fmt: skip


@functools.cache
def _load(library: Path) -> ctypes.CDLL:
    lib = ctypes.CDLL(str(library))
    p, i, u = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64
    signatures = {
        "checker_new": ([i], p), "checker_free": ([p], None), "checker_tick": ([p, ctypes.c_int64], None),
        "checker_command": ([p, ctypes.c_int64, i, i, i, i, i], None), "checker_first": ([p], ctypes.c_char_p),
        "checker_total": ([p], u), "checker_counts": ([p], ctypes.c_char_p),
        "table_count": ([], i), "table_name": ([i], ctypes.c_char_p), "table_values": ([i, p], None),
        "bench_new": ([u, p], p), "bench_free": ([p], None), "bench_pauses": ([p, i, i, i], None),
        "bench_train": ([p, i, ctypes.c_uint32, ctypes.c_uint32], None), "bench_run": ([p, u, i, u], None),
        "bench_reset": ([p, u], None), "bench_silence": ([p, i], None), "bench_expect_errors": ([p, i], None),
        "bench_clear": ([p], None), "bench_counts": ([p, p], None), "bench_wrong": ([p], ctypes.c_char_p),
        "bench_checker": ([p], p), "bench_memory": ([p, p], p), "bench_flip": ([p, u, u, i], None),
        "bench_scrub": ([p, ctypes.c_uint32], None),
        "bench_window": ([p, ctypes.c_uint32, ctypes.c_uint32], None),
        "bench_fault": ([p], i), "bench_state": ([p], i),
    }  # fmt: skip
    for name, (arguments, result) in signatures.items():
        getattr(lib, name).argtypes, getattr(lib, name).restype = arguments, result
    return lib


def _rules(lib: ctypes.CDLL, checker: int) -> dict[str, int]:
    """Broken rules of a checker by name."""
    text = lib.checker_counts(checker).decode()
    return {rule: int(count) for rule, count in (part.split("=") for part in text.split(";") if part)}


class Checker:
    """The checker alone, for traces of commands.

    Parameters
    ----------
    library
        Any, from :func:`build`.
    table
        Name of a device.
    """

    def __init__(self, library: Path, table: str = "hbm2-4gb") -> None:
        self._lib = _load(library)
        self._handle = self._lib.checker_new(TABLES.index(table))

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *exc: object) -> None:
        self._lib.checker_free(self._handle)
        self._handle = None

    def command(self, now: int, op: str, pc: int = 0, bank: int = 0, address: int = 0) -> None:
        """A command by its name; ``address`` is a row, or a burst of the row."""
        column = op in _COLUMN
        self._lib.checker_command(self._handle, now, column, (_COLUMN if column else _ROW)[op], pc, bank, address)

    def tick(self, now: int) -> None:
        self._lib.checker_tick(self._handle, now)

    @property
    def counts(self) -> dict[str, int]:
        """Broken rules by name."""
        return _rules(self._lib, self._handle)


def tables(library: Path) -> dict[str, dict[str, int]]:
    """The checker's own values, by device and field."""
    lib = _load(library)
    out = {}
    for i in range(lib.table_count()):
        values = (ctypes.c_int * len(TABLE_FIELDS))()
        lib.table_values(i, values)
        out[lib.table_name(i).decode()] = dict(zip(TABLE_FIELDS, values, strict=True))
    return out


class DramBench:
    """One run of a controller."""

    def __init__(self, config: DramConfig, library: Path, *, ecc: bool = False, seed: int = 1) -> None:
        self.config = config
        self._lib = _load(library)
        code = None
        if ecc:
            from sluice_hw.hbm.hsiao import ROWS

            code = (ctypes.c_uint64 * 8)(*ROWS)
        self._handle = self._lib.bench_new(seed, code)

    def __enter__(self) -> DramBench:
        return self

    def __exit__(self, *exc: object) -> None:
        self._lib.bench_free(self._handle)
        self._handle = None

    def pauses(self, *, request: int = 0, sink: int = 0, source: int = 0) -> None:
        """Percent of clocks in which nothing new is offered, taken, sent."""
        self._lib.bench_pauses(self._handle, request, sink, source)

    def read(self, slice_: int, count: int = 1) -> None:
        self._lib.bench_train(self._handle, 0, slice_, count)

    def write(self, slice_: int, count: int = 1) -> None:
        self._lib.bench_train(self._handle, 1, slice_, count)

    def run(self, cycles: int, *, patience: int = 100_000) -> Counts:
        """Run so many clocks."""
        self._lib.bench_run(self._handle, cycles, 0, patience)
        return self.counts()

    def drain(self, cycles: int = 100_000_000, *, patience: int = 100_000) -> Counts:
        """Run until everything is answered."""
        self._lib.bench_run(self._handle, cycles, 1, patience)
        return self.counts()

    def reset(self, cycles: int = 4) -> None:
        self._lib.bench_reset(self._handle, cycles)

    def silence(self, on: bool = True) -> None:
        """The channels bring no data any more, or do again."""
        self._lib.bench_silence(self._handle, on)

    def expect_errors(self, on: bool = True) -> None:
        self._lib.bench_expect_errors(self._handle, on)

    def window(self, lo: int, hi: int) -> None:
        """Slices that trains may touch, lo to hi - 1."""
        self._lib.bench_window(self._handle, lo, hi)

    def scrub(self, period: int) -> None:
        """Clocks between scrubs, 0 for none."""
        self._lib.bench_scrub(self._handle, period)

    def clear(self) -> None:
        """Begin to count anew."""
        self._lib.bench_clear(self._handle)

    def counts(self) -> Counts:
        counts = Counts()
        self._lib.bench_counts(self._handle, ctypes.byref(counts))
        return counts

    @property
    def first_wrong(self) -> str:
        """What went wrong first: in the data, else in the commands, or an empty text."""
        checker = self._lib.bench_checker(self._handle)
        return (self._lib.bench_wrong(self._handle) or self._lib.checker_first(checker)).decode()

    @property
    def broken(self) -> dict[str, int]:
        """Rules of the DRAM that were broken."""
        return _rules(self._lib, self._lib.bench_checker(self._handle))

    @property
    def fault(self) -> bool:
        return bool(self._lib.bench_fault(self._handle))

    def memory(self) -> np.ndarray:
        """The data, without a copy: bank, row, burst, pseudo-channel, clock of the burst, channel, byte."""
        size = ctypes.c_uint64()
        address = self._lib.bench_memory(self._handle, ctypes.byref(size))
        flat = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (size.value,))
        t = self.config.timing
        return flat.reshape(t.banks, t.rows, t.row_bursts, 2, 2, self.config.channels, 16)

    def slice_view(self, number: int) -> list[np.ndarray]:
        """Views of a slice's bytes, 16 of a channel each, in the order of the port's beats."""
        config, memory = self.config, self.memory()
        out = []
        for unit in range(config.units):
            bank_set, row, part = config.place(number, unit)
            for burst in range(config.schedule.unit // 2):
                group = burst // (config.schedule.unit // 4) * 2 + burst % 2
                column = part * config.schedule.bank_bursts + burst % (config.schedule.unit // 4) // 2
                here = memory[group * config.sets + bank_set, row, column]
                out += [
                    here[pc, clock, channel] for clock in (0, 1) for channel in range(config.channels) for pc in (0, 1)
                ]
        return out

    def flip(self, word: int, *, data: int = 0, check: int = 0) -> None:
        """Errors in a 64-bit word of the data array, and in its check bits."""
        self._lib.bench_flip(self._handle, word, data, check)
