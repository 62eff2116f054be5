"""The sequencer of the golden machine: fetch, check, loops, address registers, predicates."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.asm.fields import ADDRESS_FIELDS
from sluice.asm.words import WordError, check_word
from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Error, Op, Unit

from .faults import UnitFault
from .units import MicroOp, UnitModel

__all__ = ["Sequencer"]

_MASK = (1 << 32) - 1


@dataclass(frozen=True)
class _Word:
    """A legal word, taken apart once."""

    op: Op
    fields: Mapping[str, int]
    unit: Unit | None
    registers: tuple[tuple[str, int], ...]
    waits: tuple[tuple[Unit, int], ...]
    signals: tuple[tuple[Unit, int], ...]


@functools.lru_cache(maxsize=1 << 14)
def _take_apart(raw: int, config: ChipConfig) -> _Word:
    op, fields = check_word(raw, config)
    unit = isa.OPS[op].unit
    if unit == "field":
        unit = Unit(fields["unit"])
    dispatched = unit is not None
    registers = tuple((n, v) for n, v in fields.items() if dispatched and n in ADDRESS_FIELDS)
    waits, signals = [], []
    if "wait_ld" in fields:
        for u in Unit:
            name = u.name.lower()
            if fields[f"wait_{name}"]:
                waits.append((u, fields[f"wait_{name}_first"]))
            if fields[f"signal_{name}"]:
                signals.append((u, fields[f"signal_{name}_last"]))
    return _Word(op, fields, unit, registers, tuple(waits), tuple(signals))


@dataclass
class _Loop:
    level: int
    start: int
    end: int
    count: int
    iteration: int = 0


class _AddressRegisters:
    """cur, and how every END moves it; modulo 2^32."""

    def __init__(self) -> None:
        n = isa.ADDRESS_REGISTERS
        self.cur = [0] * n
        self._base = [0] * n
        self._ring = [0] * n
        #: Per level: registers that move there, with their stride.
        self._strides: list[dict[int, int]] = [{} for _ in range(isa.LOOP_LEVELS)]

    def set(self, reg: int, base: int, strides: Sequence[int], ring: int) -> None:
        self.cur[reg] = self._base[reg] = base & _MASK
        self._ring[reg] = ring
        for level, stride in enumerate(strides):
            self._strides[level].pop(reg, None)
            if stride:
                self._strides[level][reg] = stride

    def end(self, level: int, count: int, another: bool) -> None:
        for reg, stride in self._strides[level].items():
            ring = self._ring[reg]
            if ring:
                moved = self.cur[reg] - self._base[reg] + stride & _MASK
                self.cur[reg] = self._base[reg] + (moved - ring if moved >= ring else moved) & _MASK
            elif another:
                self.cur[reg] = self.cur[reg] + stride & _MASK
            else:
                self.cur[reg] = self.cur[reg] - stride * (count - 1) & _MASK


class Sequencer:
    """Executes words in order; pushes the units' ops into their queues.

    Parameters
    ----------
    store
        The microcode store from address 0; the words behind it are 0.
    params
        Parameter registers.
    """

    def __init__(
        self,
        config: ChipConfig,
        store: Sequence[int],
        params: Sequence[int],
        units: Mapping[Unit, UnitModel],
        entry: int,
    ) -> None:
        self._config, self._store, self._params, self._units = config, store, params, units
        self._decoded: dict[int, _Word] = {}
        self._registers = _AddressRegisters()
        self._loops: list[_Loop] = []
        self._not_first = 0
        self._not_last = 0
        self.pc = entry
        self.steps = 0
        self.halt_code: int | None = None

    def step(self) -> bool:
        """Execute the word at ``pc``; false when it has to wait.

        Raises
        ------
        UnitFault
            For a word that stops the chip.
        """
        if self.halt_code is not None:
            return False
        word = self._fetch()
        if self._loops and self._loops[-1].end == self.pc and word.op is not Op.END:
            raise self._nesting(f"{word.op.name} stands where the LOOP at {self._loops[-1].start} ends", 0)
        if word.unit is not None:
            unit = self._units[word.unit]
            if len(unit.queue) >= unit.depth:
                return False
            unit.queue.append(self._resolve(word))
            self.pc += 1
        elif word.op is Op.HALT:
            if not all(u.idle for u in self._units.values()):
                return False
            self.halt_code = word.fields["code"]
        elif word.op is Op.LOOP:
            self._loop(word.fields)
        elif word.op is Op.END:
            self._end(word.fields)
        else:
            self._addr(word.fields)
            self.pc += 1
        self.steps += 1
        return True

    def waiting(self) -> tuple[str, int, str] | None:
        """Op, pc and what the sequencer waits for; None when it has halted."""
        if self.halt_code is not None:
            return None
        word = self._fetch()
        reason = f"room in the queue of {word.unit.name}" if word.unit is not None else "every unit to be idle"
        return word.op.name, self.pc, reason

    def _fetch(self) -> _Word:
        word = self._decoded.get(self.pc)
        if word is not None:
            return word
        if self.pc >= self._config.microcode_words:
            words = self._config.microcode_words
            raise UnitFault(Error.FETCH_RANGE, 0, f"pc {self.pc} is beyond the microcode store of {words} words")
        raw = self._store[self.pc] if self.pc < len(self._store) else 0
        try:
            word = _take_apart(raw, self._config)
        except WordError as error:
            raise UnitFault(error.code, raw & _MASK, str(error), field=error.field) from None
        self._decoded[self.pc] = word
        return word

    def _resolve(self, word: _Word) -> MicroOp:
        f = word.fields
        accumulate = swap = False
        if word.op is Op.PULSE_ARRAY:
            mode = f["acc_mode"]
            accumulate = mode == isa.AccMode.ACCUMULATE
            if mode == isa.AccMode.FIRST:
                accumulate = bool(f["acc_first"] & self._not_first)
            swap = bool(f["swap"]) and not f["swap_first"] & self._not_first
        return MicroOp(
            op=word.op,
            pc=self.pc,
            fields=f,
            address={name: self._registers.cur[reg] for name, reg in word.registers},
            waits=tuple(u for u, mask in word.waits if not mask & self._not_first),
            signals=tuple(u for u, mask in word.signals if not mask & self._not_last),
            accumulate=accumulate,
            swap=swap,
        )

    def _loop(self, f: Mapping[str, int]) -> None:
        inner = self._loops[-1] if self._loops else None
        if inner and f["level"] <= inner.level:
            reason = f"LOOP level {f['level']} inside level {inner.level}"
            raise self._nesting(reason, isa.field_index(Op.LOOP, "level"))
        if f["end"] <= self.pc or (inner and f["end"] >= inner.end):
            upper = inner.end - 1 if inner else self._config.microcode_words - 1
            reason = f"LOOP end must be {self.pc + 1} to {upper}, not {f['end']}"
            raise self._nesting(reason, isa.field_index(Op.LOOP, "end"))
        count = self._params[f["param"]] if f["from_param"] else f["count"]
        if count == 0:
            self.pc = f["end"] + 1
            return
        self._loops.append(_Loop(f["level"], self.pc, f["end"], count))
        self._predicates()
        self.pc += 1

    def _end(self, f: Mapping[str, int]) -> None:
        loop = self._loops[-1] if self._loops else None
        if loop is None or loop.level != f["level"] or loop.end != self.pc:
            inside = "no open LOOP"
            if loop is not None:
                inside = f"the LOOP at {loop.start} (level {loop.level}, end {loop.end})"
            reason = f"END level {f['level']} at {self.pc} meets {inside}"
            raise self._nesting(reason, isa.field_index(Op.END, "level"))
        another = loop.iteration + 1 < loop.count
        self._registers.end(loop.level, loop.count, another)
        if another:
            loop.iteration += 1
            self.pc = loop.start + 1
        else:
            self._loops.pop()
            self.pc += 1
        self._predicates()

    def _nesting(self, reason: str, field: int) -> UnitFault:
        return UnitFault(Error.LOOP_NESTING, self._store[self.pc] & _MASK, reason, field=field)

    def _predicates(self) -> None:
        self._not_first = sum(1 << loop.level for loop in self._loops if loop.iteration > 0)
        self._not_last = sum(1 << loop.level for loop in self._loops if loop.iteration + 1 < loop.count)

    def _addr(self, f: Mapping[str, int]) -> None:
        base = f["base"] + (self._params[f["param"]] if f["add_param"] else 0)
        strides = [f[f"stride{level}"] for level in range(isa.LOOP_LEVELS)]
        self._registers.set(f["reg"], base, strides, f["ring"])
