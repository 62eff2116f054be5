"""Accumulators of chips of bf16: the vector unit's write port beside the array's sums, both regions."""

from __future__ import annotations

import numpy as np
import pytest

from sluice_hw.accumulator import Accumulator, pass_layout
from sluice_hw.config import ChipConfig
from verif.models.trace import Traced

CONFIG = ChipConfig(name="acc-bf16", dtype="bf16", pe_latency=2, rows=2, cols=2, acc_bytes=16 * 20)
HALF, C = CONFIG.acc_region_rows, CONFIG.cols
LATENCY = 1 + CONFIG.pe_latency  # from a row of sums to its write


@pytest.fixture(scope="module")
def accumulator():
    with Traced(Accumulator(CONFIG, "loop"), name="accumulator-bf16", opt="-O0") as dut:
        yield dut


def bits(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).view(np.uint32)


def test_writes(accumulator, seed):
    """Sums go to rows of one parity, the vector unit's to those of the other, as tokens would order them; reads to any.

    The array never waits. What the vector unit offers is taken unless the array writes that region.
    """
    rng = np.random.default_rng(seed)
    cycles, layout = 3000, pass_layout(CONFIG)
    ports = {name: np.zeros(cycles, np.uint64) for name in (
        "start__valid", "start__payload", "p_valid", "acc__req__valid", "acc__req__payload", "write__req__valid")}
    sums, data = (rng.integers(-1000, 1000, (cycles, C)) for _ in range(2))
    rows = 2 * rng.integers(0, HALF, cycles) + 1
    # Passes of one row, each row revisited when its sum is written at the earliest.
    array: list[tuple[int, int, int]] = []  # cycle of the sum, row, accumulate
    last = np.full(CONFIG.acc_rows, -99)
    for cycle in range(8, cycles - 8):
        row = 2 * int(rng.integers(0, HALF))
        if rng.random() < 0.7 and cycle - last[row] >= CONFIG.acc_revisit:
            array.append((cycle, row, int(rng.random() < 0.6) if last[row] >= 0 else 0))
            last[row] = cycle
    for cycle, row, accumulate in array:
        ports["start__valid"][cycle - 4] = ports["p_valid"][cycle] = 1
        values = {"first": row, "rows": 1, "accumulate": accumulate}
        ports["start__payload"][cycle - 4] = sum(values[name] << f.offset for name, f in layout)
    ports["write__req__valid"][:] = rng.random(cycles) < 0.6
    ports["write__req__valid"][-8:] = 0
    ports["acc__req__valid"][:] = rng.random(cycles) < 0.5
    ports["acc__req__payload"][:] = rng.integers(0, CONFIG.acc_rows, cycles)
    payload = np.concatenate([rows.astype("<u4")[:, None], bits(data)], axis=1)
    out = accumulator.run({
        **ports, "p_data": bits(sums).view(np.uint8), "write__req__payload": payload.astype("<u4").view(np.uint8),
    })  # fmt: skip

    writes = {cycle + LATENCY: (row, accumulate, cycle) for cycle, row, accumulate in array}
    memory: dict[int, np.ndarray] = {}
    refused = compared = 0
    asked: int | None = None
    seen: np.ndarray | None = None
    read = out["acc__rsp_data"]
    for cycle in range(cycles):
        assert out["acc__rsp_valid"][cycle] == (asked is not None)
        if seen is not None:
            # A read sees what was written in the cycles before it was taken.
            assert np.array_equal(np.atleast_1d(read[cycle]).view(np.uint32), seen), f"row {asked} in cycle {cycle}"
            compared += 1
        asked = int(ports["acc__req__payload"][cycle]) if (
            ports["acc__req__valid"][cycle] and out["acc__req__ready"][cycle]) else None
        seen = bits(memory[asked]) if asked in memory else None
        mine = writes.get(cycle)
        if ports["write__req__valid"][cycle]:
            row = int(rows[cycle])
            ready = mine is None or (mine[0] >= HALF) != (row >= HALF)
            assert out["write__req__ready"][cycle] == ready
            refused += not ready
            if ready:
                memory[row] = data[cycle]
        if mine is not None:
            row, accumulate, at = mine
            memory[row] = sums[at] + (memory[row] if accumulate else 0)
    assert refused > 100 and compared > 500
