"""bf16 products, sums and conversions in NumPy against integers."""

import os

import numpy as np
import pytest

from sluice.golden import numerics_bf16 as bf
from verif.unit.arith import exact_bf16 as exact
from verif.unit.arith.fp32_cases import DIRECTED_SUMS, random_sums

SEED = int(os.environ.get("SLUICE_SEED", "1"))
EVERY_BF16 = np.arange(1 << 16, dtype=np.uint16)


def generator(name: str) -> np.random.Generator:
    print(f"SLUICE_SEED={SEED} for {name!r}")
    return np.random.default_rng([SEED, *name.encode()])


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint32)


def agree(got: np.ndarray, wanted: list[int], *operands: np.ndarray) -> None:
    wrong = np.flatnonzero(got != np.array(wanted, got.dtype))
    assert not len(wrong), [[hex(v[wrong[0]]) for v in operands], hex(got[wrong[0]]), hex(wanted[wrong[0]])]


def test_sums():
    a, b = (np.concatenate(pair) for pair in zip(DIRECTED_SUMS, random_sums(generator("sums"), 60_000), strict=True))
    agree(bits(bf.fp32_add(a, b)), list(map(exact.add, a.tolist(), b.tolist())), a, b)


def test_exact_sums_agree_with_rationals():
    """The two references without NumPy know nothing of each other."""
    from verif.unit.arith.exact import ExactFloat

    a, b = (np.concatenate([x[:4000], x[-4000:]]) for x in DIRECTED_SUMS)
    fp32 = ExactFloat(8, 23)
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        assert exact.add(x, y) == fp32.add(x, y), (hex(x), hex(y))


def test_products():
    rng = generator("products")
    mantissas = np.array([0, 1, 2, 42, 64, 85, 126, 127], np.uint16)
    # Every pair of exponents, the mantissas in turn; then any.
    exps = np.arange(256, dtype=np.uint16)
    e1, e2, i = (axis.ravel() for axis in np.meshgrid(exps, exps, np.arange(3)))
    m1, m2 = mantissas[rng.integers(0, 8, len(i))], mantissas[rng.integers(0, 8, len(i))]
    a = (rng.integers(0, 2, len(i), dtype=np.uint16) << 15) | e1 << 7 | m1
    b = (rng.integers(0, 2, len(i), dtype=np.uint16) << 15) | e2 << 7 | m2
    agree(bits(bf.bf16_mul(a, b)), list(map(exact.mul, a.tolist(), b.tolist())), a, b)


def test_conversions():
    rng = generator("conversions")
    agree(bits(bf.from_bf16(EVERY_BF16)), list(map(exact.from_bf16, EVERY_BF16.tolist())), EVERY_BF16)
    # Every upper half with the lower halves that decide, and 1e6 of any kind.
    upper = EVERY_BF16.astype(np.uint32) << 16
    low = np.array([0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    directed = (upper[:, None] | low).ravel()
    wide = np.concatenate([directed, rng.integers(0, 1 << 32, 1_000_000, dtype=np.uint32)])
    agree(bf.to_bf16(wide), list(map(exact.to_bf16, wide.tolist())), wide)
    # There and back, every number that is not flushed or a NaN.
    back = bf.to_bf16(bf.from_bf16(EVERY_BF16))
    kept = ((EVERY_BF16 >> 7 & 255) != 0) & ((EVERY_BF16 & 0x7FFF) <= 0x7F80)
    assert (back[kept] == EVERY_BF16[kept]).all()


def test_what_the_contract_names():
    def there_and_back(value: float) -> float:
        return float(bf.from_bf16(bf.to_bf16(np.float32([value])))[0])

    one, limit = np.uint16(0x3F80), np.float32(2**64)
    assert there_and_back(70000) == 70144
    big = bf.to_bf16(np.float32([4096]))
    assert float(bf.fp32_add(bf.from_bf16(big), np.float32([1]))[0]) == 4097
    assert there_and_back(4097) == 4096
    power = bf.to_bf16(np.array([limit]))
    assert np.isinf(bf.bf16_mul(power, power)).all()
    assert bits(bf.bf16_mul(np.uint16([0x0080]), np.uint16([0x3F00]))).tolist() == [0]  # 2^-127
    assert bits(bf.bf16_mul(np.uint16([0x8080]), np.array([one]))).tolist() == [0x80800000]  # -2^-126 stays
    assert bits(bf.bf16_mul(np.uint16([0x7F80]), np.uint16([0]))).tolist() == [0x7FC00000]


@pytest.mark.parametrize("rows, k, spread", [(1, 1, 4), (3, 3, 1), (8, 5, 30), (16, 16, 126), (16, 1, 126)])
def test_columns(rows, k, spread):
    rng = generator(f"columns {rows} {k}")

    def operand(*shape):
        exp = np.clip(127 + rng.integers(-spread, spread + 1, shape), 0, 255)
        value = rng.integers(0, 2, shape) << 15 | exp << 7 | rng.integers(0, 128, shape)
        return value.astype(np.uint16)

    a, w = operand(40, k), operand(k, 25)
    got = bits(bf.column_sum(a, w, rows=rows))
    wanted = [[exact.column(a[m].tolist(), w[:, c].tolist(), rows) for c in range(25)] for m in range(40)]
    assert (got == np.array(wanted, np.uint32)).all()


def test_order_padding_and_tiles():
    def row(*values):
        return bf.to_bf16(np.float32([values]))

    # Row 0 first: 2^30 swallows the ones that follow it, but not their sum.
    one = bf.to_bf16(np.ones((17, 1), np.float32))
    large = 2.0**24
    first = bf.column_sum(row(large, *[1] * 16), one, rows=17)
    last = bf.column_sum(row(*[1] * 16, large), one, rows=17)
    assert (first[0, 0], last[0, 0]) == (large, large + 16)
    # So do tiles: their sums are added, not their rows.
    assert bf.matmul_bf16(row(large, *[1] * 16), one, rows=1)[0, 0] == large
    assert bf.matmul_bf16(row(*[1] * 16, large), one, rows=16)[0, 0] == large + 16
    # A sum that flushes to -0 stays so at the foot of the column, unless zeros follow.
    a, w = np.array([[0x0080, 0x8081]], np.uint16), np.array([[0x3F80], [0x3F80]], np.uint16)
    assert bits(bf.column_sum(a, w, rows=2)).tolist() == [[0x80000000]]
    assert bits(bf.column_sum(a, w, rows=3)).tolist() == [[0]]
    # Into the accumulators.
    assert bf.matmul_bf16(row(3), one[:1], rows=4, acc=np.float32([[4]]))[0, 0] == 7


def test_bad_operands():
    a = np.zeros((2, 3), np.uint16)
    with pytest.raises(ValueError, match="at most 2 rows, not 3"):
        bf.column_sum(a, a.T, rows=2)
    with pytest.raises(ValueError, match=r"must be \(M, K\) and \(K, C\), not \(2, 3\) and \(2, 3\)"):
        bf.column_sum(a, a, rows=8)
    with pytest.raises(ValueError, match="rows must be a positive integer, not 0"):
        bf.matmul_bf16(a, a.T, rows=0)
    with pytest.raises(ValueError, match="K must be at least 1, not 0"):
        bf.matmul_bf16(a[:, :0], a.T[:0], rows=4)
    with pytest.raises(TypeError, match="must be uint16, not float32"):
        bf.bf16_mul(np.float32([1]), np.uint16([1]))
