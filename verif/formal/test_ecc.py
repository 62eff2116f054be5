"""The Hsiao code in hardware: every single-bit error of a stored word is corrected and every double-bit error detected,
for all data.

A solver cannot compare long sums modulo 2, so the proof has four parts that compose:

- ``groups``: a check bit's partial sums are linear, s(d ^ e) = s(d) ^ s(e);
- ``total``: so is the sum of partial sums, for any of them; hence check_of(d ^ e) = check_of(d) ^ check_of(e);
- ``columns``: the check bits of a single bit are its column;
- ``errors``: encoder, any one or any two of the 72 stored bits inverted, decoder, both stopped at any time. The check
  bits of the data are ANY value here, those of the data with errors are that value ^ the columns of the bits inverted,
  which is what the other parts say. The decoder's flags are exactly right, and its data are the encoder's unless two
  errors were there.

One word a beat, which is all that words have in common. Bounds: none, by induction.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Assume, Cat, Const, Module, Signal

from sluice_hw.hbm.ecc import GROUP, EccDecoder, EccEncoder, check_of, partial_sums, total
from sluice_hw.hbm.hsiao import CHECK_BITS, COLUMNS, DATA_BITS
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal

BITS = DATA_BITS + CHECK_BITS


class GroupCheck(Check):
    """Partial sums are linear."""

    def __init__(self, sums=partial_sums) -> None:
        super().__init__()
        self.sums = sums

    def describe(self, m: Module) -> None:
        data, errors, both = self.free(DATA_BITS, "data"), self.free(DATA_BITS, "errors"), Signal(DATA_BITS)
        m.d.comb += both.eq(data ^ errors)
        for of_both, of_data, of_errors in zip(*map(self.sums, (both, data, errors)), strict=True):
            for x, d, e in zip(of_both, of_data, of_errors, strict=True):
                self.claim(m, x == d ^ e)


class TotalCheck(Check):
    """The sum of partial sums is linear."""

    def describe(self, m: Module) -> None:
        for row, sums in enumerate(partial_sums(Const(0, DATA_BITS))):
            assert all(len(s) == 1 for s in sums) and len(sums) <= GROUP
            data, errors = self.free(len(sums), f"data{row}"), self.free(len(sums), f"errors{row}")
            self.claim(m, total(list(data ^ errors)) == total(list(data)) ^ total(list(errors)))


def column_of(place):
    """A column of the matrix, by a variable; no Array, which Yosys makes a memory of any contents."""
    columns = (*COLUMNS, *(1 << r for r in range(CHECK_BITS)))
    return Cat(Cat(place == i for i, column in enumerate(columns) if column >> r & 1).any() for r in range(CHECK_BITS))


class ColumnCheck(Check):
    """The check bits of one bit are its column of the matrix."""

    def describe(self, m: Module) -> None:
        place = self.free(range(DATA_BITS), "place")
        self.claim(m, check_of(Const(1, DATA_BITS) << place) == column_of(place))


class Errors:
    """Up to two places of a stored word: what is inverted there, and what that does to check bits."""

    def __init__(self, m: Module, places: list, used: list, name: str) -> None:
        self.mask, self.wrong = Signal(BITS, name=f"{name}_mask"), Signal(CHECK_BITS, name=f"{name}_wrong")
        hits = [u & (place < BITS) for u, place in zip(used, places, strict=True)]
        masks = [(Const(1, BITS) << place) & hit.replicate(BITS) for place, hit in zip(places, hits, strict=True)]
        # By columns and linearity, those that check_of(data) and the stored check bits differ by.
        wrongs = [column_of(place) & hit.replicate(CHECK_BITS) for place, hit in zip(places, hits, strict=True)]
        m.d.comb += [self.mask.eq(masks[0] ^ masks[1]), self.wrong.eq(wrongs[0] ^ wrongs[1])]
        self.one = hits[0] ^ hits[1]
        self.two = hits[0] & hits[1] & (places[0] != places[1])


class ErrorsCheck(Check):
    """Encoder, errors at up to two places that the solver chooses, decoder."""

    def __init__(self, *bugs: tuple[str, str], **names: object) -> None:
        super().__init__()
        self.bugs, self.names = bugs, names

    def describe(self, m: Module) -> None:
        any_check, enable = self.free(CHECK_BITS, "any_check"), self.free(1, "enable")
        data, used = self.free(DATA_BITS, "data"), self.free(2, "used")
        places = [self.free(range(BITS), f"place{i}") for i in range(2)]
        m.d.comb += Assume(places[0] <= places[1])  # which is first does not matter
        now = Errors(m, places, list(used), "now")
        encoder = altered(EccEncoder, check_of=lambda _: any_check)(beat_bytes=8)
        m.submodules.encoder = encoder

        stored, seen_check = Signal(BITS), Signal(CHECK_BITS)
        m.d.comb += [
            encoder.enable.eq(enable),
            encoder.data.eq(data),
            stored.eq(Cat(encoder.out_data, encoder.out_check) ^ now.mask),
            # check_of(data with errors) = check_of(data) ^ check_of(errors in data)
            seen_check.eq(encoder.out_check ^ now.wrong ^ now.mask[DATA_BITS:]),
        ]
        decoder = altered(EccDecoder, *self.bugs, check_of=lambda _: seen_check, **self.names)(beat_bytes=8)
        m.submodules.decoder, inside = open_up(decoder)
        m.d.comb += [
            decoder.enable.eq(enable), decoder.data.eq(stored[:DATA_BITS]), decoder.check.eq(stored[DATA_BITS:]),
        ]  # fmt: skip

        # What was sent, which errors it met: beside the registers of encoder and decoder.
        sent = [Signal(DATA_BITS, name=f"sent{k}") for k in range(3)]
        then_places, then_used = [Signal.like(p, name=f"then_place{i}") for i, p in enumerate(places)], Signal(2)
        then = Errors(m, then_places, list(then_used), "then")
        one, two = Signal(), Signal()
        with m.If(enable):
            m.d.sync += [
                sent[0].eq(data), sent[1].eq(sent[0]), sent[2].eq(sent[1]), then_used.eq(used),
                *(a.eq(b) for a, b in zip(then_places, places, strict=True)), one.eq(then.one), two.eq(then.two),
            ]  # fmt: skip
        self.claim(m, (decoder.corrected == one) & (decoder.detected == two))
        with m.If(~two):
            self.claim(m, decoder.out_data == sent[2])
        if not self.mutant:
            self.invariant(m, encoder.out_data == sent[0])
            self.invariant(m, then_places[0] <= then_places[1])
            self.invariant(m, inside["held0"] == sent[1] ^ then.mask[:DATA_BITS])
            self.invariant(m, inside["syndrome0"] == then.wrong)


#: The hard part by itself, which is sooner done.
PARTS = {
    "linear": {"groups": GroupCheck, "total": TotalCheck, "columns": ColumnCheck},
    "errors": {"errors": ErrorsCheck},
}


@pytest.mark.parametrize("part", PARTS)
def test_ecc(part):
    prove_checks(f"ecc_{part}", {name: check() for name, check in PARTS[part].items()}, depth=1)


def _with_an_and(word):
    sums = partial_sums(word)
    sums[3][2] = sums[3][2] & word[5]
    return sums


_EVEN = (COLUMNS[0] ^ 1 << 7 if COLUMNS[0] >> 7 else COLUMNS[0] | 1 << 7, *COLUMNS[1:])

BUGS = {
    "an even column": lambda: ErrorsCheck(COLUMNS=_EVEN),
    "two columns equal": lambda: ErrorsCheck(COLUMNS=(COLUMNS[1], *COLUMNS[1:])),
    "errors in check bits not seen": lambda: ErrorsCheck(("range(CHECK_BITS)).any()", "range(1, CHECK_BITS)).any()")),
    "double errors pass": lambda: ErrorsCheck(("(wrong != 0) & ~known", "wrong.all()")),
    "data are not held": lambda: ErrorsCheck(("right.eq(held ^ flip)", "right.eq(word ^ flip)")),
    "not linear": lambda: GroupCheck(_with_an_and),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    prove_bites("ecc_bites", bug(), depth=6)
