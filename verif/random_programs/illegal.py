"""Illegal words, made from the tables of the instruction set, and legal programs that are broken in one place."""

from __future__ import annotations

import random
from dataclasses import dataclass

from sluice.asm import Program
from sluice.golden import Fault, MachineError
from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Error, Op, Operand

from .legal import Case, run_golden

__all__ = ["BREAKS", "Broken", "IllegalWord", "break_case", "illegal_words", "kinds_of", "patched"]


@dataclass(frozen=True)
class IllegalWord:
    """A word, and the code and field that the chip must give."""

    word: int
    code: Error
    field: int
    what: str


@dataclass(frozen=True)
class Broken:
    """A program that must stop, and how."""

    program: Program
    fault: Fault
    what: str


def patched(op: Op, name: str, value: int, base: int) -> int:
    """The word ``base`` with a field of ``op`` set to any value."""
    at = isa.OPCODE_BITS
    for field in isa.OPS[op].fields:
        if field.name == name:
            mask = (1 << field.width) - 1
            return base & ~(mask << at) | (value & mask) << at
        at += field.width
    raise KeyError(name)


def illegal_words(config: ChipConfig, rng: random.Random) -> list[IllegalWord]:
    """Every opcode that is not built, every field of every op just beyond its range and at its extremes, alone and with
    reserved bits (the first bad field is the one that is named), reserved bits alone, rings with other strides."""
    out = []
    for code in range(1 << isa.OPCODE_BITS):
        if code not in [int(op) for op in isa.ops_of(config)]:
            word = code | rng.getrandbits(isa.WORD_BITS - isa.OPCODE_BITS) << isa.OPCODE_BITS
            out.append(IllegalWord(word, Error.ILLEGAL_OPCODE, 0, f"opcode {code}"))
    for op, spec in isa.ops_of(config).items():
        base = isa.encode(op, config, {})
        used = isa.OPCODE_BITS + sum(f.width for f in spec.fields)
        for number, field in enumerate(spec.fields, 1):
            for value in _beyond(field, config):
                word = patched(op, field.name, value, base)
                what = f"{op.name} {field.name}={value}"
                out.append(IllegalWord(word, Error.ILLEGAL_FIELD, number, what))
                if used < isa.WORD_BITS:
                    more = word | 1 << isa.WORD_BITS - 1
                    out.append(IllegalWord(more, Error.ILLEGAL_FIELD, number, what + " and reserved bits"))
        for bit in {used, isa.WORD_BITS - 1} if used < isa.WORD_BITS else ():
            what = f"{op.name} bit {bit}"
            out.append(IllegalWord(base | 1 << bit, Error.RESERVED_BITS, len(spec.fields) + 1, what))
    for level in range(isa.LOOP_LEVELS):
        name = f"stride{level}"
        base = isa.encode(Op.ADDR, config, {"ring": 16})
        for value in (-1, 17):
            word = patched(Op.ADDR, name, value, base)
            what = f"ADDR ring=16 {name}={value}"
            out.append(IllegalWord(word, Error.ILLEGAL_FIELD, isa.field_index(Op.ADDR, name), what))
    return out


def _beyond(field: isa.Field, config: ChipConfig) -> list[int]:
    """Values outside of a field's range that its bits can say: the nearest and the extreme ones."""
    lo, hi = isa.field_range(field, config)
    least, most = (-(1 << field.width - 1), (1 << field.width - 1) - 1) if field.signed else (0, (1 << field.width) - 1)
    return sorted(v for v in {lo - 1, hi + 1, least, most} if least <= v <= most and not lo <= v <= hi)


# -- programs broken in one place ----------------------------------------------------------------------------------
def _word(case: Case, words: list[int], rng: random.Random) -> str:
    at = rng.randrange(case.draft.entry, len(words))
    bad = rng.choice(illegal_words(case.config, rng))
    words[at] = bad.word
    return f"word {at}: {bad.what}"


def _one_of(words: list[int], rng: random.Random, *ops: Op) -> tuple[int, Op, dict[str, int]] | None:
    found = [at for at, word in enumerate(words) if word & (1 << isa.OPCODE_BITS) - 1 in ops]
    if not found:
        return None
    at = rng.choice(found)
    return at, *isa.decode(words[at])


def _address(case: Case, words: list[int], rng: random.Random) -> str | None:
    """An address beyond what it is one of: no byte of it exists, or it is outside of the bounds of HBM."""
    found = _one_of(words, rng, Op.ADDR)
    if found is None:
        return None
    at, op, fields = found
    config, area = case.config, case.draft.arena.hbm
    top = max(config.vmem_bytes, config.acc_rows)
    base = rng.choice([(1 << 32) - 1, 1 << 31, top, area.end, area.start - 1, area.end - 1]) % (1 << 32)
    words[at] = isa.encode(op, config, {**fields, "base": base, "add_param": 0})
    return f"word {at}: base {base:#x}"


def _long(case: Case, words: list[int], rng: random.Random) -> str | None:
    """More rows than the slices of the train have."""
    found = _one_of(words, rng, Op.DMA_SHAPE)
    if found is None:
        return None
    at, op, fields = found
    rows = rng.choice([isa.field_range(isa.OPS[op].fields[2], case.config)[1], 1 << 16])
    words[at] = isa.encode(op, case.config, {**fields, "rows": rows})
    return f"word {at}: rows {rows}"


def _nesting(case: Case, words: list[int], rng: random.Random) -> str | None:
    """A LOOP or END of another level, or a LOOP that ends elsewhere."""
    found = _one_of(words, rng, Op.LOOP, Op.END)
    if found is None:
        return None
    at, op, fields = found
    name = rng.choice(["level", "end"]) if op is Op.LOOP else "level"
    value = rng.randrange(isa.LOOP_LEVELS) if name == "level" else rng.randrange(case.config.microcode_words)
    words[at] = isa.encode(op, case.config, {**fields, name: value})
    return f"word {at}: {op.name} {name}={value}"


def _past_the_end(case: Case, words: list[int], rng: random.Random) -> str:
    words[-1] = isa.encode(Op.ADDR, case.config, {"reg": 3})
    return "no HALT"


def _mode(case: Case, words: list[int], rng: random.Random) -> str | None:
    """A PASS_MODE that no pass can run: without a result, or with a stream that serves both ALUs."""
    found = _one_of(words, rng, Op.PASS_MODE)
    if found is None:
        return None
    at, op, fields = found
    if rng.random() < 0.3:
        change = {"store": 0, "use_reduce": 0}
    else:
        stream = int(rng.choice([Operand.X, Operand.Y, Operand.COLUMN]))
        change = {"use_first": 1, "use_second": 1, rng.choice(["first_b", "first_c"]): stream,
                  rng.choice(["second_b", "second_c"]): stream}  # fmt: skip
    words[at] = isa.encode(op, case.config, {**fields, **change})
    return f"word {at}: {change}"


#: Ways to break a program, with the errors that they may end in.
BREAKS = {
    "word": (_word, (Error.ILLEGAL_OPCODE, Error.ILLEGAL_FIELD, Error.RESERVED_BITS)),
    "address": (_address, (Error.VMEM_RANGE, Error.ACC_RANGE, Error.HBM_RANGE)),
    "long": (_long, (Error.ILLEGAL_FIELD,)),
    "nesting": (_nesting, (Error.LOOP_NESTING,)),
    "past the end": (_past_the_end, (Error.ILLEGAL_OPCODE, Error.FETCH_RANGE)),
    "mode": (_mode, (Error.ILLEGAL_FIELD,)),
}


def kinds_of(config: ChipConfig) -> list[str]:
    """Those of :data:`BREAKS` that programs of a chip can be broken in."""
    return [kind for kind in BREAKS if kind != "mode" or config.is_float]


def break_case(case: Case, rng: random.Random, kind: str, tries: int = 20) -> Broken | None:
    """The case's program with one thing wrong, and what golden says to it; None when no try stops the program.

    Parameters
    ----------
    kind
        One of :data:`BREAKS`.
    """
    change, errors = BREAKS[kind]
    for _ in range(tries):
        words = list(case.lowered.program.words)
        what = change(case, words, rng)
        if what is None:
            continue
        try:
            _, result = run_golden(case.draft, case.image, words)
        except MachineError:  # something without a meaning, before anything stops it
            continue
        if result.error is not None and result.error.code in errors:
            return Broken(Program(words), result.error, f"{kind}, {what}")
    return None
