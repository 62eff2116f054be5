"""Configurations and byte models that the benches of the memory path share."""

from dataclasses import dataclass, field

import numpy as np

from sluice_hw.config import ChipConfig

#: Configurations by what they stress. All small: benches walk the whole memory.
CONFIGS: dict[str, ChipConfig] = {
    # HBM four words wide, so that four banks make a group.
    "wide_beat": ChipConfig(vmem_bytes=4096, hbm_bytes=1 << 15),
    # HBM narrower than a word.
    "narrow_beat": ChipConfig(
        rows=16, cols=16, vmem_banks=8, vmem_bytes=1024, hbm_bytes_per_cycle=8, slice_bytes=64, hbm_bytes=1 << 14,
    ),
    # Beat and word of one size.
    "equal_beat": ChipConfig(
        rows=16, cols=16, vmem_banks=8, vmem_bytes=1024, hbm_bytes_per_cycle=16, slice_bytes=64, hbm_bytes=1 << 14,
    ),
    # Rows, columns, regions (3) and bank rows (5) that are no powers of two, HBM neither (37 slices).
    "odd": ChipConfig(
        rows=5, cols=12, vmem_banks=12, vmem_bytes=960, acc_bytes=960, hbm_bytes_per_cycle=64, slice_bytes=128,
        hbm_bytes=37 * 128,
    ),
}  # fmt: skip


@dataclass
class Bytes:
    """A byte memory as plain as can be; ``data`` is the NumPy array behind it."""

    size: int
    data: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.data = np.zeros(self.size, np.uint8)

    def read(self, addr: int, count: int) -> bytes:
        """``count`` bytes from ``addr``; those outside read as 0."""
        return bytes(int(self.data[a]) if a < self.size else 0 for a in range(addr, addr + count))

    def write(self, addr: int, values: bytes) -> None:
        self.data[addr : addr + len(values)] = np.frombuffer(values, np.uint8)


def to_int(values: bytes) -> int:
    """The number whose lowest byte is the first."""
    return int.from_bytes(values, "little")


def to_bytes(number: int, count: int) -> bytes:
    return number.to_bytes(count, "little")
