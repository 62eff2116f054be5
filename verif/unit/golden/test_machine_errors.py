"""How programs end that do not reach their HALT: illegal words, faults, deadlocks, races, undefined use."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sluice.asm import WordError, assemble, check_word
from sluice.golden import DeadlockError, GoldenMachine, UndefinedError, UnwrittenReadError
from sluice_hw import isa
from sluice_hw.isa import Error, Unit
from verif.unit.asm.words import random_word
from verif.unit.golden.machine_kit import SCHEDULES, SEED, TINY, int8, poke, rng_of, run_text


def ready_machine() -> GoldenMachine:
    """A machine in which everything has been written."""
    machine = GoldenMachine(TINY)
    for memory in (machine.hbm, machine.vmem, machine.acc):
        memory.written[:] = True
    return machine


# -- words that the sequencer refuses ------------------------------------------------------------------------------
def test_illegal_words_stop_with_their_place():
    rng = random.Random(SEED)
    good = assemble("sync unit=ld\nhalt", TINY).words
    seen = set()
    for _ in range(400):
        word = random_word(rng.choice(list(isa.ops_of(TINY))), TINY, rng) ^ 1 << rng.randrange(256)
        try:
            check_word(word, TINY)
            continue
        except WordError as error:
            want = error
        result = GoldenMachine(TINY).run([good[0], word, good[1]])
        e = result.error
        assert not result.halted and result.halt_code is None
        assert (e.code, e.pc, e.field, e.info, e.unit) == (want.code, 1, want.field, word & 0xFFFFFFFF, "seq")
        seen.add(e.code)
    assert seen == {Error.ILLEGAL_OPCODE, Error.ILLEGAL_FIELD, Error.RESERVED_BITS}


def test_the_store_behind_a_program_is_illegal():
    words = assemble("sync unit=ld\nhalt", TINY).words
    e = GoldenMachine(TINY).run(words[:1]).error
    assert (e.code, e.pc, e.field, e.info) == (Error.ILLEGAL_OPCODE, 1, 0, 0)


def test_running_past_the_store():
    config = TINY.replace(microcode_words=16)
    words = assemble("sync unit=ld", TINY, check=False).words * 16
    e = GoldenMachine(config).run(words).error
    assert (e.code, e.pc) == (Error.FETCH_RANGE, 16)
    assert GoldenMachine(config).run(words, entry=16).error.code == Error.FETCH_RANGE


@pytest.mark.parametrize("text, pc, field", [
    ("loop 1 count=1 end=3\nloop 1 count=1 end=2\nend 1\nend 1\nhalt", 1, "level"),
    ("loop 1 count=1 end=3\nloop 0 count=1 end=2\nend 0\nend 1\nhalt", 1, "level"),
    ("addr r0\nloop 1 count=1 end=1\nhalt", 1, "end"),
    ("loop 0 count=0 end=0\nhalt", 0, "end"),
    ("loop 0 count=1 end=2\nloop 1 count=1 end=2\nend 0\nhalt", 1, "end"),
    ("end 0\nhalt", 0, "level"),
    ("loop 0 count=1 end=1\nend 1\nhalt", 1, "level"),
    ("loop 0 count=1 end=2\nend 0\nend 0\nhalt", 1, "level"),
    ("loop 0 count=1 end=1\nhalt", 1, None),
    ("loop 0 count=2 end=1\nsync unit=ld\nhalt", 1, None),
])
def test_loop_nesting(text, pc, field):
    words = assemble(text, TINY, check=False).words
    e = GoldenMachine(TINY).run(words).error
    assert (e.code, e.pc, e.unit) == (Error.LOOP_NESTING, pc, "seq")
    op = isa.decode(words[pc])[0]
    assert e.field == (isa.field_index(op, field) if field else 0)
    assert e.info == words[pc] & 0xFFFFFFFF


def test_ops_under_way_end_and_no_other_starts():
    """At an error, what has started finishes; what only stands in a queue does not start."""
    text = "dma_shape unit=ld\nhbm_read_slice count=1\nsync unit=vpu wait=ld\n.word 0"
    ended = set()
    for schedule in range(30):
        machine = ready_machine()
        result = run_text(machine, text, check=False, schedule_seed=schedule)
        assert result.error.code == Error.ILLEGAL_OPCODE
        assert result.counters.ld_slices <= 1 and result.counters.ops <= 2
        ended.add(result.counters.ld_slices)
    assert ended == {0, 1}


# -- faults of the units -------------------------------------------------------------------------------------------
FEED = "feed_shape n0=4 s0=8 segments=1\nfeed_segment index=0 lo=0 hi=8\n"


@pytest.mark.parametrize("text, code, info, unit", [
    ("addr r1 base=65530\nload_weights vmem=r1 pitch=8 k=1 n=7\nhalt", Error.VMEM_RANGE, 65530, "mxu"),
    ("addr r1 base=65520\nload_weights vmem=r1 pitch=8 k=3 n=4\nhalt", Error.VMEM_RANGE, 65536, "mxu"),
    (FEED + "addr r1 base=65512\nload_weights k=8 n=8\npulse_array vmem=r1 swap\nhalt", Error.VMEM_RANGE, 65536, "mxu"),
    (FEED + "addr r1 base=509\nload_weights k=8 n=8\npulse_array acc=r1 swap\nhalt", Error.ACC_RANGE, 512, "mxu"),
    (FEED + "addr r1 base=600\nload_weights k=8 n=8\npulse_array acc=r1 swap\nhalt", Error.ACC_RANGE, 600, "mxu"),
    ("addr r1 base=65465\nload_params vmem=r1\nhalt", Error.VMEM_RANGE, 65465, "vpu"),
    ("addr r1 base=511\nvector_shape n2=2 s2=3\nvector_mode cols=8\nvector src=r1\nhalt", Error.ACC_RANGE, 514, "vpu"),
    ("addr r1 base=65529\nvector_shape n2=1\nvector_mode source=vmem cols=8\nvector src=r1\nhalt",
     Error.VMEM_RANGE, 65529, "vpu"),
    ("addr r1 base=65528\nvector_shape n2=2 d2=8\nvector_mode cols=8\nvector dst=r1\nhalt",
     Error.VMEM_RANGE, 65536, "vpu"),
    ("addr r1 base=65505\nvector_shape n2=1\nvector_mode cols=8 wide\nvector dst=r1\nhalt",
     Error.VMEM_RANGE, 65505, "vpu"),
    ("addr r1 base=65530\nvector_shape n2=1\nvector_mode cols=8 residual=float\nvector_residual\nvector res=r1\nhalt",
     Error.VMEM_RANGE, 65530, "vpu"),
])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ranges(text, code, info, unit, schedule):
    machine = ready_machine()
    before = machine.vmem.data.copy(), machine.acc.data.copy()
    result = run_text(machine, text, schedule_seed=schedule)
    e = result.error
    assert not result.halted
    assert (e.code, e.info, e.unit, e.field) == (code, info, unit, 0)
    op = text.splitlines()[e.pc].split()[0].upper()
    assert e.reason.startswith(op + ": ")
    np.testing.assert_array_equal(machine.vmem.data, before[0])
    np.testing.assert_array_equal(machine.acc.data, before[1])


def test_masked_and_padded_bytes_are_no_fault():
    """Columns and segments that are not used may lie beyond the end."""
    text = "addr r1 base=65533\nload_weights vmem=r1 pitch=0 k=1 n=3\n" \
        "vector_shape n2=1\nvector_mode source=vmem cols=3\nvector src=r1 dst=r1\nhalt"
    assert run_text(ready_machine(), text).halted


def test_token_overflow():
    top = TINY.token_max
    text = "loop 0 count=p0 {\nsync unit=st signal=vpu\n}\nhalt"
    assert run_text(GoldenMachine(TINY), text, params=[top]).halted
    e = run_text(GoldenMachine(TINY), text, params=[top + 1]).error
    assert (e.code, e.pc, e.info, e.unit) == (Error.TOKEN_OVERFLOW, 1, int(Unit.VPU), "st")


def test_the_chip_is_usable_after_an_error():
    machine = ready_machine()
    assert run_text(machine, "sync unit=ld signal=st\n.word 0", check=False).error
    result = run_text(machine, "halt 3")
    assert result.halt_code == 3 and result.error is None and not result.tokens_left


# -- deadlocks -----------------------------------------------------------------------------------------------------
LOAD = "load_weights k=1 n=1\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("text, waiting", [
    ("sync unit=ld wait=st,vpu\nhalt",
     {"seq": ("HALT", 1, "every unit to be idle"), "ld": ("SYNC", 0, "a token from ST and VPU")}),
    ("sync unit=st wait=vpu signal=vpu\nsync unit=vpu wait=st signal=st\nhalt",
     {"seq": ("HALT", 2, "every unit to be idle"), "st": ("SYNC", 0, "a token from VPU"),
      "vpu": ("SYNC", 1, "a token from ST")}),
    # The queue of LD holds four ops; the fifth, and the token that the first waits for, never leave the sequencer.
    ("sync unit=ld wait=st\n" * 5 + "sync unit=st signal=ld\nhalt",
     {"seq": ("SYNC", 4, "room in the queue of LD"), "ld": ("SYNC", 0, "a token from ST")}),
    (LOAD * 2 + "halt", {"seq": ("HALT", 2, "every unit to be idle"),
                         "mxu": ("LOAD_WEIGHTS", 1, "the previous weight tile to be swapped in by a PULSE_ARRAY")}),
    (FEED + LOAD + "pulse_array swap\npulse_array swap\nhalt",
     {"seq": ("HALT", 5, "every unit to be idle"), "mxu": ("PULSE_ARRAY", 4, "a weight tile from a LOAD_WEIGHTS")}),
    ("load_params\nload_params\nhalt",
     {"seq": ("HALT", 2, "every unit to be idle"),
      "vpu": ("LOAD_PARAMS", 1, "the previous parameters to be taken over by a VECTOR")}),
])
def test_deadlocks(text, waiting, schedule):
    with pytest.raises(DeadlockError) as error:
        run_text(ready_machine(), text, check=False, schedule_seed=schedule)
    assert error.value.waiting == waiting
    for unit, (op, pc, reason) in waiting.items():
        assert f"{unit}: {op} at pc {pc} waits for {reason}" in str(error.value)


def test_queues_of_the_configured_depth():
    """Four ops before the one that frees them fit in LD's queue, five do not."""
    text = "sync unit=ld wait=st\n" * 4 + "sync unit=st signal=ld\n" * 4 + "halt"
    assert run_text(GoldenMachine(TINY), text).halted
    with pytest.raises(DeadlockError):
        run_text(GoldenMachine(TINY.replace(ld_queue=3)), text)


def test_weights_overlap_with_the_array():
    """The next tile loads while the old one works: LOAD_WEIGHTS may finish before the PULSE_ARRAY in front of it."""
    text = FEED + LOAD + "pulse_array swap\n" + "load_weights k=1 n=1 signal=vpu\npulse_array swap\nhalt"
    finished_first = set()
    for schedule in range(40):
        machine = ready_machine()
        order = []
        original = machine._reset

        def reset(machine=machine, order=order, original=original) -> None:
            original()
            mxu = machine._units[Unit.MXU]
            for stage in ("loaded", "drained"):
                method = getattr(mxu, stage)
                setattr(mxu, stage, lambda a, method=method: (order.append(a.uop.pc), method(a))[1])

        machine._reset = reset
        assert run_text(machine, text, schedule_seed=schedule).halted
        assert order.index(4) > order.index(2) and order.index(5) > max(order.index(3), order.index(4))
        finished_first.add(order.index(4) < order.index(3))
    assert finished_first == {False, True}


# -- what is undefined ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text, message", [
    ("hbm_read_slice count=1", "HBM_READ_SLICE at pc 0: needs DMA_SHAPE unit=ld before it"),
    ("dma_shape unit=ld\nhbm_write_slice count=1", "HBM_WRITE_SLICE at pc 1: needs DMA_SHAPE unit=st before it"),
    ("pulse_array", "PULSE_ARRAY at pc 0: needs weights"),
    (LOAD + "pulse_array swap", "PULSE_ARRAY at pc 1: needs FEED_SHAPE before it"),
    ("feed_shape\n" + LOAD + "pulse_array swap", "PULSE_ARRAY at pc 2: needs FEED_SEGMENT index=0 before it"),
    (FEED.replace("segments=1", "segments=2") + "feed_segment index=1 lo=7 hi=8\n" + LOAD + "pulse_array swap",
     "segment 1 of array rows 7 to 8 is empty or overlaps another"),
    ("vector_shape\nvector", "VECTOR at pc 1: needs VECTOR_MODE before it"),
])
def test_undefined(text, message):
    with pytest.raises(UndefinedError, match=message):
        run_text(ready_machine(), text + "\nhalt", check=False)


def test_setup_does_not_survive_a_program():
    machine = ready_machine()
    assert run_text(machine, "dma_shape unit=ld\nhbm_read_slice count=1\nhalt").halted
    with pytest.raises(UndefinedError, match="needs DMA_SHAPE"):
        run_text(machine, "hbm_read_slice count=1\nhalt", check=False)


@pytest.mark.parametrize("text, memory, address, op, pc", [
    ("load_weights k=2 n=4 pitch=8\nhalt", "VMEM", 10, "LOAD_WEIGHTS", 0),
    ("feed_shape n0=2 s0=4 segments=1\nfeed_segment hi=8\nload_weights k=1 n=1\npulse_array swap\nhalt",
     "VMEM", 10, "PULSE_ARRAY", 3),
    ("feed_shape segments=1\nfeed_segment hi=8\nload_weights k=1 n=1\npulse_array swap acc_mode=accumulate\nhalt",
     "ACC", 0, "PULSE_ARRAY", 3),
    ("load_params\nhalt", "VMEM", 10, "LOAD_PARAMS", 0),
    ("addr r1 base=7\nvector_shape n2=1\nvector_mode cols=8\nvector src=r1\nhalt", "ACC", 7, "VECTOR", 3),
    ("vector_shape n2=2 s2=8\nvector_mode source=vmem cols=3\nvector\nhalt", "VMEM", 10, "VECTOR", 2),
    ("addr r1 base=5\nvector_shape\nvector_mode source=vmem residual=float cols=6\n"
     "vector_residual\nvector res=r1\nhalt", "VMEM", 10, "VECTOR", 4),
])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_unwritten_reads(text, memory, address, op, pc, schedule):
    machine = GoldenMachine(TINY)
    poke(machine.vmem, 0, np.zeros(10, np.int8))
    with pytest.raises(UnwrittenReadError) as error:
        run_text(machine, text, schedule_seed=schedule)
    e = error.value
    assert (e.memory, e.address, e.op, e.pc) == (memory, address, op, pc)
    assert f"{op} at pc {pc} reads {memory}" in str(e)


# -- schedules -----------------------------------------------------------------------------------------------------
RACE = """
    addr r1 base=1
    addr r2 base=2
    dma_shape unit=ld row_bytes=256
    dma_shape unit=st row_bytes=256
    hbm_read_slice hbm=r0 vmem=r0 count=1 signal=st
    sync unit=st wait=ld
    hbm_write_slice hbm=r2 vmem=r0 count=1 {give}
    hbm_read_slice hbm=r1 vmem=r0 count=1 {take}
    halt"""


def results(text: str, schedules: range) -> set[bytes]:
    out = set()
    for schedule in schedules:
        machine = GoldenMachine(TINY)
        machine.write_hbm(0, int8(rng_of("race"), 512))
        assert run_text(machine, text, schedule_seed=schedule).halted
        out.add(machine.read_hbm(512, 256).tobytes())
    return out


def test_random_schedules_show_a_race_and_tokens_remove_it():
    assert len(results(RACE.format(give="", take=""), range(40))) == 2
    assert len(results(RACE.format(give="signal=ld", take="wait=st"), range(40))) == 1


def test_a_token_of_the_wrong_op_is_a_race():
    """LOAD_WEIGHTS may finish before the PULSE_ARRAY in front of it has written its rows."""
    text = FEED + """load_weights k=8 n=8
    pulse_array swap
    load_weights k=8 n=8 {wrong}
    pulse_array swap acc_mode=accumulate {right}
    vector_shape n2=4 s2=1 d2=8
    vector_mode cols=8 lo=-128 hi=127
    addr r1 base=4096
    vector dst=r1 wait=mxu
    halt"""

    def outcomes(**tokens: str) -> set[bytes]:
        out = set()
        for schedule in range(60):
            machine = GoldenMachine(TINY)
            poke(machine.vmem, 0, int8(np.random.default_rng(5), 64) // 32)
            poke(machine.acc, 0, np.zeros((4, 8), np.int32))
            assert run_text(machine, text.format(**tokens), schedule_seed=schedule).halted
            out.add(machine.vmem.data[4096:4128].tobytes())
        return out

    assert len(outcomes(wrong="signal=vpu", right="")) == 3  # before both, between them, behind both
    assert len(outcomes(wrong="", right="signal=vpu")) == 1


def test_a_seed_replays():
    text = RACE.format(give="", take="")
    for schedule in range(5):
        assert len(results(text, range(schedule, schedule + 1)) | results(text, range(schedule, schedule + 1))) == 1
