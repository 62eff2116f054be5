"""Microcode writer of the compiler: a `Builder` that knows address pointers and does not repeat setup words.

Pointers are ring registers throughout: they step at the ENDs of loops and never return by themselves, so that peeled
parts of a loop go on where the loop stopped, as long as each part passes through the same ENDs. Steps back are steps
forward modulo the ring (:func:`backward`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from sluice.asm import Builder, Program
from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Op

from .errors import ProgramTooLong, Unsupported

__all__ = ["FAR", "Emitter", "OutOfRegisters"]

#: Ring of a pointer that is meant not to wrap: further than any VMEM byte, and the largest that steps can go around.
FAR = (1 << (isa.STRIDE_BITS - 1)) - 1


class OutOfRegisters(Exception):
    """More pointers are alive than the sequencer has address registers."""


class Emitter(Builder):
    """Builder with named pointers and remembered setup words."""

    def __init__(self, config: ChipConfig) -> None:
        # A program may grow beyond the store, so that `finish` can say how much it needs.
        super().__init__(config.replace(microcode_words=1 << 16))
        self.chip = config
        self._pointers: dict[str, int] = {}
        #: (op, unit, index) -> fields.
        self._setups: dict[tuple[Op, int | None, int | None], dict[str, int]] = {}

    # -- pointers ------------------------------------------------------------------------------------------------
    def pointer(
        self, name: str, base: int, strides: Mapping[int, int] | None = None, *, ring: int = FAR, where: str = "program"
    ) -> int:
        """Set the pointer called ``name`` (a free register the first time) and return its register.

        Parameters
        ----------
        strides
            Loop level -> step at every END of that level, negative ones meaning back; all modulo ``ring``.
        """
        if name not in self._pointers:
            used = set(self._pointers.values())
            free = [r for r in range(isa.ADDRESS_REGISTERS) if r not in used]
            if not free:
                raise OutOfRegisters(f"{where}: no address register is left for {name}")
            self._pointers[name] = free[0]
        steps = {level: step % ring for level, step in (strides or {}).items() if step % ring}
        if ring > 2 * FAR + 1 or any(step > FAR for step in steps.values()):
            raise Unsupported(f"{where}: {name} walks over {ring} units; address registers step over at most {FAR}")
        self.addr(self._pointers[name], base=base, strides=steps, ring=ring if steps else 0)
        return self._pointers[name]

    def reserve(self, name: str) -> None:
        """A register for a pointer that is not set yet: 0 at the start of a program."""
        free = [r for r in range(isa.ADDRESS_REGISTERS) if r not in self._pointers.values()]
        self._pointers[name] = free[0]

    def __getitem__(self, name: str) -> int:
        return self._pointers[name]

    def release(self, *names: str) -> None:
        """Give registers back."""
        for name in names:
            self._pointers.pop(name, None)

    @property
    def names(self) -> list[str]:
        return list(self._pointers)

    @property
    def registers_free(self) -> int:
        return isa.ADDRESS_REGISTERS - len(self._pointers)

    # -- setup words and loops -----------------------------------------------------------------------------------
    def setup(self, op: Op, **fields: int) -> None:
        """A setup word, unless the unit already has it."""
        key = (op, fields.get("unit"), fields.get("index"))
        if self._setups.get(key) != fields:
            self.op(op, **fields)
            self._setups[key] = fields

    def forget(self) -> None:
        """Assume nothing about the units' setup registers."""
        self._setups.clear()

    @contextmanager
    def loop(
        self, level: int, count: int = 0, *, param: int | None = None, sets: Iterable[tuple[Op, int]] | None = None
    ) -> Iterator[None]:
        """As of `Builder`; what the body sets up is not known at its start.

        Parameters
        ----------
        sets
            The only setup words in the body, as (op, unit); None: any.
        """
        if count != 1 or param is not None:
            if sets is None:
                self.forget()
            else:
                gone = set(sets)
                self._setups = {key: f for key, f in self._setups.items() if key[:2] not in gone}
        with super().loop(level, count, param=param):
            yield

    def finish(self, name: str) -> Program:
        """The checked program.

        Raises
        ------
        ProgramTooLong
            When the microcode store is too small.
        """
        if len(self) > self.chip.microcode_words:
            raise ProgramTooLong(name, needed=len(self), free=self.chip.microcode_words)
        return self.program()
