"""Illegal words, broken programs and resets on a chip, one after the other."""

from __future__ import annotations

import itertools
import random
from collections import Counter

from sluice.asm import Program

from .compare import Bench, Mismatch
from .illegal import break_case, illegal_words, kinds_of
from .legal import make_case
from .replay import command

__all__ = ["break_seed", "sweep_programs", "sweep_resets", "sweep_words"]


def sweep_words(bench: Bench, share: float, seed: int) -> None:
    """Every illegal word stops the chip at its address with its code and field, and does nothing."""
    rng, device = random.Random(seed), bench.device
    cases = illegal_words(bench.config, rng)
    good = make_case(bench.config, seed)
    bench.run(good)
    device.load_program(Program([case.word for case in cases]), verify=False)
    for entry in sorted(rng.sample(range(len(cases)), round(share * len(cases)))):
        case = cases[entry]
        device.start(entry=entry)
        assert device.transport.wait_interrupt(20_000), case.what
        fault = device.last_error
        got = (fault.code, fault.pc, fault.field, fault.info, fault.unit)
        assert got == (case.code, entry, case.field, case.word & 0xFFFF_FFFF, "sequencer"), case.what
        device.reset()
    bench.check_memory(good)
    bench.run(good)


def break_seed(bench: Bench, seed: int, kind: str) -> bool:
    """Run the program of a seed broken in one way, then whole; whether it can be broken so.

    Raises
    ------
    Mismatch
        When the chip does not stop as golden does, or does something else; with the command that replays it.
    """
    case = make_case(bench.config, seed)
    broken = break_case(case, random.Random(seed), kind)
    if broken is not None:
        try:
            bench.stop(case, broken)
        except Mismatch as error:
            replay = command(case, f"--break '{kind}'")
            raise Mismatch(f"{error}\nreplay: {replay}") from error
    return broken is not None


def sweep_programs(bench: Bench, number: int, seed: int) -> None:
    """Programs broken in one place stop there, write nothing that is not theirs, and the chip runs them whole after."""
    done, kinds = Counter(), kinds_of(bench.config)
    for one, kind in zip(range(number), itertools.cycle(kinds), strict=False):
        done[kind] += break_seed(bench, seed + one, kind)
    assert all(done[kind] for kind in kinds if kind != "nesting"), f"not every program has loops, but {done}"


def sweep_resets(bench: Bench, number: int, seed: int) -> None:
    """Programs that a soft reset ends at a random moment leave nothing behind: they run whole after it."""
    rng, running = random.Random(seed), 0
    for one in range(seed, seed + number):
        case = make_case(bench.config, one)
        cycles = bench.run(case).cycles
        try:
            running += bench.interrupt(case, rng.randrange(1, cycles))
        except Mismatch as error:
            raise Mismatch(f"seed {one}: {error}") from error
    assert running > number // 2, f"{running} of {number} programs ran when they were reset"
