"""Memory images: named arrays with their places in HBM, in one ``.npz`` file.

Keys of the file:

``NAME@SLICE``
    An array that is written to HBM from slice SLICE on, row-major, little endian, before the program runs.
``out:NAME@SLICE``
    Read back after the run: only shape and element type count.
``expect:NAME@SLICE``
    Read back, and compared with the values here.
``param:I``
    Parameter register I, one integer.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sluice.errors import UsageError
from sluice_hw import isa

from .buffer import DTYPES, Buffer
from .device import Device

__all__ = ["Image", "load_image", "parse_read"]

_KEY = re.compile(r"(?:(?P<kind>out|expect):)?(?P<name>[A-Za-z_][\w.-]*)@(?P<slice>\d+)\Z")
_READ = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)@(?P<slice>\d+):(?P<dtype>[a-z0-9]+)(?:\[(?P<shape>[\d,x ]+)\])?\Z")


@dataclass
class Image:
    """What a run begins with and what is wanted from it.

    Attributes
    ----------
    writes
        ``(name, slice, array)`` to write.
    reads
        ``{name: (slice, shape, dtype)}`` to read back.
    expected
        Values that reads must have.
    params
        Parameter registers.
    """

    writes: list[tuple[str, int, np.ndarray]] = field(default_factory=list)
    reads: dict[str, tuple[int, tuple[int, ...], str]] = field(default_factory=dict)
    expected: dict[str, np.ndarray] = field(default_factory=dict)
    params: dict[int, int] = field(default_factory=dict)

    @property
    def param_list(self) -> list[int]:
        """Parameter registers from 0."""
        return [self.params.get(i, 0) for i in range(max(self.params, default=-1) + 1)]

    def write(self, device: Device) -> None:
        """Put all arrays into the device's HBM; nothing is written when one does not fit or two overlap."""
        placed: list[tuple[Buffer, np.ndarray]] = []
        try:
            for _, first, array in self.writes:
                placed.append((device.alloc_at(first, array.shape or 1, array.dtype), array))
            for buffer, array in placed:
                buffer.write(array.reshape(buffer.shape))
        finally:
            for buffer, _ in placed:
                buffer.free()

    def read(self, device: Device) -> dict[str, np.ndarray]:
        """Arrays that the run left behind, by name."""
        out = {}
        for name, (first, shape, dtype) in self.reads.items():
            with device.alloc_at(first, shape or 1, dtype) as buffer:
                out[name] = buffer.read().reshape(shape)
        return out


def load_image(path: str | Path) -> Image:
    """Read an ``.npz`` file.

    Raises
    ------
    UsageError
        For a file that cannot be read, or a key or array that is not as above.
    """
    try:
        file = np.load(path, allow_pickle=False)
        arrays = None
        if isinstance(file, np.lib.npyio.NpzFile):
            with file:
                arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or "not a readable .npz file"
        raise UsageError(f"memory image {path}: {reason}") from None
    if arrays is None:
        raise UsageError(f"{path} holds one array; a memory image is an .npz file with named arrays")
    image = Image()
    for key, array in arrays.items():
        if key.startswith("param:"):
            _param(image, path, key, array)
            continue
        match = _KEY.match(key)
        if not match:
            raise UsageError(
                f"{path}: key {key!r} must be NAME@SLICE, out:NAME@SLICE, expect:NAME@SLICE or param:I"
            )
        if array.dtype.name not in DTYPES:
            raise UsageError(f"{path}: {key!r} must be of {', '.join(DTYPES)}, not {array.dtype}")
        if not array.size:
            raise UsageError(f"{path}: {key!r} is empty, shape {list(array.shape)}")
        name, first = match["name"], int(match["slice"])
        if match["kind"] is None:
            image.writes.append((name, first, array))
            continue
        if name in image.reads:
            raise UsageError(f"{path}: result {name!r} is there twice")
        image.reads[name] = (first, array.shape, array.dtype.name)
        if match["kind"] == "expect":
            image.expected[name] = array
    return image


def _param(image: Image, path: str | Path, key: str, array: np.ndarray) -> None:
    index = key[len("param:") :]
    if not index.isdecimal() or int(index) >= isa.PARAM_REGISTERS:
        raise UsageError(f"{path}: key {key!r} must be param:0 to param:{isa.PARAM_REGISTERS - 1}")
    if array.size != 1 or array.dtype.kind not in "iu" or not 0 <= int(array.reshape(())) < 1 << 32:
        raise UsageError(f"{path}: {key!r} must be one integer from 0 to 2**32 - 1, not {array.tolist()}")
    image.params[int(index)] = int(array.reshape(()))


def parse_read(text: str) -> tuple[str, tuple[int, tuple[int, ...], str]]:
    """``NAME@SLICE:DTYPE[SHAPE]``, for example ``out@3:int8[16,8]``.

    Raises
    ------
    UsageError
        When the text is not of that form.
    """
    match = _READ.match(text)
    dims = re.split(r" *[,x] *", match["shape"].strip()) if match and match["shape"] else []
    if not match or match["dtype"] not in DTYPES or not all(d.isdecimal() and int(d) for d in dims):
        raise UsageError(
            f"a result is NAME@SLICE:DTYPE[SHAPE] with a type of {', '.join(DTYPES)}, for example "
            f"out@3:int8[16,8], not {text!r}"
        )
    return match["name"], (int(match["slice"]), tuple(map(int, dims)), match["dtype"])
