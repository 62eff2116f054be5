"""VECTOR and LOAD_PARAMS against the formulas of the architecture page, in Python integers and exact fractions."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from sluice.asm import Builder
from sluice.golden import GoldenMachine, UndefinedError
from sluice_hw.isa import Op, Reduce, Requant, Residual, Source
from verif.unit.golden.machine_kit import ODD, SCHEDULES, SEED, TINY, int8, peek, poke, rng_of, run_builder

INT32 = (-(2**31), 2**31 - 1)


def clamp(x: int, lo: int, hi: int) -> int:
    return max(lo, min(hi, x))


def fixed(x: int, m: int, n: int, away: bool = False) -> int:
    if n == 0:
        return 0
    if away:
        sign = (x > 0) - (x < 0)
        return clamp(sign * ((abs(x) * m + (1 << n - 1)) >> n), *INT32)
    return clamp((x * m + (1 << n - 1)) >> n, *INT32)


def to_fp32(x: Fraction | int) -> Fraction:
    """Nearest fp32, ties to even; the tests stay inside the normal range."""
    x = Fraction(x)
    if not x:
        return x
    e = 0
    while abs(x) / Fraction(2) ** e >= 2:
        e += 1
    while abs(x) / Fraction(2) ** e < 1:
        e -= 1
    step = Fraction(2) ** (e - 23)
    return round(x / step) * step  # Python rounds half to even


def scale_of(rng: np.random.Generator) -> np.float32:
    return np.float32(rng.uniform(2.0**-12, 2.0**-3))


def signed(pattern: int) -> int:
    return pattern - 2**32 if pattern >> 31 else pattern


def setup(config, b: Builder, rows: int, **mode: int) -> None:
    b.op(Op.VECTOR_SHAPE, n2=rows, s2=1, d2=config.cols)
    b.op(Op.VECTOR_MODE, **{"source": Source.ACC, "lo": -128, "hi": 127, "cols": config.cols} | mode)


def write_params(machine: GoldenMachine, at: int, bias, multiplier, shift) -> None:
    parts = (np.asarray(bias, "<i4"), np.asarray(multiplier, "<u4"), np.asarray(shift, np.uint8))
    poke(machine.vmem, at, np.frombuffer(b"".join(p.tobytes() for p in parts), np.uint8))


@pytest.mark.parametrize("config", [TINY, ODD], ids=lambda c: c.name)
@pytest.mark.parametrize("requant", Requant, ids=lambda r: r.name)
@pytest.mark.parametrize("per_channel", [0, 1])
@pytest.mark.parametrize("bias", [0, 1])
def test_narrowing(config, requant, per_channel, bias):
    rng = rng_of("narrow", int(requant), per_channel, bias)
    choose = random.Random(SEED)
    for _ in range(4):
        rows, cols = 20, config.cols
        spread = 2 ** choose.randint(4, 31)
        acc = rng.integers(-spread, spread, (rows, cols)).astype(np.int32)
        acc[0], acc[1], acc[2] = -(2**31), 2**31 - 1, 0
        biases = rng.integers(-(2**31), 2**31, cols) if spread > 2**20 else rng.integers(-1000, 1000, cols)
        if requant == Requant.FLOAT:
            scales = [scale_of(rng) for _ in range(cols + 1)]
            multipliers = [int(s.view(np.uint32)) for s in scales]
        else:
            multipliers = rng.integers(0, 2**32, cols + 1).tolist() if choose.random() < 0.5 else \
                rng.integers(2**30, 2**31, cols + 1).tolist()
        shifts = rng.integers(0, 63, cols + 1).tolist()
        zero_point = choose.randint(-128, 127)
        lo, hi = sorted((choose.randint(-128, 127), choose.randint(-128, 127)))
        machine = GoldenMachine(config)
        poke(machine.acc, 0, acc)
        write_params(machine, 1000, biases, multipliers[:cols], shifts[:cols])
        b = Builder(config)
        b.addr(1, 1000)
        b.addr(2, 2000)
        setup(config, b, rows, bias=bias, requant=requant, per_channel=per_channel, multiplier=multipliers[cols],
              shift=shifts[cols], zero_point=zero_point, lo=lo, hi=hi)
        b.op(Op.LOAD_PARAMS, vmem=1)
        b.op(Op.VECTOR, src=0, dst=2)
        b.halt()
        run_builder(machine, b, choose.choice(SCHEDULES))
        got = peek(machine.vmem, 2000, (rows, cols))
        for i in range(rows):
            for j in range(cols):
                x = int(acc[i, j]) + (int(biases[j]) if bias else 0)
                x = (x + 2**31) % 2**32 - 2**31
                m, n = (multipliers[j], shifts[j]) if per_channel else (multipliers[cols], shifts[cols])
                if requant == Requant.FLOAT:
                    scale = Fraction(float(np.uint32(m).view(np.float32)))
                    x = round(to_fp32(to_fp32(x) * scale))
                elif requant != Requant.BYPASS:
                    x = fixed(x, signed(m), n, requant == Requant.FIXED_AWAY)
                want = clamp(clamp(x + zero_point, -128, 127), lo, hi)
                assert got[i, j] == want, (i, j, acc[i, j], m, n)


@pytest.mark.parametrize("dialect", [Residual.FIXED, Residual.FLOAT], ids=lambda r: r.name)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_residual(dialect, schedule):
    rng = rng_of("residual", int(dialect))
    choose = random.Random(SEED + int(dialect))
    rows, cols = 30, 6
    main, other = int8(rng, rows, 8), int8(rng, rows, 8)
    z1, z2, zo = (choose.randint(-128, 127) for _ in range(3))
    if dialect == Residual.FIXED:
        m1, m2, mo = (choose.randrange(2**30, 2**31) for _ in range(3))
        n1, n2, no = choose.randint(31, 34), choose.randint(31, 34), choose.randint(48, 52)
    else:
        ratios = [np.float32(rng.uniform(0.1, 2)) for _ in range(2)]
        m1, m2 = (int(r.view(np.uint32)) for r in ratios)
        mo = n1 = n2 = no = 0
    machine = GoldenMachine(TINY)
    poke(machine.acc, 0, main.astype(np.int32))
    poke(machine.vmem, 100, other)
    b = Builder(TINY)
    b.addr(1, 100)
    b.addr(2, 2000)
    # Main operand: accumulators as they are, so that x is clamp(acc + z1).
    setup(TINY, b, rows, requant=Requant.BYPASS, zero_point=z1, residual=dialect, cols=cols, lo=-100, hi=90)
    b.op(Op.VECTOR_RESIDUAL, r2=8, m1=m1, m2=m2, mo=mo, shift1=n1, shift2=n2, shifto=no, zero_point2=z2,
         zero_point_out=zo)
    b.op(Op.VECTOR, src=0, res=1, dst=2)
    b.halt()
    run_builder(machine, b, schedule)
    for i in range(rows):
        got = peek(machine.vmem, 2000 + 8 * i, (cols,))
        for j in range(cols):
            x = clamp(int(main[i, j]) + z1, -128, 127)
            a, c = x - z1, int(other[i, j]) - z2
            if dialect == Residual.FIXED:
                total = clamp(fixed(a << 20, m1, n1) + fixed(c << 20, m2, n2), *INT32)
                y = fixed(total, mo, no) + zo
            else:
                t, u = (to_fp32(v * Fraction(float(r))) for v, r in zip((a, c), ratios, strict=True))
                y = round(to_fp32(t + u)) + zo
            assert got[j] == clamp(y, -100, 90), (i, j)


def test_residual_sum_saturates():
    """Factors far beyond those of any network: both operands saturate, and so does their sum."""
    machine = GoldenMachine(TINY)
    poke(machine.acc, 0, np.full((1, 8), 127, np.int32))
    poke(machine.vmem, 100, np.full(8, 127, np.int8))
    b = Builder(TINY)
    b.addr(1, 100)
    b.addr(2, 200)
    setup(TINY, b, 1, zero_point=-100, residual=Residual.FIXED)
    b.op(Op.VECTOR_RESIDUAL, m1=2**31 - 1, m2=2**31 - 1, mo=2**30, shift1=1, shift2=1, shifto=55, zero_point2=-128)
    b.op(Op.VECTOR, src=0, res=1, dst=2)
    b.halt()
    run_builder(machine, b)
    assert peek(machine.vmem, 200, (8,)).tolist() == [64] * 8


@pytest.mark.parametrize("source", Source, ids=lambda s: s.name)
@pytest.mark.parametrize("reduce", [Reduce.SUM, Reduce.MAX], ids=lambda r: r.name)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pooling(source, reduce, schedule):
    """Windows of 3x2 over a 7x6 image, stride 2 and 1, wide results."""
    rng = rng_of("pool", int(source), int(reduce))
    height, width, cols, zero_point = 7, 6, 5, 11
    machine = GoldenMachine(TINY)
    unit = 1 if source == Source.ACC else 8
    if source == Source.ACC:
        image = rng.integers(-(2**31), 2**31, (height, width, 8)).astype(np.int32)
        poke(machine.acc, 40, image.reshape(-1, 8))
    else:
        image = int8(rng, height, width, 8)
        poke(machine.vmem, 40, image)
    b = Builder(TINY)
    b.addr(0, 40)
    b.addr(1, 4096)
    b.op(Op.VECTOR_SHAPE, n0=2, n1=3, n2=5, n3=3, s0=unit, s1=width * unit, s2=unit, s3=2 * width * unit, d2=20)
    b.op(Op.VECTOR_MODE, source=source, reduce=reduce, wide=1, cols=cols, d3=200, source_zero_point=zero_point)
    b.op(Op.VECTOR, src=0, dst=1)
    b.halt()
    result = run_builder(machine, b, schedule)
    assert result.counters.vector_rows == 15
    values = image[..., :cols].astype(np.int64) - (zero_point if source == Source.VMEM else 0)
    for oy in range(3):
        for ox in range(5):
            window = values[2 * oy : 2 * oy + 3, ox : ox + 2]
            want = window.sum((0, 1)) if reduce == Reduce.SUM else window.max((0, 1))
            want = (want + 2**31) % 2**32 - 2**31
            assert peek(machine.vmem, 4096 + 200 * oy + 20 * ox, (cols,), np.int32).tolist() == want.tolist()


@pytest.mark.parametrize("relu", [0, 1])
def test_wide_rows_add_bias_and_relu_only(relu):
    rng = rng_of("wide", relu)
    acc = rng.integers(-(2**31), 2**31, (10, 8)).astype(np.int32)
    bias = rng.integers(-(2**31), 2**31, 8).astype(np.int32)
    machine = GoldenMachine(TINY)
    poke(machine.acc, 0, acc)
    write_params(machine, 1000, bias, np.zeros(8), np.full(8, 63))
    b = Builder(TINY)
    b.addr(1, 1000)
    b.addr(2, 2001)
    b.op(Op.VECTOR_SHAPE, n2=10, s2=1, d2=32)
    # Everything that wide rows do not look at is set to something.
    b.op(Op.VECTOR_MODE, source=Source.ACC, wide=1, bias=1, relu=relu, cols=8, requant=Requant.FIXED, multiplier=5,
         shift=3, zero_point=9, lo=-1, hi=1)
    b.op(Op.LOAD_PARAMS, vmem=1)
    b.op(Op.VECTOR, src=0, dst=2)
    b.halt()
    run_builder(machine, b)
    want = (acc.astype(np.int64) + bias + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(peek(machine.vmem, 2001, (10, 8), np.int32), np.maximum(want, 0) if relu else want)


def test_params_are_taken_over_once_and_kept():
    """A LOAD_PARAMS reaches the next VECTOR, not the one before, and stays for those behind it."""
    machine = GoldenMachine(TINY)
    poke(machine.acc, 0, np.zeros((1, 8), np.int32))
    for i in range(2):
        write_params(machine, 1000 + 100 * i, np.full(8, 10 * (i + 1)), np.zeros(8), np.zeros(8))
    b = Builder(TINY)
    for reg, base in enumerate((0, 1000, 1100, 2000, 2008, 2016)):
        b.addr(reg, base)
    setup(TINY, b, 1, bias=1)
    b.op(Op.LOAD_PARAMS, vmem=1)
    b.op(Op.VECTOR, src=0, dst=3)
    b.op(Op.VECTOR, src=0, dst=4)
    b.op(Op.LOAD_PARAMS, vmem=2)
    b.op(Op.VECTOR, src=0, dst=5)
    b.halt()
    for schedule in SCHEDULES:
        run_builder(machine, b, schedule)
        assert peek(machine.vmem, 2000, (3, 8))[:, 0].tolist() == [10, 10, 20]


def test_later_setup_does_not_reach_an_op_that_has_started():
    machine = GoldenMachine(TINY)
    poke(machine.acc, 0, np.arange(8, dtype=np.int32)[None])
    b = Builder(TINY)
    b.addr(1, 100)
    b.addr(2, 200)
    setup(TINY, b, 1, zero_point=1)
    b.op(Op.VECTOR, src=0, dst=1)
    setup(TINY, b, 1, zero_point=2)
    b.op(Op.VECTOR, src=0, dst=2)
    b.halt()
    for schedule in range(10):
        run_builder(machine, b, schedule)
        assert peek(machine.vmem, 100, (8,)).tolist() == list(range(1, 9))
        assert peek(machine.vmem, 200, (8,)).tolist() == list(range(2, 10))


@pytest.mark.parametrize("requant, pattern, acc, want", [
    (Requant.FLOAT, 0x7F800000, [5, -5, 0], [127, -128, 0]),  # inf; 0 x inf is NaN, which becomes 0
    (Requant.FLOAT, 0x7FC00001, [5, -5, 0], [0, 0, 0]),
    (Requant.FLOAT, 0x00000001, [2**31 - 1, 1, 0], [0, 0, 0]),  # a subnormal scale reads as 0
    (Requant.FLOAT, 0x3F000000, [1, 3, 5], [0, 2, 2]),  # ties to even
    (Requant.FIXED, 0x40000000, [1, -1, 3], [1, 0, 2]),  # 0.5 with n = 31: ties upwards
    (Requant.FIXED_AWAY, 0x40000000, [1, -1, -3], [1, -1, -2]),
    (Requant.FIXED, 0x80000000, [1, -1, 0], [-1, 1, 0]),  # the multiplier is signed
])
def test_corners(requant, pattern, acc, want):
    machine = GoldenMachine(TINY)
    poke(machine.acc, 0, np.array([acc + [0] * 5], np.int32))
    b = Builder(TINY)
    b.addr(1, 100)
    setup(TINY, b, 1, requant=requant, multiplier=pattern, shift=31, cols=3)
    b.op(Op.VECTOR, src=0, dst=1)
    b.halt()
    run_builder(machine, b)
    assert peek(machine.vmem, 100, (3,)).tolist() == want


def test_undefined():
    def program(**mode: int) -> Builder:
        b = Builder(TINY)
        b.op(Op.VECTOR_SHAPE, n0=mode.pop("n0", 1), n2=1)
        b.op(Op.VECTOR_MODE, cols=8, **mode)
        b.op(Op.VECTOR)
        b.halt()
        return b

    for b, message in (
        (program(n0=2), "VECTOR at pc 2: .*without a reduction needs n0 = n1 = 1, not 2 and 1"),
        (program(bias=1), "VECTOR at pc 2: .*needs a LOAD_PARAMS"),
        (program(residual=1), "VECTOR at pc 2: .*needs VECTOR_RESIDUAL"),
    ):
        machine = GoldenMachine(TINY)
        poke(machine.acc, 0, np.zeros((4, 8), np.int32))
        with pytest.raises(UndefinedError, match=message):
            machine.run(b.program(check=False))
