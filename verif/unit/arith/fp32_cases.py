"""Pairs of fp32 operands whose sums are hard: directed ones, and random ones where every part of an adder decides."""

from __future__ import annotations

import numpy as np

__all__ = ["DIRECTED_SUMS", "random_sums"]

SIGN = np.uint32(0x80000000)


def _directed() -> tuple[np.ndarray, np.ndarray]:
    exps = np.array([0, 1, 2, 3, 22, 23, 24, 25, 26, 27, 28, 29, 126, 127, 128, 150, 151, 152, 190, 191, 192, 228, 229,
                     230, 231, 252, 253, 254, 255], np.uint32)  # fmt: skip
    mans = np.array([0, 1, 2, 3, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFD, 0x7FFFFE, 0x7FFFFF], np.uint32)
    values = (exps[:, None] << np.uint32(23) | mans).ravel()
    values = np.concatenate([values, values | SIGN])
    # Specials, neighbours of overflow and of the subnormal limit, and signed zeros with each other: all pairs.
    a, b = (axis.ravel() for axis in np.meshgrid(values, values))
    # Ties and what stands one bit away from them, at every distance of the exponents.
    distance = np.arange(0, 34, dtype=np.uint32)
    large = np.uint32(100 << 23) | np.array([0, 1, 2, 0x7FFFFE, 0x7FFFFF], np.uint32)
    small = np.array([0, 1, 0x400000, 0x400001, 0x3FFFFF, 0x7FFFFF, 0x600000, 0x200000], np.uint32)
    x, d, y, s = (axis.ravel() for axis in np.meshgrid(large, distance, small, np.array([0, SIGN], np.uint32)))
    tie_a, tie_b = x, (np.uint32(100) - d << np.uint32(23) | y) ^ s
    # One or two ulp beside the largest number and the smallest normal one.
    edge = np.array([0x7F7FFFFF, 0x7F7FFFFE, 0x7F000000, 0x7EFFFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000,
                     0x01000001, 0x73000000, 0x72FFFFFF, 0x73000001, 0x73800000, 0x5F800000], np.uint32)  # fmt: skip
    edge = (edge.astype(np.int64) + np.arange(-2, 3)[:, None]).ravel().astype(np.uint32)
    edge = np.concatenate([edge, edge ^ SIGN])
    edge_a, edge_b = (axis.ravel() for axis in np.meshgrid(edge, edge))
    return np.concatenate([a, tie_a, tie_b, edge_a]), np.concatenate([b, tie_b, tie_a, edge_b])


DIRECTED_SUMS = _directed()


def random_sums(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """At least `count` pairs, of six kinds in equal parts."""
    part = -(-count // 6)

    def any_bits() -> np.ndarray:
        return rng.integers(0, 2**32, part, dtype=np.uint32)

    def near(a: np.ndarray, most: int) -> np.ndarray:
        """Of an exponent at most so far from that of `a`."""
        exp = np.clip((a >> 23 & 255).astype(int) + rng.integers(-most, most + 1, part), 0, 255).astype(np.uint32)
        return any_bits() & np.uint32(0x807FFFFF) | exp << np.uint32(23)

    a = any_bits()
    anything = a, any_bits()
    aligned = a, near(a, 30)
    cancels = a, near(a, 1) & np.uint32(0x7FFFFFFF) | (~a & SIGN)
    deep = a, a ^ SIGN ^ rng.integers(0, 16, part, dtype=np.uint32) << rng.integers(0, 20, part, dtype=np.uint32)
    # Few bits set: exact sums and ties.
    sparse = any_bits() & any_bits() & np.uint32(0xFF800F01)
    ties = sparse, near(sparse, 26) & (any_bits() | np.uint32(0xFF800000)) & np.uint32(0xFFFFF801)
    # Long runs of ones: carries through the whole significand.
    ones = any_bits() | np.uint32(0x007FFFFF) << rng.integers(0, 24, part, dtype=np.uint32) & np.uint32(0x007FFFFF)
    carries = ones, near(ones, 25)
    pairs = (anything, aligned, cancels, deep, ties, carries)
    return np.concatenate([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])
