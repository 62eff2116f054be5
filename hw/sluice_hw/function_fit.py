"""Makes ``functions.json``: ``python -m sluice_hw.function_fit``.

Each segment's cubic goes through the function at the four Chebyshev nodes, which comes within a few percent of the best
cubic; coefficients are rounded to ``COEFFICIENT_BITS``. All of it in decimal arithmetic, so that every machine gets the
same table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache

from .functions import COEFFICIENT_BITS, INDEX_BITS, LN2_BITS, LOG2E_BITS, SECTIONS, TABLE_PATH, Z_BITS

__all__ = ["constants", "fit", "main", "text"]

_DIGITS = 110  # exp(t^2 / 2) erfc(t / sqrt(2)) at t = 16 loses 56 of them
_ONE = Decimal(1)


@cache
def _pi() -> Decimal:
    def arctan_inverse(n: int) -> Decimal:
        total, term, k = Decimal(0), _ONE / n, 0
        while abs(term) > Decimal(10) ** -(_DIGITS + 5):
            total += term / (2 * k + 1) * (-1) ** k
            term /= n * n
            k += 1
        return total

    return 4 * (4 * arctan_inverse(5) - arctan_inverse(239))


def _erf(x: Decimal) -> Decimal:
    """2 / sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (2n+1)!!, all terms positive."""
    total = term = x
    n = 0
    while term > total * Decimal(10) ** -_DIGITS:
        n += 1
        term *= 2 * x * x / (2 * n + 1)
        total += term
    return 2 / _pi().sqrt() * (-x * x).exp() * total


def _tanh(x: Decimal) -> Decimal:
    u = (-2 * x).exp()
    return (1 - u) / (1 + u)


def _tail(t: Decimal) -> Decimal:
    """exp(t^2 / 2) times the normal distribution's tail above t."""
    return (t * t / 2).exp() * (1 - _erf(t / Decimal(2).sqrt())) / 2


def _octaves(near: Callable[[Decimal], Decimal], far: Callable[[Decimal], Decimal], scaled: bool = False):
    """Units of a section that begins with [0, 1): ``near`` there, ``far`` in the octaves, times 2^(k+1) if scaled."""

    def unit(number: int, z: Decimal) -> Decimal:
        if number == 0:
            return near(z)
        k = number - 1
        return far((1 + z) * 2**k) * (2 ** (k + 1) if scaled else 1)

    return unit


def _log(_: int, z: Decimal) -> Decimal:
    """ln(m) / (m - 1), m in [3/4, 3/2): the upper half of [1, 2) is halved."""
    m = 1 + z if z < Decimal("0.5") else (1 + z) / 2
    return m.ln() / (m - 1)


_FUNCTIONS: dict[str, Callable[[int, Decimal], Decimal]] = {
    "exp2": lambda _, z: (z * Decimal(2).ln()).exp(),
    "reciprocal": lambda _, z: 1 / (1 + z),
    "rsqrt": lambda unit, z: 1 / ((1 + z) * 2**unit).sqrt(),
    "log": _log,
    "tanh": _octaves(lambda z: _tanh(z) / z, _tanh),
    "erf": _octaves(lambda z: _erf(z) / z, _erf),
    "tail": _octaves(_tail, _tail, scaled=True),
}


def _cubic(f: Callable[[Decimal], Decimal]) -> list[Decimal]:
    """Coefficients of the cubic through ``f`` at the four Chebyshev nodes of [-1, 1]."""
    root = Decimal(2).sqrt()
    outer, inner = (2 + root).sqrt() / 2, (2 - root).sqrt() / 2
    # Even and odd parts are lines in r^2 through two points.
    a, b = outer * outer, inner * inner
    points = [(r, f(r), f(-r)) for r in (outer, inner)]
    even = [(up + down) / 2 for _, up, down in points]
    odd = [(up - down) / (2 * r) for r, up, down in points]
    c2, c3 = (even[0] - even[1]) / (a - b), (odd[0] - odd[1]) / (a - b)
    return [even[1] - c2 * b, odd[1] - c3 * b, c2, c3]


#: Section, unit, segment, end (-1 or 1), value: where a product must be exact. gelu and silu of the number whose half
#: is at the bound of flushing need exactly x / 2.
_PINS = (("exp2", 0, 0, -1, 1), ("reciprocal", 0, -1, 1, Decimal("0.5")), ("tail", 0, 0, -1, Decimal("0.5")))


def _at_end(row: list[int], end: int) -> int:
    """Value of a segment at its first or last point, as the hardware computes it."""
    bits = Z_BITS - INDEX_BITS - 1
    r = -(1 << bits) if end < 0 else (1 << bits) - 1
    value = 0
    for c in reversed(row[1:]):
        value = (value + c) * r >> bits
    return row[0] + value


def _pin(row: list[int], end: int, value: Decimal | int) -> None:
    """Turn a cubic about its other end until it takes a value at this one."""
    wanted = int(value * 2**COEFFICIENT_BITS)
    row[1] += end * (wanted - _at_end(row, end)) // 2
    row[0] += wanted - _at_end(row, end)


def fit(section: str) -> list[list[int]]:
    """All rows of a section."""
    segments = 1 << INDEX_BITS
    rows = []
    with localcontext(prec=_DIGITS):
        for unit in range(SECTIONS[section]):
            for segment in range(segments):

                def at(r: Decimal, unit: int = unit, segment: int = segment) -> Decimal:
                    return _FUNCTIONS[section](unit, (segment + (1 + r) / 2) / segments)

                rows.append([int((c * 2**COEFFICIENT_BITS).to_integral_value()) for c in _cubic(at)])
    for name, unit, segment, end, value in _PINS:
        if name == section:
            _pin(rows[unit * segments + segment % segments], end, value)
    return rows


def constants() -> tuple[int, int]:
    """LOG2E and LN2."""
    with localcontext(prec=_DIGITS):
        ln2 = Decimal(2).ln()
        return int((2**LOG2E_BITS / ln2).to_integral_value()), int((2**LN2_BITS * ln2).to_integral_value())


def text() -> str:
    """The file's text, a segment to a line."""
    sections = []
    for name in SECTIONS:
        rows = ",\n".join(f"  {json.dumps(row)}" for row in fit(name))
        sections.append(f' "{name}": [\n{rows}\n ]')
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> None:
    """Write the file."""
    TABLE_PATH.write_text(text())
    print(f"wrote {TABLE_PATH}")


if __name__ == "__main__":
    main()
