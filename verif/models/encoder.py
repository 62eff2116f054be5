"""Random inputs and weights for transformers' operations."""

from __future__ import annotations

import numpy as np

from sluice.golden.function_errors import exact
from sluice.golden.functions import Function
from sluice.golden.numerics_float import fp32_from_bits
from sluice.golden.transformer import ENCODER_WEIGHTS
from sluice.golden.vector_ops import AluOp, alu

__all__ = ["layer64", "layer_weights", "rows_of", "to_bf16"]


def rows_of(rng: np.random.Generator, rows: int, cols: int, size: float = 3.0) -> np.ndarray:
    """Normally distributed fp32 values."""
    return (rng.standard_normal((rows, cols)) * size).astype(np.float32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """fp32 values rounded to bf16."""
    return fp32_from_bits(alu(AluOp.TO_BF16, x.astype(np.float32)))


def layer_weights(rng: np.random.Generator, hidden: int) -> dict[str, np.ndarray]:
    """Random weights of an encoder layer, sized so that values stay about 1."""
    shapes = {"query": (hidden, hidden), "key": (hidden, hidden), "value": (hidden, hidden), "mix": (hidden, hidden),
              "up": (4 * hidden, hidden), "down": (hidden, 4 * hidden)}  # fmt: skip
    out = {}
    for name, shape in shapes.items():
        out[name] = rows_of(rng, *shape, shape[1] ** -0.5)
        out[f"{name}.bias"] = rows_of(rng, 1, shape[0], 0.1)[0]
        if name in ("mix", "down"):
            out[f"{name}.gamma"] = 1 + rows_of(rng, 1, hidden, 0.1)[0]
            out[f"{name}.beta"] = rows_of(rng, 1, hidden, 0.1)[0]
    assert set(out) == set(ENCODER_WEIGHTS)
    return out


def layer64(x: np.ndarray, weights: dict[str, np.ndarray], heads: int, eps: float = 1e-12) -> np.ndarray:
    """An encoder layer in float64, by the textbook; GELU as exact as its reference, of fp32 values."""
    x, w = x.astype(np.float64), {name: value.astype(np.float64) for name, value in weights.items()}

    def norm(y: np.ndarray, name: str) -> np.ndarray:
        y = y - y.mean(axis=1, keepdims=True)
        return y / np.sqrt((y**2).mean(axis=1, keepdims=True) + eps) * w[f"{name}.gamma"] + w[f"{name}.beta"]

    q, k, v = (x @ w[name].T + w[f"{name}.bias"] for name in ("query", "key", "value"))
    size, context = x.shape[1] // heads, np.empty_like(q)
    for at in range(0, x.shape[1], size):
        part = slice(at, at + size)
        scores = q[:, part] @ k[:, part].T / np.sqrt(size)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        context[:, part] = shares / shares.sum(axis=1, keepdims=True) @ v[:, part]
    y = norm(context @ w["mix"].T + w["mix.bias"] + x, "mix")
    middle = exact(Function.GELU, (y @ w["up"].T + w["up.bias"]).astype(np.float32))
    return norm(middle @ w["down"].T + w["down.bias"] + y, "down")
