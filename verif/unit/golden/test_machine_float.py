"""VECTOR_PASS, TRANSPOSE and transposed weights of chips of bf16 against plain Python, lane by lane."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from sluice.asm import Builder, assemble
from sluice.golden import GoldenMachine, UndefinedError, UnwrittenReadError
from sluice.golden.vector_ops import alu
from sluice_hw.functions import Function
from sluice_hw.isa import Error, Format, Op, Operand, Source, Stream
from sluice_hw.vector_ops import AluOp, Reduction
from verif.unit.golden.machine_kit import ODD, SCHEDULES, SEED, TINY, peek, poke, rng_of, run_builder, run_text
from verif.unit.golden.pass_model import ALU, Placed, run_pass

FLOAT = TINY.replace(name="tiny-bf16", dtype="bf16")
ODD_FLOAT = ODD.replace(name="odd-bf16", dtype="bf16")
CONFIGS = pytest.mark.parametrize("config", [FLOAT, ODD_FLOAT], ids=lambda c: c.name)


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) * np.exp(rng.standard_normal(shape))).astype(np.float32)


def fill(machine: GoldenMachine, rng: np.random.Generator) -> None:
    """Memories of normal numbers, in VMEM from any byte on, as fp32 and as bf16."""
    config = machine.config
    poke(machine.vmem, 0, rng.choice(np.array([*range(0x3C, 0x44), *range(0xBC, 0xC4)], np.uint8), config.vmem_bytes))
    acc = numbers(rng, config.acc_rows, config.cols).view(np.int32)
    machine.acc.data[:], machine.acc.written[:] = acc, True


def filled(config, rng: np.random.Generator) -> GoldenMachine:
    """A machine with such memories."""
    machine = GoldenMachine(config)
    fill(machine, rng)
    return machine


def emit(b: Builder, shape: dict, mode: dict, streams: dict[Stream, Placed]) -> None:
    b.op(Op.PASS_SHAPE, **shape)
    b.op(Op.PASS_MODE, **mode)
    for stream, p in streams.items():
        b.addr(int(stream), p.address)
        b.op(Op.PASS_STREAM, stream=stream, addr=int(stream), memory=p.memory, format=p.format, row_step=p.row_step,
             block_step=p.block_step)
    b.op(Op.VECTOR_PASS)


def check(machine: GoldenMachine, shape: dict, mode: dict, streams: dict[Stream, Placed], schedule=None) -> None:
    config = machine.config
    vmem, acc = machine.vmem.data.copy(), machine.acc.data.copy()
    run_pass(vmem, acc, shape, mode, streams)
    b = Builder(config)
    emit(b, shape, mode, streams)
    b.halt()
    result = run_builder(machine, b, schedule)
    assert result.counters.vector_rows == shape["rows"] * shape.get("blocks", 1)
    np.testing.assert_array_equal(machine.acc.data, acc)
    np.testing.assert_array_equal(machine.vmem.data, vmem)


SHAPE = {"rows": 11, "blocks": 1, "tail": 3}
IN_ACC = {Stream.SOURCE: Placed(2), Stream.RESULT: Placed(20)}


# -- streams ---------------------------------------------------------------------------------------------------------
@CONFIGS
@pytest.mark.parametrize("stream", [Stream.SOURCE, Stream.X, Stream.Y, Stream.RESULT], ids=lambda s: s.name)
@pytest.mark.parametrize("form", [None, *Format], ids=str)
def test_streams(config, stream, form):
    """Formats, steps and addresses of each stream, blocks with a tail."""
    rng = rng_of("streams", config.name, int(stream), form)
    cols, blocks = config.cols, 3
    shape = {"rows": 10, "blocks": blocks, "tail": 2}
    mode = {"use_first": 1, "first_op": AluOp.XOR, "first_b": Operand.X, "use_second": 1, "second_op": AluOp.XOR,
            "second_b": Operand.Y, "store": 1}
    if stream is Stream.RESULT:
        mode = {"use_first": 1, "first_op": AluOp.MUL_ADD, "first_b": Operand.X, "first_c": Operand.Y, "store": 1}
    streams = {Stream.SOURCE: Placed(0, block_step=10), Stream.X: Placed(1, row_step=0, block_step=1),
               Stream.Y: Placed(29, row_step=-1, block_step=0), Stream.RESULT: Placed(30, row_step=3, block_step=1)}
    if form is not None:
        size = {Format.WORD: 4, Format.BF16: 2, Format.INT8: 1}[form]
        width = size * cols
        steps = {Stream.SOURCE: (3 * width + 1, width), Stream.X: (0, -width - 2), Stream.Y: (-width, 0),
                 Stream.RESULT: (width + 1, 11 * (width + 1))}[stream]
        streams[stream] = Placed(1001, Source.VMEM, form, *steps)
    check(filled(config, rng), shape, mode, streams)


@CONFIGS
def test_random_passes(config):
    rng, choose = rng_of("passes", config.name), random.Random(SEED)
    machine = GoldenMachine(config)
    cols = config.cols
    for _ in range(60):
        fill(machine, rng)
        shape = {"rows": choose.choice([1, 7, 8, 9, 2 * cols + 1]), "blocks": choose.randint(1, 3)}
        shape["tail"] = choose.randint(1, cols)
        if choose.random() < 0.5:
            shape |= {"masked": 1, "mask_base": choose.randint(-3, 2 * cols), "mask_step": choose.randint(-2, 3)}
        mode: dict[str, int] = {"k0": int(numbers(rng, 1).view(np.uint32)[0]), "k1": choose.getrandbits(8)}
        left = [Operand.X, Operand.Y, Operand.COLUMN]
        choose.shuffle(left)
        # Bits of integers are subnormal numbers, which the model of fp32 here knows nothing of.
        fp32 = [AluOp.PASS, AluOp.ADD, AluOp.SUB, AluOp.MUL, AluOp.MUL_ADD, AluOp.MAX]
        for name, ops in (("first", fp32), ("second", fp32 if choose.random() < 0.5 else list(ALU))):
            if choose.random() < 0.7:
                b = left.pop() if choose.random() < 0.8 else Operand.K0
                c = left.pop() if left and choose.random() < 0.5 else choose.choice([b, Operand.K0])
                op = choose.choice(ops)
                mode |= {f"use_{name}": 1, f"{name}_op": op, f"{name}_b": b, f"{name}_c": c}
        if choose.random() < 0.4:
            mode |= {"use_function": 1, "function": choose.choice([Function.TANH, Function.SIGMOID, Function.GELU])}
        clean = mode.get("second_op", AluOp.PASS) in fp32
        if clean and choose.random() < 0.6:
            mode |= {"use_reduce": 1, "reduction": choose.choice(list(Reduction))}
        if "use_reduce" not in mode or choose.random() < 0.5:
            mode |= {"store": 1, "round": choose.randint(0, 1) if clean else 0}
        rows, blocks = shape["rows"], shape["blocks"]
        streams = {stream: Placed(0, row_step=choose.choice([1, 0, blocks]), block_step=choose.randint(0, 2))
                   for stream in (Stream.SOURCE, Stream.X, Stream.Y)}
        for stream, p in streams.items():
            p.address = choose.randint(0, config.acc_rows - rows * p.row_step - 2 * blocks)
            if choose.random() < 0.5:
                streams[stream] = Placed(choose.randint(0, 400), Source.VMEM, choose.choice([Format.WORD, Format.BF16]),
                                         choose.randint(-10, 99) if stream is Stream.SOURCE else 50, 4 * cols)
                streams[stream].address += 10 * rows
        streams[Stream.COLUMN] = Placed(choose.randint(0, 20))
        result = choose.choice([None, *(Format if clean else [Format.WORD, Format.INT8])])
        top = config.acc_rows - rows * blocks - 8
        streams[Stream.RESULT] = (
            Placed(choose.randint(0, top), row_step=blocks, block_step=1) if result is None
            else Placed(1777, Source.VMEM, result, 4 * cols * blocks + 1, 4 * cols))
        streams[Stream.REDUCED] = Placed(choose.choice([0, config.acc_rows - 8]) if result is not None else top + 1)
        if result is None:
            streams[Stream.RESULT].address = choose.randint(0, top - rows * blocks)
            streams[Stream.REDUCED].address = config.acc_rows - 8
        check(machine, shape, mode, streams, choose.choice(SCHEDULES))


@pytest.mark.parametrize("form", Format, ids=lambda f: f.name)
def test_one_row_to_many(form):
    """A source that all rows share is copied as it is."""
    p = Placed(640, Source.VMEM, form, 96, 32)
    check(filled(FLOAT, rng_of("many")), {"rows": 9, "blocks": 2, "tail": 5}, {"store": 1},
          {Stream.SOURCE: Placed(3, row_step=0, block_step=1), Stream.RESULT: p})


def test_in_place():
    """A pass may write what it reads; what it has not come to is not changed before."""
    for p in (Placed(3, row_step=2, block_step=1), Placed(64, Source.VMEM, Format.BF16, 40, 16)):
        shape, mode = {"rows": 9, "blocks": 2, "tail": 5}, {"use_function": 1, "function": Function.GELU, "store": 1}
        for schedule in SCHEDULES:
            check(filled(FLOAT, rng_of("place")), shape, mode, {Stream.SOURCE: p, Stream.RESULT: p}, schedule)


def test_results_on_top_of_each_other():
    """Eight rows go together, block by block, so that row 0's last block is written after row 7's first."""
    machine = filled(FLOAT, rng_of("top"))
    for rows, last in ((9, 8), (8, 7)):
        b = Builder(FLOAT)
        streams = {Stream.SOURCE: Placed(0, row_step=3, block_step=1), Stream.RESULT: Placed(40, row_step=0)}
        emit(b, {"rows": rows, "blocks": 3, "tail": 8}, {"store": 1}, streams)
        b.halt()
        run_builder(machine, b)
        np.testing.assert_array_equal(machine.acc.data[40], machine.acc.data[3 * last + 2])
    # Rows of blocks that lie one behind the other, one block apart: the last block that comes to a place stays.
    b = Builder(FLOAT)
    streams[Stream.RESULT] = Placed(40, row_step=1, block_step=1)
    emit(b, {"rows": 9, "blocks": 3, "tail": 8}, {"store": 1}, streams)
    b.halt()
    run_builder(machine, b)
    want = {row + block: 3 * row + block for group in (range(8), range(8, 9)) for block in range(3) for row in group}
    for at, source in want.items():
        np.testing.assert_array_equal(machine.acc.data[40 + at], machine.acc.data[source])


def test_short_last_blocks_on_top_of_others():
    """A last block overwrites only its lanes, and is overwritten by blocks of later rows."""
    machine = filled(FLOAT, rng_of("short"))
    b = Builder(FLOAT)
    streams = {Stream.SOURCE: Placed(0, row_step=3, block_step=1),
               Stream.RESULT: Placed(640, Source.VMEM, Format.WORD, 32, 32)}
    emit(b, {"rows": 11, "blocks": 3, "tail": 2}, {"store": 1}, streams)
    b.halt()
    run_builder(machine, b)
    want = np.zeros((13, 8), np.int32)
    for group in (range(8), range(8, 11)):
        for block in range(3):
            for row in group:
                lanes = 2 if block == 2 else 8
                want[row + block, :lanes] = machine.acc.data[3 * row + block, :lanes]
    got = peek(machine.vmem, 640, (13, 8), np.int32)
    np.testing.assert_array_equal(got[:12], want[:12])
    np.testing.assert_array_equal(got[12, :2], want[12, :2])


# -- arithmetic ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", AluOp, ids=lambda op: op.name)
def test_alu_operations(op):
    """By number in either ALU, with all kinds of patterns."""
    rng = rng_of("alu", int(op))
    machine = filled(FLOAT, rng)
    patterns = rng.integers(0, 1 << 32, (16, 8), np.uint32)
    patterns[8:] = rng.choice([0, 1, 0x80000000, 0x7F800000, 0x7FC00001, 0x3F800000, 0xFFFFFFFF, 0x00800000], (8, 8))
    machine.acc.data[:16] = patterns.view(np.int32)
    other = machine.acc.data[16:32].view(np.uint32)
    for name in ("first", "second"):
        b = Builder(FLOAT)
        mode = {f"use_{name}": 1, f"{name}_op": op, f"{name}_b": Operand.X, f"{name}_c": Operand.K1, "k1": 0xBF800000}
        streams = {Stream.SOURCE: Placed(0), Stream.X: Placed(16), Stream.RESULT: Placed(40)}
        emit(b, {"rows": 16, "tail": 8}, mode | {"store": 1}, streams)
        b.halt()
        run_builder(machine, b)
        want = alu(op, patterns, other, 0xBF800000)
        np.testing.assert_array_equal(machine.acc.data[40:56].view(np.uint32), want)


@pytest.mark.parametrize("function", Function, ids=lambda f: f.name)
def test_functions(function):
    machine = GoldenMachine(FLOAT)
    x = np.linspace(0.1, 4, 64, dtype=np.float32).reshape(8, 8)
    machine.acc.data[:8], machine.acc.written[:8] = x.view(np.int32), True
    assert run_text(machine, f"addr r1 base=0\naddr r2 base=20\npass_shape rows=8 tail=8\npass_mode use_function "
                             f"function={function.name.lower()} store\npass_stream stream=source addr=r1 row_step=1\n"
                             "pass_stream stream=result addr=r2 row_step=1\nvector_pass\nhalt").halted
    wide = {Function.EXP: math.exp, Function.LOG: math.log, Function.TANH: math.tanh, Function.ERF: math.erf,
            Function.SIGMOID: lambda v: 1 / (1 + math.exp(-v)), Function.SILU: lambda v: v / (1 + math.exp(-v)),
            Function.GELU: lambda v: v / 2 * (1 + math.erf(v / math.sqrt(2))), Function.RECIPROCAL: lambda v: 1 / v,
            Function.RSQRT: lambda v: 1 / math.sqrt(v), Function.SQRT: math.sqrt}[function]
    want = np.array([[wide(float(v)) for v in row] for row in x])
    np.testing.assert_allclose(machine.acc.data[20:28].view(np.float32), want, rtol=1e-6, atol=1e-7)


def test_masked_lanes_are_zero_and_identities():
    machine = filled(FLOAT, rng_of("mask"))
    shape = {"rows": 12, "blocks": 2, "tail": 6, "masked": 1, "mask_base": -2, "mask_step": 2}
    for reduction in Reduction:
        check(machine, shape, {"store": 1, "use_reduce": 1, "reduction": reduction},
              {Stream.SOURCE: Placed(0, row_step=2, block_step=1), Stream.RESULT: Placed(30, row_step=2, block_step=1),
               Stream.REDUCED: Placed(60)})
    empty = machine.acc.data[60].view(np.uint32)
    assert list(empty[:3]) == [0x7FFFFFFF, 0x7FFFFFFF, 0] or empty[0] == 0x7FFFFFFF
    assert not machine.acc.data[30].any(), "of row 0 nothing counts"


@CONFIGS
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 13])
def test_columns_and_reduced_values_are_packed(config, rows):
    """Value i lies in lane i % cols of accumulator row i // cols, zeros behind the last."""
    machine = filled(config, rng_of("column", rows))
    cols = config.cols
    shape = {"rows": rows, "blocks": 2, "tail": 2}
    check(machine, shape, {"use_reduce": 1, "reduction": Reduction.MAX},
          {Stream.SOURCE: Placed(0), Stream.REDUCED: Placed(30)})
    values = machine.acc.data[30 : 30 + -(-rows // cols)].reshape(-1)
    assert values[:rows].all() and not values[rows:].any()
    mode = {"use_second": 1, "second_op": AluOp.SUB, "second_b": Operand.COLUMN, "store": 1}
    check(machine, shape, mode, {Stream.SOURCE: Placed(0, Source.VMEM, Format.BF16, 6, 2), Stream.COLUMN: Placed(30),
                                 Stream.RESULT: Placed(800, Source.VMEM, Format.WORD, 64, 32)})


# -- setup -----------------------------------------------------------------------------------------------------------
def test_setup_stays_and_passes_take_a_copy():
    """Words behind a pass do not change it; a stream's address is that of its register when it was dispatched."""
    text = """
        addr r1 base=0
        addr r2 base=20
        pass_shape rows=2 tail=8
        pass_mode store use_first first_op=add k0=1.0
        pass_stream stream=source addr=r1 row_step=1
        pass_stream stream=result addr=r2 row_step=1
        addr r1 base=7
        vector_pass
        pass_mode store use_first first_op=add k0=2.0
        addr r2 base=30
        pass_stream stream=result addr=r2 row_step=1
        vector_pass
        loop count=3 {
          addr r3 base=40 stride0=4
          pass_stream stream=result addr=r3 row_step=1
          vector_pass
        }
        halt
    """
    for schedule in SCHEDULES:
        machine = filled(FLOAT, rng_of("copy"))
        x = machine.acc.data[:2].view(np.float32).copy()
        assert run_text(machine, text, schedule_seed=schedule).halted
        np.testing.assert_array_equal(machine.acc.data[20:22].view(np.float32), x + np.float32(1))
        for at in (30, 40):
            np.testing.assert_array_equal(machine.acc.data[at : at + 2].view(np.float32), x + np.float32(2))


GOOD = """pass_shape rows=2 tail=8
pass_mode store
addr r1 base=0
addr r2 base=20
pass_stream stream=source addr=r1 row_step=1
pass_stream stream=result addr=r2 row_step=1
"""


@pytest.mark.parametrize("text, code, info", [
    ("pass_mode store\nvector_pass", Error.ILLEGAL_FIELD, 0),
    (GOOD.replace("pass_mode store\n", ""), Error.ILLEGAL_FIELD, 0),
    (GOOD.replace("stream=source", "stream=x"), Error.ILLEGAL_FIELD, 0),
    (GOOD.replace("stream=result", "stream=x"), Error.ILLEGAL_FIELD, 0),
    (GOOD + "pass_mode", Error.ILLEGAL_FIELD, 0),
    (GOOD + "pass_mode store use_reduce", Error.ILLEGAL_FIELD, 0),
    (GOOD + "pass_mode store use_first first_c=column", Error.ILLEGAL_FIELD, 0),
    (GOOD + "pass_stream stream=x addr=r1\npass_mode store use_first first_c=x use_second second_b=x",
     Error.ILLEGAL_FIELD, 0),
    (GOOD + "addr r1 base=63\npass_stream stream=source addr=r1 row_step=1", Error.ACC_RANGE, 64),
    (GOOD + "addr r1 base=0\npass_stream stream=source addr=r1 row_step=-1", Error.ACC_RANGE, 0xFFFFFFFF),
    (GOOD + "addr r1 base=64\npass_stream stream=result addr=r1 row_step=-1", Error.ACC_RANGE, 64),
    (GOOD + "pass_mode use_reduce\naddr r1 base=64\npass_stream stream=reduced addr=r1", Error.ACC_RANGE, 64),
    (GOOD + "pass_mode store use_first first_b=column\naddr r1 base=70\npass_stream stream=column addr=r1",
     Error.ACC_RANGE, 70),
    (GOOD + "addr r1 base=0xfff0\npass_stream stream=source addr=r1 memory=vmem format=bf16 row_step=1",
     Error.VMEM_RANGE, 0xFFF1),
    (GOOD + "addr r1 base=0xfff0\npass_stream stream=result addr=r1 memory=vmem row_step=0", Error.VMEM_RANGE, 0xFFF0),
    ("addr r1 base=0xfff1\ntranspose src=r1 dst=r0 k=8 n=8", Error.VMEM_RANGE, 0xFFF1),
    ("addr r1 base=0xffff\ntranspose src=r0 dst=r1 k=1 n=1", Error.VMEM_RANGE, 0xFFFF),
])
def test_faults(text, code, info):
    config = FLOAT.replace(acc_bytes=64 * 32)
    last = text.count("\n") + (not text.endswith("\n"))
    if "vector_pass" not in text and "transpose" not in text:
        text += "\nvector_pass"
        last = len(assemble(text, config, check=False).words) - 1
    else:
        last = 1
    for schedule in SCHEDULES:
        machine = filled(config, rng_of("fault"))
        result = run_text(machine, text + "\nhalt", check=False, schedule_seed=schedule)
        assert result.error is not None
        got = result.error
        assert (got.code, got.pc, got.field, got.info, got.unit) == (code, last, 0, info, "vpu"), got


@pytest.mark.parametrize("op", ["vector_shape", "vector_mode", "vector_residual", "load_params", "vector"])
def test_ops_of_int8_chips_are_none(op):
    machine = GoldenMachine(FLOAT)
    with pytest.raises(Exception, match=f"{op.upper()} is not an op of chips of bf16"):
        assemble(f"{op}\nhalt", FLOAT)
    word = assemble(op, TINY, check=False).words[0]
    result = machine.run([word])
    assert (result.error.code, result.error.pc, result.error.field) == (Error.ILLEGAL_OPCODE, 0, 0)


def test_unwritten():
    """Lanes that count must have been written; the others need not."""
    good = GOOD + "pass_shape rows=2 blocks=1 tail=3 masked mask_base=2\n"
    machine = GoldenMachine(FLOAT)
    with pytest.raises(UnwrittenReadError, match="VECTOR_PASS at pc 7 reads ACC row 0,"):
        run_text(machine, good + "vector_pass\nhalt")
    vmem = good + ("addr r1 base=100\npass_stream stream=source addr=r1 memory=vmem format=bf16 row_step=10\n"
                   "vector_pass\nhalt")
    poke(machine.vmem, 100, np.zeros(4, np.uint8))
    with pytest.raises(UnwrittenReadError, match="VECTOR_PASS at pc 9 reads VMEM address 0x6e,"):
        run_text(machine, vmem)
    poke(machine.vmem, 110, np.zeros(3, np.uint8))
    with pytest.raises(UnwrittenReadError, match="reads VMEM address 0x70,"):
        run_text(machine, vmem)
    poke(machine.vmem, 113, np.zeros(1, np.uint8))
    assert run_text(machine, vmem).halted


# -- transposes ------------------------------------------------------------------------------------------------------
@CONFIGS
def test_transpose(config):
    rng, choose = rng_of("transpose", config.name), random.Random(SEED)
    size = max(config.rows, config.cols)
    for k, n in [(1, 1), (size, size), (1, size), (size, 1), *((choose.randint(1, size), choose.randint(1, size))
                                                               for _ in range(10))]:
        machine = filled(config, rng)
        src_pitch, dst_pitch = choose.choice([2 * n, 2 * n + 3, -2 * n]), choose.choice([2 * k, 2 * k + 1, -2 * k])
        src, dst = 401, 1402
        block = np.array([[machine.vmem.data[src + i * src_pitch + 2 * j :][:2] for j in range(n)] for i in range(k)])
        vmem = machine.vmem.data.copy()
        for j in range(n):
            for i in range(k):
                vmem[dst + j * dst_pitch + 2 * i :][:2] = block[i, j]
        text = (f"addr r1 base={src}\naddr r2 base={dst}\n"
                f"transpose src=r1 dst=r2 src_pitch={src_pitch} dst_pitch={dst_pitch} k={k} n={n}\nhalt")
        result = run_text(machine, text, schedule_seed=choose.choice(SCHEDULES))
        assert result.halted and (result.counters.ops, result.counters.vector_rows) == (1, 0)
        np.testing.assert_array_equal(machine.vmem.data, vmem)


def test_transpose_in_place_and_behind_each_other():
    text = """
        addr r1 base=64
        addr r2 base=512
        transpose src=r1 dst=r1 src_pitch=16 dst_pitch=16 k=8 n=8
        transpose src=r1 dst=r2 src_pitch=16 dst_pitch=16 k=8 n=4
        transpose src=r2 dst=r2 src_pitch=16 dst_pitch=10 k=4 n=5
        halt
    """
    for schedule in SCHEDULES:
        machine = filled(FLOAT, rng_of("in place"))
        block = peek(machine.vmem, 64, (8, 8), np.uint16)
        assert run_text(machine, text, schedule_seed=schedule).halted
        np.testing.assert_array_equal(peek(machine.vmem, 64, (8, 8), np.uint16), block.T)
        np.testing.assert_array_equal(peek(machine.vmem, 512, (5, 5), np.uint16)[:, :4], block[:4, :5].T)


@CONFIGS
def test_transposed_weights(config):
    """A tile that is read transposed is the tile that lies there transposed."""
    rng = rng_of("weights", config.name)
    for k, columns in ((config.rows, config.cols), (3, 2), (1, config.cols), (config.rows, 1)):
        sums = []
        weights = (numbers(rng, config.rows, config.cols).view(np.uint32) >> 16).astype(np.uint16)[:k, :columns]
        for transposed in (False, True):
            machine = filled(config, rng_of("activations", config.name))
            poke(machine.vmem, 501, np.ascontiguousarray(weights.T if transposed else weights))
            pitch = 2 * (k if transposed else columns)
            assert run_text(machine, f"""
                addr r1 base=501
                addr r2 base=0
                feed_shape n0=6 s0={2 * config.rows} segments=1
                feed_segment index=0 lo=0 hi={2 * k}
                load_weights vmem=r1 pitch={pitch} k={k} n={2 * columns} {"transpose" if transposed else ""}
                pulse_array vmem=r2 acc=r2 swap
                halt
            """).halted
            sums.append(machine.acc.data[:6].copy())
        np.testing.assert_array_equal(*sums)
    with pytest.raises(UndefinedError, match="n must be even with transpose, not 3"):
        run_text(machine, "load_weights vmem=r1 n=3 k=1 transpose\nhalt", check=False)


# -- a program -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_softmax_of_rows(schedule):
    """Three passes over the rows of an array's accumulators."""
    rng = rng_of("softmax")
    machine = GoldenMachine(FLOAT)
    x = (4 * rng.standard_normal((10, 20))).astype(np.float32)
    for block in range(3):
        part = x[:, 8 * block : 8 * block + 8]
        machine.acc.data[10 * block : 10 * block + 10, : part.shape[1]] = part.view(np.int32)
    machine.acc.written[:30] = True
    assert run_text(machine, """
        addr r0 base=0
        addr r1 base=40
        addr r2 base=50
        addr r3 base=1000
        pass_shape rows=10 blocks=3 tail=4
        pass_stream stream=source addr=r0 row_step=1 block_step=10
        pass_stream stream=reduced addr=r1
        pass_mode use_reduce reduction=max
        vector_pass
        pass_stream stream=column addr=r1
        pass_stream stream=reduced addr=r2
        pass_stream stream=result addr=r0 row_step=1 block_step=10
        pass_mode use_first first_op=sub first_b=column use_function function=exp use_reduce reduction=sum store
        vector_pass
        pass_shape rows=2 blocks=1 tail=8
        pass_stream stream=source addr=r2 row_step=1
        pass_stream stream=result addr=r2 row_step=1
        pass_mode use_function function=reciprocal store
        vector_pass
        pass_shape rows=10 blocks=3 tail=4
        pass_stream stream=source addr=r0 row_step=1 block_step=10
        pass_stream stream=column addr=r2
        pass_stream stream=result addr=r3 memory=vmem format=bf16 row_step=40 block_step=16
        pass_mode use_first first_op=mul first_b=column store
        vector_pass
        halt
    """, schedule_seed=schedule).halted
    got = (peek(machine.vmem, 1000, (10, 20), np.uint16).astype(np.uint32) << 16).view(np.float32)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, wide / wide.sum(axis=1, keepdims=True), rtol=2.0**-8, atol=1e-30)
