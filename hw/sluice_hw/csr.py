"""Control and status registers as data: the one table that hardware, driver and documentation read.

Names and offsets are the same for every chip; reset values and the contents of the geometry registers come from its
:class:`~.config.ChipConfig`. Registers are 32 bits wide at byte offsets that are multiples of 4. The AXI4 data port's
address map is here too (:class:`HostMap`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from amaranth.lib import data

from . import isa
from .config import ChipConfig

__all__ = [
    "ADDRESS_BITS",
    "CHIP_ID",
    "ECC_BASE",
    "ECC_COUNTERS",
    "SEQUENCER",
    "VERSION",
    "WORK_COUNTERS",
    "Access",
    "Bits",
    "HostMap",
    "Irq",
    "Register",
    "config_hash",
    "counters",
    "csr_map",
    "csr_table",
    "ecc_markdown",
    "markdown",
    "watchdog_info_layout",
]

#: Bits of the AXI4-Lite address.
ADDRESS_BITS = 12
#: "SLUI", read from register ID.
CHIP_ID = 0x534C5549
#: Major, minor, patch of the register map and the microcode encodings.
VERSION = (0, 1, 0)
#: Number of the sequencer where registers name a unit: the units with a queue come before it.
SEQUENCER = len(isa.Unit)

#: Counts of work, equal to golden's for the same program.
WORK_COUNTERS: dict[str, str] = {
    "ld_slices": "slices that HBM_READ_SLICE has moved",
    "st_slices": "slices that HBM_WRITE_SLICE has moved",
    "macs": "multiply-accumulates: k x n of the tile's LOAD_WEIGHTS for each row that entered the array",
    "array_rows": "rows that entered the array",
    "weight_tiles": "LOAD_WEIGHTS finished",
    "vector_rows": "rows that VECTOR wrote",
    "tokens": "tokens given",
    "ops": "ops finished, setup words excluded",
}


#: Where the registers of chips with ECC begin.
ECC_BASE = 0x600
#: What such chips count, and where the last errors were.
ECC_COUNTERS: dict[str, str] = {
    "corrected": "64-bit words with a single error that were read and corrected",
    "detected": "64-bit words with a double error that were read",
    "scrubbed": "slices that the scrubber has read",
    "repaired": "... and written back",
    "corrected_slice": "slice of the last word corrected",
    "corrected_word": "... number of the word in it",
    "detected_slice": "slice of the last word with a double error",
    "detected_word": "... number of the word in it",
}


class Access(IntEnum):
    """What the host may do. A write to RO is refused (SLVERR); WO reads as 0; W1C clears the bits written as 1."""

    RO = 0
    RW = 1
    W1C = 2
    WO = 3


class Irq(IntEnum):
    """Bits of IRQ_STATUS and IRQ_ENABLE."""

    DONE = 0
    ERROR = 1
    HALTED = 2
    HOST_ERROR = 3


@dataclass(frozen=True)
class Bits:
    """A field of a register, from bit ``lsb``."""

    name: str
    lsb: int
    width: int
    doc: str = ""

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.lsb

    def get(self, value: int) -> int:
        """The field's value in a register value."""
        return (value & self.mask) >> self.lsb


@dataclass(frozen=True)
class Register:
    """One register. Without ``fields`` it is a number of ``width`` bits; bits above read as 0 and ignore writes."""

    name: str
    offset: int
    access: Access
    doc: str
    reset: int = 0
    width: int = 32
    fields: tuple[Bits, ...] = ()

    def field(self, name: str) -> Bits:
        """The field called ``name``; raises ``KeyError`` that lists the known ones."""
        for f in self.fields:
            if f.name == name:
                return f
        raise KeyError(f"register {self.name} has no field {name!r}; its fields: {[f.name for f in self.fields]}")

    def unpack(self, value: int) -> dict[str, int]:
        """Field values of a register value."""
        return {f.name: f.get(value) for f in self.fields}


class HostMap:
    """Address map of the AXI4 data port: bytes, ``ADDRESS_BITS`` bits wide.

    HBM stands at ``HBM_BASE``, byte for byte, ``hbm_bytes`` long; the microcode store at ``UCODE_BASE``, 32 bytes per
    word, little endian. Everything else answers SLVERR, and so does a burst that begins inside and ends outside.
    """

    ADDRESS_BITS = 40
    DATA_BITS = 64
    HBM_BASE = 0
    UCODE_BASE = 1 << 36
    WORD_BYTES = isa.WORD_BITS // 8

    @classmethod
    def ucode_address(cls, word: int) -> int:
        """Byte address of a microcode word."""
        return cls.UCODE_BASE + word * cls.WORD_BYTES


def watchdog_info_layout() -> data.StructLayout:
    """ERROR_INFO of the error WATCHDOG: the first unit that waits, for what, and the state of every unit."""
    return data.StructLayout({"unit": 4, "cause": 4, "ld": 4, "st": 4, "mxu": 4, "vpu": 4, "hbm": 4, "seq": 4})


#: Config fields that a program or the driver can notice. Latencies and clocks change times only.
_HASHED = (
    "rows", "cols", "dtype", "hbm_bytes_per_cycle", "hbm_bytes", "slice_bytes", "vmem_bytes", "vmem_banks", "acc_bytes",
    "feed_ports", "microcode_words", "ld_queue", "st_queue", "mxu_queue", "vpu_queue", "token_max",
)


def config_hash(config: ChipConfig) -> int:
    """32-bit hash of what software depends on: the config fields it uses, the encodings and the register map."""
    parts = [f"{name}={getattr(config, name)!r}" for name in _HASHED]
    for op, spec in isa.ops_of(config).items():
        parts.append(f"{op.name}={int(op)}:" + ",".join(f"{f.name}/{f.width}/{f.signed}" for f in spec.fields))
    parts += [f"{r.name}@{r.offset}" for r in _table(config, 0)]
    return int.from_bytes(hashlib.sha256("\n".join(parts).encode()).digest()[:4], "little")


def counters() -> dict[str, str]:
    """Names of the 64-bit counters and their meaning, in the order of their registers.

    ``cycles``; ``<unit>_<cause>`` for every :data:`isa.UNIT_CAUSES`; ``window`` and ``starved_<cause>``;
    :data:`WORK_COUNTERS`.
    """
    out = {"cycles": "cycles from the program's start to its end"}
    for unit, causes in isa.UNIT_CAUSES.items():
        for cause in causes:
            out[f"{unit}_{cause.name.lower()}"] = f"cycles in which {unit.upper()} was {_cause_doc(cause)}"
    out["window"] = "cycles from the first to the last row that entered the array, both included"
    for cause in isa.UNIT_CAUSES["mxu"]:
        what = "MXU worked on something else" if cause is isa.Cause.BUSY else f"MXU was {_cause_doc(cause)}"
        out[f"starved_{cause.name.lower()}"] = f"cycles of the window without a row in which {what}"
    out.update(WORK_COUNTERS)
    return out


def _cause_doc(cause: isa.Cause) -> str:
    if cause in (isa.Cause.BUSY, isa.Cause.IDLE):
        return cause.name.lower()
    return "waiting for " + cause.name.lower().replace("token_", "a token of ")


_RO, _RW, _W1C, _WO = Access.RO, Access.RW, Access.W1C, Access.WO


def _flags(*flags: tuple[str, str]) -> tuple[Bits, ...]:
    return tuple(Bits(name, i, 1, doc) for i, (name, doc) in enumerate(flags))


def _table(config: ChipConfig, hashed: int) -> tuple[Register, ...]:
    out: list[Register] = []
    at = 0

    def reg(
        name: str, access: Access, doc: str, reset: int = 0, width: int = 32, fields: tuple[Bits, ...] = ()
    ) -> None:
        nonlocal at
        out.append(Register(name, at, access, doc, reset, width, fields))
        at += 4

    def section(offset: int) -> None:
        nonlocal at
        if offset < at:
            raise AssertionError(f"CSR section {offset:#x} overlaps the one before, which ends at {at:#x}")
        at = offset

    major, minor, patch = VERSION
    reg("ID", _RO, 'the letters "SLUI"', CHIP_ID)
    reg("VERSION", _RO, "version of the register map and the microcode", major << 16 | minor << 8 | patch,
        fields=(Bits("patch", 0, 8), Bits("minor", 8, 8), Bits("major", 16, 8)))
    reg("CONFIG_HASH", _RO, "hash of the configuration, encodings and register map that software depends on", hashed)
    for name, value, doc in (
        ("ROWS", config.rows, "array rows"),
        ("COLS", config.cols, "array columns"),
        ("VMEM_BYTES", config.vmem_bytes, "bytes of vector memory"),
        ("VMEM_BANKS", config.vmem_banks, "banks of vector memory"),
        ("ACC_ROWS", config.acc_rows, "accumulator rows, both regions"),
        ("SLICE_BYTES", config.slice_bytes, "bytes of an HBM slice"),
        ("HBM_SLICES", config.hbm_slices, "slices of HBM"),
        ("HBM_BEAT_BYTES", config.hbm_beat_bytes, "bytes of an HBM beat, the most that moves in a cycle"),
        ("HBM_LATENCY", config.hbm_first_beat, "cycles from a read request to its first data"),
        ("MICROCODE_WORDS", config.microcode_words, "words of the microcode store"),
        ("FEED_PORTS", config.feed_ports, "segments of the convolution feeder"),
        ("TOKEN_MAX", config.token_max, "largest value of a token counter"),
        ("EVENT_ENTRIES", config.event_ring, "entries of the event ring"),
        ("CLOCK_MHZ", config.clock_mhz, "nominal clock"),
    ):
        reg(name, _RO, doc, value)
    reg("QUEUES", _RO, "depths of the queues",
        sum(config.queue_depth(u.name.lower()) << 8 * u for u in isa.Unit),
        fields=tuple(Bits(u.name.lower(), 8 * u, 8) for u in isa.Unit))
    reg("HBM_BYTES_PER_CYCLE", _RO, "bytes that HBM moves in a cycle on average, reads and writes together",
        config.hbm_bytes_per_cycle)

    section(0x080)
    reg("CTRL", _WO, "commands; bits written as 1 act, one at most may be set", width=5, fields=_flags(
        ("start", "run the program at ENTRY, after the slice buffer is written back; refused (SLVERR) while one runs "
                  "or starts, or after an error"),
        ("soft_reset", "stop and reset sequencer, units, queues and tokens; configuration and memories stay"),
        ("halt", "stop before the next word; without effect while STATUS.starting"),
        ("step", "execute one word and halt again"),
        ("resume", "go on after a halt"),
    ))
    reg("STATUS", _RO, "state of the chip", width=7, fields=_flags(
        ("running", "a program runs (or is halted inside)"),
        ("done", "the last program ended at HALT"),
        ("halted", "stopped before the word at PC by halt, step or breakpoint"),
        ("error", "stopped by an error, see ERROR_CODE; only a soft reset leaves this state"),
        ("watchdog", "that error is the watchdog's"),
        ("starting", "start was written, the slice buffer is being written back"),
        ("resetting", "a soft reset is under way"),
    ))
    irqs = _flags(("done", "a program ended"), ("error", "the chip stopped by an error"), ("halted", "the chip halted"),
                  ("host_error", "HBM refused to write back host data"))
    reg("IRQ_ENABLE", _RW, "which bits of IRQ_STATUS raise the interrupt", width=len(Irq), fields=irqs)
    reg("IRQ_STATUS", _W1C, "what has happened since the bit was cleared", width=len(Irq), fields=irqs)
    reg("ENTRY", _RW, "address of the first microcode word", width=16)
    reg("HALT_CODE", _RO, "code of the HALT that ended the program", width=8)
    reg("ERROR_CODE", _RO, "why the chip stopped: " + ", ".join(f"{e.value} {e.name}" for e in isa.Error), width=4)
    reg("ERROR_PC", _RO, "microcode address of the word at fault", width=17)
    reg("ERROR_FIELD", _RO, "field at fault, counted from 1; 0 the opcode, one past the last the reserved bits",
        width=8)
    reg("ERROR_INFO", _RO, "address or value that helps; low 32 bits of the word when the decoder refused it; "
                           "watchdog: unit, cause, then the states of LD, ST, MXU, VPU, HBM, sequencer, 4 bits each")
    reg("ERROR_UNIT", _RO, "who stopped: " + ", ".join(f"{u.value} {u.name}" for u in isa.Unit)
        + f", {SEQUENCER} sequencer", width=3)
    reg("HBM_LO", _RW, "first slice that programs may reach")
    reg("HBM_HI", _RW, "one past the last slice that programs may reach", config.hbm_slices)
    reg("WATCHDOG", _RW, "cycles without progress after which the chip stops; 0: never", config.watchdog_cycles)
    reg("BREAKPOINT", _RW, "halt before the word at `address`", width=17,
        fields=(Bits("address", 0, 16, "microcode address"), Bits("enable", 16, 1)))
    section(0x0C0)
    for i in range(isa.PARAM_REGISTERS):
        reg(f"PARAM{i}", _RW, f"parameter register {i}: loop counts and addresses of a program")

    section(0x100)
    for name, doc in counters().items():
        reg(f"{name.upper()}_LO", _RO, doc + "; reading latches the upper half for the next read of a _HI register")
        reg(f"{name.upper()}_HI", _RO, "... upper half of the counter whose _LO was read last")

    section(0x400)
    reg("EVENT_HEAD", _RO, "events recorded since the program started; the newest is number EVENT_HEAD - 1")
    reg("EVENT_DROPPED", _RO, "events lost because too many came at once", width=16)
    reg("EVENT_SELECT", _RW, "event that EVENT_TIME and EVENT_INFO show, modulo EVENT_ENTRIES", width=16)
    reg("EVENT_TIME", _RO, "cycle of the event, from the program's start")
    reg("EVENT_INFO", _RO, "the event", fields=(
        Bits("pc", 0, 16, "microcode address of the op"), Bits("unit", 16, 3, "unit"),
        Bits("kind", 19, 2, "0 start, 1 finish, 2 error")))

    section(0x440)
    reg("PC", _RO, "address of the word that executes next", width=17)
    reg("SEQ_STATE", _RO, "the sequencer", fields=(
        Bits("open", 0, isa.LOOP_LEVELS, "loop levels that are open"),
        Bits("first", 8, isa.LOOP_LEVELS, "... in their first iteration"),
        Bits("last", 16, isa.LOOP_LEVELS, "... in their last iteration"), Bits("cause", 24, 4, "state (isa.Cause)")))
    for i in range(isa.LOOP_LEVELS):
        reg(f"LOOP{i}", _RO, f"iterations of loop level {i} that are finished")
    section(0x480)
    for i in range(isa.ADDRESS_REGISTERS):
        reg(f"ADDR{i}", _RO, f"address register {i}")
    for u in isa.Unit:
        reg(f"{u.name}_STATE", _RO, f"unit {u.name} and its queue", fields=(
            Bits("cause", 0, 4, "state (isa.Cause)"), Bits("idle", 4, 1, "nothing under way"),
            Bits("head", 5, 1, "an op stands at the head of the queue"),
            Bits("opcode", 6, 6, "the op at the head, else the last one taken"),
            Bits("level", 12, 7, "ops in the queue"),
            Bits("wait", 20, 4, "units it asks a token from now"),
            Bits("missing", 24, 4, "... and that have given none")))
        reg(f"{u.name}_PC", _RO, "address of that op", width=16)
    for u in isa.Unit:
        reg(f"TOKENS_{u.name}", _RO, f"tokens that {u.name} gave and nobody took yet", fields=tuple(
            Bits(f"to_{v.name.lower()}", 8 * v, 8) for v in isa.Unit))
    if config.ecc != "off":
        section(ECC_BASE)
        reg("ECC_CTRL", _WO, "commands", width=2, fields=_flags(
            ("clear", "set the counters to 0"),
            ("inject", "invert bits of a stored word, as the ECC_INJECT registers say; refused (SLVERR) while "
                       "ECC_STATUS.injecting"),
        ))
        reg("ECC_STATUS", _RO, "state", width=1, fields=_flags(
            ("injecting", "an injection waits for room among the words that are wrong already; the registers that "
                          "describe it must stay"),
        ))
        reg("ECC_PERIOD", _RW, "cycles from one slice being due to be scrubbed to the next; 0: none is")
        reg("ECC_INJECT_SLICE", _RW, "slice of the word")
        reg("ECC_INJECT_WORD", _RW, "number of the 64-bit word in its slice", width=13)
        reg("ECC_INJECT_DATA_LO", _RW, "bits of the word to invert, lower half")
        reg("ECC_INJECT_DATA_HI", _RW, "... upper half")
        reg("ECC_INJECT_CHECK", _RW, "check bits to invert", width=8)
        for name, doc in ECC_COUNTERS.items():
            reg(f"ECC_{name.upper()}", _RO, doc)
    if at > 1 << ADDRESS_BITS:
        raise AssertionError(f"CSR table ends at {at:#x}, beyond {ADDRESS_BITS} address bits")
    return tuple(out)


def csr_table(config: ChipConfig) -> tuple[Register, ...]:
    """All registers of a chip, by rising offset."""
    return _table(config, config_hash(config))


def csr_map(config: ChipConfig) -> dict[str, Register]:
    """All registers of a chip, by name."""
    return {r.name: r for r in csr_table(config)}


def markdown(config: ChipConfig) -> str:
    """The table for the documentation; resets are those of ``config``."""
    return _markdown(csr_table(config))


def ecc_markdown(config: ChipConfig) -> str:
    """The table of the registers that only chips with ECC have."""
    return _markdown([r for r in csr_table(config.replace(ecc="sideband")) if r.offset >= ECC_BASE])


def _markdown(table: Iterable[Register]) -> str:
    lines = ["| offset | register | access | reset | meaning |", "|---|---|---|---|---|"]
    for r in table:
        doc = r.doc
        if r.fields:
            doc += ": " + "; ".join(
                (f"[{f.lsb}]" if f.width == 1 else f"[{f.lsb + f.width - 1}:{f.lsb}]") + f" `{f.name}`"
                + (f" {f.doc}" if f.doc else "") for f in r.fields)
        lines.append(f"| {r.offset:#05x} | {r.name} | {r.access.name.lower()} | {r.reset:#x} | {doc} |")
    return "\n".join(lines) + "\n"
