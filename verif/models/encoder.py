"""An encoder layer in float64."""

from __future__ import annotations

import numpy as np

from sluice.golden.function_errors import exact
from sluice.golden.functions import Function

__all__ = ["layer64"]


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
