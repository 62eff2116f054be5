"""Configurations and byte models that the benches of the memory path share."""

from dataclasses import dataclass, field

import numpy as np

from sluice_hw.config import ChipConfig
from sluice_hw.interfaces import SlicePortSignature

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
    # More latency than the least, slices of one beat.
    "slow": ChipConfig(
        vmem_bytes=4096, vmem_banks=8, hbm_bytes_per_cycle=64, slice_bytes=64, hbm_bytes=1 << 14, hbm_latency=97,
    ),
    # Beats in 3 of 4, and in 5 of 8 cycles.
    "three_quarters": ChipConfig(
        vmem_bytes=4096, vmem_banks=8, hbm_bytes_per_cycle=48, slice_bytes=256, hbm_bytes=1 << 14,
    ),
    "five_eighths": ChipConfig(
        vmem_bytes=4096, vmem_banks=8, hbm_bytes_per_cycle=10, slice_bytes=64, hbm_bytes=37 * 64, hbm_latency=43,
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


@dataclass(frozen=True)
class Rows:
    """Rows in VMEM and the train they travel in, legal for a configuration."""

    vmem: int
    rows: int
    row_bytes: int
    pitch: int
    count: int

    def addresses(self) -> list[int]:
        """VMEM addresses of the train's bytes, in order."""
        return [self.vmem + i * self.pitch + j for i in range(self.rows) for j in range(self.row_bytes)]

    def chunks(self, line: int) -> int:
        """Pieces, each within a line and a row, where rows without a gap count as one."""
        rows, row_bytes = self.rows, self.row_bytes
        if self.pitch == row_bytes:
            rows, row_bytes = 1, rows * row_bytes
        starts = (self.vmem + i * self.pitch for i in range(rows))
        return sum((a + row_bytes - 1) // line - a // line + 1 for a in starts)


def pick_rows(rng, config: ChipConfig, most_slices: int = 5) -> Rows:
    """Random rows: single bytes, odd and negative pitches, contiguous and aligned ones, exactly full slices."""
    size, line, unit = config.vmem_bytes, config.hbm_beat_bytes, config.slice_bytes
    budget = unit * rng.randint(1, most_slices)
    kind = rng.randrange(7)
    row_bytes = rng.choice([1, 2, rng.randint(1, 3 * line), rng.randint(1, line), line, 2 * line, unit])
    row_bytes = min(row_bytes, budget, size)
    rows = rng.randint(1, max(1, min(budget // row_bytes, 40)))
    if kind == 0:
        pitch = row_bytes
    elif kind == 1:
        pitch = -row_bytes - rng.randrange(line)
    elif kind == 2:
        pitch = (row_bytes + line) // line * line
    elif kind == 3:  # exactly full slices
        row_bytes, rows = rng.choice([(unit, 1), (unit // 2, 2), (line, unit // line), (1, unit)])
        pitch = rng.choice([row_bytes, row_bytes, row_bytes + 1])
    elif kind == 4:  # overlapping rows, also all in one place
        pitch = rng.randint(-row_bytes, row_bytes)
    else:
        pitch = row_bytes + rng.randrange(2 * line)
    if pitch:  # keep within the memory
        rows = min(rows, max(1, (size - row_bytes) // abs(pitch) + 1))
    span = (rows - 1) * pitch
    low, high = -min(span, 0), size - max(span, 0) - row_bytes
    vmem = rng.choice([low, high, rng.randint(low, high), rng.randint(low, high) // line * line])
    vmem = min(max(vmem, low), high)
    return Rows(vmem, rows, row_bytes, pitch, -(-rows * row_bytes // unit) + rng.choice([0, 0, 1]))


def slice_shape(config: ChipConfig, stream: str):
    """Payload layout of a stream of the slice port."""
    return SlicePortSignature(config).members[stream].signature.members["payload"].shape
