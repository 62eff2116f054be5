"""The functions of the vector lanes: errors, special values, and the table behind them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sluice.golden import functions
from sluice.golden.function_errors import bf16_inputs, exact, fp32_inputs, reference, worst
from sluice.golden.functions import Function, apply, apply_bf16
from sluice.golden.numerics_float import bf16_to_fp32, fp32_bits, fp32_from_bits, fp32_to_bf16
from sluice_hw import function_fit
from sluice_hw import functions as table

NAN, INF, MINUS_INF = 0x7FC00000, 0x7F800000, 0xFF800000
ZERO, MINUS_ZERO, ONE, MINUS_ONE, HALF = 0, 0x80000000, 0x3F800000, 0xBF800000, 0x3F000000
TINY, MAX = 0x00800000, 0x7F7FFFFF
SUBNORMAL, MINUS_SUBNORMAL = 0x007FFFFF, 0x807FFFFF
#: Input to result by function; written from the limits of the functions, not from the code.
SPECIAL = {
    Function.EXP: {MINUS_INF: ZERO, INF: INF, ZERO: ONE, MINUS_ZERO: ONE, MAX: INF, MAX | 1 << 31: ZERO,
                   SUBNORMAL: ONE, 0x42B17218: INF, 0x42B17217: 0x7F7FFF84, 0xC2AEAC4F: 0x00800026,
                   0xC2AEAC50: ZERO},
    Function.LOG: {MINUS_INF: NAN, INF: INF, ZERO: MINUS_INF, MINUS_ZERO: MINUS_INF, MINUS_ONE: NAN, ONE: ZERO,
                   SUBNORMAL: MINUS_INF, MINUS_SUBNORMAL: MINUS_INF, TINY | 1 << 31: NAN},
    Function.TANH: {MINUS_INF: MINUS_ONE, INF: ONE, ZERO: ZERO, MINUS_ZERO: MINUS_ZERO, MAX: ONE, TINY: TINY,
                    MINUS_SUBNORMAL: MINUS_ZERO},
    Function.SIGMOID: {MINUS_INF: ZERO, INF: ONE, ZERO: HALF, MINUS_ZERO: HALF, MAX: ONE, MAX | 1 << 31: ZERO},
    Function.ERF: {MINUS_INF: MINUS_ONE, INF: ONE, ZERO: ZERO, MINUS_ZERO: MINUS_ZERO, MAX: ONE},
    Function.GELU: {MINUS_INF: MINUS_ZERO, INF: INF, ZERO: ZERO, MINUS_ZERO: MINUS_ZERO, MAX: MAX,
                    MAX | 1 << 31: MINUS_ZERO, TINY: ZERO, 0x00FFFFFF: TINY, 0x80FFFFFF: 0x80800000},
    Function.SILU: {MINUS_INF: MINUS_ZERO, INF: INF, ZERO: ZERO, MINUS_ZERO: MINUS_ZERO, MAX: MAX,
                    MAX | 1 << 31: MINUS_ZERO, 0x00FFFFFF: TINY, 0x80FFFFFF: 0x80800000},
    Function.RECIPROCAL: {MINUS_INF: MINUS_ZERO, INF: ZERO, ZERO: INF, MINUS_ZERO: MINUS_INF, ONE: ONE,
                          MINUS_ONE: MINUS_ONE, MAX: ZERO, TINY: 0x7E800000, 0x7E800000: TINY, 0x7E800001: ZERO,
                          SUBNORMAL: INF, MINUS_SUBNORMAL: MINUS_INF},
    Function.RSQRT: {MINUS_INF: NAN, INF: ZERO, ZERO: INF, MINUS_ZERO: MINUS_INF, ONE: ONE, MINUS_ONE: NAN,
                     TINY: 0x5F000000},
    Function.SQRT: {MINUS_INF: NAN, INF: INF, ZERO: ZERO, MINUS_ZERO: MINUS_ZERO, ONE: ONE, MINUS_ONE: NAN,
                    0x40800000: 0x40000000, 0x41100000: 0x40400000, TINY: 0x20000000, MINUS_SUBNORMAL: MINUS_ZERO},
}  # fmt: skip
#: Worst ULP: bf16 over all inputs, fp32. 0.5 is correctly rounded.
BF16_ULP, FP32_ULP = 0.5, 0.65


@pytest.mark.parametrize("function", Function)
def test_special_values(function):
    cases = SPECIAL[function] | dict.fromkeys((0x7FC00000, 0xFFC00001, 0x7F800001, 0xFFFFFFFF), NAN)
    got = fp32_bits(apply(function, np.array(list(cases), np.uint32)))
    for bits, result in zip(cases, got.tolist(), strict=True):
        assert result == cases[bits], f"{function.name}(0x{bits:08X}) is 0x{result:08X}, not 0x{cases[bits]:08X}"
    assert set(SPECIAL) == set(Function)


@pytest.mark.parametrize("function", Function)
def test_every_bf16_input_is_correctly_rounded(function):
    x = bf16_inputs()
    error = worst(function, x, bf16=True)
    assert error.ulp <= BF16_ULP and error.differing == 0, error
    got = apply_bf16(function, np.arange(1 << 16).astype(np.uint16))
    assert np.array_equal(fp32_bits(bf16_to_fp32(got)), fp32_bits(apply(function, x, bf16=True)))
    # By way of fp32 it is the same.
    assert np.array_equal(fp32_to_bf16(apply(function, x)), got)


@pytest.mark.parametrize("function", Function)
def test_fp32_errors(function, seed):
    x = fp32_inputs(function, 100_000, seed=seed)
    error = worst(function, x)
    assert error.ulp <= FP32_ULP, error
    result = apply(function, x)
    bits = fp32_bits(result)
    assert not ((bits >> 23 & 0xFF == 0) & (bits & 0x7FFFFF != 0)).any(), "a subnormal result"
    assert set(bits[np.isnan(result)].tolist()) <= {NAN}, "a NaN that is not the one"


def test_inputs_hold_what_the_figures_say():
    for function in Function:
        x = fp32_inputs(function, 20_000)
        assert x.dtype == np.float32 and len(x) == 20_000
        assert np.isnan(x).any() and np.isinf(x).any() and (x == 0).any()


def test_errors_are_counted():
    """A result that is one place off counts 1 and not less; a flushed one is right only where the reference is."""
    x = np.array([1.5, 3.0], np.float32)
    right = apply(Function.SQRT, x)
    wrong = fp32_from_bits(fp32_bits(right) + np.array([0, 1], np.uint32))
    assert worst(Function.SQRT, x, result=right).differing == 0
    found = worst(Function.SQRT, x, result=wrong)
    assert found.differing == 1 and 0.5 < found.ulp <= 1.5 and found.at == 0x40400000
    assert worst(Function.EXP, np.array([-88.0], np.float32), result=np.array([2.0**-126], np.float32)).ulp > 1


def test_reference_rounds_once_and_flushes():
    value = np.array([1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-40, 2.0**-126 - 2.0**-150, 2.0**-126 - 2.0**-149, -(2.0**-127),
                      2.0**128, np.nan])  # fmt: skip
    wanted = [ONE, 0x3F810000, TINY, ZERO, MINUS_ZERO, INF, NAN]
    assert fp32_bits(reference(value, bf16=True)).tolist() == wanted
    assert fp32_bits(reference(value)).tolist() == [0x3F808000, 0x3F808000, *wanted[2:]]


def test_shapes_and_types():
    x = np.ones((2, 3), np.float32)
    assert functions.exp(x).shape == (2, 3) and functions.exp(x).dtype == np.float32
    assert functions.log(x[:0]).shape == (0, 3)
    with pytest.raises(TypeError, match="float32 values or uint32 bit patterns, not float64"):
        functions.exp(np.ones(3))
    names = {f.name.lower() for f in Function}
    assert all(np.array_equal(getattr(functions, name)(x), apply(Function[name.upper()], x)) for name in names)


def test_the_table_is_what_its_generator_makes():
    assert (table.LOG2E, table.LN2) == function_fit.constants()
    assert table.TABLE_PATH.read_text() == function_fit.text(), "run: python -m sluice_hw.function_fit"
    sections = json.loads(table.TABLE_PATH.read_text())
    assert {name: len(rows) for name, rows in sections.items()} == {
        name: units << table.INDEX_BITS for name, units in table.SECTIONS.items()
    }


def test_no_step_leaves_62_bits():
    """Bounds of the datapath's products from the table; golden would wrap without a word."""
    c = np.abs(np.array(table.coefficients(), np.float64))
    r = 2.0 ** (table.Z_BITS - table.INDEX_BITS - 1)
    inner = c[:, 2] + c[:, 3]
    assert ((c[:, 1] + inner + 2) * r).max() < 2.0**62
    value = (c[:, 0] + c[:, 1] + inner + 3).max()
    assert value < 2.0**33.1 and value / 2 * 2.0**31 < 2.0**63.1
    assert exact(Function.LOG, np.array([MAX], np.uint32))[0] * 2.0**54 < 2.0**61
