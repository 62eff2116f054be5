"""Bad programs on the chip: refused words, faults of units, tokens that never come. What stops is named, nothing else
is touched, and after a soft reset the chip works."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from sluice.asm import Program, assemble
from sluice.errors import AccessError, ChipError, DeviceTimeout
from sluice.runtime import Device
from sluice.runtime.fault import Fault
from sluice_hw import csr, isa
from sluice_hw.isa import Cause, Error, Op, Unit
from verif.random_programs.illegal import illegal_words
from verif.system import workload
from verif.system.configs import CONFIGS

TINY = CONFIGS["tiny"]
SLICE, VMEM, STORE = TINY.slice_bytes, TINY.vmem_bytes, TINY.microcode_words
#: Slices of a pattern, and where programs copy VMEM to.
_PATTERN, _DUMP = 300, 400
_ACC_ROWS = 512


def stopped(device: Device, entry: int = 0) -> Fault:
    """Run to an error, check what the host sees of it, reset, return why. Device.run makes a dump, which takes long."""
    device.start(entry=entry)
    assert device.transport.wait_interrupt(20_000), f"no interrupt; STATUS {device.status}"
    assert device.read_fields("IRQ_STATUS") == {"done": 0, "error": 1, "halted": 0, "host_error": 0}
    status = device.status
    assert status["error"] and not status["done"] and not status["halted"]
    fault = device.last_error
    assert status["watchdog"] == (fault.code is Error.WATCHDOG)
    with pytest.raises(AccessError):  # only a reset leaves this state
        device._command("start")
    device.reset()
    assert device.last_error is None and not any(device.status.values())
    return fault


COPY = """
    addr r1 base=0
    addr r2 base={hbm}
    dma_shape unit={unit} row_bytes=16384 rows=1
    addr r1 base=0 stride0=0x4000
    addr r2 base={hbm} stride0={step}
    loop 0 count=4 {{
      {op} hbm=r2 vmem=r1 count=64
    }}
    halt
"""
FILL = COPY.format(hbm=_PATTERN, unit="ld", step=0, op="hbm_read_slice")
DUMP = COPY.format(hbm=_DUMP, unit="st", step=64, op="hbm_write_slice")


def test_illegal_words(tiny: Device, seed: int) -> None:
    """The chip names word and field, and neither HBM nor VMEM changes."""
    rng = random.Random(seed)
    cases = [(case.word, case.code, case.field) for case in illegal_words(TINY, rng)]
    assert len(cases) > 120 and len({code for _, code, _ in cases}) == 3
    pattern = rng.randbytes(64 * SLICE)
    tiny.write_memory(_PATTERN * SLICE, pattern)
    tiny.run(assemble(FILL, TINY))
    low = rng.randbytes(16 * SLICE)
    tiny.write_memory(0, low)  # where address registers that are 0 point to
    tiny.load_program(Program([word for word, _, _ in cases]), verify=False)
    # All in one store, each the entry of a run of its own; a fifth of them, others with another seed.
    for entry in sorted(rng.sample(range(len(cases)), len(cases) // 5)):
        word, code, field = cases[entry]
        fault = stopped(tiny, entry)
        got = (fault.code, fault.pc, fault.field, fault.info, fault.unit)
        assert got == (code, entry, field, word & 0xFFFF_FFFF, "sequencer"), f"word {word:#066x}"
    assert tiny.read_memory(0, 16 * SLICE) == low
    assert tiny.read_memory(_PATTERN * SLICE, 64 * SLICE) == pattern
    tiny.run(assemble(DUMP, TINY))
    assert tiny.read_memory(_DUMP * SLICE, VMEM) == 4 * pattern, "VMEM is as it was"
    workload.make(1).run(tiny)


def test_words_before_the_bad_one_act(tiny: Device) -> None:
    """A word at fault stops what follows, not what was ordered before it: that ends, and is counted."""
    text = f"""
        addr r0 base={_PATTERN}
        addr r1 base=0
        dma_shape unit=ld row_bytes={SLICE} rows=1
        hbm_read_slice hbm=r0 vmem=r1 count=1
    """
    words = assemble(text + "halt", TINY).words[:-1]
    tiny.load_program(Program([*words, 63]), verify=False)
    tiny.start()
    assert tiny.transport.wait_interrupt(5000)
    tiny.transport.advance(400)
    assert tiny.last_error.pc == len(words) and tiny.read_fields("LD_STATE")["idle"]
    assert tiny.counters()["ld_slices"] in (0, 1)  # begun or not when the error came
    tiny.reset()


def word(op: Op, **fields: int) -> int:
    return isa.encode(op, TINY, fields)


LOOP_LEVEL, LOOP_END = (isa.field_index(Op.LOOP, n) for n in ("level", "end"))
END_LEVEL = isa.field_index(Op.END, "level")
NOP, HALT = word(Op.ADDR, reg=1), word(Op.HALT)


@pytest.mark.parametrize(
    "words, pc, field",
    [
        ([word(Op.END)], 0, END_LEVEL),
        ([NOP, word(Op.END, level=3), HALT], 1, END_LEVEL),
        ([word(Op.LOOP, level=1, count=2, end=1), word(Op.END, level=0), HALT], 1, END_LEVEL),
        ([word(Op.LOOP, level=1, count=2, end=3), word(Op.LOOP, level=1, count=1, end=2), word(Op.END, level=1),
          word(Op.END, level=1), HALT], 1, LOOP_LEVEL),
        ([word(Op.LOOP, level=1, count=2, end=3), word(Op.LOOP, level=0, count=1, end=2), word(Op.END, level=0),
          word(Op.END, level=1), HALT], 1, LOOP_LEVEL),
        ([word(Op.LOOP, count=2, end=0), word(Op.END), HALT], 0, LOOP_END),
        ([NOP, NOP, word(Op.LOOP, count=2, end=1), HALT], 2, LOOP_END),
        ([word(Op.LOOP, level=0, count=2, end=3), word(Op.LOOP, level=1, count=1, end=4), NOP, word(Op.END, level=0),
          word(Op.END, level=1), HALT], 1, LOOP_END),
        ([word(Op.LOOP, count=2, end=2), NOP, NOP, word(Op.END), HALT], 2, 0),
        ([word(Op.LOOP, count=2, end=2), NOP, HALT, word(Op.END)], 2, 0),
    ],
    ids=["end-alone", "end-alone-later", "other-level", "same-level", "falling-level", "end-is-loop", "end-before",
         "crossing", "end-is-another-op", "end-is-halt"],
)  # fmt: skip
def test_loop_nesting(tiny: Device, words: list[int], pc: int, field: int) -> None:
    tiny.load_program(Program(words), verify=False)
    fault = stopped(tiny)
    assert (fault.code, fault.pc, fault.field, fault.unit) == (Error.LOOP_NESTING, pc, field, "sequencer")


def test_fetch_beyond_the_store(tiny: Device) -> None:
    tiny.load_program(Program([NOP] * STORE), verify=False)
    fault = stopped(tiny, entry=STORE - 3)
    assert (fault.code, fault.pc, fault.unit) == (Error.FETCH_RANGE, STORE, "sequencer")
    workload.make(2).run(tiny)


SET_UP = f"""
    addr r0 base=0
    addr r1 base={VMEM - 20}
    addr r2 base={_ACC_ROWS - 3}
    addr r3 base={TINY.hbm_slices - 1}
    dma_shape unit=ld row_bytes=8 rows=5 pitch=8
    dma_shape unit=st row_bytes=8 rows=5 pitch=8
    feed_shape n0=5 s0=8 segments=1
    feed_segment index=0 lo=0 hi=8
    vector_shape n2=5 s2=1 d2=8
    vector_mode source=acc requant=bypass lo=-128 hi=127 cols=8
"""
TILE = "load_weights vmem=r0 pitch=8 k=8 n=8\n"
#: The op at fault (behind SET_UP), its error, unit, and ERROR_INFO.
RANGES = {
    "ld-vmem": ("hbm_read_slice hbm=r0 vmem=r1 count=1", Error.VMEM_RANGE, "LD", VMEM + 12),
    "st-vmem": ("hbm_write_slice hbm=r0 vmem=r1 count=1", Error.VMEM_RANGE, "ST", VMEM + 12),
    "ld-hbm": ("hbm_read_slice hbm=r3 vmem=r0 count=2", Error.HBM_RANGE, "LD", TINY.hbm_slices - 1),
    "st-hbm": ("hbm_write_slice hbm=r3 vmem=r0 count=2", Error.HBM_RANGE, "ST", TINY.hbm_slices - 1),
    "weights-vmem": ("load_weights vmem=r1 pitch=8 k=8 n=8", Error.VMEM_RANGE, "MXU", VMEM - 4),
    "pulse-vmem": (TILE + "pulse_array vmem=r1 acc=r0", Error.VMEM_RANGE, "MXU", VMEM - 4),
    "pulse-acc": (TILE + "pulse_array vmem=r0 acc=r2", Error.ACC_RANGE, "MXU", _ACC_ROWS),
    "vector-acc": ("vector src=r2 dst=r0", Error.ACC_RANGE, "VPU", _ACC_ROWS),
    "vector-vmem": ("vector src=r0 dst=r1", Error.VMEM_RANGE, "VPU", VMEM - 4),
    "params-vmem": ("load_params vmem=r1", Error.VMEM_RANGE, "VPU", None),
}  # fmt: skip


@pytest.mark.parametrize("op, code, unit, info", RANGES.values(), ids=RANGES)
def test_range_faults(tiny: Device, op: str, code: Error, unit: str, info: int | None) -> None:
    """Units name a row beyond the end: DMA, which checks before it starts, the last one, others the first."""
    program = assemble(SET_UP + op + "\nhalt", TINY)
    last = (TINY.hbm_slices - 1) * SLICE
    keep = bytes(range(256))
    tiny.write_memory(0, keep)
    tiny.write_memory(last, keep)
    tiny.load_program(program)
    fault = stopped(tiny)
    assert (fault.code, fault.pc, fault.unit) == (code, len(program) - 2, unit)
    assert fault.info == info or info is None and VMEM - 20 <= fault.info < VMEM + 52
    assert fault.op.split()[0] == op.split("\n")[-1].split()[0]
    assert tiny.read_memory(0, SLICE) == keep
    assert tiny.read_memory(last, SLICE) == keep


@pytest.mark.parametrize("unit, op", [("ld", "hbm_read_slice"), ("st", "hbm_write_slice")])
def test_hbm_bounds_and_short_trains(tiny: Device, unit: str, op: str) -> None:
    """A train outside of HBM_LO .. HBM_HI, or too short for its rows, moves nothing."""
    keep = random.Random(unit).randbytes(8 * SLICE)
    tiny.write_memory(8 * SLICE, keep)
    text = f"addr r0 base={{}}\naddr r1 base=0\ndma_shape unit={unit} row_bytes=100 rows={{}} pitch=100\n" \
           f"{op} hbm=r0 vmem=r1 count={{}}\nhalt"  # fmt: skip
    tiny.write_csr("HBM_LO", 10)
    tiny.write_csr("HBM_HI", 14)
    for first, count in ((9, 1), (9, 2), (13, 2), (14, 1), (8, 8)):
        tiny.load_program(assemble(text.format(first, 1, count), TINY))
        fault = stopped(tiny)
        assert (fault.code, fault.pc, fault.unit, fault.info) == (Error.HBM_RANGE, 3, unit.upper(), first)
    tiny.load_program(assemble(text.format(10, 6, 2), TINY))  # 600 bytes in 512
    fault = stopped(tiny)
    assert (fault.code, fault.pc, fault.unit, fault.field_name) == (Error.ILLEGAL_FIELD, 3, unit.upper(), "count")
    assert tiny.read_memory(8 * SLICE, 8 * SLICE) == keep
    tiny.run(assemble(text.format(10, 10, 4), TINY))  # exactly what is allowed
    tiny.write_csr("HBM_LO", 0)
    tiny.write_csr("HBM_HI", TINY.hbm_slices)
    workload.make(3).run(tiny)


def test_token_overflow(tiny: Device) -> None:
    """One token more than a counter holds."""
    text = "loop 0 count={} {{\n sync unit=vpu signal=mxu\n}}\nhalt"
    assert tiny.run(assemble(text.format(TINY.token_max), TINY)).work["tokens"] == TINY.token_max
    tiny.load_program(assemble(text.format(TINY.token_max + 1), TINY))
    fault = stopped(tiny)
    assert (fault.code, fault.pc, fault.unit, fault.info) == (Error.TOKEN_OVERFLOW, 1, "VPU", Unit.MXU)


@pytest.fixture
def watchdog(tiny: Device) -> Callable[[int], None]:
    """Set the watchdog's period for one test."""
    yield lambda cycles: tiny.write_csr("WATCHDOG", cycles)
    tiny.write_csr("WATCHDOG", TINY.watchdog_cycles)


def hung(fault: Fault) -> dict[str, int]:
    """ERROR_INFO of the watchdog by name."""
    return {name: fault.info >> field.offset & 15 for name, field in csr.watchdog_info_layout()}


@pytest.mark.parametrize("unit", Unit)
def test_starved_tokens(tiny: Device, watchdog: Callable[[int], None], unit: Unit) -> None:
    """A wait for a token that nobody gives: the watchdog names the unit, the op, and whose token is missing."""
    watchdog(150)
    for giver in Unit:
        if giver == unit:
            continue
        text = f"addr r0 base=0\nsync unit={unit.name.lower()} wait={giver.name.lower()}\nhalt"
        tiny.load_program(assemble(text, TINY))
        before = tiny.transport.sim_time().cycles
        fault = stopped(tiny)
        assert 150 <= tiny.transport.sim_time().cycles - before < 450
        cause = Cause[f"TOKEN_{giver.name}"]
        assert (fault.code, fault.pc, fault.unit) == (Error.WATCHDOG, 1, unit.name)
        info = hung(fault)
        assert (info["unit"], info["cause"], info[unit.name.lower()]) == (unit, cause, cause)
        assert f"{unit.name} waits for a token from {giver.name} at word 1 `sync" in str(fault)


def test_the_token_that_is_missing(tiny: Device, watchdog: Callable[[int], None]) -> None:
    """An op that wants tokens from two units, one of which gave its own: the other one is named."""
    watchdog(150)
    for unit in Unit:
        one, two = [u for u in Unit if u != unit][:2]
        for giver, silent in ((one, two), (two, one)):
            text = (
                f"sync unit={giver.name.lower()} signal={unit.name.lower()}\n"
                f"sync unit={unit.name.lower()} wait={one.name.lower()},{two.name.lower()}\nhalt"
            )
            tiny.load_program(assemble(text, TINY))
            fault = stopped(tiny)
            assert (fault.code, fault.pc, fault.unit) == (Error.WATCHDOG, 1, unit.name)
            assert hung(fault)["cause"] == Cause[f"TOKEN_{silent.name}"]
            assert f"{unit.name} waits for a token from {silent.name} at word 1 `sync" in str(fault)


def test_hang_behind_a_full_queue(tiny: Device, watchdog: Callable[[int], None]) -> None:
    """The sequencer cannot go on because of a unit that waits: both are named, the unit as the culprit."""
    watchdog(200)
    text = "sync unit=st wait=mxu\nloop 0 count=20 {\n sync unit=st\n}\nhalt"
    with pytest.raises(ChipError) as caught:
        tiny.run(assemble(text, TINY))
    fault = caught.value.fault
    assert (fault.code, fault.unit, fault.pc) == (Error.WATCHDOG, "ST", 0)
    assert hung(fault)["seq"] == Cause.QUEUE
    assert "sequencer waits for room in a queue" in caught.value.dump
    assert f"{TINY.st_queue} ops in its queue" in caught.value.dump
    workload.make(4).run(tiny)


def test_weights_never_used(tiny: Device, watchdog: Callable[[int], None]) -> None:
    """Two tiles and no PULSE_ARRAY between them."""
    watchdog(200)
    tiny.load_program(assemble("addr r0 base=0\n" + TILE * 3 + "halt", TINY))
    fault = stopped(tiny)
    assert (fault.code, fault.unit, fault.pc) == (Error.WATCHDOG, "MXU", 2)
    assert hung(fault)["cause"] == Cause.WEIGHTS and "MXU waits for weights at word 2" in str(fault)


def test_without_a_watchdog(tiny: Device, watchdog: Callable[[int], None]) -> None:
    """A program that hangs for ever: its state can be read meanwhile, and a reset ends it."""
    watchdog(0)
    with pytest.raises(DeviceTimeout, match="VPU waits for a token from LD at word 1") as caught:
        tiny.run(assemble("addr r3 base=77\nsync unit=vpu wait=ld\nhalt", TINY), timeout_cycles=3000)
    assert "status     running" in caught.value.dump and "r3=0x4d" in caught.value.dump
    workload.make(5).run(tiny)


def test_the_watchdog_lets_work_go_on(tiny: Device, watchdog: Callable[[int], None]) -> None:
    """A period shorter than the program, longer than any pause in it."""
    watchdog(100)
    report = workload.make(6).run(tiny)
    assert report.cycles > 500
    # A sequencer that loops for ever makes progress.
    tiny.load_program(assemble("loop 0 count=1000 {\n addr r1 base=1\n}\nhalt code=9", TINY))
    assert tiny.run().halt_code == 9


def test_faults_leave_the_results_of_others(tiny: Device) -> None:
    """An error of one unit in the middle of a busy program: HBM outside of the program's results stays."""
    work = workload.make(7)
    work.load(tiny)
    program = Program([*work.program.words])
    halt = max(i for i, w in enumerate(program.words) if w & 63 == Op.HALT)
    program.words[halt - 2] = 63  # instead of the last store
    tiny.load_program(program, verify=False)
    fault = stopped(tiny)
    assert (fault.code, fault.pc) == (Error.ILLEGAL_OPCODE, halt - 2)
    got = np.frombuffer(tiny.read_memory(0, work.hbm.size), np.uint8)
    assert np.array_equal(got, work.hbm)
    work.run(tiny)
