"""Random float graphs for tests: convolutions of odd shapes, residual diamonds, pools, means and matmuls."""

from __future__ import annotations

import numpy as np

from sluice.compiler import Graph, Tensor


def random_image_graph(rng: np.random.Generator, steps: int = 6, batch: int = 2) -> Graph:
    """A graph whose input ``x`` is [batch, h, w, c] and whose output ``y`` is [batch, n]."""
    g = Graph("random")
    h, w, c = rng.integers(5, 10), rng.integers(5, 10), rng.integers(1, 6)
    x = g.input("x", (batch, h, w, c))
    for _ in range(steps):
        x = _step(rng, g, x)
    x = g.mean(x) if rng.random() < 0.5 else g.flatten(x)
    if rng.random() < 0.7:
        skip = x
        x = g.relu(_matmul(rng, g, x, x.shape[1]))
        if rng.random() < 0.5:
            x = g.add(skip, x)
    g.output(_matmul(rng, g, x, int(rng.integers(1, 12))), "y")
    return g


def _matmul(rng: np.random.Generator, g: Graph, x: Tensor, n: int) -> Tensor:
    k = x.shape[1]
    w = rng.normal(0, (2 / k) ** 0.5, (k, n)).astype(np.float32)
    return g.matmul(x, w, rng.normal(0, 0.1, n).astype(np.float32))


def _conv(rng: np.random.Generator, g: Graph, x: Tensor, channels: int, keep: bool) -> Tensor:
    """A convolution; with `keep` of unchanged height and width, otherwise of any geometry that fits."""
    _, h, w, c = x.shape
    kernel = tuple(int(rng.integers(1, min(4, n) + 1)) for n in (h, w))
    spread = rng.normal(0, (2 / (kernel[0] * kernel[1] * c)) ** 0.5, (*kernel, c, channels))
    # Channels of unequal size are what per-channel scales are for.
    weights = (spread * rng.choice([0.1, 1.0, 2.0], channels)).astype(np.float32)
    bias = rng.normal(0, 0.2, channels).astype(np.float32) if rng.random() < 0.8 else None
    dilation = tuple(int(rng.integers(1, 3)) for _ in range(2))
    if keep:
        return g.conv2d(x, weights, bias, dilation=dilation, padding="same")
    padding = "same"
    if rng.random() < 0.6:
        pads = rng.integers(0, 3, (2, 2))
        for axis, n in enumerate((h, w)):
            missing = (kernel[axis] - 1) * dilation[axis] + 1 - n - pads[axis].sum()
            pads[axis, 1] += max(missing, 0)
        padding = tuple(tuple(int(p) for p in side) for side in pads)
    stride = tuple(int(rng.integers(1, 3)) for _ in range(2))
    return g.conv2d(x, weights, bias, stride=stride, dilation=dilation, padding=padding)


def _activation(rng: np.random.Generator, g: Graph, x: Tensor) -> Tensor:
    kind = rng.integers(4)
    if kind == 0:
        return x
    if kind == 1:
        return g.relu6(x)
    return g.relu(x) if kind == 2 else g.clamp(x, -0.5, 1.5)


def _pool(rng: np.random.Generator, g: Graph, x: Tensor) -> Tensor:
    window = tuple(int(rng.integers(1, min(3, n) + 1)) for n in x.shape[1:3])
    stride = tuple(int(rng.integers(1, 3)) for _ in range(2))
    pads = tuple((int(rng.integers(0, k)), int(rng.integers(0, k))) for k in window)
    build = g.max_pool2d if rng.random() < 0.5 else g.avg_pool2d
    return build(x, window, stride=stride, padding=pads)


def _step(rng: np.random.Generator, g: Graph, x: Tensor) -> Tensor:
    kind = rng.integers(6)
    channels = int(rng.integers(1, 10))
    if kind <= 1:
        return _activation(rng, g, _conv(rng, g, x, channels, keep=False))
    if kind == 2:  # identity residual
        y = _activation(rng, g, _conv(rng, g, x, channels, keep=True))
        y = _activation(rng, g, g.add(_conv(rng, g, y, x.shape[3], keep=True), x))
        return y
    if kind == 3:  # diamond: both sides are convolutions
        left = _activation(rng, g, _conv(rng, g, x, channels, keep=True))
        right = _conv(rng, g, x, channels, keep=True)
        return _activation(rng, g, g.add(left, right))
    if kind == 4:
        return _pool(rng, g, x)
    # a result with two readers cannot be fused: clamp and addition stay on their own
    y = _conv(rng, g, x, channels, keep=True)
    return _activation(rng, g, g.add(_activation(rng, g, y), y))
