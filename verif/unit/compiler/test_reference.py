"""The float executor against loops, and inputs that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.compiler import Graph, GraphError, QuantParams, dequantise_array, quantise_array, run_float, run_quantised


def window_cells(size, kernel, stride, padding, dilation, oy, ox):
    """(ky, kx, y, x) of every cell of one window that lies inside the image."""
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            y = oy * stride[0] + ky * dilation[0] - padding[0][0]
            x = ox * stride[1] + kx * dilation[1] - padding[1][0]
            if 0 <= y < size[0] and 0 <= x < size[1]:
                yield ky, kx, y, x


WINDOWS = [
    # kernel, stride, padding, dilation
    ((3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    ((1, 1), (2, 2), ((1, 1), (0, 0)), (1, 1)),
    ((2, 3), (2, 1), ((0, 1), (2, 0)), (1, 1)),
    ((3, 2), (1, 3), ((2, 1), (0, 1)), (2, 3)),
    ((5, 4), (1, 1), ((0, 0), (0, 0)), (1, 1)),
]


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), WINDOWS)
def test_conv2d_by_loops(kernel, stride, padding, dilation, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, 6, 5, 3)).astype(np.float32)
    w, b = rng.normal(size=(*kernel, 3, 4)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    g = Graph("g")
    g.output(g.conv2d(g.input("x", x.shape), w, b, stride=stride, padding=padding, dilation=dilation), "y")
    got = run_float(g, x)["y"]
    want = np.empty(got.shape)
    for n, oy, ox, co in np.ndindex(*got.shape):
        want[n, oy, ox, co] = float(b[co]) + sum(
            float(x[n, yy, xx].astype(np.float64) @ w[ky, kx, :, co].astype(np.float64))
            for ky, kx, yy, xx in window_cells((6, 5), kernel, stride, padding, dilation, oy, ox)
        )
    # Both round an exact-to-1e-15 sum to float32 once.
    np.testing.assert_allclose(got, want, rtol=1.3e-7, atol=1e-12)


@pytest.mark.parametrize(("window", "stride", "padding"), [w[:3] for w in WINDOWS if max(map(max, w[2])) < min(w[0])])
def test_pools_by_loops(window, stride, padding, seed: int) -> None:
    x = np.random.default_rng(seed).normal(-3, 1, size=(2, 6, 5, 3)).astype(np.float32)
    g = Graph("g")
    t = g.input("x", x.shape)
    g.output(g.max_pool2d(t, window, stride=stride, padding=padding), "max")
    g.output(g.avg_pool2d(t, window, stride=stride, padding=padding), "avg")
    got = run_float(g, x)
    for n, oy, ox, c in np.ndindex(*got["max"].shape):
        cells = [x[n, yy, xx, c] for _, _, yy, xx in window_cells((6, 5), window, stride, padding, (1, 1), oy, ox)]
        assert got["max"][n, oy, ox, c] == max(cells)
        assert got["avg"][n, oy, ox, c] == pytest.approx(np.mean(cells, dtype=np.float64), rel=1e-6)


def test_mean_matmul_clamp_reshape(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, 4, 5, 2)).astype(np.float32)
    w, b = rng.normal(size=(40, 6)).astype(np.float32), rng.normal(size=6).astype(np.float32)
    g = Graph("g")
    t = g.input("x", x.shape)
    g.output(g.mean(t), "mean")
    g.output(g.relu6(g.matmul(g.flatten(t), w, b)), "fc")
    got = run_float(g, x)
    np.testing.assert_allclose(got["mean"], x.mean(axis=(1, 2), dtype=np.float64), rtol=1e-6)
    want = np.clip(x.reshape(3, 40).astype(np.float64) @ w + b, 0, 6)
    np.testing.assert_allclose(got["fc"], want, rtol=1e-6, atol=1e-6)


def test_inputs_that_do_not_fit() -> None:
    g = Graph("g")
    a, b = g.input("a", (2, 3)), g.input("b", (2, 3))
    g.output(g.add(a, b), "y")
    x = np.zeros((2, 3), np.float32)
    for inputs, message in [
        (x, "has 2 inputs; give arrays by name: a, b"),
        ({"a": x}, r"inputs \['a'\]; needed: \['a', 'b'\]"),
        ({"a": x, "b": x, "c": x}, "needed"),
        ({"a": x, "b": x.astype(np.int8)}, "input 'b' has dtype int8; allowed: float32"),
        ({"a": x, "b": x[:, :2]}, r"input 'b' has shape \(2, 2\); allowed: \(2, 3\)"),
        ({"a": x, "b": x[0]}, r"input 'b' has shape \(3,\)"),
        ({"a": x, "b": x[:1]}, r"input 'b' has shape \(1, 3\); allowed: \(2, 3\) \(or graph.with_batch\(1\)\)"),
    ]:
        with pytest.raises(GraphError, match=message):
            run_float(g, inputs)
    with pytest.raises(GraphError, match="add 'add' belongs to a float graph; quantise it first"):
        run_quantised(g, {"a": x, "b": x})


def test_quantise_array_rounds_to_even_and_saturates() -> None:
    quant = QuantParams((0.5,), 3)
    x = np.array([0, 0.25, 0.75, -0.25, 1000, -1000, 1.26], np.float32)
    np.testing.assert_array_equal(quantise_array(x, quant), np.array([3, 3, 5, 3, 127, -128, 6], np.int8))
    q = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(quantise_array(dequantise_array(q, quant), quant), q)
