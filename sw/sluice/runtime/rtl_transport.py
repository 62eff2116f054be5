"""Transport to the chip in simulation inside this process: a Verilated shared library, driven by ``ctypes``."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sluice.errors import AccessError, TransportError, UsageError
from sluice_hw import csr
from sluice_hw.config import ChipConfig
from sluice_hw.csr import HostMap

from .rtl_library import load_library
from .transport import SimTime, Transport, check_range
from .wave_window import WaveWindow

__all__ = ["HOST_PATHS", "RtlTransport"]

#: How the host reaches HBM: in the simulator's memory, or through the chip's AXI4 port.
HOST_PATHS = ("view", "axi")

_RESPONSES = {1: "EXOKAY", 2: "SLVERR", 3: "DECERR"}
#: Bytes of one call into the library: what an interruption by the user waits for.
_PIECE = 1 << 12


class RtlTransport(Transport):
    """The chip in simulation, in this process.

    Registers and the microcode store are reached through the chip's AXI ports. So is HBM with ``host_path="axi"``;
    with ``"view"`` the host's bytes are in memory at once, which takes no simulated time and is allowed at any moment,
    also while a program runs.

    Other threads of Python run while cycles are simulated; each chip is for one thread at a time.

    Parameters
    ----------
    config
        The chip.
    emission, opt
        Form of the array, and C++ optimisation of the model (:func:`.chip_model.chip_archive`).
    waves
        FST file to write; None: none.
    window
        Cycles that it shows, None: all (:class:`.WaveWindow`).
    library
        A library that is built already (:func:`.chip_model.build_library`).
    host_path
        ``"view"`` or ``"axi"``; None: ``"view"``, unless check bits lie in HBM itself (ECC ``inband``), which only the
        chip can keep right.
    progress
        Called with a line of text when something takes long.

    Raises
    ------
    UsageError
        For an unknown ``host_path``, or a view of a chip with ECC ``inband``.
    """

    name = "rtl"
    timed = True

    def __init__(
        self,
        config: ChipConfig,
        *,
        emission: str = "loop",
        opt: str | None = None,
        waves: Path | str | None = None,
        window: WaveWindow | None = None,
        library: Path | None = None,
        host_path: str | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        inband = config.ecc == "inband"
        if host_path is None:
            host_path = "axi" if inband else "view"
        if inband and host_path == "view":
            raise UsageError(f"host_path must be 'axi' with ECC 'inband' (chip {config.name!r}), not 'view'")
        if host_path not in HOST_PATHS:
            raise UsageError(f"host_path must be {' or '.join(HOST_PATHS)}, not {host_path!r}")
        self.config, self.host_path = config, host_path
        if library is None:
            from .chip_model import build_library

            (progress or (lambda line: None))(f"building the {config.name} chip")
            library = build_library(config, emission=emission, waves=waves is not None, opt=opt)
        if waves is not None:
            Path(waves).parent.mkdir(parents=True, exist_ok=True)
        self._library = load_library(library)
        window = window or WaveWindow()
        self._chip = self._library.sluice_new(
            None if waves is None else os.fsencode(Path(waves).absolute()), window.first, window.end
        )
        self._start = csr.csr_map(config)["CTRL"]
        #: Slice, from the end of HBM, that :meth:`settle` has read last.
        self._settled = 1
        size = ctypes.c_uint64()
        memory = self._library.sluice_memory(self._chip, ctypes.byref(size))
        #: HBM as bytes, shared with the simulation.
        self._hbm = np.ctypeslib.as_array(memory, (size.value,))[: config.hbm_bytes]

    def _handle(self) -> int:
        if self._chip is None:
            raise TransportError("the simulation is closed")
        return self._chip

    def _checked(self, response: int, kind: str, address: int, size: str = "") -> None:
        """Raise what a response of a port means."""
        if response < 0:
            raise TransportError(f"the chip does not answer a {kind} access to {size}{address:#x}")
        if response:
            raise AccessError(
                f"{kind} access to {size}{address:#x} answered {_RESPONSES[response]}", kind=kind, address=address
            )

    # -- Transport -----------------------------------------------------------------------------------------------
    def csr_read(self, offset: int) -> int:
        value = ctypes.c_uint32()
        self._checked(self._library.sluice_csr_read(self._handle(), offset, ctypes.byref(value)), "register", offset)
        return value.value

    def csr_write(self, offset: int, value: int) -> None:
        if offset == self._start.offset and value & self._start.field("start").mask:
            self._library.sluice_mark(self._handle())
        self._checked(self._library.sluice_csr_write(self._handle(), offset, value), "register", offset)

    def mem_read(self, address: int, size: int) -> bytes:
        check_range(address, size)
        if self._in_view(address, size):
            return self._hbm[address : address + size].tobytes()
        data = ctypes.create_string_buffer(size)
        for at in range(0, size, _PIECE):
            piece = min(_PIECE, size - at)
            done = self._library.sluice_mem_read(self._handle(), address + at, piece, ctypes.addressof(data) + at)
            self._checked(done, "memory", address, f"{size} bytes at ")
        return data.raw

    def mem_write(self, address: int, data: bytes) -> None:
        check_range(address, len(data))
        if self._in_view(address, len(data)):
            self._hbm[address : address + len(data)] = np.frombuffer(data, np.uint8)
            return
        for at in range(0, len(data), _PIECE):
            piece = bytes(data[at : at + _PIECE])
            done = self._library.sluice_mem_write(self._handle(), address + at, len(piece), piece)
            self._checked(done, "memory", address, f"{len(data)} bytes at ")

    def _in_view(self, address: int, size: int) -> bool:
        """Whether these bytes need not go through the port. What lies outside does, and the chip refuses it."""
        self._handle()
        return self.host_path == "view" and HostMap.HBM_BASE <= address <= HostMap.HBM_BASE + self._hbm.size - size

    def wait_interrupt(self, timeout_cycles: int) -> bool:
        self._run(timeout_cycles, for_interrupt=True)
        return bool(self._library.sluice_interrupt(self._handle()))

    def advance(self, cycles: int) -> None:
        self._run(cycles, for_interrupt=False)

    def _run(self, cycles: int, *, for_interrupt: bool) -> None:
        """The library comes back several times a second, so that an interruption by the user can act in between."""
        library, chip = self._library, self._handle()
        while cycles > 0:
            cycles -= library.sluice_run(chip, cycles, for_interrupt)
            if for_interrupt and library.sluice_interrupt(chip):
                return

    @property
    def wave_cycles(self) -> int:
        """How many cycles the waveform holds."""
        return self._library.sluice_shown(self._handle())

    def sim_time(self) -> SimTime:
        chip = self._handle()
        return SimTime(self._library.sluice_cycles(chip), self._library.sluice_seconds(chip))

    def settle(self) -> bool:
        """Read a word through the port, which memory outside of the chip serves when it has written what it was owed.
        Two slices take turns, because the chip's slice buffer holds one."""
        if self.host_path == "view" and self.config.memory != "sram":
            self._settled = 3 - self._settled
            address = (self.config.hbm_slices - self._settled) * self.config.slice_bytes
            word = ctypes.create_string_buffer(8)
            address += HostMap.HBM_BASE
            return self._library.sluice_mem_read(self._handle(), address, 8, ctypes.addressof(word)) == 0
        return True

    def hbm_view(self) -> np.ndarray:
        """HBM as uint8[hbm_bytes], the simulator's own memory; not to be used after :meth:`close`.

        Raises
        ------
        UsageError
            With ``host_path="axi"``: what the host wrote last may still be in the chip's slice buffer.
        """
        self._handle()
        if self.host_path != "view":
            raise UsageError(f"a view of HBM needs host_path='view', not {self.host_path!r}")
        return self._hbm

    def close(self) -> None:
        if self._chip is not None:
            self._hbm = np.empty(0, np.uint8)
            self._library.sluice_delete(self._chip)
            self._chip = None
