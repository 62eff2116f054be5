"""Ops and loops as microcode: address registers, setup words where they change, loop levels."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.asm import Builder, Program
from sluice.compiler.errors import ProgramTooLong, Unsupported
from sluice_hw.config import ChipConfig
from sluice_hw.isa import ADDRESS_REGISTERS

from .nodes import Address, Loop, Node, Setup, Word, words_of

__all__ = ["emit"]


def emit(nodes: Sequence[Node], config: ChipConfig) -> Program:
    """The program.

    Raises
    ------
    ProgramTooLong
        When the microcode store does not hold it.
    """
    work = _Emitter(config)
    work.nodes(nodes)
    work.builder.halt()
    if len(work.builder) > config.microcode_words:
        raise ProgramTooLong("the vector program", needed=len(work.builder), free=config.microcode_words)
    return work.builder.program()


class _Emitter:
    def __init__(self, config: ChipConfig) -> None:
        self.builder = Builder(config)
        self.levels: dict[Loop, int] = {}
        self.state: dict[tuple[object, ...], Setup] = {}
        #: What each address register holds, oldest use first; those that a loop counts on are held.
        self.registers: dict[int, Address | None] = {reg: None for reg in range(ADDRESS_REGISTERS)}
        self.held: set[int] = set()
        self.depth = 0

    def nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                self._loop(node)
            else:
                self._word(node)

    # -- registers -----------------------------------------------------------------------------------------------
    def _register(self, address: Address) -> int:
        for reg, held in self.registers.items():
            if held == address:
                del self.registers[reg]
                self.registers[reg] = address
                return reg
        free = [reg for reg in self.registers if reg not in self.held]
        if not free or (self.depth and any(loop in self.levels for loop, _ in address.steps)):
            raise Unsupported(f"a loop needs more than {ADDRESS_REGISTERS} addresses")
        reg = free[0]
        del self.registers[reg]
        self.registers[reg] = address
        strides = {self.levels[loop]: step for loop, step in address.steps}
        self.builder.addr(reg, address.base, param=0 if address.param else None, strides=strides)
        return reg

    # -- loops ---------------------------------------------------------------------------------------------------
    def _loop(self, loop: Loop) -> None:
        outermost = self.depth == 0
        if outermost:
            self._number(loop, 0)
            wanted = dict.fromkeys(a for word in words_of(loop.body) for a in word.all_addresses())
            if len(wanted) > ADDRESS_REGISTERS:
                wanted = [a for a in wanted if a.steps]
            for address in wanted:
                self.held.add(self._register(address))
        changing = self._prepare(loop)
        # An iteration finds in the others what the one before has left there.
        self.registers |= dict.fromkeys(self.registers.keys() - self.held)
        self.depth += 1
        with self.builder.loop(self.levels[loop], loop.count):
            for slot in changing:
                self.state.pop(slot, None)
            self.nodes(loop.body)
        self.depth -= 1
        for slot, setup in list(self.state.items()):
            if any(other is loop for _, a in setup.addresses for other, _ in a.steps):
                del self.state[slot]
        if outermost:
            self.held.clear()
            # Strides count for later loops of the same level.
            for reg, address in self.registers.items():
                if address is not None and address.steps:
                    self.registers[reg] = None
            self.levels.clear()

    def _number(self, loop: Loop, level: int) -> None:
        self.levels[loop] = level
        for node in loop.body:
            if isinstance(node, Loop):
                self._number(node, level + 1)

    def _prepare(self, loop: Loop) -> list[tuple[object, ...]]:
        """Set up before a loop what stays the same in it; the slots of the rest."""
        found: dict[tuple[object, ...], list[Setup]] = {}
        inside = {loop, *_loops(loop.body)}
        for word in words_of(loop.body):
            for setup in word.setup:
                found.setdefault(setup.slot, []).append(setup)
        changing = []
        for slot, setups in found.items():
            moves = any(other in inside for setup in setups for _, a in setup.addresses for other, _ in a.steps)
            if moves or any(setup != setups[0] for setup in setups):
                changing.append(slot)
            else:
                self._setup(setups[0])
        return changing

    # -- words ---------------------------------------------------------------------------------------------------
    def _setup(self, setup: Setup) -> None:
        if self.state.get(setup.slot) == setup:
            return
        registers = {name: self._register(address) for name, address in setup.addresses}
        self.builder.op(setup.op, **dict(setup.fields), **registers)
        self.state[setup.slot] = setup

    def _word(self, word: Word) -> None:
        for setup in word.setup:
            self._setup(setup)
        registers = {name: self._register(address) for name, address in word.addresses.items()}
        fields = dict(word.fields)
        if word.acc_first:
            fields["acc_first"] = Builder.levels(*[self.levels[loop] for loop in word.acc_first])
        if word.note:
            self.builder.note(word.note)
        self.builder.op(
            word.op, **fields, **registers,
            wait={unit: [self.levels[x] for x in loops] for unit, loops in word.waits.items()},
            signal={unit: [self.levels[x] for x in loops] for unit, loops in word.signals.items()},
        )  # fmt: skip


def _loops(nodes: Sequence[Node]) -> list[Loop]:
    out = []
    for node in nodes:
        if isinstance(node, Loop):
            out += [node, *_loops(node.body)]
    return out
