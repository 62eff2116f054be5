"""The Hsiao (72, 64) code: corrects one wrong bit of 72, detects two.

M. Y. Hsiao, "A class of optimal minimum odd-weight-column SEC-DED codes", IBM Journal of Research and Development 14
(1970). Every column of the check matrix has an odd number of ones and no two are equal. One wrong bit gives its column
as the syndrome; two give a syndrome of an even number of ones, which is neither zero nor a column. This module is plain
Python: hardware, models and host share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

__all__ = ["CHECK_BITS", "COLUMNS", "DATA_BITS", "ROWS", "check_bits", "columns", "decode", "syndrome"]

#: Bits of a word, and of what is stored beside it.
DATA_BITS, CHECK_BITS = 64, 8


def columns(bits: int = DATA_BITS, checks: int = CHECK_BITS) -> tuple[int, ...]:
    """Column of the check matrix for each data bit: bit r is set where check bit r covers the data bit.

    The lightest odd weights come first (3, then 5, ...), so that the check bits are sums of few bits. Of a weight that
    is not used up, whole orbits under rotation are taken, in which every row occurs equally often; what remains is
    taken one by one.

    Raises
    ------
    ValueError
        If there are not that many columns of odd weight.
    """
    chosen: list[int] = []
    for weight in range(3, checks + 1, 2):
        every = [sum(1 << r for r in rows) for rows in combinations(range(checks), weight)]
        room = bits - len(chosen)
        if len(every) <= room:
            chosen += every
        else:
            chosen += [column for orbit in _orbits(every, checks) for column in orbit][:room]
    if len(chosen) < bits:
        raise ValueError(f"a code of {checks} check bits covers at most {len(chosen)} data bits, not {bits}")
    return tuple(chosen)


def _orbits(every: list[int], bits: int) -> Iterator[list[int]]:
    """``every`` in classes whose members are rotations of each other."""
    seen: set[int] = set()
    for column in every:
        if column in seen:
            continue
        orbit, at = [], column
        while at not in seen:
            seen.add(at)
            orbit.append(at)
            at = (at << 1 | at >> (bits - 1)) & ((1 << bits) - 1)
        yield orbit


#: The code's columns, one per data bit; check bit r itself has the column ``1 << r``.
COLUMNS = columns()
#: For each check bit, the data bits it is the sum of, as a mask: 26 of 64 in every row.
ROWS = tuple(sum(1 << i for i, column in enumerate(COLUMNS) if column >> r & 1) for r in range(CHECK_BITS))

_BIT_OF = {column: bit for bit, column in enumerate((*COLUMNS, *(1 << r for r in range(CHECK_BITS))))}


def check_bits(data: int) -> int:
    """Check bits of a 64-bit word; those of 0 are 0, so that cleared memory is a valid code word."""
    return sum((data & row).bit_count() % 2 << r for r, row in enumerate(ROWS))


def syndrome(data: int, check: int) -> int:
    """0 for a code word."""
    return check_bits(data) ^ check


def decode(data: int, check: int) -> tuple[int, str]:
    """The word that was stored, and ``"ok"``, ``"corrected"``, or ``"detected"`` when it cannot be known."""
    wrong = syndrome(data, check)
    if not wrong:
        return data, "ok"
    bit = _BIT_OF.get(wrong)
    if bit is None:
        return data, "detected"
    return (data ^ 1 << bit if bit < DATA_BITS else data), "corrected"
