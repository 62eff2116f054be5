"""Loops, address registers and predicates against closed forms: every op that comes out of random loop nests."""

from __future__ import annotations

import itertools
import random

import pytest

from sluice.asm import Builder, assemble
from sluice.golden import GoldenMachine, StepLimitError
from sluice.golden.sequencer import Sequencer
from sluice_hw import isa
from sluice_hw.isa import AccMode, Op, Unit
from verif.unit.golden.machine_kit import SEED, TINY, run_text


class Sink:
    """Stands in for a unit: takes everything."""

    depth = 1 << 30
    idle = True

    def __init__(self) -> None:
        self.queue: list = []


def trace(words: list[int], params: list[int] | None = None, entry: int = 0) -> list:
    """All ops that the sequencer hands out, in order."""
    sink = Sink()
    sequencer = Sequencer(TINY, words, params or [0] * 8, dict.fromkeys(Unit, sink), entry)
    while sequencer.step():
        pass
    assert sequencer.halt_code is not None
    return sink.queue


def random_levels(rng: random.Random, depth: int) -> list[int]:
    return sorted(rng.sample(range(isa.LOOP_LEVELS), depth))


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 6])
def test_affine_addresses_and_predicates(depth):
    rng = random.Random(SEED * 10 + depth)
    for _ in range(10):
        levels = random_levels(rng, depth)
        counts = [rng.randint(1, 4) for _ in levels]
        strides = [rng.randrange(-(2**25), 2**25) for _ in range(isa.LOOP_LEVELS)]
        base, addition = rng.randrange(2**32), rng.randrange(2**32)
        masks = {name: rng.randrange(64) for name in ("wait", "signal", "swap", "acc")}
        from_param = [rng.random() < 0.5 for _ in levels]
        params = [*counts, *[0] * (7 - len(counts)), addition]
        b = Builder(TINY)
        b.addr(5, base, param=7, strides=dict(enumerate(strides)))
        contexts = []
        for i, level in enumerate(levels):
            where = {"param": i} if from_param[i] else {"count": counts[i]}
            contexts.append(b.loop(level, **where))
            contexts[-1].__enter__()
        b.op(Op.PULSE_ARRAY, vmem=5, acc=6, swap=1, swap_first=masks["swap"], acc_mode=AccMode.FIRST,
             acc_first=masks["acc"], wait_st=1, wait_st_first=masks["wait"], signal_ld=1,
             signal_ld_last=masks["signal"])
        for context in reversed(contexts):
            context.__exit__(None, None, None)
        b.op(Op.LOAD_WEIGHTS, vmem=5)  # behind the loops the register is what it was
        b.halt()
        *inside, behind = trace(b.program(check=False).words, params)
        start = (base + addition) % 2**32
        assert behind.address["vmem"] == start
        iterations = list(itertools.product(*(range(c) for c in counts)))
        assert len(inside) == len(iterations)
        for op, index in zip(inside, iterations, strict=True):
            moved = sum(strides[level] * i for level, i in zip(levels, index, strict=True))
            assert op.address == {"vmem": (start + moved) % 2**32, "acc": 0}
            state = {level: (i == 0, i + 1 == c) for level, i, c in zip(levels, index, counts, strict=True)}

            def holds(mask: int, which: int, state=state) -> bool:
                return all(flags[which] for level, flags in state.items() if mask >> level & 1)

            assert op.waits == ((Unit.ST,) if holds(masks["wait"], 0) else ())
            assert op.signals == ((Unit.LD,) if holds(masks["signal"], 1) else ())
            assert op.swap == holds(masks["swap"], 0)
            assert op.accumulate == (not holds(masks["acc"], 0))


def test_ring_addresses():
    """A ring steps at every END, also the last, wraps at its end and does not return."""
    rng = random.Random(SEED)
    for _ in range(30):
        ring = rng.randrange(1, 50)
        strides = [rng.randint(0, ring) for _ in range(2)]
        counts = [rng.randint(1, 5) for _ in range(2)]
        base = rng.choice((0, rng.randrange(2**32)))
        b = Builder(TINY)
        b.addr(1, base, strides=dict(enumerate(strides)), ring=ring)
        with b.loop(0, counts[0]):
            with b.loop(1, counts[1]):
                b.op(Op.LOAD_PARAMS, vmem=1)
            b.op(Op.LOAD_PARAMS, vmem=1)
        b.op(Op.LOAD_PARAMS, vmem=1)
        b.halt()
        offset, want = 0, []
        for _ in range(counts[0]):
            for _ in range(counts[1]):
                want.append(offset)
                offset = offset + strides[1] - (ring if offset + strides[1] >= ring else 0)
            want.append(offset)
            offset = offset + strides[0] - (ring if offset + strides[0] >= ring else 0)
        want.append(offset)
        assert [op.address["vmem"] for op in trace(b.program().words)] == [(base + x) % 2**32 for x in want]


def test_count_zero_skips_the_loop():
    text = """
    loop 0 count=p1 {
      sync unit=ld
      loop 1 count=0 {
        sync unit=st
      }
    }
    sync unit=vpu
    halt"""
    words = assemble(text, TINY).words
    assert [op.pc for op in trace(words, [0] * 8)] == [6]
    assert [op.pc for op in trace(words, [0, 2, *[0] * 6])] == [1, 1, 6]


def test_acc_modes():
    b = Builder(TINY)
    with b.loop(2, 2):
        for mode in AccMode:
            b.op(Op.PULSE_ARRAY, acc_mode=mode, acc_first=b.levels(2))
    b.halt()
    assert [op.accumulate for op in trace(b.program(check=False).words)] == [0, 1, 0, 0, 1, 1]


def test_address_register_set_inside_a_loop():
    text = """
    loop 0 count=3 {
      addr r1 base=100 stride0=7 stride1=1
      loop 1 count=2 {
        load_params vmem=r1
      }
      load_params vmem=r1
    }
    load_params vmem=r1
    halt"""
    got = [op.address["vmem"] for op in trace(assemble(text, TINY).words)]
    # At the last END cur goes back by the two steps that the loop makes, though the register was set inside.
    assert got == [100, 101, 100] * 3 + [100 - 14]


def test_entry():
    words = assemble("halt 1\nsync unit=ld\nhalt 2", TINY).words
    assert len(trace(words, entry=1)) == 1
    assert GoldenMachine(TINY).run(words, entry=1).halt_code == 2


def test_results_of_a_run():
    machine = GoldenMachine(TINY)
    result = run_text(machine, "loop 0 count=3 {\nsync unit=ld signal=st,mxu@last(0)\n}\nhalt 9")
    assert (result.halted, result.halt_code, result.error, result.steps) == (True, 9, None, 8)
    assert result.tokens_left == {(Unit.LD, Unit.ST): 3, (Unit.LD, Unit.MXU): 1}
    assert (result.counters.tokens, result.counters.ops) == (4, 3)
    assert run_text(machine, "halt").tokens_left == {}


def test_step_limit():
    text = "loop 0 count=16777215 {\naddr r0\n}\nhalt"
    with pytest.raises(StepLimitError, match="at pc [12] after 1000 words"):
        run_text(GoldenMachine(TINY), text, max_steps=1000)


def test_bad_arguments():
    machine = GoldenMachine(TINY)
    with pytest.raises(ValueError, match="1025 words do not fit in the microcode store of 1024"):
        machine.run([1] * 1025)
    with pytest.raises(ValueError, match="there are 8 parameter registers, not 9"):
        machine.run([1], params=range(9))
    with pytest.raises(ValueError, match="parameter register 1 must be 0 to 2..32 - 1, not -1"):
        machine.run([1], params=[0, -1])
    with pytest.raises(ValueError, match="program of 33 bytes is truncated"):
        machine.run(bytes(33))
    assert machine.run(assemble("halt 4", TINY).to_bytes()).halt_code == 4
