"""Errors of the assembler: where, what, what is allowed."""

from __future__ import annotations

__all__ = ["AsmError", "ProgramError"]


class AsmError(ValueError):
    """A place in a source text that does not assemble.

    Attributes
    ----------
    file, line, column
        The place; line and column count from 1.
    reason
        What is wrong there, without the place.
    """

    def __init__(self, file: str, line: int, column: int, reason: str) -> None:
        self.file, self.line, self.column, self.reason = file, line, column, reason
        super().__init__(f"{file}:{line}:{column}: {reason}")


class ProgramError(ValueError):
    """A program whose words are legal one by one but not together.

    Attributes
    ----------
    problems
        ``(pc, text)`` of every problem, in order of address.
    """

    def __init__(self, problems: list[tuple[int, str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"word {pc}: {text}" for pc, text in problems))
