"""The proof runners: what they prove, what they refute, what they refuse."""

import subprocess

import pytest
from amaranth.hdl import Assert, Assume, Elaboratable, Module, Signal

from sluice.build import sim_build_dir
from verif.formal import sat
from verif.formal.sby import ProofFailed, prove


class Saturating(Elaboratable):
    """A counter that stops at a limit, with the claim that it never passes ``bound``."""

    def __init__(self, bound: int | None) -> None:
        self.step = Signal()
        self.bound = bound

    def elaborate(self, platform) -> Module:
        m = Module()
        count = Signal(4)
        m.d.comb += Assume(count < 15)
        with m.If(self.step & (count != 9)):
            m.d.sync += count.eq(count + 1)
        if self.bound is not None:
            m.d.comb += Assert(count <= self.bound)
        return m


def run(bound: int | None, name: str, **kwargs) -> None:
    design = Saturating(bound)
    prove(design, name=name, ports=[design.step], **{"depth": 12, **kwargs})


@pytest.mark.formal
def test_true_properties_are_proven():
    run(9, "sby_true")


@pytest.mark.formal
def test_false_properties_are_refuted():
    with pytest.raises(ProofFailed, match="failed assertion"):
        run(8, "sby_false")


@pytest.mark.formal
def test_a_bound_too_short_to_reach_the_flaw_passes():
    run(8, "sby_short", mode="bmc", depth=8)


@pytest.mark.formal
def test_an_induction_that_does_not_close_is_a_failure():
    # True, but not inductive in one step: from 10, which is never reached, the counter runs on.
    with pytest.raises(ProofFailed, match="is not proven"):
        run(10, "sby_open", depth=1)


def test_refusals():
    with pytest.raises(ValueError, match="sby_none has no Assert to prove"):
        run(None, "sby_none")
    with pytest.raises(ValueError, match="mode must be .* not 'live'"):
        run(9, "sby_mode", mode="live")
    with pytest.raises(ValueError, match="depth must be at least 1, not 0"):
        run(9, "sby_depth", depth=0)
    with pytest.raises(ValueError, match="name must be a plain file name"):
        run(9, "a/b")


def test_the_log_of_an_earlier_run_is_no_result(monkeypatch):
    folder = sim_build_dir() / "formal" / "sat_stale"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "check.log").write_text("no model found: SUCCESS!\n")
    monkeypatch.setattr(sat.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0))
    design = Saturating(8)
    with pytest.raises(ProofFailed, match="sat_stale .* could not be checked"):
        sat.check(design, name="sat_stale", depth=2, ports=[design.step])
