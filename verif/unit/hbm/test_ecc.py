"""The Hsiao code: its matrix, the functions of the host, and the hardware against them."""

import random

import pytest

from sluice_hw.hbm.ecc import EccDecoder, EccEncoder
from sluice_hw.hbm.hsiao import CHECK_BITS, COLUMNS, DATA_BITS, ROWS, check_bits, columns, decode, syndrome
from verif.harness import run_bench
from verif.unit.hbm.coded import Coded

ALL = (*COLUMNS, *(1 << r for r in range(CHECK_BITS)))


def test_matrix():
    """Odd columns, all different, as light as can be, and the same number of bits in every row: Hsiao's conditions."""
    assert len(COLUMNS) == DATA_BITS and len(set(ALL)) == DATA_BITS + CHECK_BITS
    assert all(column.bit_count() % 2 for column in ALL)
    assert sorted(column.bit_count() for column in COLUMNS) == [3] * 56 + [5] * 8
    assert [row.bit_count() for row in ROWS] == [26] * 8
    assert columns() == COLUMNS
    with pytest.raises(ValueError, match="a code of 4 check bits covers at most 4 data bits, not 5"):
        columns(5, 4)


def test_every_error_of_one_and_two_bits(seed):
    rng = random.Random(seed)
    word = rng.getrandbits(64)
    stored = word | check_bits(word) << 64
    assert check_bits(0) == 0 and decode(word, stored >> 64) == (word, "ok")

    def read(mask: int) -> tuple[int, str]:
        wrong = stored ^ mask
        return decode(wrong & (1 << 64) - 1, wrong >> 64)

    for i in range(72):
        assert read(1 << i) == (word, "corrected")
        for j in range(i):
            assert read(1 << i | 1 << j)[1] == "detected"
    assert syndrome(word ^ 1, check_bits(word)) == COLUMNS[0]


def test_pipelines():
    run_bench(Coded(beat_bytes=16), "verif.unit.hbm.bench_ecc", name="ecc")


def test_parameters():
    for unit in (EccEncoder, EccDecoder):
        with pytest.raises(ValueError, match="Bytes of a beat must be a positive multiple of 8, not 12"):
            unit(beat_bytes=12)
        with pytest.raises(TypeError, match="Bytes of a beat must be an integer, not True"):
            unit(beat_bytes=True)
