"""The functions of the vector lanes: their numbers, and the shape of the one table of coefficients behind them.

The table has sections of one or more *units*; a unit covers an interval of the reduced argument with ``2**INDEX_BITS``
segments, and a segment is a cubic in fixed point. ``functions.json`` holds the coefficients; :mod:`.function_fit` makes
it. What is done with them is said in ``docs/functions.md``; golden and :mod:`.vpu.function` both read this module.
"""

from __future__ import annotations

import json
from enum import IntEnum
from functools import cache
from pathlib import Path

__all__ = [
    "COEFFICIENT_BITS",
    "DEGREE",
    "INDEX_BITS",
    "LN2",
    "LN2_BITS",
    "LOG2E",
    "LOG2E_BITS",
    "SECTIONS",
    "TABLE_PATH",
    "Z_BITS",
    "Function",
    "base",
    "coefficients",
]


class Function(IntEnum):
    """A function of one fp32 value."""

    EXP = 0
    LOG = 1
    TANH = 2
    SIGMOID = 3
    ERF = 4
    GELU = 5
    SILU = 6
    RECIPROCAL = 7
    RSQRT = 8
    SQRT = 9


#: Bits of the reduced argument z in [0, 1); its top INDEX_BITS choose the segment.
Z_BITS = 30
INDEX_BITS = 5
#: Fraction bits of coefficients, and of a polynomial's value.
COEFFICIENT_BITS = 32
DEGREE = 3

#: log2(e) and ln(2) in fixed point.
LOG2E_BITS, LOG2E = 37, 198282496599
LN2_BITS, LN2 = 36, 47632711549

#: Section to its number of units, in the order of the table. ``rsqrt`` has the units [1, 2) and [2, 4); ``tanh``,
#: ``erf`` and ``tail`` have [0, 1), then the octaves [1, 2), [2, 4), ...; the others have [0, 1) or [1, 2).
SECTIONS = {"exp2": 1, "reciprocal": 1, "rsqrt": 2, "log": 1, "tanh": 5, "erf": 3, "tail": 5}

TABLE_PATH = Path(__file__).with_name("functions.json")


def base(section: str) -> int:
    """The first unit of a section."""
    names = list(SECTIONS)
    return sum(SECTIONS[name] for name in names[: names.index(section)])


@cache
def coefficients() -> tuple[tuple[int, ...], ...]:
    """Rows c0, c1, c2, c3 of all segments: row ``unit << INDEX_BITS | segment``.

    With r in [-1, 1) from the segment's one end to the other, the value is c0 + r (c1 + r (c2 + r c3)).
    """
    table = json.loads(TABLE_PATH.read_text())
    return tuple(tuple(row) for section in SECTIONS for row in table[section])
