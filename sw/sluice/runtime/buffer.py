"""A piece of HBM that holds an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sluice.errors import UsageError

if TYPE_CHECKING:
    from .device import Device

__all__ = ["DTYPES", "Buffer"]

#: Element types that a buffer may have.
DTYPES = ("int8", "uint8", "int32", "uint32", "float32")


class Buffer:
    """Whole slices of HBM on a device, made by :meth:`Device.alloc`.

    A context manager that frees it. Use after :meth:`free` is an error.

    Attributes
    ----------
    slice
        First slice: what programs address.
    slices
        How many.
    nbytes
        Bytes asked for; the rest of the last slice belongs to the buffer, too.
    shape, dtype
        Of the array it holds.
    """

    def __init__(self, device: Device, first: int, slices: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._device: Device | None = device
        self.slice, self.slices, self.shape, self.dtype = first, slices, shape, dtype
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize

    def __repr__(self) -> str:
        where = f"slices {self.slice} to {self.slice + self.slices - 1}"
        return f"Buffer({self.dtype}{list(self.shape)}, {where}{'' if self._device else ', freed'})"

    @property
    def address(self) -> int:
        """First byte, on the data port."""
        return self.slice * self._owner.config.slice_bytes

    @property
    def _owner(self) -> Device:
        if self._device is None:
            raise UsageError(f"{self!r} has been freed")
        return self._device

    def write(self, array: Any) -> None:
        """Write the whole buffer.

        Raises
        ------
        UsageError
            For an array of another shape or element type; nothing is written.
        """
        array = np.asarray(array)
        if array.dtype != self.dtype:
            raise UsageError(f"{self!r} takes {self.dtype}, not {array.dtype}")
        if array.shape != self.shape:
            raise UsageError(f"{self!r} takes shape {list(self.shape)}, not {list(array.shape)}")
        little = array.astype(self.dtype.newbyteorder("<"), copy=False)
        self._owner.write_memory(self.address, little.tobytes())

    def read(self) -> np.ndarray:
        """A copy of the contents."""
        raw = self._owner.read_memory(self.address, self.nbytes)
        return np.frombuffer(raw, dtype=self.dtype.newbyteorder("<")).astype(self.dtype).reshape(self.shape)

    def free(self) -> None:
        """Give the slices back; a second call does nothing."""
        if self._device is not None:
            self._device.hbm.release(self.slice)
            self._device = None

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()
