"""Assembler, disassembler, program checks and the builder that the compiler uses."""

from .assembler import assemble
from .builder import Builder, TokenSpec
from .check import check
from .disassembler import disassemble, format_op
from .errors import AsmError, ProgramError
from .program import Program
from .words import WordError, check_word

__all__ = [
    "AsmError",
    "Builder",
    "Program",
    "ProgramError",
    "TokenSpec",
    "WordError",
    "assemble",
    "check",
    "check_word",
    "disassemble",
    "format_op",
]
