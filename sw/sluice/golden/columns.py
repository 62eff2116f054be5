"""Programs of the vector unit that work down the columns: sums over rows, and depthwise convolution.

Lanes are columns (channels) here, so that neither leaves its lane.
"""

from __future__ import annotations

import numpy as np

from sluice.golden.vector_ops import AluOp
from sluice.golden.vector_program import Alu, Part, Pass, Row, Space, Step

__all__ = ["column_sum", "depthwise", "depthwise_rows"]


def column_sum(src: str, dst: str, *, rows: int, cols: int, op: AluOp = AluOp.ADD) -> list[Step]:
    """The sum of ``rows`` rows, as one row of ``cols``: ceil(log2 rows) passes, and for odd ``rows`` a copy of a row.

    The order: of n rows with half h = ceil(n / 2), row i + h is added to row i, for i < n - h; then the same with the
    first h, until one is left. It does not depend on the lanes.

    Parameters
    ----------
    op
        ADD, or another operation with two operands, as MAX.

    Raises
    ------
    ValueError
        For no rows.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows}")

    def add(tensor: str, n: int, to: str | Part) -> Pass:
        half = -(-n // 2)
        upper = Part(tensor, 0, cols, rows=(half, n))
        return Pass(Part(tensor, 0, cols, rows=(0, n - half)), first=Alu(op, upper), dst=to)

    if rows == 1:
        return [Pass(src, dst=dst)]
    if rows == 2:
        return [add(src, 2, dst)]
    left, half = f"{dst}.half", -(-rows // 2)
    program: list[Step] = [Space(left, half, cols), add(src, rows, Part(left, 0, cols, rows=(0, rows - half)))]
    if rows % 2:
        middle = (half - 1, half)
        program.append(Pass(Part(src, 0, cols, rows=middle), dst=Part(left, 0, cols, rows=middle)))
    while half > 2:
        program.append(add(left, half, Part(left, 0, cols, rows=(0, half // 2))))
        half = -(-half // 2)
    return [*program, add(left, 2, dst)]


def depthwise(src: str, dst: str, *, height: int, width: int, channels: int, kernel: tuple[int, int], taps: str,
              stride: int = 1, bias: str | None = None) -> list[Step]:  # fmt: skip
    """Depthwise convolution: each channel with its own kernel, one pass for each of its taps, in order of rows.

    A tap multiplies rows that lie as far apart as the stride by its vector of weights and adds what the taps before
    gave; the product is rounded, then the sum. All positions of an output line's width in ``src`` are computed, in one
    walk; those behind its end are of no use (:func:`depthwise_rows` says which rows are).

    Parameters
    ----------
    src
        (height * width, channels): pixels, line by line. Padding is a border of zeros in it.
    dst
        As many rows as there are positions.
    taps
        Tensor (kernel rows * kernel columns, channels).
    bias
        Vector (channels,).

    Raises
    ------
    ValueError
        For a kernel that is larger than the image, or a stride below 1.
    """
    positions = int(depthwise_rows(height=height, width=width, kernel=kernel, stride=stride)[-1]) + 1
    program: list[Step] = []
    for tap in range(kernel[0] * kernel[1]):
        ky, kx = divmod(tap, kernel[1])
        first = ky * width + kx
        source = Part(src, 0, channels, rows=(first, first + (positions - 1) * stride + 1), step=stride)
        weights = Part(Row(taps), 0, channels, rows=(tap, tap + 1))
        if tap:
            alu = Alu(AluOp.MUL_ADD, weights, dst)
        elif bias is not None:
            alu = Alu(AluOp.MUL_ADD, weights, Row(bias))
        else:
            alu = Alu(AluOp.MUL, weights)
        program.append(Pass(source, first=alu, dst=dst))
    return program


def depthwise_rows(*, height: int, width: int, kernel: tuple[int, int], stride: int = 1) -> np.ndarray:
    """Rows of :func:`depthwise`'s result that are its pixels, line by line: output (y, x) is row y * width + x."""
    out = [(size - k) // stride + 1 for size, k in zip((height, width), kernel, strict=True)]
    if stride < 1 or min(kernel) < 1 or min(out) < 1 or kernel[0] > height or kernel[1] > width:
        raise ValueError(f"a kernel {kernel} with stride {stride} does not fit an image of {height} x {width}")
    return (np.arange(out[0])[:, None] * width + np.arange(out[1])).reshape(-1)
