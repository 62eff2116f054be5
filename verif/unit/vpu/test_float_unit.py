"""The floating-point vector unit as a unit of the chip: passes from memory to memory, faults, cycles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from sluice_hw.config import ChipConfig, preset
from sluice_hw.functions import Function
from sluice_hw.isa import Cause, Error, Format, Op, Operand, Source, Stream, Unit
from sluice_hw.vector_ops import AluOp, Reduction
from sluice_hw.vpu.alu import AluLane
from sluice_hw.vpu.column import ColumnReader
from sluice_hw.vpu.float_unit import FloatUnit
from sluice_hw.vpu.function import FunctionLane
from sluice_hw.vpu.reduce import reduce_latency
from verif.models.passes import Place, Transposed, VectorPass, random_pass, random_transpose
from verif.models.vector_unit import PORTS, Outcome, VectorUnit

#: An uneven number of lanes, blocks of 32-bit values of two accesses.
SMALL = ChipConfig(name="small-bf16", dtype="bf16", pe_latency=4, rows=3, cols=3, vmem_bytes=4096, acc_bytes=24 * 128)
C = SMALL.cols


@pytest.fixture(scope="module")
def unit():
    return VectorUnit(SMALL)


def memories(rng: np.random.Generator, config: ChipConfig) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of one size, special ones and anything among them."""
    def values(count: int) -> np.ndarray:
        x = (rng.normal(size=count) * np.exp(2 * rng.normal(size=count))).astype(np.float32).view(np.uint32)
        anything = rng.integers(0, 1 << 32, count, dtype=np.uint32)
        special = rng.choice(np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 1], np.uint32), count)
        kind = rng.random(count)
        return np.where(kind < 0.1, anything, np.where(kind < 0.15, special, x))

    vmem = values(config.vmem_bytes // 4).view(np.uint8).copy()
    return vmem, values(config.acc_rows * config.cols).reshape(config.acc_rows, config.cols)


def check(unit: VectorUnit, works: Sequence[VectorPass | Transposed], rng: np.random.Generator, *,
          refuse: float | Sequence[float] = 0.0) -> Outcome:  # fmt: skip
    vmem, acc = memories(rng, unit.config)
    wanted = vmem.copy(), acc.copy()
    ops = []
    for number, each in enumerate(works):
        each.run(unit.config, *wanted)
        ops += each.ops(unit, number)
    outcome = unit.run(ops, vmem, acc, refuse=refuse, seed=int(rng.integers(1 << 30)))
    assert outcome.fault is None, outcome.fault
    assert not outcome.touched_beyond
    assert outcome.started == outcome.finished == outcome.given == len(works), outcome.cycles
    assert outcome.rows == sum(each.counted for each in works)
    for name, got, want in (("vmem", vmem, wanted[0]), ("acc", acc, wanted[1])):
        wrong = np.argwhere(got != want)
        assert not len(wrong), f"{name}{wrong[:4].tolist()} of {len(wrong)}: {works}"
    return outcome


def random_works(unit: VectorUnit, rng: np.random.Generator, **limits: int) -> None:
    """Passes and transposes in a row, each port refusing as often as it likes."""
    works = [random_pass(rng, unit.config, **limits) for _ in range(2)]
    works += [random_transpose(rng, unit.config) for _ in range(2)]
    order = rng.permutation(len(works))
    refuse = [float(x) for x in rng.choice([0, 0, 0, 0.3, 0.9], len(PORTS))]
    check(unit, [works[k] for k in order], rng, refuse=refuse)


def test_random_works(unit, seed):
    for number in range(40):
        random_works(unit, np.random.default_rng([seed, number]))


def test_many_rows(unit, seed):
    """More rows than any of the unit's queues holds."""
    for number in range(6):
        random_works(unit, np.random.default_rng([seed, number, 1]), rows=100, blocks=1 + number % 3)


@pytest.mark.parametrize("alu", ("first", "second"))
def test_column_of_many_rows(unit, alu, seed):
    """More values than are kept, for several blocks each."""
    mode = {"store": 1, f"use_{alu}": 1, f"{alu}_op": AluOp.ADD, f"{alu}_b": Operand.COLUMN}
    places = {Stream.SOURCE: vmem_at(0, 3, Format.INT8), Stream.COLUMN: Place(0),
              Stream.RESULT: vmem_at(2000, 3, Format.INT8)}  # fmt: skip
    check(unit, [VectorPass(150, 3, C, mode, places)], np.random.default_rng(seed))


@pytest.mark.parametrize("port", PORTS)
def test_a_port_that_hardly_gives(unit, port, seed):
    """Whatever holds a pass up, all that is under way finds room: blocks, values, operands of either ALU."""
    mode = {**EXP_OF_DIFFERENCE, **TIMES_Y, **SUM, "first_c": Operand.X}
    step = {Stream.SOURCE: 0, Stream.X: 700, Stream.Y: 1400, Stream.RESULT: 2100}
    places = {s: vmem_at(at, 1, Format.INT8) for s, at in step.items()} | {
        Stream.COLUMN: Place(0), Stream.REDUCED: Place(100)}  # fmt: skip
    work = VectorPass(230, 1, C, mode, places)
    check(unit, [work], np.random.default_rng(seed), refuse=[0.95 * (port == name) for name in PORTS])


ADD_X = {"store": 1, "use_first": 1, "first_op": AluOp.ADD, "first_b": Operand.X}
EXP_OF_DIFFERENCE = {
    "store": 1, "use_first": 1, "first_op": AluOp.SUB, "first_b": Operand.COLUMN, "use_function": 1,
    "function": Function.EXP,
}  # fmt: skip
SUM = {"use_reduce": 1, "reduction": Reduction.SUM}
TIMES_Y = {"use_second": 1, "second_op": AluOp.MUL, "second_b": Operand.Y}


def acc_at(row: int, blocks: int) -> Place:
    return Place(row, Source.ACC, Format.WORD, blocks, 1)


def vmem_at(addr: int, blocks: int, form: Format = Format.BF16, *, shared: bool = False) -> Place:
    size = C * form.size
    return Place(addr, Source.VMEM, form, 0 if shared else blocks * size, size)


#: Mode, streams for so many blocks in a row; stages used; cycles for a block.
STEADY = {
    "acc to acc": ({"store": 1}, lambda n: {Stream.SOURCE: acc_at(0, n), Stream.RESULT: acc_at(100, n)}, 1),
    "bf16 to bf16": ({"store": 1}, lambda n: {Stream.SOURCE: vmem_at(1, n), Stream.RESULT: vmem_at(2048, n)}, 1),
    "word to bf16": (
        {"store": 1}, lambda n: {Stream.SOURCE: vmem_at(0, n, Format.WORD), Stream.RESULT: vmem_at(2048, n)}, 2,
    ),
    "acc and bf16": (
        ADD_X, lambda n: {Stream.SOURCE: acc_at(0, n), Stream.X: vmem_at(0, n), Stream.RESULT: acc_at(0, n)}, 1,
    ),
    "acc and acc": (
        ADD_X, lambda n: {Stream.SOURCE: acc_at(0, n), Stream.X: acc_at(100, n), Stream.RESULT: acc_at(0, n)}, 2,
    ),
    "column": (
        EXP_OF_DIFFERENCE,
        lambda n: {Stream.SOURCE: vmem_at(0, n), Stream.COLUMN: Place(200), Stream.RESULT: vmem_at(2048, n)}, 1,
    ),
    "late column": (
        {"store": 1, "use_function": 1, "function": Function.EXP, "use_second": 1, "second_op": AluOp.MUL,
         "second_b": Operand.COLUMN},
        lambda n: {Stream.SOURCE: vmem_at(0, n), Stream.COLUMN: Place(200), Stream.RESULT: vmem_at(2048, n)}, 1,
    ),
    "everything": (
        {**EXP_OF_DIFFERENCE, **TIMES_Y, **SUM},
        lambda n: {Stream.SOURCE: vmem_at(0, n), Stream.COLUMN: Place(200), Stream.Y: vmem_at(1500, n, shared=True),
                   Stream.RESULT: vmem_at(2048, n), Stream.REDUCED: Place(180)}, 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("blocks", (1, 3))
@pytest.mark.parametrize("name", STEADY)
def test_a_block_a_cycle(unit, name, blocks, seed):
    """Twice the rows take so many cycles more; what is around them is the latency of what a pass uses."""
    mode, places, cycles = STEADY[name]
    spent = [check(unit, [VectorPass(rows, blocks, C, mode, places(blocks))], np.random.default_rng(seed)).busy
             for rows in (16, 32)]  # fmt: skip
    assert spent[1] - spent[0] == 16 * blocks * cycles
    if cycles == 1:
        latency = (bool(mode.get("use_first")) + bool(mode.get("use_second"))) * AluLane.LATENCY
        latency += bool(mode.get("use_function")) * FunctionLane.LATENCY
        latency += reduce_latency(C) if mode.get("use_reduce") else 0
        reads_vmem = any(p.memory == Source.VMEM for s, p in places(blocks).items() if s != Stream.RESULT)
        assert spent[0] - 16 * blocks == latency + 6 + reads_vmem


def test_one_row(unit, seed):
    """A row of many blocks, with a vector that all of its one row share."""
    spent = []
    for blocks in (40, 80):
        places = {Stream.SOURCE: acc_at(0, blocks), Stream.X: vmem_at(1, blocks, shared=True),
                  Stream.RESULT: acc_at(100, blocks)}  # fmt: skip
        spent.append(check(unit, [VectorPass(1, blocks, C, ADD_X, places)], np.random.default_rng(seed)).busy)
    assert spent[1] - spent[0] == 40


@pytest.mark.parametrize("rows", range(1, 9))
def test_short_groups_with_a_reduction(unit, rows, seed):
    """Blocks of a row are six cycles apart."""
    places = {Stream.SOURCE: acc_at(0, 4), Stream.REDUCED: Place(200)}
    outcome = check(unit, [VectorPass(rows, 4, 2, SUM, places)], np.random.default_rng([seed, rows]))
    assert outcome.busy <= 3 * max(rows, 6) + rows + reduce_latency(C) + 10


def test_states(unit):
    """A unit is busy, or waits for what refuses."""
    vmem, acc = memories(np.random.default_rng(0), SMALL)
    work = VectorPass(16, 1, C, {"store": 1}, {Stream.SOURCE: acc_at(0, 1), Stream.RESULT: vmem_at(0, 1)})
    tokens = {each: Cause[f"TOKEN_{each.name}"] for each in Unit if each != Unit.VPU}
    held = [("result", Unit.MXU, Cause.VMEM), ("acc", Unit.MXU, Cause.ACC)]
    held += [("tokens", other, cause) for other, cause in tokens.items()]
    for port, other, cause in held:
        refuse = [0.9 * (port == name) for name in PORTS]
        outcome = unit.run(work.ops(unit), vmem, acc, refuse=refuse, missing=1 << other)
        assert sum(outcome.state) == outcome.cycles
        assert outcome.spent(cause)
        others = {Cause.VMEM, Cause.ACC, *tokens.values()} - {cause}
        assert not any(outcome.spent(each) for each in others)


def test_several_tokens_that_lack(unit):
    """The state names the lowest-numbered unit."""
    ops = [unit.op(Op.SYNC, {"unit": Unit.VPU})]
    refuse = [0.9 * (name == "tokens") for name in PORTS]
    outcome = unit.run(ops, *memories(np.random.default_rng(0), SMALL), refuse=refuse,
                       missing=1 << Unit.ST | 1 << Unit.MXU)  # fmt: skip
    assert outcome.spent(Cause.TOKEN_ST) and not outcome.spent(Cause.TOKEN_MXU)


def test_syncs_between_passes(unit, seed):
    """Each waits for the pass in front of it, does nothing, and gives its tokens."""
    vmem, acc = memories(np.random.default_rng(seed), SMALL)
    wanted = vmem.copy(), acc.copy()
    work = VectorPass(16, 1, C, {"store": 1}, {Stream.SOURCE: acc_at(0, 1), Stream.RESULT: vmem_at(0, 1)})
    work.run(SMALL, *wanted)
    sync = unit.op(Op.SYNC, {"unit": Unit.VPU}, signal=1 << Unit.MXU, pc=9)
    ops = [sync, sync, *work.ops(unit), sync, *work.ops(unit, 1), sync]
    outcome = unit.run(ops, vmem, acc, refuse=0.2, seed=seed)
    assert outcome.fault is None
    assert outcome.started == outcome.finished == outcome.given == 6
    assert np.array_equal(vmem, wanted[0]) and np.array_equal(acc, wanted[1])


END = SMALL.vmem_bytes
#: What is changed in a pass of 9 rows of two blocks, and the fault.
FAULTS = {
    "source, vmem": ({Stream.SOURCE: Place(END - 9 * 10 + 1, Source.VMEM, Format.BF16, 10, 6)}, {},
                     (Error.VMEM_RANGE, END - 3)),
    "source, acc": ({Stream.SOURCE: Place(SMALL.acc_rows - 17, Source.ACC, Format.WORD, 2, 1)}, {},
                    (Error.ACC_RANGE, SMALL.acc_rows)),
    "source, below 0": ({Stream.SOURCE: Place(7, Source.VMEM, Format.INT8, -1, 3)}, {}, (Error.VMEM_RANGE, 2**32 - 1)),
    "x": ({Stream.X: Place(END - 4, Source.VMEM, Format.BF16, 0, 0)}, ADD_X, (Error.VMEM_RANGE, END - 4)),
    "y": ({Stream.Y: Place(END, Source.VMEM, Format.INT8, 0, 0)}, TIMES_Y, (Error.VMEM_RANGE, END)),
    "column": ({Stream.COLUMN: Place(SMALL.acc_rows - 1)}, EXP_OF_DIFFERENCE, (Error.ACC_RANGE, SMALL.acc_rows)),
    "result, vmem": ({Stream.RESULT: Place(END - 8 * 20 - 19, Source.VMEM, Format.WORD, 20, 12)}, {},
                     (Error.VMEM_RANGE, END - 7)),
    "result, acc": ({Stream.RESULT: Place(1 << 31, Source.ACC)}, {}, (Error.ACC_RANGE, 1 << 31)),
    "reduced": ({Stream.REDUCED: Place(SMALL.acc_rows - 2)}, SUM, (Error.ACC_RANGE, SMALL.acc_rows)),
    "stream not set": ({}, ADD_X, (Error.ILLEGAL_FIELD, 0)),
    "reduced not set": ({}, SUM, (Error.ILLEGAL_FIELD, 0)),
    "nothing to do": ({}, {"store": 0}, (Error.ILLEGAL_FIELD, 0)),
    "column for both": ({Stream.COLUMN: Place(0)}, {**EXP_OF_DIFFERENCE, **TIMES_Y, "second_c": Operand.COLUMN},
                        (Error.ILLEGAL_FIELD, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults(unit, name):
    changed, mode, (code, info) = FAULTS[name]
    places = {Stream.SOURCE: acc_at(0, 2), Stream.RESULT: acc_at(50, 2), **changed}
    work = VectorPass(9, 2, 2, {"store": 1, **mode}, places)
    vmem, acc = memories(np.random.default_rng(1), SMALL)
    before = vmem.copy(), acc.copy()
    outcome = unit.run([*work.ops(unit, 77), *work.ops(unit, 78)], vmem, acc)
    assert outcome.fault == (code, 77, info)
    assert (outcome.faults, outcome.finished, outcome.given, outcome.touched_beyond) == (1, 0, 0, 0)
    if code == Error.ILLEGAL_FIELD:
        assert np.array_equal(vmem, before[0]) and np.array_equal(acc, before[1])


@pytest.mark.parametrize("missing", (Op.PASS_SHAPE, Op.PASS_MODE))
def test_setup_that_is_missing(unit, missing):
    work = VectorPass(2, 1, 2, {"store": 1}, {Stream.SOURCE: acc_at(0, 2), Stream.RESULT: acc_at(50, 2)})
    ops = [op for op in work.ops(unit, 5) if op & 63 != missing]
    assert unit.run(ops, *memories(np.random.default_rng(1), SMALL)).fault == (Error.ILLEGAL_FIELD, 5, 0)


@pytest.mark.parametrize(("src", "dst", "at"), ((END - 10, 0, END - 2), (0, END - 3, END - 3)))
def test_faults_of_transposes(unit, src, dst, at):
    work = Transposed(src, dst, 8, 8, 3, 2)
    outcome = unit.run([*work.ops(unit, 77), *work.ops(unit, 78)], *memories(np.random.default_rng(1), SMALL))
    assert outcome.fault == (Error.VMEM_RANGE, 77, at)
    assert (outcome.finished, outcome.given, outcome.touched_beyond) == (0, 0, 0)


@pytest.mark.soak
@pytest.mark.parametrize(("rows", "cols", "emission"), (
    (8, 8, "loop"), (2, 5, "loop"), (13, 4, "loop"), (5, 2, "structural"),
))  # fmt: skip
def test_sizes(rows, cols, emission, seed):
    """As many lanes as VMEM words have room for, or less; sizes that are no powers of two; both emissions."""
    config = ChipConfig(name="other-bf16", dtype="bf16", pe_latency=4, rows=rows, cols=cols, vmem_bytes=8192,
                        acc_bytes=8 * cols * 100)  # fmt: skip
    model = VectorUnit(config, emission=emission)
    for number in range(400):
        random_works(model, np.random.default_rng([seed, number, rows, cols]))
    for number in range(20):
        random_works(model, np.random.default_rng([seed, number, rows, cols, 1]), rows=120, blocks=1)


def test_parameters():
    with pytest.raises(ValueError, match="FloatUnit needs a chip of bf16 and 2 or more columns, not int8 and 8"):
        FloatUnit(preset("tiny"))
    with pytest.raises(ValueError, match="2 or more columns, not bf16 and 1"):
        FloatUnit(SMALL.replace(cols=1, acc_bytes=1024))
    with pytest.raises(ValueError, match="ColumnReader depth must be a power of two above 8, not 8"):
        ColumnReader(SMALL, depth=8)
