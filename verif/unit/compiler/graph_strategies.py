"""Hypothesis strategies of float graphs with odd geometry, which shrink to a small network when one fails."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from sluice.compiler import Graph, Tensor

__all__ = ["Conv", "Diamond", "Network", "Pool", "networks"]

Pair = tuple[int, int]


@dataclass(frozen=True)
class Conv:
    """A convolution; padding is ((top, bottom), (left, right)) or "same", and is widened until the kernel fits."""

    channels: int
    kernel: Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    padding: tuple[Pair, Pair] | str = "same"
    bias: bool = True
    relu: bool = True

    def add(self, g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        w = rng.normal(0, (2 / (self.kernel[0] * self.kernel[1] * x.shape[3])) ** 0.5,
                       (*self.kernel, x.shape[3], self.channels)).astype(np.float32)  # fmt: skip
        padding = self.padding
        if not isinstance(padding, str):
            spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
            padding = tuple((p[0], max(p[1], span - n - p[0]))
                            for p, span, n in zip(padding, spans, x.shape[1:3], strict=True))  # fmt: skip
        bias = rng.normal(0, 0.2, self.channels).astype(np.float32) if self.bias else None
        y = g.conv2d(x, w, bias, stride=self.stride, dilation=self.dilation, padding=padding)
        return g.relu(y) if self.relu else y


@dataclass(frozen=True)
class Pool:
    """A pooling; window and padding become smaller where the picture is."""

    kind: str
    window: Pair
    stride: Pair
    padding: tuple[Pair, Pair] = ((0, 0), (0, 0))

    def add(self, g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        window = tuple(min(k, n) for k, n in zip(self.window, x.shape[1:3], strict=True))
        padding = tuple(tuple(min(p, k - 1) for p in side) for side, k in zip(self.padding, window, strict=True))
        build = g.max_pool2d if self.kind == "max" else g.avg_pool2d
        return build(x, window, stride=self.stride, padding=padding)


@dataclass(frozen=True)
class Diamond:
    """Two paths from one tensor that are added: a convolution, and another or nothing."""

    kernel: Pair
    other: Pair | None
    relu: bool = True

    def add(self, g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        left = Conv(x.shape[3], self.kernel, relu=self.relu).add(g, x, rng)
        right = x if self.other is None else Conv(x.shape[3], self.other, relu=False).add(g, x, rng)
        y = g.add(left, right)
        return g.relu(y) if self.relu else y


@dataclass(frozen=True)
class Network:
    """Layers on an input ``x`` [batch, h, w, c]; ``end`` is "image", "mean" or the width of a last matmul."""

    shape: tuple[int, int, int, int]
    layers: tuple[Conv | Pool | Diamond, ...]
    end: str | int
    dialect: str = "fixed"
    seed: int = 0
    name: str = field(default="random", repr=False)

    def graph(self) -> Graph:
        rng = np.random.default_rng(self.seed)
        g = Graph(self.name)
        x = g.input("x", self.shape)
        for layer in self.layers:
            x = layer.add(g, x, rng)
        if self.end == "mean":
            x = g.mean(x)
        elif self.end != "image":
            x = g.flatten(x)
            w = rng.normal(0, x.shape[1] ** -0.5, (x.shape[1], int(self.end))).astype(np.float32)
            x = g.matmul(x, w, rng.normal(0, 0.1, int(self.end)).astype(np.float32))
        g.output(x, "y")
        return g

    def data(self, *, batch: int | None = None) -> np.ndarray:
        """Random images, float32."""
        shape = (batch or self.shape[0], *self.shape[1:])
        return np.random.default_rng([self.seed, 1]).normal(0.1, 1, shape).astype(np.float32)


def _pairs(most: int, least: int = 1) -> st.SearchStrategy[Pair]:
    return st.tuples(st.integers(least, most), st.integers(least, most))


#: Below, at and above the columns and rows of the test chips.
_CHANNELS = st.one_of(st.integers(1, 13), st.sampled_from([16, 17, 24, 33]))
_CONVS = st.builds(
    Conv, channels=_CHANNELS, kernel=_pairs(5), stride=_pairs(3), dilation=_pairs(2),
    padding=st.one_of(st.just("same"), st.tuples(_pairs(3, 0), _pairs(3, 0))), bias=st.booleans(), relu=st.booleans(),
)  # fmt: skip
_POOLS = st.builds(
    Pool, kind=st.sampled_from(["max", "avg"]), window=_pairs(3), stride=_pairs(2),
    padding=st.tuples(_pairs(2, 0), _pairs(2, 0)),
)  # fmt: skip
_DIAMONDS = st.builds(Diamond, kernel=_pairs(4), other=st.one_of(st.none(), _pairs(3)), relu=st.booleans())


def networks(layers: int = 4) -> st.SearchStrategy[Network]:
    """Networks of at most that many layers."""
    return st.builds(
        Network,
        shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9),
                        st.one_of(st.integers(1, 6), st.sampled_from([8, 9, 24]))),
        layers=st.lists(st.one_of(_CONVS, _CONVS, _POOLS, _DIAMONDS), min_size=1, max_size=layers).map(tuple),
        end=st.one_of(st.just("image"), st.just("mean"), st.sampled_from([1, 7, 12, 55])),
        dialect=st.sampled_from(["fixed", "float"]),
        seed=st.integers(0, 99),
    )  # fmt: skip
