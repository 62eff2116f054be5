"""Memories of the golden machine: contents, and which of them have been written.

All address arithmetic is modulo 2^32, as in the chip. A *walk* is a nest of up to four counters with a stride each,
outermost first; every step reads or writes ``width`` consecutive units (bytes, or accumulator rows).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sluice_hw.isa import Error

from .faults import UnitFault, UnwrittenReadError

__all__ = ["Memory", "disjoint", "walk_addresses"]

_WRAP = 1 << 32


def walk_addresses(base: int, counts: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Address of every step of a walk, shape ``counts``, int64, modulo 2^32."""
    out = np.array(base, dtype=np.int64)
    for count, stride in zip(counts, strides, strict=True):
        out = out[..., None] + np.arange(count, dtype=np.int64) * stride
    return out % _WRAP


class Memory:
    """An addressed memory with a mask of what has been written.

    Parameters
    ----------
    name
        For messages.
    data
        Zeroed contents; the first axis is the address.
    fault
        Error code of an access beyond the end.

    Attributes
    ----------
    data
        The contents.
    written
        bool, one per address.
    """

    def __init__(self, name: str, data: np.ndarray, fault: Error) -> None:
        self.name, self.data, self.fault = name, data, fault
        self.written = np.zeros(len(data), dtype=bool)

    def __len__(self) -> int:
        return len(self.data)

    def clear(self) -> None:
        """Forget everything."""
        self.data[:] = 0
        self.written[:] = False

    def read(self, base: int, counts: Sequence[int], strides: Sequence[int], width: int = 1) -> np.ndarray:
        """Contents along a walk, shape ``(*counts, width, *data.shape[1:])``; a view where that is possible.

        Raises
        ------
        UnitFault
            When a step reaches beyond the end: the address of the first one that does.
        UnwrittenReadError
            With the first unwritten address in walk order (op and pc are the caller's to add).
        """
        values, known = self.look(base, counts, strides, width)
        if not known.all():
            at = walk_addresses(base, (*counts, width), (*strides, 1))
            raise UnwrittenReadError(self.name, int(at[~known][0]))
        return values

    def look(
        self, base: int, counts: Sequence[int], strides: Sequence[int], width: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`read`, and what of it has been written, shape ``(*counts, width)``, instead of an error."""
        base %= _WRAP
        if self._regular(base, counts, strides, width):
            values = self._view(self.data, base, counts, strides, width)
            return values, self._view(self.written, base, counts, strides, width)
        at = self._checked(base, counts, strides, width)
        at = at[..., None] + np.arange(width)
        return self.data[at], self.written[at]

    def gather(self, at: np.ndarray) -> np.ndarray:
        """Contents at addresses that are in range."""
        known = self.written[at]
        if not known.all():
            raise UnwrittenReadError(self.name, int(at[~known][0]))
        return self.data[at]

    def write(self, base: int, counts: Sequence[int], strides: Sequence[int], values: np.ndarray) -> None:
        """Write along a walk; later steps win where steps overlap.

        Parameters
        ----------
        values
            Shape ``(*counts, width, *data.shape[1:])``.
        """
        base %= _WRAP
        width = values.shape[len(counts)]
        if self._regular(base, counts, strides, width) and disjoint(counts, strides, width):
            self._view(self.data, base, counts, strides, width)[...] = values
            self._view(self.written, base, counts, strides, width)[...] = True
            return
        at = self._checked(base, counts, strides, width).reshape(-1)
        rows = values.reshape(at.size, *values.shape[len(counts) :])
        for start, row in zip(at.tolist(), rows, strict=True):
            self.data[start : start + width] = row
            self.written[start : start + width] = True

    def check(self, base: int, counts: Sequence[int], strides: Sequence[int], width: int = 1) -> None:
        """Raise :class:`UnitFault` when a step of the walk reaches beyond the end."""
        if not self._regular(base % _WRAP, counts, strides, width):
            self._checked(base % _WRAP, counts, strides, width)

    def fail(self, address: int) -> UnitFault:
        """The fault of an access that begins at ``address``."""
        reason = f"{self.name} address {address:#x} reaches beyond the {len(self):#x} there are"
        return UnitFault(self.fault, address, reason)

    def _regular(self, base: int, counts: Sequence[int], strides: Sequence[int], width: int) -> bool:
        """Whether no step wraps around 2^32 or leaves the memory, so that the walk is a strided view."""
        lowest = highest = base
        for count, stride in zip(counts, strides, strict=True):
            if stride < 0:
                lowest += (count - 1) * stride
            else:
                highest += (count - 1) * stride
        return lowest >= 0 and highest + width <= len(self)

    @staticmethod
    def _view(
        array: np.ndarray, base: int, counts: Sequence[int], strides: Sequence[int], width: int
    ) -> np.ndarray:
        unit = array.strides[0]
        shape = (*counts, width, *array.shape[1:])
        steps = (*[stride * unit for stride in strides], *array.strides)
        # As numpy.lib.stride_tricks.as_strided, but checked against the buffer, and several times as fast.
        return np.ndarray(shape, array.dtype, array, base * unit, steps)

    def _checked(self, base: int, counts: Sequence[int], strides: Sequence[int], width: int) -> np.ndarray:
        at = walk_addresses(base, counts, strides)
        bad = at + width > len(self)
        if bad.any():
            raise self.fail(int(at[bad][0]))
        return at


def disjoint(counts: Sequence[int], strides: Sequence[int], width: int) -> bool:
    """Whether the steps surely do not overlap (each counter steps over everything inside it)."""
    size = width
    for count, stride in sorted(zip(counts, strides, strict=True), key=lambda cs: abs(cs[1])):
        if count > 1:
            if abs(stride) < size:
                return False
            size += abs(stride) * (count - 1)
    return True
