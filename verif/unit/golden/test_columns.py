"""Column sums and depthwise convolution as vector programs, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.golden.columns import column_sum, depthwise, depthwise_rows
from sluice.golden.numerics_float import fp32_from_bits
from sluice.golden.vector_ops import AluOp
from sluice.golden.vector_program import Pass, run
from sluice.vector.layer import rows_of

U = 2.0**-24


@pytest.mark.parametrize("rows", (1, 2, 3, 4, 5, 8, 9, 33))
def test_column_sum(rows, seed):
    x = rows_of(np.random.default_rng([seed, rows]), rows, 7)
    memory = {"x": x}
    program = column_sum("x", "y", rows=rows, cols=7)
    levels = max(rows - 1, 0).bit_length()
    passes = sum(isinstance(step, Pass) for step in program)
    assert passes == max(levels, 1) + (rows > 2 and rows % 2)
    run(program, memory, lanes=4)
    got = fp32_from_bits(memory["y"]).astype(np.float64)
    assert got.shape == (1, 7)
    bound = levels * U * np.abs(x.astype(np.float64)).sum(axis=0)
    assert (np.abs(got[0] - x.astype(np.float64).sum(axis=0)) <= 1.01 * bound).all()


def test_order_of_a_column_sum():
    """Of five rows: 0 + 3, 1 + 4, then + 2, then what is left; 2^24 + 1 is a tie that rounds down."""
    x = np.array([[2.0**24], [1.0], [1.0], [1.0], [0.0]], np.float32)
    memory = {"x": x}
    run(column_sum("x", "y", rows=5, cols=1), memory, lanes=1)
    halves = [np.float32(x[0, 0] + x[3, 0]), np.float32(x[1, 0] + x[4, 0]), x[2, 0]]
    halves = [np.float32(halves[0] + halves[2]), halves[1]]
    assert fp32_from_bits(memory["y"])[0, 0] == np.float32(halves[0] + halves[1]) == 2.0**24


def test_column_maximum():
    memory = {"x": np.array([[1, 9], [3, -1], [2, 4]], np.float32)}
    run(column_sum("x", "y", rows=3, cols=2, op=AluOp.MAX), memory, lanes=2)
    assert fp32_from_bits(memory["y"]).tolist() == [[3, 9]]


@pytest.mark.parametrize(("kernel", "stride"), [((3, 3), 1), ((3, 3), 2), ((1, 1), 1), ((2, 5), 3), ((5, 1), 1)])
def test_depthwise(kernel, stride, seed):
    rng = np.random.default_rng([seed, *kernel, stride])
    height, width, channels, border = 6, 7, 5, 1
    image = rng.standard_normal((height, width, channels)).astype(np.float32)
    padded = np.pad(image, ((border, border), (border, border), (0, 0)))
    h, w = padded.shape[:2]
    taps, bias = rows_of(rng, kernel[0] * kernel[1], channels, 1.0), rows_of(rng, 1, channels)[0]
    memory = {"x": padded.reshape(-1, channels), "w": taps, "b": bias}
    size = {"height": h, "width": w, "kernel": kernel, "stride": stride}
    run(depthwise("x", "y", channels=channels, taps="w", bias="b", **size), memory, lanes=4)
    got = fp32_from_bits(memory["y"]).astype(np.float64)[depthwise_rows(**size)]

    out_h, out_w = (h - kernel[0]) // stride + 1, (w - kernel[1]) // stride + 1
    wanted = np.broadcast_to(bias.astype(np.float64), (out_h, out_w, channels)).copy()
    sizes = np.abs(wanted)
    for tap, weights in enumerate(taps.astype(np.float64)):
        ky, kx = divmod(tap, kernel[1])
        part = padded[ky : ky + (out_h - 1) * stride + 1 : stride, kx : kx + (out_w - 1) * stride + 1 : stride]
        wanted += part * weights
        sizes += np.abs(part * weights)
    bound = (len(taps) + 1) * U * sizes.reshape(-1, channels)
    assert (np.abs(got - wanted.reshape(-1, channels)) <= 1.01 * bound + 2.0**-120).all()


def test_refusals():
    with pytest.raises(ValueError, match="rows must be at least 1, not 0"):
        column_sum("x", "y", rows=0, cols=1)
    with pytest.raises(ValueError, match=r"a kernel \(3, 3\) with stride 1 does not fit an image of 2 x 9"):
        depthwise("x", "y", height=2, width=9, channels=1, kernel=(3, 3), taps="w")
