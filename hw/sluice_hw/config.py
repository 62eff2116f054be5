"""Chip configuration: every width and size of the hardware has its one home here.

A :class:`ChipConfig` is frozen and validated once; everything that can be derived is a property. Modules take the
config (or their own small parameters), never globals. ``preset(name)`` returns a named configuration.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["PRESETS", "ChipConfig", "preset"]

#: Operand types of the array, see ``arith/multiply_add.py``.
DTYPES = ("int8", "bf16", "int8+bf16")
#: What HBM can be, and where its check bits can be kept there (``hbm/guard.py``): an SRAM inside the chip's text,
#: DRAM channels behind the slice controller, whatever answers on an AXI4 port.
MEMORIES: dict[str, tuple[str, ...]] = {
    "sram": ("off", "sideband"), "hbm2": ("off", "sideband"), "hbm3": ("off", "sideband"),
    "axi4": ("off", "inband", "device"),
}
#: Gigabits that a channel of DRAM can have.
DRAM_GIGABITS: dict[str, tuple[int, ...]] = {"hbm2": (2, 4, 8), "hbm3": (4,)}
#: Fields that only DRAM has.
_DRAM_FIELDS = ("dram_gigabits", "dram_refresh", "memory_clocks", "core_clocks")


def _clog2(value: int) -> int:
    """Smallest b with 2**b >= value."""
    return max(value - 1, 0).bit_length()


def _is_pow2(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


@dataclass(frozen=True, kw_only=True)
class ChipConfig:
    """Parameters of one chip. Sizes in bytes, times in core clock cycles unless said otherwise.

    Raises
    ------
    ValueError
        For any combination that cannot be built; the message names the field, its value and what is allowed.
    TypeError
        For a field of the wrong type.
    """

    name: str = "custom"
    #: Array rows R: the depth of a weight tile (K).
    rows: int = 8
    #: Array columns C: the width of a weight tile (N).
    cols: int = 8
    #: Operand type of the array; with ``int8+bf16`` each LOAD_WEIGHTS and PULSE_ARRAY says which.
    dtype: str = "int8"
    #: Nominal clock; only reports use it.
    clock_mhz: int = 700
    #: Bytes that HBM moves in one core cycle on average, reads and writes together; see ``hbm_beat_bytes``. DRAM: in a
    #: memory clock, 32 for each channel.
    hbm_bytes_per_cycle: int = 32
    #: Core cycles from an accepted read request to its first beat of data; AXI4: of the memory in simulation. That of
    #: DRAM follows from its timings, see ``hbm_read_latency``.
    hbm_latency: int = 40
    #: Capacity of HBM.
    hbm_bytes: int = 1 << 24
    #: Size of a slice, the unit of every HBM transfer.
    slice_bytes: int = 256
    #: What HBM is, a key of :data:`MEMORIES`.
    memory: str = "sram"
    #: Error correction of HBM, one of those that :data:`MEMORIES` has for it. ``sideband`` adds two cycles to reads and
    #: one to writes.
    ecc: str = "off"
    #: Gigabits of a DRAM channel, one of :data:`DRAM_GIGABITS`.
    dram_gigabits: int = 4
    #: ``per-bank``: sets of banks are refreshed while others work. ``all-bank``: everything stands meanwhile.
    dram_refresh: str = "per-bank"
    #: Clocks of DRAM in so many of the core. Equal: one clock. Else the memory's is a clock of its own.
    memory_clocks: int = 1
    core_clocks: int = 1
    #: Vector memory, all banks together.
    vmem_bytes: int = 1 << 16
    #: Single-port VMEM banks, each one word wide.
    vmem_banks: int = 32
    #: Accumulator memory, both regions together.
    acc_bytes: int = 1 << 14
    #: Segments (runs of taps) that the convolution feeder can pack into one array row.
    feed_ports: int = 4
    #: Cycles from a PE's partial sum in to its partial sum out (the add latency L).
    pe_latency: int = 1
    #: Words of the microcode store.
    microcode_words: int = 1024
    #: Depth of the queue before each unit, in micro-ops.
    ld_queue: int = 4
    st_queue: int = 4
    mxu_queue: int = 8
    vpu_queue: int = 4
    #: Largest value of a token counter.
    token_max: int = 255
    #: Cycles without progress after which the watchdog stops the chip (reset value of its CSR).
    watchdog_cycles: int = 1 << 16
    #: Entries of the debug event ring.
    event_ring: int = 64

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            want = str if f.type == "str" else int
            if not isinstance(value, want) or isinstance(value, bool):
                raise TypeError(f"{f.name} must be {want.__name__}, not {value!r}")

        def need(ok: bool, field: str, allowed: str) -> None:
            if not ok:
                raise ValueError(f"{field} must be {allowed}, not {getattr(self, field)!r}")

        def need_range(field: str, lo: int, hi: int) -> None:
            need(lo <= getattr(self, field) <= hi, field, f"{lo} to {hi}")

        need(self.dtype in DTYPES, "dtype", " or ".join(map(repr, DTYPES)))
        need(self.memory in MEMORIES, "memory", " or ".join(map(repr, MEMORIES)))
        modes = "; ".join(f"{memory}: {', '.join(modes)}" for memory, modes in MEMORIES.items())
        need(self.ecc in MEMORIES[self.memory], "ecc", f"one that memory {self.memory!r} has ({modes})")
        need_range("rows", 2, 1024 // self.element_bytes)
        need_range("cols", 1, 1024 // self.element_bytes)
        need_range("clock_mhz", 1, 10_000)
        need_range("hbm_bytes_per_cycle", 8, 4096)
        need_range("hbm_latency", 40, 4096)
        need(_is_pow2(self.slice_bytes), "slice_bytes", "a power of two")
        beat = self.hbm_beat_bytes
        need(self.slice_bytes >= max(beat, 64), "slice_bytes", f"at least max(64, bytes of an HBM beat = {beat})")
        need(self.slice_bytes <= 1 << 16, "slice_bytes", "at most 65536")
        need(
            self.hbm_bytes > 0 and self.hbm_bytes % self.slice_bytes == 0,
            "hbm_bytes",
            f"a positive multiple of slice_bytes = {self.slice_bytes}",
        )
        need(self.hbm_bytes <= 1 << 36, "hbm_bytes", "at most 2**36")
        self._check_memory(need, need_range)
        group = self.vmem_interleave
        need(
            self.vmem_banks >= 8 and self.vmem_banks % group == 0,
            "vmem_banks",
            f"at least 8 and a multiple of the interleave {group} (= max(2, bytes of an HBM beat / word bytes))",
        )
        need(self.vmem_banks <= 256, "vmem_banks", "at most 256")
        row = self.vmem_banks * self.word_bytes
        need(
            self.vmem_bytes >= 2 * row and self.vmem_bytes % row == 0,
            "vmem_bytes",
            f"a multiple of vmem_banks x word = {self.vmem_banks} x {self.word_bytes} = {row} bytes, "
            "and two of them at least",
        )
        need(self.vmem_bytes <= 1 << 25, "vmem_bytes", "at most 2**25")
        acc_row = 2 * 4 * self.cols
        need(
            self.acc_bytes >= 2 * acc_row and self.acc_bytes % acc_row == 0,
            "acc_bytes",
            f"a multiple of two rows of cols x 4 = {acc_row} bytes, and two of them at least",
        )
        need(self.acc_rows <= 1 << 16, "acc_bytes", "at most 65536 accumulator rows")
        need_range("feed_ports", 1, 16)
        if self.dtype == "int8":
            need(self.pe_latency == 1, "pe_latency", "1 for int8")
        need_range("pe_latency", 1, 6)
        need_range("microcode_words", 16, 1 << 16)
        for field in ("ld_queue", "st_queue", "mxu_queue", "vpu_queue"):
            need_range(field, 2, 64)
        need_range("token_max", 1, 255)
        need_range("watchdog_cycles", 64, (1 << 32) - 1)
        need(_is_pow2(self.event_ring), "event_ring", "a power of two")
        need_range("event_ring", 4, 4096)

    def _check_memory(
        self, need: Callable[[bool, str, str], None], need_range: Callable[[str, int, int], None]
    ) -> None:
        """What the memory asks of its own fields, and of beats, slices and sizes."""
        with_memory = f"with memory {self.memory!r}"
        if self.is_dram:
            from .hbm.dram_fit import check_fit, timing_of  # needs nothing of this module

            sizes = DRAM_GIGABITS[self.memory]
            need(self.dram_gigabits in sizes, "dram_gigabits", f"{' or '.join(map(str, sizes))} {with_memory}")
            need(self.dram_refresh in ("per-bank", "all-bank"), "dram_refresh", "'per-bank' or 'all-bank'")
            need_range("memory_clocks", 1, 64)
            need_range("core_clocks", 1, 64)
            need(self.hbm_latency == 40, "hbm_latency", f"40 {with_memory}, whose latency follows from its timings")
            check_fit(
                timing_of(self.memory, self.dram_gigabits), bytes_per_cycle=self.hbm_bytes_per_cycle,
                slice_bytes=self.slice_bytes, hbm_bytes=self.hbm_bytes,
            )  # fmt: skip
            return
        for field in _DRAM_FIELDS:
            default = type(self).__dataclass_fields__[field].default
            need(getattr(self, field) == default, field, f"{default!r} {with_memory}, which is no DRAM")
        if self.ecc == "inband":
            need(self.memory_slices * self.slice_bytes <= 1 << 36, "hbm_bytes",
                 "at most 8 of 9 parts of 2**36 with ecc 'inband'")  # fmt: skip
        if self.memory == "axi4":
            need(self.hbm_bytes_per_cycle == 32, "hbm_bytes_per_cycle", f"32 {with_memory}, the width of its port")

    # -- array ---------------------------------------------------------------------------------------------------
    @property
    def is_float(self) -> bool:
        """Whether operands may be bf16, and sums and accumulators fp32."""
        return self.dtype != "int8"

    @property
    def both(self) -> bool:
        """Whether operands may be int8 as well as bf16."""
        return self.dtype == "int8+bf16"

    @property
    def element_bytes(self) -> int:
        """Bytes of an operand, of the larger one where there are two."""
        return 2 if self.is_float else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of activations, ``rows`` operands."""
        return self.rows * self.element_bytes

    @property
    def col_bytes(self) -> int:
        """Bytes of a row of weights, ``cols`` operands."""
        return self.cols * self.element_bytes

    @property
    def psum_width(self) -> int:
        """Bits of a partial sum inside the array: fp32, or exact for int8 products down all rows."""
        return 32 if self.is_float else 16 + _clog2(self.rows)

    @property
    def acc_revisit(self) -> int:
        """Cycles from a row of sums to the next one that may be added to the same accumulator row."""
        return self.pe_latency + 2 if self.is_float else 1

    @property
    def macs_per_cycle(self) -> int:
        return self.rows * self.cols

    # -- vector memory -------------------------------------------------------------------------------------------
    @property
    def word_bytes(self) -> int:
        """Bytes of a VMEM bank word: one array row, rounded up to a power of two so that addresses split by bits."""
        return 1 << _clog2(max(self.row_bytes, self.col_bytes, 8))

    @property
    def vmem_interleave(self) -> int:
        """Banks that consecutive words rotate over: two for unaligned access, more where HBM is wider than a word."""
        return max(2, self.hbm_beat_bytes // self.word_bytes)

    @property
    def vmem_regions(self) -> int:
        """Groups of ``vmem_interleave`` banks; streams in different regions never conflict."""
        return self.vmem_banks // self.vmem_interleave

    @property
    def vmem_region_bytes(self) -> int:
        return self.vmem_bytes // self.vmem_regions

    @property
    def vmem_bank_rows(self) -> int:
        return self.vmem_bytes // (self.vmem_banks * self.word_bytes)

    # -- accumulators --------------------------------------------------------------------------------------------
    @property
    def acc_rows(self) -> int:
        """Rows of ``cols`` int32, both regions together."""
        return self.acc_bytes // (4 * self.cols)

    @property
    def acc_region_rows(self) -> int:
        return self.acc_rows // 2

    # -- HBM -----------------------------------------------------------------------------------------------------
    @property
    def hbm_slices(self) -> int:
        return self.hbm_bytes // self.slice_bytes

    @property
    def memory_slices(self) -> int:
        """Slices of the memory itself: with those that hold check bits, one for eight of data."""
        return self.hbm_slices + (-(-self.hbm_slices // 8) if self.ecc == "inband" else 0)

    @property
    def is_dram(self) -> bool:
        """Whether HBM is DRAM behind the slice controller."""
        return self.memory in DRAM_GIGABITS

    @property
    def memory_crosses(self) -> bool:
        """Whether the memory has a clock of its own."""
        return self.memory_clocks != self.core_clocks

    @property
    def hbm_first_beat(self) -> int:
        """Core cycles from a read request at a memory that is idle to its first beat of data."""
        if self.is_dram:
            from .hbm.dram_config import DramConfig

            return DramConfig.of(self).first_beat
        if self.memory == "axi4":
            from .hbm.axi4 import PORT_CLOCKS

            return self.hbm_latency + PORT_CLOCKS
        return self.hbm_latency

    @property
    def hbm_read_latency(self) -> int:
        """The same, through the decoder where there is one."""
        return self.hbm_first_beat + (2 if self.ecc in ("sideband", "inband") else 0)

    @property
    def hbm_beat_bytes(self) -> int:
        """Width of the HBM port: ``hbm_bytes_per_cycle``, rounded up to a power of two."""
        return 1 << _clog2(self.hbm_bytes_per_cycle)

    @property
    def hbm_beat_rate(self) -> tuple[int, int]:
        """Beats that HBM moves, and the cycles in which it does, in lowest terms: (3, 4) for 48 bytes a cycle."""
        beats, cycles = self.hbm_bytes_per_cycle, self.hbm_beat_bytes
        if self.memory_clocks < self.core_clocks:
            beats, cycles = beats * self.memory_clocks, cycles * self.core_clocks
        common = math.gcd(beats, cycles)
        return beats // common, cycles // common

    @property
    def slice_beats(self) -> int:
        return self.slice_bytes // self.hbm_beat_bytes

    @property
    def param_bytes(self) -> int:
        """Bytes of one LOAD_PARAMS block: bias int32 x C, multiplier 32 bit x C, shift uint8 x C."""
        return 9 * self.cols

    def queue_depth(self, unit: str) -> int:
        """Depth of the queue of unit ``"ld"``, ``"st"``, ``"mxu"`` or ``"vpu"``."""
        return {"ld": self.ld_queue, "st": self.st_queue, "mxu": self.mxu_queue, "vpu": self.vpu_queue}[unit]

    def replace(self, **changes: object) -> ChipConfig:
        """A copy with fields changed; unknown fields raise ``ValueError`` that lists the known ones."""
        known = [f.name for f in dataclasses.fields(self)]
        for key in changes:
            if key not in known:
                raise ValueError(f"unknown config field {key!r}; known fields: {', '.join(known)}")
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


KIB = 1 << 10
MIB = 1 << 20

PRESETS: dict[str, ChipConfig] = {
    c.name: c
    for c in (
        ChipConfig(name="tiny"),
        ChipConfig(
            name="small", rows=16, cols=16, vmem_bytes=512 * KIB, vmem_banks=16, acc_bytes=64 * KIB,
            hbm_bytes=64 * MIB,
        ),
        ChipConfig(
            name="edgetpu", rows=64, cols=64, clock_mhz=480, vmem_bytes=8 * MIB, vmem_banks=16, acc_bytes=MIB,
            hbm_bytes_per_cycle=16, hbm_bytes=64 * MIB, slice_bytes=KIB, feed_ports=8,
        ),
        ChipConfig(
            name="mid128", rows=128, cols=128, vmem_bytes=16 * MIB, vmem_banks=16, acc_bytes=2 * MIB,
            hbm_bytes_per_cycle=256, hbm_bytes=256 * MIB, slice_bytes=4 * KIB, feed_ports=8,
        ),
        ChipConfig(
            name="v1", rows=256, cols=256, vmem_bytes=24 * MIB, vmem_banks=16, acc_bytes=4 * MIB,
            hbm_bytes_per_cycle=256, hbm_bytes=256 * MIB, slice_bytes=4 * KIB, feed_ports=8,
        ),
        ChipConfig(
            name="v1-ddr3", rows=256, cols=256, vmem_bytes=24 * MIB, vmem_banks=16, acc_bytes=4 * MIB,
            hbm_bytes_per_cycle=48, hbm_bytes=256 * MIB, slice_bytes=4 * KIB, feed_ports=8,
        ),
        ChipConfig(
            name="v2", rows=128, cols=128, dtype="bf16", pe_latency=4, vmem_bytes=16 * MIB, vmem_banks=16,
            acc_bytes=4 * MIB, hbm_bytes_per_cycle=512, hbm_bytes=256 * MIB, slice_bytes=4 * KIB, feed_ports=8,
            # A pass has up to six setup words, and a tile of a matmul two ops: neither unit's may hold up the other's.
            ld_queue=16, mxu_queue=32, vpu_queue=32,
        ),
        ChipConfig(name="tiny-hbm2", memory="hbm2", ecc="sideband", slice_bytes=4 * KIB, hbm_bytes=4 * MIB),
    )
}


def preset(name: str) -> ChipConfig:
    """The preset called ``name``; raises ``ValueError`` that lists the known ones."""
    try:
        return PRESETS[name]
    except KeyError:
        raise ValueError(f"unknown config {name!r}; known configs: {', '.join(PRESETS)}") from None
