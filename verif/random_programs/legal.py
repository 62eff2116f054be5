"""From a draft to a case: tokens added, and judged by the race finder and the golden machine."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sluice.golden import GoldenMachine, MachineError, RunResult
from sluice_hw.config import ChipConfig
from verif.unit.compiler.races import find_races, trace

from .arena import hbm_image
from .footprint import footprints
from .generate import Draft, draft
from .lower import Lowered, lower
from .tokens import add_tokens
from .tree import Block, Link, Loop

__all__ = ["Case", "build", "judge", "make_case"]

#: Words that a program may execute.
MAX_STEPS = 20_000


@dataclass
class Case:
    """A legal program, and what golden makes of it.

    Attributes
    ----------
    image
        HBM from ``draft.arena.hbm`` on, before the program.
    want
        The same after it.
    """

    draft: Draft
    lowered: Lowered
    image: np.ndarray
    want: np.ndarray
    result: RunResult

    @property
    def config(self) -> ChipConfig:
        return self.draft.config


def make_case(config: ChipConfig, seed: int) -> Case:
    """The case of a seed."""
    for attempt in range(20):
        case = build(draft(config, seed, attempt))
        if case is not None:
            return case
    raise AssertionError(f"no legal program for config {config.name} seed {seed}")


def build(made: Draft) -> Case | None:
    """The case of a draft, whose tree gets its tokens; None when it has no legal one."""
    config = made.config
    bare = lower(made.block, config, params=made.params, entry=made.entry, code=made.code)
    if len(bare.program) > config.microcode_words:
        return None
    known = footprints(bare, config, made.params, made.entry)
    plain = made.block
    for simple in (False, True):
        rng = random.Random(f"{config.name}/{made.seed}/tokens")
        made.block = _copy(plain)
        links = add_tokens(made.block, known, rng, simple=simple)
        lowered = _lower(made)
        if lowered is None or _races(made, lowered):
            continue
        if not simple:
            lowered = _drop(made, lowered, links, rng)
        case = judge(made, lowered)
        if case is not None:
            return case
    made.block = plain
    return None


def _copy(block: Block) -> Block:
    """Blocks and loops anew, ops shared: tokens are inserted into blocks."""
    return [Loop(i.level, i.count, _copy(i.body), i.param) if isinstance(i, Loop) else i for i in block]


def _lower(made: Draft) -> Lowered | None:
    out = lower(made.block, made.config, params=made.params, entry=made.entry, code=made.code)
    return out if len(out.program) <= made.config.microcode_words else None


def _races(made: Draft, lowered: Lowered) -> bool:
    try:
        return bool(find_races(lowered.program, made.config, 1, made.params, made.entry))
    except AssertionError:  # a deadlock
        return True


def _drop(made: Draft, lowered: Lowered, links: list[Link], rng: random.Random) -> Lowered:
    """Leave out tokens that are not needed, for the sake of units that run far apart: of some programs all of them, of
    the others a few, because finding out takes time."""
    for link in rng.sample(links, len(links) if rng.random() < 0.15 else min(len(links), 2)):
        link.dropped = True
        tried = _lower(made)
        if tried is None or _races(made, tried):
            link.dropped = False
        else:
            lowered = tried
    return lowered


def _overflows(made: Draft, lowered: Lowered) -> bool:
    """Whether a token counter may pass its top: a giver is ahead of a taker by what the queues hold at most."""
    ahead: Counter = Counter()
    slack = {unit: made.config.queue_depth(unit) + 2 for unit in ("ld", "st", "mxu", "vpu")}
    for unit, uop in trace(lowered.program, made.config, made.params, made.entry):
        for other in uop.waits:
            ahead[other, unit] -= 1
        for other in uop.signals:
            ahead[unit, other] += 1
            if ahead[unit, other] + slack[other.name.lower()] > made.config.token_max:
                return True
    return False


def run_golden(made: Draft, image: np.ndarray, words: Sequence[int]) -> tuple[GoldenMachine, RunResult]:
    """Run words on golden as a draft's program: its image in HBM, its bounds, parameters and entry.

    Raises
    ------
    MachineError
        Where they do something that has no meaning.
    """
    machine = GoldenMachine(made.config)
    machine.write_hbm(made.arena.hbm.start * made.config.slice_bytes, image)
    machine.hbm_lo, machine.hbm_hi = made.arena.hbm.start, made.arena.hbm.end
    return machine, machine.run(words, params=made.params, entry=made.entry, max_steps=MAX_STEPS)


def judge(made: Draft, lowered: Lowered) -> Case | None:
    """The case of words as they stand; None when golden or the token counters refuse them."""
    if _overflows(made, lowered):
        return None
    area, size = made.arena.hbm, made.config.slice_bytes
    image = hbm_image(made.arena, made.config, made.seed)
    try:
        machine, result = run_golden(made, image, lowered.program.words)
    except MachineError:
        return None
    if result.error is not None:
        return None
    return Case(made, lowered, image, machine.hbm.data[area.start * size : area.end * size].copy(), result)
