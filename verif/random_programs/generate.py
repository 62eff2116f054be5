"""A seed to a tree: what fills the arena, random ops in random loops, and what brings everything out to HBM."""

from __future__ import annotations

import random
from dataclasses import dataclass

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import AccMode, Op, Unit

from .arena import Arena, Window, make_arena
from .operands import Operands, Style
from .passes import FloatOperands
from .tree import Address, Block, Loop, Node

__all__ = ["Draft", "draft"]


@dataclass
class Draft:
    """A program without tokens."""

    config: ChipConfig
    seed: int
    arena: Arena
    block: Block
    params: list[int]
    entry: int
    code: int


def draft(config: ChipConfig, seed: int, attempt: int = 0) -> Draft:
    """The random program of a seed; ``attempt`` for another one."""
    rng = random.Random(f"{config.name}/{seed}/{attempt}")
    arena = make_arena(config, rng)
    params = [rng.choice([rng.randint(0, 5), rng.getrandbits(32)]) for _ in range(isa.PARAM_REGISTERS)]
    style = Style(rng.choice([0.0, 0.5, 1.0]), rng.choice([4, 12, 24]), rng.choice([0.1, 0.6]))
    operands = (FloatOperands if config.is_float else Operands)(config, arena, rng, style, params)
    body = _Body(operands, rng, budget=rng.choice([3, 8, 14, 22])).make()
    return Draft(config, seed, arena, _fill(operands, rng) + body + _empty(operands), params, rng.choice([0, 0, 1, 5]),
                 rng.randrange(256))  # fmt: skip


# -- begin and end -----------------------------------------------------------------------------------------------
def _transfer(operands: Operands, op: Op, window: Window, first: int, pad: int = 0) -> tuple[Node, int]:
    """A whole window from or to slices from ``first`` on; the slice behind them."""
    size = operands.config.slice_bytes
    count = -(-window.size // size)
    unit = Unit.LD if op is Op.HBM_READ_SLICE else Unit.ST
    at = {"hbm": Address(first), "vmem": Address(window.start)}
    return operands.transfer(op, unit, count, window.size, 1, 0, pad, at), first + count


def _fill(operands: Operands, rng: random.Random) -> Block:
    """Write all of the arena, so that nothing reads what nobody has written."""
    arena, config = operands.arena, operands.config
    out: Block = []
    for window in arena.data:
        count = -(-window.size // config.slice_bytes)
        area = rng.choice([a for a in (Window(arena.raw.start, arena.hbm.size), arena.raw) if a.size >= count])
        out.append(_transfer(operands, Op.HBM_READ_SLICE, window, rng.randint(area.start, area.end - count))[0])
    out.append(_transfer(operands, Op.HBM_READ_SLICE, arena.params, arena.clean.start)[0])
    source = rng.choice(arena.data)
    k, n, row = config.rows, config.col_bytes, config.row_bytes
    out.append(Node(Op.LOAD_WEIGHTS, {"pitch": n, "k": min(k, source.size // n), "n": n},
                    {"vmem": Address(source.start)}))  # fmt: skip
    for number, acc in enumerate(arena.acc):
        source = rng.choice(arena.data)
        step = max(0, min(row, (source.size - row) // max(acc.size - 1, 1)))
        shape = {"n0": acc.size, "n1": 1, "n2": 1, "s0": step, "segments": 1}
        segment = {"index": 0, "lo": 0, "hi": min(row, source.size)}
        fields = {"swap": int(number == 0), "acc_mode": int(AccMode.OVERWRITE)}
        out.append(Node(Op.PULSE_ARRAY, fields, {"vmem": Address(source.start), "acc": Address(acc.start)},
                        [(Op.FEED_SHAPE, shape), (Op.FEED_SEGMENT, segment)]))  # fmt: skip
    return out + operands.first_vectors()


def _empty(operands: Operands) -> Block:
    """Windows of VMEM to HBM, then accumulators through a window."""
    arena, config = operands.arena, operands.config
    out: Block = []
    first = arena.dump.start
    for window in arena.data:
        node, first = _transfer(operands, Op.HBM_WRITE_SLICE, window, first, pad=first & 255)
        out.append(node)
    window = arena.data[0]
    width = 4 * config.cols
    for acc in arena.acc:
        out.append(operands.read_out(acc, window))
        node, first = _transfer(operands, Op.HBM_WRITE_SLICE, Window(window.start, width * acc.size), first)
        out.append(node)
    assert first <= arena.dump.end, "the dump area is large enough"
    return out


# -- middle ------------------------------------------------------------------------------------------------------
#: How often a kind of op is chosen.
_KINDS = {"load": 4, "store": 3, "weights": 4, "pulse": 7, "params": 2, "vector": 6, "loop": 4, "sync": 1}
#: The same on chips of bf16: more passes, and transposes instead of parameters.
_FLOAT_KINDS = {**_KINDS, "params": 3, "vector": 10}
#: Iterations of a loop, and of all loops around an op together.
_MOST, _MOST_TOGETHER = 6, 12


class _Body:
    """Random ops and loops.

    A tile that is loaded must be swapped in before the next one is, and parameters taken over: what is pending is
    tracked through the loops.
    """

    def __init__(self, operands: Operands, rng: random.Random, budget: int) -> None:
        self.operands, self.rng, self.budget = operands, rng, budget
        self.tile = self.parameters = False

    def make(self) -> Block:
        out: Block = []
        while self.budget > 0:
            out += self._item([])
        return out

    def _item(self, around: list[Loop]) -> Block:
        rng, make = self.rng, self.operands
        self.budget -= 1
        kinds = _FLOAT_KINDS if isinstance(make, FloatOperands) else _KINDS
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        if kind == "loop":
            return self._loop(around)
        if kind == "sync":
            return [Node(Op.SYNC, {"unit": rng.randrange(len(Unit))})]
        if kind == "weights" and not self.tile:
            self.tile = True
            node = make.weights(around)
        elif kind in ("weights", "pulse"):
            node = self._pulse(around, swap=self.tile and rng.random() < 0.7)
        elif kind == "params" and isinstance(make, FloatOperands):
            node = make.transpose(around)
        elif kind == "params" and not self.parameters:
            self.parameters = True
            node = make.load_params(around)
        elif kind in ("params", "vector"):
            self.parameters = False
            node = make.vector(around)
        else:
            node = make.load(around) if kind == "load" else make.store(around)
        node.again = rng.random() < 0.2
        return [node]

    def _pulse(self, around: list[Loop], *, swap: bool) -> Node:
        if swap:
            self.tile = False
        # Levels that are not open do not count.
        closed = (1 << isa.LOOP_LEVELS) - 1 - sum(1 << loop.level for loop in around)
        mask = self.rng.getrandbits(isa.LOOP_LEVELS) & closed if self.rng.random() < 0.3 else 0
        return self.operands.pulse(around, swap=swap, swap_first=mask)

    def _loop(self, around: list[Loop]) -> Block:
        rng, make = self.rng, self.operands
        lowest = around[-1].level + 1 if around else 0
        together = 1
        for loop in around:
            together *= max(loop.count, 1)
        if lowest >= isa.LOOP_LEVELS or together > _MOST_TOGETHER // 2:
            return []
        level = min(isa.LOOP_LEVELS - 1, lowest + rng.choice([0, 0, 0, 1, 2]))
        count = 0 if rng.random() < 0.05 else rng.randint(1, min(_MOST, _MOST_TOGETHER // together))
        fitting = [i for i, value in enumerate(self.operands.params) if value == count]
        param = rng.choice(fitting) if fitting and rng.random() < 0.5 else None
        loop = Loop(level, count, [], param)
        inside = [*around, loop]
        before: Block = []
        if self.tile and isinstance(make, FloatOperands) and make.next_int8 != make.int8:
            before.append(self._pulse(around, swap=True))  # all of a loop is of one type
        tile_at_entry, tile, parameters = self.tile, self.tile, self.parameters
        if count and tile and rng.random() < 0.5:  # only the first iteration swaps it in
            loop.body.append(self.operands.pulse(inside, swap=True, swap_first=1 << level))
            self.tile = tile = False
        # In a later iteration there may be parameters left of the one before.
        self.parameters = True
        ops = rng.randint(1, 6)
        while ops > 0:
            budget = self.budget
            loop.body += self._item(inside)
            ops -= budget - self.budget
        if self.tile and not tile:
            loop.body.append(self._pulse(inside, swap=True))
        elif tile and not self.tile:
            loop.body.append(self.operands.weights(inside))
        self.tile = tile if count else tile_at_entry
        self.parameters |= parameters
        return [*before, loop]
