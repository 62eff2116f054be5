"""Golden model: what the chip must compute, written from the numerics contract in NumPy."""

from .faults import (
    DeadlockError,
    Fault,
    MachineError,
    StepLimitError,
    UndefinedError,
    UnwrittenReadError,
)
from .machine import GoldenMachine, RunResult, WorkCounters

__all__ = [
    "DeadlockError",
    "Fault",
    "GoldenMachine",
    "MachineError",
    "RunResult",
    "StepLimitError",
    "UndefinedError",
    "UnwrittenReadError",
    "WorkCounters",
]
