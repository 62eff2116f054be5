"""The driver: a chip with its program store, its memory and its registers, whatever the way to it is."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from sluice.asm import Program, ProgramError, check
from sluice.errors import (
    AccessError,
    ChipError,
    DeviceError,
    DeviceMismatch,
    DeviceTimeout,
    SluiceError,
    UsageError,
)
from sluice_hw import csr, isa
from sluice_hw.config import ChipConfig
from sluice_hw.csr import HostMap, Irq

from .banks import BankMap
from .buffer import DTYPES, Buffer
from .ecc import EccStatus, detected_text, inject_error, need_ecc, read_status
from .fault import Fault, decode_fault, op_text
from .memory import SliceAllocator
from .memory_info import MemoryInfo
from .report import RunReport
from .state import Event, dump_text, hung_text, state_text, waiting_text
from .transport import WORD, Transport, open_transport

__all__ = ["Device"]

#: Cycles that a program may take unless its caller says otherwise. The watchdog ends one that hangs long before.
TIMEOUT_CYCLES = 1 << 31
#: Cycles of the first wait for a program; later ones are sized to take about _CHUNK_SECONDS, which bounds how late an
#: interruption by the user acts, and how often progress is told.
_FIRST_CHUNK = 1 << 12
_CHUNK_SECONDS = 1.0
_RESET_TRIES = 1000


class Device:
    """A chip.

    Parameters
    ----------
    config
        What the chip must be.
    backend
        ``"golden"``, ``"cocotb"`` or ``"rtl"``; further keyword arguments are the transport's.
    transport
        An open transport instead of ``backend``.
    banks
        How slices lie in banks of DRAM; by default as the slice controller places them.

    Raises
    ------
    DeviceMismatch
        When the chip answers with another identity or geometry, naming the register and both values.

    Examples
    --------
    >>> with Device(preset("tiny"), backend="golden") as device:
    ...     x = device.alloc((16, 8), "int8")
    ...     x.write(np.zeros((16, 8), np.int8))
    ...     report = device.run(program)
    """

    def __init__(
        self,
        config: ChipConfig,
        backend: str = "golden",
        *,
        transport: Transport | None = None,
        banks: BankMap | None = None,
        **options: Any,
    ) -> None:
        self.config = config
        self.registers = csr.csr_map(config)
        self.hbm = SliceAllocator(config.hbm_slices, config.slice_bytes, banks or BankMap.of(config))
        self.transport = transport if transport is not None else open_transport(config, backend, **options)
        self._program: Program | None = None
        self._on_progress: Callable[[int], None] | None = None
        try:
            self._identify()
            self.write_csr("IRQ_ENABLE", (1 << len(Irq)) - 1)
        except BaseException:
            self.transport.close()
            raise

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the chip."""
        self.transport.close()

    @property
    def program(self) -> Program | None:
        """What the microcode store holds, as far as the driver knows."""
        return self._program

    def on_progress(self, call: Callable[[int], None] | None) -> None:
        """Have ``call(cycles)`` called now and then while a program runs."""
        self._on_progress = call

    # -- registers -----------------------------------------------------------------------------------------------
    def read_csr(self, name: str) -> int:
        """Value of a register by name; raises :class:`UsageError` for a name that does not exist."""
        return self.transport.csr_read(self._register(name).offset)

    def write_csr(self, name: str, value: int) -> None:
        """Write a register by name.

        Raises
        ------
        UsageError
            For a name that does not exist, or a value beyond 32 bits.
        AccessError
            Where the chip refuses.
        """
        if not 0 <= value < 1 << 32:
            raise UsageError(f"register {name} takes 0 to 2**32 - 1, not {value}")
        register = self._register(name)
        try:
            self.transport.csr_write(register.offset, value)
        except AccessError as error:
            raise AccessError(f"write of {value:#x} to register {name}: {error}", kind="register",
                              address=register.offset) from None  # fmt: skip

    def read_fields(self, name: str) -> dict[str, int]:
        """Fields of a register by name."""
        return self._register(name).unpack(self.read_csr(name))

    def counters(self) -> dict[str, int]:
        """All counters by name."""
        out = {}
        for name in csr.counters():
            low = self.read_csr(f"{name.upper()}_LO")
            out[name] = self.read_csr(f"{name.upper()}_HI") << 32 | low
        return out

    @property
    def status(self) -> dict[str, int]:
        """Fields of STATUS."""
        return self.read_fields("STATUS")

    def _register(self, name: str) -> csr.Register:
        if name not in self.registers:
            raise UsageError(f"there is no register {name!r}; docs/csr.md lists them")
        return self.registers[name]

    def _identify(self) -> None:
        for name, what in (("ID", "chip id"), ("VERSION", "version"), ("CONFIG_HASH", "configuration hash")):
            self._expect(name, what)
            if name == "VERSION":  # geometry before the hash: it says what differs
                for register in self.registers.values():
                    if self.registers["CONFIG_HASH"].offset < register.offset < self.registers["CTRL"].offset:
                        self._expect(register.name, register.doc)

    def _expect(self, name: str, what: str) -> None:
        want, got = self.registers[name].reset, self.read_csr(name)
        if got != want:
            raise DeviceMismatch(
                f"the chip is not a {self.config.name!r} of this version: register {name} ({what}) is {got:#x}, "
                f"not {want:#x}"
            )

    # -- memory --------------------------------------------------------------------------------------------------
    def alloc(
        self, shape: int | Sequence[int], dtype: Any = "int8", *, name: str = "", apart: Sequence[Buffer] = ()
    ) -> Buffer:
        """A buffer for an array, of whole slices.

        Parameters
        ----------
        name
            What :meth:`memory_info` and messages call it.
        apart
            Buffers that are read or written in turn with this one: it is placed so that their slices meet in the same
            banks as little as can be (where these lose anything by that; the slice controller's do not).

        Raises
        ------
        OutOfMemory
            Saying how much is needed, free, and free in one piece.
        UsageError
            For a shape or element type that cannot be.
        """
        shape, kind, slices = self._array(shape, dtype)
        what = name or f"an array {kind}{list(shape)}"
        first = self.hbm.alloc(slices, what, apart=self._firsts(apart))
        return Buffer(self, first, slices, shape, kind)

    def alloc_at(self, first: int, shape: int | Sequence[int], dtype: Any = "int8", *, name: str = "") -> Buffer:
        """As :meth:`alloc`, from slice ``first`` on."""
        shape, kind, slices = self._array(shape, dtype)
        self.hbm.reserve(first, slices, name or f"an array {kind}{list(shape)}")
        return Buffer(self, first, slices, shape, kind)

    def memory_info(self, together: Sequence[Buffer] = (), *, banks: BankMap | None = None) -> MemoryInfo:
        """What lies where in HBM; ``str()`` of it is a table.

        Parameters
        ----------
        together
            Buffers that a program moves in turn: the answer says what part of the bandwidth their banks leave them,
            and warns when that is little.
        banks
            How slices lie in banks, where that is not as the device was told.
        """
        return MemoryInfo.of(self.hbm, banks or self.hbm.banks, self._firsts(together))

    def _firsts(self, buffers: Sequence[Buffer]) -> list[int]:
        return [buffer.address // self.config.slice_bytes for buffer in buffers]  # of a freed one, an error

    def _array(self, shape: int | Sequence[int], dtype: Any) -> tuple[tuple[int, ...], np.dtype, int]:
        dims = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        if not all(isinstance(d, (int, np.integer)) and d >= 1 for d in dims):
            raise UsageError(f"a buffer's dimensions must be integers from 1, not {shape!r}")
        try:
            kind = np.dtype(dtype)
        except TypeError:
            kind = None
        if kind is None or kind.name not in DTYPES:
            raise UsageError(f"a buffer's elements must be {', '.join(DTYPES)}, not {dtype!r}")
        nbytes = math.prod(dims) * kind.itemsize
        return tuple(int(d) for d in dims), kind, -(-nbytes // self.config.slice_bytes)

    def write_memory(self, address: int, data: bytes) -> None:
        """Write any number of bytes to HBM at any byte address (words that are written in part are read first)."""
        self._hbm_range(address, len(data))
        if not data:
            return
        head, tail = address % WORD, -(address + len(data)) % WORD
        if head:
            data = self.transport.mem_read(address - head, WORD)[:head] + data
        if tail:
            end = address - head + len(data)
            data += self.transport.mem_read(end + tail - WORD, WORD)[WORD - tail :]
        self.transport.mem_write(HostMap.HBM_BASE + address - head, data)

    def read_memory(self, address: int, size: int) -> bytes:
        """Any number of bytes of HBM from any byte address."""
        self._hbm_range(address, size)
        if not size:
            return b""
        head = address % WORD
        whole = -(-(head + size) // WORD) * WORD
        return self.transport.mem_read(HostMap.HBM_BASE + address - head, whole)[head : head + size]

    def hbm_view(self) -> np.ndarray:
        """HBM as uint8[hbm_bytes], without a copy: what is written there, the chip reads.

        It may be read and written at any moment, also while a program runs; the order of such accesses and the
        program's is open. It must not be used after :meth:`close`.

        Raises
        ------
        UsageError
            On backends other than ``rtl``.
        """
        return self.transport.hbm_view()

    # -- error correction ------------------------------------------------------------------------------------------
    def ecc_status(self, *, clear: bool = False) -> EccStatus:
        """Errors corrected and detected since the counters were cleared, and where the last ones were.

        Raises
        ------
        UsageError
            When the chip has no ECC.
        """
        status = read_status(self)
        if clear:
            self.write_csr("ECC_CTRL", 1 << self.registers["ECC_CTRL"].field("clear").lsb)
        return status

    def scrub(self, period: int) -> None:
        """Have the scrubber look at a slice every ``period`` cycles; 0: at none."""
        need_ecc(self)
        self.write_csr("ECC_PERIOD", period)

    def inject_error(self, address: int, bits: Iterable[int]) -> None:
        """Invert bits of a stored word, which stay so until the word is written.

        The arrays of :meth:`hbm_view` do not show it: wrong bits are kept apart, and met by what the chip reads.

        Parameters
        ----------
        address
            Byte address, a multiple of 8.
        bits
            0 to 63 of the data, 64 to 71 of the check bits.

        Raises
        ------
        UsageError
            When the chip has no ECC, or there is no such word or bit.
        DeviceTimeout
            When as many words are wrong already as the chip can hold.
        """
        inject_error(self, address, bits)

    def _hbm_range(self, address: int, size: int) -> None:
        if address < 0 or address + size > self.config.hbm_bytes:
            raise UsageError(
                f"HBM has bytes 0 to {self.config.hbm_bytes - 1}, and {size} at {address} do not lie inside"
            )

    # -- programs ------------------------------------------------------------------------------------------------
    def load_program(self, program: Program | bytes, *, verify: bool = True) -> None:
        """Write a program to the microcode store.

        Parameters
        ----------
        verify
            Check it first (:func:`sluice.asm.check`); nothing is written when that finds something.

        Raises
        ------
        ProgramError
            With all that the check found.
        UsageError
            For a program of another configuration, one that does not fit, or while one runs.
        """
        if isinstance(program, (bytes, bytearray)):
            try:
                program = Program.from_bytes(bytes(program))
            except ValueError as error:
                raise UsageError(str(error)) from None
        if program.config_name and program.config_name != self.config.name:
            raise UsageError(f"the program is for config {program.config_name!r}, the chip is a {self.config.name!r}")
        if verify:
            check(program, self.config)
        elif not 0 < len(program) <= self.config.microcode_words:
            words = self.config.microcode_words
            raise ProgramError([(0, f"the microcode store takes 1 to {words} words, not {len(program)}")])
        if self.status["running"]:
            raise UsageError("a program runs; it must end (or the chip be reset) before another is loaded")
        image = program.to_bytes()
        if len(program) < self.config.microcode_words:
            image += bytes(HostMap.WORD_BYTES)  # an illegal word stops a program that runs past its end
        self.transport.mem_write(HostMap.UCODE_BASE, image)
        self._program = program

    def run(
        self,
        program: Program | bytes | None = None,
        *,
        params: Sequence[int] = (),
        entry: int = 0,
        timeout_cycles: int | None = None,
        verify: bool = True,
    ) -> RunReport:
        """Run a program to its end.

        Parameters
        ----------
        program
            Loaded first (:meth:`load_program`, with ``verify``); None: what was loaded last.
        params
            Parameter registers from 0; the rest become 0.
        entry
            Address of the first word.
        timeout_cycles
            Cycles that it may take.

        Raises
        ------
        ChipError
            When the chip stops by an error. It is reset afterwards and can be used again.
        DeviceTimeout
            With the state of the chip; it is reset as well.
        DeviceError
            When it stopped at a breakpoint: use :meth:`start` and :meth:`wait` for debugging.
        """
        if program is not None:
            self.load_program(program, verify=verify)
        before = self.transport.sim_time()
        self.start(params=params, entry=entry)
        if self.wait(timeout_cycles) == "halted":
            raise DeviceError(f"the program halted at word {self.read_csr('PC')}; run() does not stop at breakpoints")
        after = self.transport.sim_time()
        return self.report(sim_cycles=after.cycles - before.cycles, sim_seconds=after.seconds - before.seconds)

    def report(self, **more: Any) -> RunReport:
        """Counters of the last program."""
        transport = self.transport
        return RunReport.from_counters(
            self.config, transport.name, self.counters(), timed=transport.timed,
            halt_code=self.read_csr("HALT_CODE"), **more,
        )  # fmt: skip

    def start(self, *, params: Sequence[int] = (), entry: int = 0) -> None:
        """Start the loaded program and return at once."""
        if self._program is None:
            raise UsageError("no program is loaded")
        if len(params) > isa.PARAM_REGISTERS:
            raise UsageError(f"there are {isa.PARAM_REGISTERS} parameter registers, not {len(params)}")
        if not 0 <= entry < self.config.microcode_words:
            raise UsageError(f"entry must be 0 to {self.config.microcode_words - 1}, not {entry}")
        for i in range(isa.PARAM_REGISTERS):
            self.write_csr(f"PARAM{i}", int(params[i]) if i < len(params) else 0)
        self.write_csr("ENTRY", entry)
        self.write_csr("IRQ_STATUS", (1 << len(Irq)) - 1)
        self._command("start")

    def wait(self, timeout_cycles: int | None = None) -> str:
        """Wait for the program to end (``"done"``) or to halt (``"halted"``).

        Raises
        ------
        ChipError, DeviceTimeout
            As :meth:`run`.
        KeyboardInterrupt
            When the user interrupts; its attribute ``state`` is the state of the chip as text. The program goes on
            with the next simulated cycle unless :meth:`reset` stops it.
        """
        limit = TIMEOUT_CYCLES if timeout_cycles is None else timeout_cycles
        try:
            interrupted = self._wait_interrupt(limit)
        except KeyboardInterrupt as stop:
            with contextlib.suppress(SluiceError):
                stop.state = state_text(self)  # type: ignore[attr-defined]
            raise
        if not interrupted:
            dump = self.dump()
            waits = self._waiting()
            self.reset()
            why = f": {'; '.join(waits)}" if waits else ""
            raise DeviceTimeout(f"the program has not ended after {limit} cycles{why}", dump=dump)
        irq = self.read_fields("IRQ_STATUS")
        self.write_csr("IRQ_STATUS", (1 << len(Irq)) - 1)
        if irq["error"]:
            fault, dump = self.last_error, self.dump()
            self.reset()
            raise ChipError(str(fault), fault=fault, dump=dump)
        if irq["host_error"]:
            raise DeviceError("HBM refused to take data that the host had written")
        return "done" if irq["done"] else "halted"

    def _wait_interrupt(self, limit: int) -> bool:
        """Whether the interrupt has risen within ``limit`` cycles; tells the progress on the way."""
        left, size = limit, _FIRST_CHUNK
        while True:
            chunk, began = min(left, size), time.monotonic()
            if self.transport.wait_interrupt(chunk):
                return True
            left -= chunk
            size = size * 2 if time.monotonic() - began < _CHUNK_SECONDS / 2 else max(size // 2, 1)
            if self._on_progress is not None:
                self._on_progress(limit - left)
            if left <= 0:
                return False

    @property
    def last_error(self) -> Fault | None:
        """Why the chip stopped; None when it has not stopped by an error."""
        names = ("ERROR_CODE", "ERROR_PC", "ERROR_FIELD", "ERROR_INFO", "ERROR_UNIT")
        registers = {name: self.read_csr(name) for name in names}
        if not registers["ERROR_CODE"] or not self.status["error"]:
            return None
        hung = registers["ERROR_CODE"] == isa.Error.WATCHDOG
        waits = tuple(hung_text(self, registers["ERROR_INFO"])) if hung else ()
        reason = self.transport.explain()
        if registers["ERROR_CODE"] == isa.Error.HBM_ERROR:
            reason = reason or detected_text(self)
        return decode_fault(registers, self._program, self.config, reason=reason, waits=waits)

    def reset(self) -> None:
        """Soft reset: stop what runs; registers and memories stay."""
        self._soft_reset()
        if not self.transport.settle():
            # The controller remembers memory that fails, and answers writes with errors until its next reset.
            self._soft_reset()
        self.write_csr("IRQ_STATUS", (1 << len(Irq)) - 1)

    def _soft_reset(self) -> None:
        self._command("soft_reset")
        for _ in range(_RESET_TRIES):
            if not self.status["resetting"]:
                break
            self.transport.advance(16)
        else:
            raise DeviceTimeout("the chip does not come out of its soft reset", dump=self.dump())

    # -- debugging -----------------------------------------------------------------------------------------------
    def halt(self) -> None:
        """Stop before the next word, and wait for that.

        Raises
        ------
        UsageError
            When no program runs.
        """
        status = self.status
        if not (status["running"] or status["starting"]):
            # Between the two there is a cycle that shows neither.
            self.transport.advance(16)
            if not self.status["running"]:
                raise UsageError("halt needs a running program; none runs")
        while self.status["starting"]:  # the chip halts what runs, and forgets the command before that
            self.transport.advance(16)
        self._command("halt")
        self.wait()

    def resume(self) -> None:
        """Go on after a halt; :meth:`wait` for the end."""
        self._command("resume")

    def step(self) -> int:
        """Execute one word; the address of the next one.

        Raises
        ------
        UsageError
            When the chip is not halted.
        ChipError, DeviceTimeout
            When the word is in error, or does not go (a full queue that nothing empties).
        """
        if not self.status["halted"]:
            raise UsageError("step needs a halted program; use a breakpoint or halt()")
        before = self._position()
        self._command("step")
        for _ in range(_RESET_TRIES):
            self.transport.advance(8)
            status = self.status
            if status["error"] or not status["running"]:
                self.wait(1)
                break
            if self._position() != before:
                break
        else:
            raise DeviceTimeout(f"word {before[0]} does not go: {'; '.join(self._waiting())}", dump=self.dump())
        return self.read_csr("PC")

    def breakpoint(self, address: int | None) -> None:
        """Halt before the word at ``address``; None: nowhere."""
        if address is not None and not 0 <= address < self.config.microcode_words:
            raise UsageError(f"breakpoint must be 0 to {self.config.microcode_words - 1}, not {address}")
        self.write_csr("BREAKPOINT", 0 if address is None else 1 << 16 | address)

    def events(self) -> list[Event]:
        """What is in the event ring, oldest first."""
        head = self.read_csr("EVENT_HEAD")
        out = []
        for number in range(max(0, head - self.config.event_ring), head):
            self.write_csr("EVENT_SELECT", number & 0xFFFF)
            info = self.read_fields("EVENT_INFO")
            op = op_text(self._program, info["pc"], self.config)
            out.append(Event(self.read_csr("EVENT_TIME"), info["kind"], info["unit"], info["pc"], op))
        return sorted(out, key=lambda e: e.time)

    def dump(self) -> str:
        """State of the chip as text, also while a program hangs."""
        return dump_text(self)

    def _waiting(self) -> list[str]:
        return waiting_text(self)

    def _position(self) -> tuple[int, ...]:
        return self.read_csr("PC"), *(self.read_csr(f"LOOP{i}") for i in range(isa.LOOP_LEVELS))

    def _command(self, name: str) -> None:
        self.write_csr("CTRL", 1 << self.registers["CTRL"].field(name).lsb)
