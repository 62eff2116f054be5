"""What the tests of the golden machine share: memories filled by hand, and short programs."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

import numpy as np

from sluice.asm import Builder, assemble
from sluice.golden import GoldenMachine, RunResult
from sluice.golden.memory import Memory
from sluice_hw.config import preset

SEED = int(os.environ.get("SLUICE_SEED", "1"))
TINY = preset("tiny")
#: Nothing here is a power of two, and rows and columns differ.
ODD = TINY.replace(
    name="odd", rows=5, cols=3, acc_bytes=24 * 60, vmem_banks=12, vmem_bytes=12 * 8 * 40, feed_ports=3, token_max=7
)
#: None: units take turns; numbers: random schedules.
SCHEDULES = (None, SEED, SEED + 1, SEED + 2)


def rng_of(*key: object) -> np.random.Generator:
    """A generator of its own for each test; the session's seed makes it replayable."""
    return np.random.default_rng([SEED, *(zlib.crc32(str(k).encode()) for k in key)])


def int8(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def poke(memory: Memory, address: int, values: np.ndarray) -> None:
    """Write bytes (or accumulator rows) behind the program's back."""
    if memory.data.ndim == 1:
        values = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    memory.data[address : address + len(values)] = values
    memory.written[address : address + len(values)] = True


def peek(memory: Memory, address: int, shape: tuple[int, ...], dtype: type = np.int8) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    assert memory.written[address : address + size].all()
    return memory.data[address : address + size].copy().view(dtype).reshape(shape)


def run_text(machine: GoldenMachine, text: str, *, check: bool = True, **options: object) -> RunResult:
    return machine.run(assemble(text, machine.config, check=check), **options)


def run_builder(machine: GoldenMachine, builder: Builder, schedule: int | None = None) -> RunResult:
    result = machine.run(builder.program(), schedule_seed=schedule)
    assert result.halted, result.error
    return result




def tiles(total: int, step: int) -> Iterator[tuple[int, int]]:
    """``(start, size)`` of the pieces of a length."""
    for start in range(0, total, step):
        yield start, min(step, total - start)
