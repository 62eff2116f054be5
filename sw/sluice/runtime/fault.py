"""Why the chip stopped, in words."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.asm import Program, WordError, check_word, format_op
from sluice_hw import csr, isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Cause, Error

__all__ = ["Fault", "cause_text", "op_text", "unit_name"]

#: What ERROR_INFO is, by error.
_INFO = {
    Error.VMEM_RANGE: "VMEM address {:#x}",
    Error.ACC_RANGE: "accumulator row {}",
    Error.HBM_RANGE: "HBM slice {}",
    Error.HBM_ERROR: "HBM slice {}",
}


def unit_name(number: int) -> str:
    """Name of a unit as registers number it."""
    return "sequencer" if number == csr.SEQUENCER else isa.Unit(number).name


def cause_text(cause: int) -> str:
    """A :class:`isa.Cause` in words."""
    try:
        name = Cause(cause).name
    except ValueError:
        return f"cause {cause}"
    if name.startswith("TOKEN_"):
        return f"waits for a token from {name[6:]}"
    return {
        "BUSY": "works", "IDLE": "idle", "WEIGHTS": "waits for weights", "VMEM": "waits for VMEM",
        "ACC": "waits for the accumulators", "HBM": "waits for HBM", "QUEUE": "waits for room in a queue",
        "OUTPUT": "waits for its output",
    }[name]


def op_text(program: Program | None, pc: int, config: ChipConfig) -> str:
    """The word at ``pc`` as the disassembler writes it; "" when it is not known."""
    if program is None or not 0 <= pc < len(program.words):
        return ""
    word = program.words[pc]
    try:
        return format_op(*check_word(word, config), config)
    except WordError:
        try:
            return format_op(*isa.decode(word), config)
        except ValueError:
            return f".word {word:#x}"


@dataclass(frozen=True)
class Fault:
    """The ERROR registers, decoded.

    Attributes
    ----------
    code, pc, field, info, unit
        As registers ERROR_CODE, ERROR_PC, ERROR_FIELD, ERROR_INFO and ERROR_UNIT.
    op
        The word at ``pc`` in the form of the assembler, "" when unknown.
    field_name
        Name of the field at fault; "" when none is.
    reason
        What is wrong with the word, or what else the transport knows.
    line
        Line of the source text, 0 when unknown.
    waits
        For the watchdog: who waits for what.
    """

    code: Error
    pc: int
    field: int
    info: int
    unit: str
    op: str = ""
    field_name: str = ""
    reason: str = ""
    line: int = 0
    waits: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"word {self.pc}" + (f" (line {self.line})" if self.line else "")
        text = f"{self.code.name} at {where} by {self.unit}"
        text += f", field {self.field_name}" if self.field_name else ""
        text += f", `{self.op}`" if self.op else ""
        info = _INFO.get(self.code)
        if self.reason:
            return f"{text}: {self.reason}"
        if info:
            text += f": {info.format(self.info)}"
        elif self.code is Error.TOKEN_OVERFLOW:
            text += f": too many tokens for {unit_name(self.info & 7) if self.info <= csr.SEQUENCER else self.info}"
        if self.waits:
            text += ": " + "; ".join(self.waits)
        return text


def decode_fault(
    registers: dict[str, int],
    program: Program | None,
    config: ChipConfig,
    *,
    reason: str = "",
    waits: tuple[str, ...] = (),
) -> Fault:
    """A fault from the values of the ERROR registers, the program, and what else is known.

    Parameters
    ----------
    registers
        Values of ERROR_CODE, ERROR_PC, ERROR_FIELD, ERROR_INFO, ERROR_UNIT.
    reason
        From the transport; a word that the assembler's rules refuse explains itself.
    waits
        For the watchdog: a line per unit that waits. Left out when there is a reason, which says it better.
    """
    code, pc, number = Error(registers["ERROR_CODE"]), registers["ERROR_PC"], registers["ERROR_FIELD"]
    name = ""
    if program is not None and pc < len(program.words):
        word = program.words[pc]
        try:
            check_word(word, config)
        except WordError as error:
            reason = str(error)
        try:
            spec = isa.OPS[isa.Op(word & ((1 << isa.OPCODE_BITS) - 1))]
        except ValueError:
            spec = None
        if spec is not None and 1 <= number <= len(spec.fields):
            name = spec.fields[number - 1].name
    elif program is not None and code is Error.ILLEGAL_OPCODE:
        reason = f"the program has {len(program.words)} words and runs past the last one"
    return Fault(
        code, pc, number, registers["ERROR_INFO"], unit_name(registers["ERROR_UNIT"]), op_text(program, pc, config),
        name, reason, (program.lines.get(pc, 0) if program else 0), () if reason else waits,
    )
