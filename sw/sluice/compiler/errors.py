"""What the compiler's back half refuses, and why."""

from __future__ import annotations

from sluice.sizes import size_text

from .tensors import GraphError

__all__ = ["CompileError", "DoesNotFit", "ProgramTooLong", "Unsupported"]


class CompileError(GraphError):
    """A graph that this chip cannot run."""


class Unsupported(CompileError):
    """An operation, or a use of one, that the back half cannot lower; the message names the node."""


class DoesNotFit(CompileError):
    """A memory is too small.

    Attributes
    ----------
    needed, free, largest
        Bytes asked for, bytes free, and the largest free piece. Where ``needed`` is at most ``free``, only the pieces
        are too small.
    """

    def __init__(
        self, what: str, *, needed: int, free: int, largest: int, memory: str = "VMEM", where: str = ""
    ) -> None:
        self.what, self.memory = what, memory
        self.needed, self.free, self.largest = needed, free, largest
        sizes = f"needs {size_text(needed)}, {size_text(free)} free, largest hole {size_text(largest)}"
        text = f"{what} does not fit in {memory}: {sizes}"
        super().__init__(f"{where}: {text}" if where else text)

    def within(self, where: str) -> DoesNotFit:
        """The same, with a word on what needs the buffer."""
        return DoesNotFit(
            self.what, needed=self.needed, free=self.free, largest=self.largest, memory=self.memory, where=where
        )


class ProgramTooLong(CompileError):
    """The microcode store is too small.

    Attributes
    ----------
    needed, free
        Words of the program, and of the store.
    """

    def __init__(self, what: str, *, needed: int, free: int) -> None:
        super().__init__(f"{what} needs {needed} microcode words; the store has {free} (config field microcode_words)")
        self.needed, self.free = needed, free
