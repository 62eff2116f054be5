"""The block transposer against golden, with bubbles and backpressure; both forms."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.golden.vector_ops import transpose
from sluice_hw.transpose import Transposer
from verif.models.trace import Traced


def pack(row: list[int], width: int, size: int) -> int:
    return sum(int(v) << width * k for k, v in enumerate(row[:size]))


class Bench:
    """Streams in and out of a transposer, a cycle at a time."""

    def __init__(self, dut: Traced, size: int, width: int) -> None:
        self.dut, self.size, self.width = dut, size, width
        self.row_bytes = -(-(size * width + 2 * size.bit_length()) // 8)

    def run(self, blocks: list[np.ndarray], rng: np.random.Generator, bubbles: float, stalls: float
            ) -> tuple[list[int], int]:  # fmt: skip
        """Words of the output, and cycles."""
        size, width, bits = self.size, self.width, self.size.bit_length()
        words = []
        for block in blocks:
            rows, cols = block.shape
            for row in block:
                # What stands behind the block's columns must not be seen.
                noise = rng.integers(0, 1 << width, size - cols).tolist()
                word = pack([*row, *noise], width, size)
                words.append(word | rows << size * width | cols << size * width + bits)
        wanted = sum(block.shape[1] for block in blocks)
        got: list[int] = []
        offered, held, cycles, idle = None, None, 0, 0
        while len(got) < wanted:
            if offered is None and words and rng.random() >= bubbles:
                offered = words[0]
            ready = rng.random() >= stalls
            payload = rng.integers(0, 256, self.row_bytes).astype(np.uint8)
            if offered is not None:
                payload = np.frombuffer(offered.to_bytes(self.row_bytes, "little"), np.uint8)
            out = self.dut.run({
                "input__payload": payload[None, :], "input__valid": np.array([offered is not None]),
                "output__ready": np.array([ready]),
            })  # fmt: skip
            valid = bool(out["output__valid"][0])
            word = out["output__payload"][0]
            word = int(word) if word.ndim == 0 else int.from_bytes(word.tobytes(), "little")
            assert held is None or (valid and word == held), "an offered row was withdrawn or changed"
            held = word if valid and not ready else None
            if valid and ready:
                got.append(word)
            if offered is not None and bool(out["input__ready"][0]):
                words.pop(0)
                offered = None
            cycles += 1
            idle = 0 if valid or offered is None else idle + 1
            assert idle < 4 * size, f"nothing moves after {len(got)} of {wanted} rows"
        assert not words
        return got, cycles


def expected(blocks: list[np.ndarray], size: int, width: int) -> list[int]:
    out = []
    for block in blocks:
        rows = transpose(block, size)
        out += [pack(row, width, size) | int(k == len(rows) - 1) << size * width for k, row in enumerate(rows)]
    return out


@pytest.fixture(scope="module", params=[(5, 8, "loop"), (4, 16, "structural")], ids=lambda p: f"{p[0]}-{p[2]}")
def bench(request):
    size, width, emission = request.param
    component = Transposer(size=size, width=width, emission=emission)
    with Traced(component, name=f"transpose-{size}-{emission}", opt="-O0") as dut:
        yield Bench(dut, size, width)


@pytest.mark.parametrize(("bubbles", "stalls"), [(0, 0), (0.3, 0), (0, 0.4), (0.5, 0.5)])
def test_blocks(bench, bubbles, stalls, seed):
    rng = np.random.default_rng([seed, int(10 * bubbles), int(10 * stalls)])
    size, width = bench.size, bench.width
    blocks = [rng.integers(0, 1 << width, rng.integers(1, size + 1, 2)) for _ in range(120)]
    got, _ = bench.run(blocks, rng, bubbles, stalls)
    assert got == expected(blocks, size, width)


def test_a_row_every_cycle(bench, seed):
    rng = np.random.default_rng(seed)
    size, width = bench.size, bench.width
    blocks = [rng.integers(0, 1 << width, (size, size)) for _ in range(20)]
    got, cycles = bench.run(blocks, rng, 0, 0)
    assert got == expected(blocks, size, width)
    assert cycles == 21 * size


def test_parameters():
    with pytest.raises(ValueError, match="Transposer size must be an integer of at least 2, not 1"):
        Transposer(size=1)
    with pytest.raises(ValueError, match="Transposer width must be an integer of at least 1, not 0"):
        Transposer(size=4, width=0)
