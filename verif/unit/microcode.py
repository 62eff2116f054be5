"""An independent model of the sequencer, and random programs for it; written from docs/architecture.md."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from amaranth.lib import data

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Op

MASK32 = (1 << 32) - 1

#: Small, not a power of two anywhere it may not be, so that every range check has something to refuse.
CONFIG = ChipConfig(
    name="odd", rows=6, cols=5, acc_bytes=2560, feed_ports=3, microcode_words=48, ld_queue=2, st_queue=3, mxu_queue=5,
    vpu_queue=2, token_max=5,
)

_ADDRESSES = ("hbm", "vmem", "acc", "src", "res", "dst", "addr")


@dataclass
class Outcome:
    """What a program does: ops by unit, in order, and how it ends."""

    ops: dict[int, list[dict]] = field(default_factory=lambda: {u: [] for u in range(4)})
    #: (unit, op) in the order of their dispatch.
    order: list[int] = field(default_factory=list)
    halt_code: int | None = None
    words: int = 0


@dataclass
class _Loop:
    level: int
    count: int
    begin: int
    end: int
    iteration: int = 0


@dataclass
class _Address:
    cur: int = 0
    base: int = 0
    strides: list[int] = field(default_factory=lambda: [0] * isa.LOOP_LEVELS)
    ring: int = 0


def run(words: list[int], entry: int, params: list[int], limit: int = 100_000) -> Outcome:
    """Execute a legal program."""
    out = Outcome()
    loops: list[_Loop] = []
    regs = [_Address() for _ in range(isa.ADDRESS_REGISTERS)]
    pc = entry

    def holds(mask: int, last: bool) -> bool:
        return all((loop.iteration == loop.count - 1) if last else (loop.iteration == 0)
                   for loop in loops if mask >> loop.level & 1)

    while True:
        out.words += 1
        assert out.words < limit, "program too long"
        op, f = isa.decode(words[pc])
        if op is Op.HALT:
            out.halt_code = f["code"]
            return out
        if op is Op.LOOP:
            count = params[f["param"]] if f["from_param"] else f["count"]
            if count == 0:
                pc = f["end"] + 1
                continue
            loops.append(_Loop(f["level"], count, pc + 1, f["end"]))
        elif op is Op.END:
            loop = loops[-1]
            assert loop.level == f["level"] and loop.end == pc
            more = loop.iteration + 1 < loop.count
            for r in regs:
                stride = r.strides[loop.level]
                if r.ring:
                    r.cur = (r.cur + stride) & MASK32
                    if r.cur >= r.base + r.ring:
                        r.cur -= r.ring
                elif more:
                    r.cur = (r.cur + stride) & MASK32
                else:
                    r.cur = (r.cur - stride * (loop.count - 1)) & MASK32
            if more:
                loop.iteration += 1
                pc = loop.begin
                continue
            loops.pop()
        elif op is Op.ADDR:
            r = regs[f["reg"]]
            r.base = r.cur = (f["base"] + (params[f["param"]] if f["add_param"] else 0)) & MASK32
            r.strides = [f[f"stride{i}"] for i in range(isa.LOOP_LEVELS)]
            r.ring = f["ring"]
        else:
            unit = isa.OPS[op].unit
            unit = f["unit"] if unit == "field" else int(unit)
            item = dict.fromkeys(("wait", "signal", "accumulate", "swap", "a", "b", "c"), 0)
            item |= {"word": words[pc], "pc": pc}
            named = [name for name in f if name in _ADDRESSES]
            for letter, name in zip("abc", named, strict=False):
                item[letter] = regs[f[name]].cur
            if "wait_ld" in f:
                for u in isa.Unit:
                    n = u.name.lower()
                    item["wait"] |= (f[f"wait_{n}"] and holds(f[f"wait_{n}_first"], False)) << u
                    item["signal"] |= (f[f"signal_{n}"] and holds(f[f"signal_{n}_last"], True)) << u
            if op is Op.PULSE_ARRAY:
                item["swap"] = int(f["swap"] and holds(f["swap_first"], False))
                item["accumulate"] = {0: 0, 1: 1, 2: int(not holds(f["acc_first"], False))}[f["acc_mode"]]
            out.ops[unit].append(item)
            out.order.append(unit)
        pc += 1


def unpack(layout: data.Layout, bits: int) -> dict | list | int:
    """Fields of a layout's value, nested ones too, as plain numbers."""
    if isinstance(layout, data.StructLayout | data.ArrayLayout):
        parts = {k: unpack(f.shape, bits >> f.offset & (1 << f.width) - 1) for k, f in layout}
        return parts if isinstance(layout, data.StructLayout) else list(parts.values())
    return bits


DISPATCHED = [op for op, spec in isa.ops_of(CONFIG).items() if spec.dispatched]


def with_op(config: ChipConfig, op: Op) -> ChipConfig:
    """The configuration, or one of the other ``dtype`` when its chips do not have the op."""
    return config if isa.OPS[op].on(config) else config.replace(dtype="int8" if config.is_float else "bf16")


def random_fields(op: Op, rng: random.Random, config: ChipConfig = CONFIG) -> dict[str, int]:
    """Random legal fields, with their extremes often."""
    out = {}
    for f in isa.OPS[op].fields:
        lo, hi = isa.field_range(f, config)
        out[f.name] = rng.choice([lo, hi, rng.randint(lo, hi), rng.randint(lo, min(hi, lo + 7))])
    if op is Op.ADDR:
        out["ring"] = rng.choice([0, 0, rng.randint(1, 1 << 24)])
        if out["ring"]:
            for i in range(isa.LOOP_LEVELS):
                out[f"stride{i}"] = rng.choice([0, 1, out["ring"] - 1, out["ring"], rng.randint(0, out["ring"])])
            # Stay clear of the top of the address space, where a ring has no meaning.
            out["base"], out["add_param"] = rng.randint(0, 1 << 31), 0
    return out


def random_program(rng: random.Random, config: ChipConfig = CONFIG) -> tuple[list[int], int, list[int]]:
    """A legal program that fits the store: (store contents, entry, parameter registers)."""
    params = [rng.choice([0, 1, 2, 3, rng.randint(0, 4)]) for _ in range(isa.PARAM_REGISTERS)]
    entry = rng.randint(0, 8)
    words: list[int] = []

    def emit(op: Op, **fields: int) -> None:
        words.append(isa.encode(op, config, fields))

    def block(budget: int, above: int) -> None:
        """Up to ``budget`` words; loops of levels beyond ``above``."""
        stop = len(words) + budget
        while len(words) < stop:
            kind = rng.random()
            if kind < 0.35 and above < isa.LOOP_LEVELS - 1 and stop - len(words) >= 3:
                level = rng.randint(above + 1, min(above + 2, isa.LOOP_LEVELS - 1))
                at = len(words)
                words.append(0)
                block(rng.randint(1, stop - len(words) - 1), level)
                emit(Op.END, level=level)
                by_param = rng.random() < 0.3
                words[at] = isa.encode(Op.LOOP, config, {
                    "level": level, "end": entry + len(words) - 1, "from_param": int(by_param),
                    "count": rng.choice([0, 1, 1, 2, 2, 3]), "param": rng.randrange(isa.PARAM_REGISTERS)})
            elif kind < 0.6:
                fields = random_fields(Op.ADDR, rng, config)
                fields["reg"] = rng.randrange(4)
                words.append(isa.encode(Op.ADDR, config, fields))
            else:
                op = rng.choice(DISPATCHED)
                fields = random_fields(op, rng, config)
                for name in _ADDRESSES:
                    if name in fields:
                        fields[name] = rng.randrange(4)
                words.append(isa.encode(op, config, fields))

    for reg in range(4):
        fields = random_fields(Op.ADDR, rng, config)
        words.append(isa.encode(Op.ADDR, config, {**fields, "reg": reg}))
    block(config.microcode_words - entry - len(words) - 1 if rng.random() < 0.5 else rng.randint(1, 20), -1)
    emit(Op.HALT, code=rng.randrange(256))
    return [0] * entry + words, entry, params
