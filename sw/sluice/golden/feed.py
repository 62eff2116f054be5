"""The activation feeder: which bytes enter the array rows of a PULSE_ARRAY."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .faults import UndefinedError
from .memory import Memory, walk_addresses

__all__ = ["feed_rows"]


def feed_rows(
    vmem: Memory, base: int, shape: Mapping[str, int], segments: Mapping[int, Mapping[str, int]], rows: int
) -> np.ndarray:
    """Rows that a PULSE_ARRAY streams into the array.

    Parameters
    ----------
    base
        VMEM address of the first row.
    shape, segments
        Fields of FEED_SHAPE, and of FEED_SEGMENT by index.
    rows
        Bytes of a row of activations.

    Returns
    -------
    numpy.ndarray
        int8, shape ``(n2 * n1 * n0, rows)``, in walk order.
    """
    counts = (shape["n2"], shape["n1"], shape["n0"])
    strides = (shape["s2"], shape["s1"], shape["s0"])
    out = np.zeros((*counts, rows), dtype=np.int8)
    used = np.zeros(rows, dtype=bool)
    for index in range(shape["segments"]):
        if index not in segments:
            raise UndefinedError(f"needs FEED_SEGMENT index={index} before it")
        segment = segments[index]
        lo, hi = segment["lo"], segment["hi"]
        if lo >= hi or used[lo:hi].any():
            raise UndefinedError(f"segment {index} of array rows {lo} to {hi} is empty or overlaps another")
        used[lo:hi] = True
        start = base + segment["offset"]
        inside = _inside(shape, segment) if shape["pad"] else None
        if inside is None or inside.all():
            out[..., lo:hi] = vmem.read(start, counts, strides, hi - lo).view(np.int8)
        else:
            out[..., lo:hi] = _padded(vmem, start, counts, strides, inside, shape["zero_point"])
    return out.reshape(-1, rows)


def _inside(shape: Mapping[str, int], segment: Mapping[str, int]) -> np.ndarray:
    """Which bytes of a segment lie inside the image, shape ``(1, n1, n0, width)``."""
    x = segment["x"] + np.arange(shape["n0"])[:, None] * shape["x_step"] + np.arange(segment["hi"] - segment["lo"])
    y = segment["y"] + np.arange(shape["n1"]) * shape["y_step"]
    in_x = (x >= 0) & (x < shape["line_bytes"])
    in_y = (y >= 0) & (y < shape["height"])
    return (in_y[:, None, None] & in_x)[None]


def _padded(
    vmem: Memory, start: int, counts: tuple[int, ...], strides: tuple[int, ...], inside: np.ndarray, zero_point: int
) -> np.ndarray:
    width = inside.shape[-1]
    at = walk_addresses(start, (*counts, width), (*strides, 1))
    keep = np.broadcast_to(inside, at.shape)
    wanted = at[keep]
    if wanted.size and wanted.max() >= len(vmem):
        raise vmem.fail(int(wanted[wanted >= len(vmem)][0]))
    out = np.full(at.shape, zero_point, dtype=np.int8)
    out[keep] = vmem.gather(wanted).view(np.int8)
    return out
