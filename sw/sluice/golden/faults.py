"""How a run of the golden machine can end other than by HALT.

What the chip reports too is a :class:`Fault` in the result. What is undefined on the chip raises: a program that does
it is wrong, whatever the hardware happens to give.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice_hw.isa import Error

__all__ = [
    "DeadlockError",
    "Fault",
    "MachineError",
    "StepLimitError",
    "UndefinedError",
    "UnitFault",
    "UnwrittenReadError",
]


@dataclass(frozen=True)
class Fault:
    """What the ERROR CSRs say.

    Attributes
    ----------
    code
        ERROR_CODE.
    pc
        Microcode address of the word at fault.
    field
        ERROR_FIELD: number of the bad field from 1; 0 where no field is at fault, or the opcode is.
    info
        An address or value that helps: the first address of the access (VMEM byte, accumulator row, HBM slice) for
        range faults, the receiving unit for TOKEN_OVERFLOW, the low 32 bits of the word for words that the sequencer
        refuses, the field again when a unit does.
    unit
        Name of the unit that raised it: ``seq``, ``ld``, ``st``, ``mxu``, ``vpu``.
    reason
        The same in words.
    """

    code: Error
    pc: int
    field: int = 0
    info: int = 0
    unit: str = "seq"
    reason: str = ""


class UnitFault(Exception):
    """Raised inside a unit's datapath; the machine turns it into a :class:`Fault`."""

    def __init__(self, code: Error, info: int, reason: str, *, field: int = 0) -> None:
        self.code, self.info, self.field, self.reason = code, info, field, reason
        super().__init__(reason)


class MachineError(Exception):
    """A program that the contract gives no meaning to."""


class UnwrittenReadError(MachineError):
    """A read of memory that nobody has written; names op, pc, memory and address.

    Attributes
    ----------
    memory
        ``"VMEM"``, ``"HBM"`` (byte addresses) or ``"ACC"`` (rows).
    address
        The first unwritten address.
    op, pc
        The op that reads; "" and -1 for the host.
    """

    def __init__(self, memory: str, address: int, op: str = "", pc: int = -1) -> None:
        self.memory, self.address, self.op, self.pc = memory, address, op, pc
        who = f"{op} at pc {pc}" if op else "the host"
        what = f"row {address}" if memory == "ACC" else f"address {address:#x}"
        super().__init__(f"{who} reads {memory} {what}, which has not been written")


class UndefinedError(MachineError):
    """An op whose setup is missing or contradicts itself."""


class StepLimitError(MachineError):
    """More words executed than the caller allows."""


class DeadlockError(MachineError):
    """Nobody can go on, and the program has not ended: the chip's watchdog would bite.

    Attributes
    ----------
    waiting
        ``{unit: (op, pc, reason)}`` for ``seq`` and every unit that holds an op.
    """

    def __init__(self, waiting: dict[str, tuple[str, int, str]]) -> None:
        self.waiting = waiting
        lines = [f"{unit}: {op} at pc {pc} waits for {reason}" for unit, (op, pc, reason) in waiting.items()]
        super().__init__("deadlock: " + "; ".join(lines))
