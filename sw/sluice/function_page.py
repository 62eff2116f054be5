"""The generated part of ``docs/functions.md``: what the functions give at special values, and their worst errors."""

from __future__ import annotations

from functools import cache

import numpy as np

from sluice.golden.function_errors import FP32_INPUTS, Worst, bf16_inputs, fp32_inputs, worst
from sluice.golden.functions import Function, apply
from sluice_hw.functions import INDEX_BITS, SECTIONS, base

__all__ = ["errors", "markdown"]

#: Columns of the table of special values.
_SPECIAL = {"-inf": -np.inf, "-100": -100.0, "-0": -0.0, "+0": 0.0, "2^-126": 2.0**-126, "100": 100.0,
            "+inf": np.inf, "NaN": np.nan}  # fmt: skip


@cache
def errors(function: Function) -> tuple[Worst, Worst]:
    """Worst errors of golden over all bf16 inputs, to bf16, and over ``FP32_INPUTS`` fp32 inputs, to fp32."""
    return worst(function, bf16_inputs(), bf16=True), worst(function, fp32_inputs(function))


def _value(x: np.float32) -> str:
    if np.isnan(x):
        return "NaN"
    if np.isinf(x) or x == 0:
        return ("-" if np.signbit(x) else "+") + ("inf" if np.isinf(x) else "0")
    return f"{x:.4g}"


def markdown() -> str:
    """Tables of special values, of errors and of the coefficients' sections."""
    out = ["## Special values", "", "| | " + " | ".join(_SPECIAL) + " |", "|---" * (len(_SPECIAL) + 1) + "|"]
    inputs = np.array(list(_SPECIAL.values()), np.float32)
    for function in Function:
        values = " | ".join(_value(x) for x in apply(function, inputs))
        out.append(f"| {function.name.lower()} | {values} |")
    out += [
        "", "## Worst errors", "",
        f"In ULP, over all 65,536 bf16 inputs with results in bf16, and over {FP32_INPUTS:,} fp32 inputs with results "
        "in fp32. The last column is the share of the fp32 results that are not the correctly rounded ones.", "",
        "| function | bf16 | fp32 | worst fp32 input | not correctly rounded |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for function in Function:
        half, single = errors(function)
        out.append(f"| {function.name.lower()} | {half.ulp:.2f} | {single.ulp:.2f} | `0x{single.at:08X}` "
                   f"| {100 * single.differing / FP32_INPUTS:.1f} % |")  # fmt: skip
    out += ["", "## Sections of the table", "", "| section | units | rows |", "|---|---|---|"]
    for section, units in SECTIONS.items():
        first = base(section) << INDEX_BITS
        out.append(f"| `{section}` | {units} | {first} to {first + (units << INDEX_BITS) - 1} |")
    return "\n".join(out) + "\n"
