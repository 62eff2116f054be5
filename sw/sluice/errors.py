"""Errors that a user can cause or has to know about; the command line prints them as one line without a traceback.

Every message names the offending thing, its value and what is allowed. Errors of other packages that serve the same
end (assembler, graph, build) keep their own classes; :func:`expected_errors` lists them all.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AccessError",
    "ChipError",
    "ConfigError",
    "DeviceError",
    "DeviceMismatch",
    "DeviceTimeout",
    "OutOfMemory",
    "ReportError",
    "SluiceError",
    "TransportError",
    "UndefinedProgram",
    "UsageError",
    "expected_errors",
]


class SluiceError(Exception):
    """Base of all errors of this package's own."""


class UsageError(SluiceError, ValueError):
    """An argument, a file or an array that is not what it must be."""


class ConfigError(UsageError):
    """A chip configuration that does not exist or cannot be built."""


class DeviceError(SluiceError):
    """Something went wrong between driver and chip."""


class DeviceMismatch(DeviceError):
    """The chip is not the one that the driver was told to expect."""


class AccessError(DeviceError):
    """The chip refused an access (SLVERR).

    Attributes
    ----------
    kind
        ``"register"`` or ``"memory"``.
    address
        Byte offset of the register, or byte address on the data port.
    """

    def __init__(self, message: str, *, kind: str, address: int) -> None:
        super().__init__(message)
        self.kind, self.address = kind, address


class OutOfMemory(DeviceError):
    """HBM has no room; says whether that is size or fragmentation.

    Attributes
    ----------
    needed, free, largest
        Slices asked for, free in all, and free in one piece.
    """

    def __init__(self, message: str, *, needed: int, free: int, largest: int) -> None:
        super().__init__(message)
        self.needed, self.free, self.largest = needed, free, largest


class ChipError(DeviceError):
    """A program stopped by an error; ``fault`` is a :class:`sluice.runtime.Fault`, ``dump`` the state of the chip."""

    def __init__(self, message: str, *, fault: Any, dump: str = "") -> None:
        super().__init__(message)
        self.fault, self.dump = fault, dump


class DeviceTimeout(DeviceError):
    """A program has not ended in the time it was given; ``dump`` is the state of the chip."""

    def __init__(self, message: str, *, dump: str = "") -> None:
        super().__init__(message)
        self.dump = dump


class UndefinedProgram(DeviceError):
    """Golden met something that the architecture gives no meaning to, for example a read of unwritten memory."""


class ReportError(DeviceError):
    """Counters of the chip that contradict each other."""


class TransportError(DeviceError):
    """The way to the chip is gone, for example a simulator that died."""


def expected_errors() -> tuple[type[BaseException], ...]:
    """Exceptions whose message is meant for a user, own and other packages'."""
    from sluice.asm import AsmError, ProgramError
    from sluice.build import BuildFailed, SimulationFailed, ToolchainError
    from sluice.compiler import GraphError
    from sluice.golden import MachineError

    build = (BuildFailed, SimulationFailed, ToolchainError)
    return (SluiceError, AsmError, ProgramError, GraphError, MachineError, *build)
