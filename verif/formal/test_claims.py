"""The tools of the proofs: they refute what is false, and refuse a change that changes nothing."""

from __future__ import annotations

import pytest
from amaranth.hdl import Module, Signal

from sluice_hw.vpu.walk import Walker
from verif.formal.claims import Check, altered, open_up, prove_bites, prove_checks
from verif.formal.sby import ProofFailed


class Counter(Check):
    """A register that follows its input, a cycle later; with ``wrong``, two."""

    def __init__(self, *, wrong: bool = False) -> None:
        super().__init__()
        self.wrong = wrong

    def describe(self, m: Module) -> None:
        value, later = self.free(2, "value"), Signal(2)
        m.d.sync += later.eq(value)
        self.claim(m, later == self.delayed(m, value, 2 if self.wrong else 1, "value"))


@pytest.mark.formal
def test_one_false_claim_among_true_ones_is_refuted():
    with pytest.raises(ProofFailed, match="failed assertion top.second"):
        prove_checks("claims_false", {"first": Counter(), "second": Counter(wrong=True)}, depth=3)


@pytest.mark.formal
def test_hardware_without_a_bug_breaks_no_claim():
    with pytest.raises(AssertionError, match="claims_right: no claim is broken by a bug"):
        prove_bites("claims_right", Counter(), depth=4)


def test_changes_are_looked_at():
    with pytest.raises(ValueError, match="'no such text' must stand once in sluice_hw.vpu.walk, not 0 times"):
        altered(Walker, ("no such text", ""))
    with pytest.raises(ValueError, match="sluice_hw.vpu.walk has no 'nothing'"):
        altered(Walker, nothing=1)
    assert altered(Walker) is not Walker


def test_what_is_inside_has_its_names():
    _, inside = open_up(Walker(levels=2, count_bits=2, step_bits=2, addr_bits=4))
    assert len(inside["left"]) == 2 and inside["at0"] is inside["at"][0]
