"""The seam between driver and chip: what every way to reach a chip can do.

A transport moves register values and memory bytes, and lets time pass; it knows nothing of programs, buffers or
reports. The driver above (:class:`~sluice.runtime.Device`) is the same for all of them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sluice.errors import AccessError, UsageError
from sluice_hw.config import ChipConfig

__all__ = ["BACKENDS", "SimTime", "Transport", "check_range", "open_transport"]

WORD = 8

#: What a transport tells while something takes long: a line of text.
Progress = Callable[[str], None]


@dataclass(frozen=True)
class SimTime:
    """Cycles that a simulation has advanced since it began, and the seconds of wall time that took."""

    cycles: int = 0
    seconds: float = 0.0


class Transport(abc.ABC):
    """A way to reach a chip.

    Attributes
    ----------
    name
        As the user chooses it: ``golden``, ``cocotb``, ``rtl``.
    timed
        Whether cycles mean something here; if not, cycle figures of reports are ``None``.
    """

    name: str = ""
    timed: bool = False

    @abc.abstractmethod
    def csr_read(self, offset: int) -> int:
        """Value of the register at a byte offset.

        Raises
        ------
        AccessError
            Where the chip answers SLVERR.
        """

    @abc.abstractmethod
    def csr_write(self, offset: int, value: int) -> None:
        """Write a register; raises :class:`AccessError` where the chip answers SLVERR."""

    @abc.abstractmethod
    def mem_read(self, address: int, size: int) -> bytes:
        """``size`` bytes of the data port's address map (:class:`sluice_hw.csr.HostMap`).

        Address and size are multiples of 8. Raises :class:`AccessError` where the chip answers SLVERR.
        """

    @abc.abstractmethod
    def mem_write(self, address: int, data: bytes) -> None:
        """Write to the data port; address and length are multiples of 8."""

    @abc.abstractmethod
    def wait_interrupt(self, timeout_cycles: int) -> bool:
        """Let time pass until the interrupt is high, for ``timeout_cycles`` at most; whether it is."""

    @abc.abstractmethod
    def advance(self, cycles: int) -> None:
        """Let time pass."""

    def settle(self) -> bool:
        """After a soft reset: wait until memory has seen the last of what was under way, where the host's own accesses
        do not wait for that; whether memory answers."""
        return True

    def explain(self) -> str:
        """What this transport knows about a stop beyond the registers; "" for nothing."""
        return ""

    def sim_time(self) -> SimTime:
        """Simulated cycles and the wall time spent on them; zeros where nothing is simulated by cycles."""
        return SimTime()

    def hbm_view(self) -> np.ndarray:
        """HBM as an array of bytes, where it can be seen without copying; raises :class:`UsageError` elsewhere."""
        raise UsageError(f"backend {self.name!r} has no view of HBM; 'rtl' has")

    @abc.abstractmethod
    def close(self) -> None:
        """Give everything back; further calls of ``close`` do nothing."""


def check_range(address: int, size: int) -> None:
    """Refuse accesses that are not whole words."""
    if address < 0 or size <= 0 or address % WORD or size % WORD:
        raise AccessError(
            f"data port accesses are whole words of {WORD} bytes, not {size} bytes at {address:#x}",
            kind="memory", address=address,
        )


def open_transport(config: ChipConfig, backend: str, **options: object) -> Transport:
    """The transport called ``backend`` for a chip; ``options`` are its constructor's.

    Raises
    ------
    UsageError
        For a backend that does not exist, or options that it does not have.
    """
    if backend not in BACKENDS:
        raise UsageError(f"unknown backend {backend!r}; known backends: {', '.join(BACKENDS)}")
    try:
        return BACKENDS[backend](config, **options)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise UsageError(f"backend {backend!r}: {error}") from None


def _golden(config: ChipConfig, **options: object) -> Transport:
    from .golden import GoldenTransport

    return GoldenTransport(config, **options)  # type: ignore[arg-type]


def _cocotb(config: ChipConfig, **options: object) -> Transport:
    from .cocotb_transport import CocotbTransport

    return CocotbTransport(config, **options)  # type: ignore[arg-type]


def _rtl(config: ChipConfig, **options: object) -> Transport:
    from .rtl_transport import RtlTransport

    return RtlTransport(config, **options)  # type: ignore[arg-type]


#: Backends by name. Each is a function of the configuration and keyword options.
BACKENDS: dict[str, Callable[..., Transport]] = {"golden": _golden, "cocotb": _cocotb, "rtl": _rtl}
