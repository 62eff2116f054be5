"""LOAD_WEIGHTS and PULSE_ARRAY against plain NumPy: matmuls of any shape, convolutions with every kind of window."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sluice.asm import Builder
from sluice.golden import GoldenMachine
from sluice_hw.config import ChipConfig, preset
from sluice_hw.isa import AccMode, Op, Source
from verif.unit.golden.machine_kit import ODD, SCHEDULES, SEED, TINY, int8, peek, poke, rng_of, run_builder, tiles


def matmul(config: ChipConfig, a: np.ndarray, w: np.ndarray, schedule: int | None = None):
    """Product through the array, tile by tile, int32, and the run's result; everything stays in VMEM."""
    (m, k), n = a.shape, w.shape[1]
    machine = GoldenMachine(config)
    at_w = a.size
    at_out = at_w + w.size
    assert at_out + 4 * m * n <= config.vmem_bytes and m <= config.acc_rows
    poke(machine.vmem, 0, a)
    poke(machine.vmem, at_w, w)
    b = Builder(config)
    b.op(Op.FEED_SHAPE, n0=m, s0=k, segments=1)
    b.op(Op.VECTOR_SHAPE, n2=m, s2=1, d2=4 * n)
    for column, (n0, nn) in enumerate(tiles(n, config.cols)):
        for k0, kk in tiles(k, config.rows):
            b.addr(0, k0)
            b.addr(1, at_w + k0 * n + n0)
            b.op(Op.FEED_SEGMENT, index=0, lo=0, hi=kk)
            b.op(Op.LOAD_WEIGHTS, vmem=1, pitch=n, k=kk, n=nn)
            last = k0 + kk == k
            mode = AccMode.ACCUMULATE if k0 else AccMode.OVERWRITE
            wait = "vpu" if column and not k0 else ""
            b.op(Op.PULSE_ARRAY, vmem=0, acc=2, swap=1, acc_mode=mode, wait=wait, signal="vpu" if last else "")
        b.addr(3, at_out + 4 * n0)
        b.op(Op.VECTOR_MODE, source=Source.ACC, wide=1, cols=nn)
        b.op(Op.VECTOR, src=2, dst=3, wait="mxu", signal="mxu")
    b.halt()
    result = run_builder(machine, b, schedule)
    return peek(machine.vmem, at_out, (m, n), np.int32), result


@pytest.mark.parametrize("config", [TINY, ODD], ids=lambda c: c.name)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_matmul_of_any_shape(config, schedule):
    rng = rng_of("matmul")
    edges = (1, config.rows - 1, config.rows, config.rows + 1, 2 * config.rows + 1)
    for _ in range(6):
        m, k, n = (int(rng.choice(edges)) for _ in range(3))
        a, w = int8(rng, m, k), int8(rng, k, n)
        out, result = matmul(config, a, w, schedule)
        np.testing.assert_array_equal(out, a.astype(np.int64) @ w.astype(np.int64))
        column_tiles, k_tiles = -(-n // config.cols), -(-k // config.rows)
        counters = result.counters
        assert counters.macs == m * k * n
        assert counters.array_rows == m * column_tiles * k_tiles
        assert counters.weight_tiles == column_tiles * k_tiles
        assert counters.vector_rows == m * column_tiles
        assert counters.ops == 2 * column_tiles * k_tiles + column_tiles
        assert counters.tokens == 2 * column_tiles
        assert sum(result.tokens_left.values()) == 1


def test_extreme_operands_over_a_long_k():
    config = preset("v1").replace(name="deep", vmem_bytes=1 << 20, rows=1024, cols=8, acc_bytes=1 << 14)
    a, w = np.full((2, 4096), -128, np.int8), np.full((4096, 8), -128, np.int8)
    out, _ = matmul(config, a, w)
    assert (out == 4096 << 14).all()


def test_accumulators_wrap():
    machine = GoldenMachine(TINY)
    poke(machine.acc, 3, np.full((1, 8), 2**31 - 1, np.int32))
    poke(machine.vmem, 0, np.ones(16, np.int8))
    b = Builder(TINY)
    b.addr(1, 3)
    b.op(Op.FEED_SHAPE, segments=1)
    b.op(Op.FEED_SEGMENT, lo=0, hi=1)
    b.op(Op.LOAD_WEIGHTS, vmem=0, k=1, n=8)
    b.op(Op.PULSE_ARRAY, vmem=0, acc=1, swap=1, acc_mode=AccMode.ACCUMULATE)
    b.halt()
    run_builder(machine, b)
    assert (machine.acc.data[3] == -(2**31)).all()


def test_columns_beyond_the_tile_are_zero():
    """n < C: the other columns of the accumulator rows are written as 0, as from weights that are 0."""
    machine = GoldenMachine(TINY)
    poke(machine.acc, 0, np.full((1, 8), 77, np.int32))
    poke(machine.vmem, 0, np.ones(16, np.int8))
    b = Builder(TINY)
    b.op(Op.FEED_SHAPE, segments=1)
    b.op(Op.FEED_SEGMENT, lo=0, hi=2)
    b.op(Op.LOAD_WEIGHTS, vmem=0, pitch=8, k=2, n=3)
    b.op(Op.PULSE_ARRAY, vmem=0, acc=0, swap=1)
    b.halt()
    run_builder(machine, b)
    assert machine.acc.data[0].tolist() == [2, 2, 2, 0, 0, 0, 0, 0]


def convolve(x, w, stride, dilation, pad, zero_point):
    """Plain loops over output pixels, int64."""
    n, height, width, _ = x.shape
    kh, kw, _, co = w.shape
    (top, bottom), (left, right) = pad
    oh = (height + top + bottom - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width + left + right - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((n, oh, ow, co), np.int64)
    for oy in range(oh):
        for ox in range(ow):
            for ky in range(kh):
                for kx in range(kw):
                    y, xx = oy * stride[0] + ky * dilation[0] - top, ox * stride[1] + kx * dilation[1] - left
                    if 0 <= y < height and 0 <= xx < width:
                        pixel = x[:, y, xx].astype(np.int64)
                    else:
                        pixel = np.full((n, x.shape[3]), zero_point, np.int64)
                    out[:, oy, ox] += pixel @ w[ky, kx].astype(np.int64)
    return out


def runs_of_taps(config, kh, kw, channels, dilation):
    """Weight tiles as lists of segments ``(first K index, bytes, ky, kx, c)``: runs that are contiguous in a line."""
    run = kw * channels if dilation[1] == 1 else channels
    tiles_, current, used = [], [], 0
    for k0 in range(0, kh * kw * channels, run):
        done = 0
        while done < run:
            if used == config.rows or len(current) == config.feed_ports:
                tiles_.append(current)
                current, used = [], 0
            size = min(run - done, config.rows - used)
            ky, rest = divmod(k0 + done, kw * channels)
            current.append((k0 + done, size, ky, *divmod(rest, channels)))
            used += size
            done += size
    return [*tiles_, current]


def conv_on_machine(config, x, w, stride, dilation, pad, zero_point, schedule):
    n, height, width, channels = x.shape
    kh, kw, _, co = w.shape
    (top, bottom), (left, right) = pad
    oh = (height + top + bottom - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width + left + right - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    line, guard = width * channels, 512
    machine = GoldenMachine(config)
    at_w = guard + x.size
    poke(machine.vmem, guard, x)
    poke(machine.vmem, at_w, w)
    b = Builder(config)
    b.addr(0, guard)
    first = True
    for segments in runs_of_taps(config, kh, kw, channels, dilation):
        b.op(Op.FEED_SHAPE, n0=ow, n1=oh, n2=n, s0=stride[1] * channels, s1=stride[0] * line, s2=height * line,
             segments=len(segments), pad=1, zero_point=zero_point, x_step=stride[1] * channels, y_step=stride[0],
             line_bytes=line, height=height)
        lo = 0
        for index, (_, size, ky, kx, c) in enumerate(segments):
            x0, y0 = (kx * dilation[1] - left) * channels + c, ky * dilation[0] - top
            b.op(Op.FEED_SEGMENT, index=index, lo=lo, hi=lo + size, offset=y0 * line + x0, x=x0, y=y0)
            lo += size
        b.addr(1, at_w + segments[0][0] * co)
        b.op(Op.LOAD_WEIGHTS, vmem=1, pitch=co, k=lo, n=co)
        mode = AccMode.OVERWRITE if first else AccMode.ACCUMULATE
        b.op(Op.PULSE_ARRAY, vmem=0, acc=2, swap=1, acc_mode=mode)
        first = False
    b.halt()
    run_builder(machine, b, schedule)
    rows = n * oh * ow
    assert machine.acc.written[:rows].all() and not machine.acc.written[rows:].any()
    return machine.acc.data[:rows, :co].reshape(n, oh, ow, co)


@pytest.mark.parametrize("channels", [1, 3, 8, 13])
def test_convolutions(channels):
    choose = random.Random(SEED * 1000 + channels)
    rng = rng_of("conv", channels)
    for _ in range(12):
        kh, kw = choose.randint(1, 3), choose.randint(1, 4)
        stride, dilation = (choose.randint(1, 2), choose.randint(1, 3)), (choose.randint(1, 2), choose.randint(1, 2))
        pad = tuple((choose.randint(0, 2), choose.randint(0, 2)) for _ in range(2))
        height, width = choose.randint(dilation[0] * 2 + 1, 6), choose.randint(dilation[1] * 3 + 1, 8)
        zero_point = choose.randint(-128, 127)
        x, w = int8(rng, choose.randint(1, 2), height, width, channels), int8(rng, kh, kw, channels, 5)
        got = conv_on_machine(TINY, x, w, stride, dilation, pad, zero_point, choose.choice(SCHEDULES))
        np.testing.assert_array_equal(got, convolve(x, w, stride, dilation, pad, zero_point))


def test_padded_bytes_are_not_read():
    """The image begins at address 0: what is padded lies beyond the memory, modulo 2^32."""
    machine = GoldenMachine(TINY)
    poke(machine.vmem, 0, np.arange(1, 9, dtype=np.int8))
    poke(machine.vmem, 64, np.eye(8, dtype=np.int8))
    b = Builder(TINY)
    b.addr(1, 64)
    b.op(Op.FEED_SHAPE, n0=4, s0=2, segments=1, pad=1, zero_point=-9, x_step=2, line_bytes=8, height=1)
    b.op(Op.FEED_SEGMENT, lo=2, hi=5, offset=-1, x=-1)
    b.op(Op.LOAD_WEIGHTS, vmem=1, pitch=8, k=8, n=8)
    b.op(Op.PULSE_ARRAY, vmem=0, acc=0, swap=1)
    b.halt()
    run_builder(machine, b)
    want = [[0, 0, -9, 1, 2, 0, 0, 0], [0, 0, 2, 3, 4, 0, 0, 0], [0, 0, 4, 5, 6, 0, 0, 0], [0, 0, 6, 7, 8, 0, 0, 0]]
    assert machine.acc.data[:4].tolist() == want


def test_tile_stays_until_the_next_swap():
    """LOAD_WEIGHTS alone changes nothing; a PULSE_ARRAY without swap uses the old tile."""
    machine = GoldenMachine(TINY)
    poke(machine.vmem, 0, np.array([1, 2, 3], np.int8))
    b = Builder(TINY)
    b.addr(1, 1)
    b.addr(2, 2)
    b.addr(3, 1)
    b.addr(4, 2)
    b.op(Op.FEED_SHAPE, segments=1)
    b.op(Op.FEED_SEGMENT, lo=0, hi=1)
    b.op(Op.LOAD_WEIGHTS, vmem=1, k=1, n=1)
    b.op(Op.PULSE_ARRAY, vmem=0, acc=0, swap=1)
    b.op(Op.LOAD_WEIGHTS, vmem=2, k=1, n=1)
    b.op(Op.PULSE_ARRAY, vmem=0, acc=3)
    b.op(Op.PULSE_ARRAY, vmem=0, acc=4, swap=1)
    b.halt()
    for schedule in SCHEDULES:
        run_builder(machine, b, schedule)
        assert machine.acc.data[:3, 0].tolist() == [2, 2, 3]
