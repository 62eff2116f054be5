"""Figures of a run, from counters."""

from __future__ import annotations

import pytest

from sluice.errors import ReportError
from sluice.runtime import RunReport
from sluice_hw import csr, isa
from sluice_hw.config import preset

TINY = preset("tiny")


def counters(cycles: int = 1000) -> dict[str, int]:
    out = dict.fromkeys(csr.counters(), 0)
    out["cycles"] = cycles
    for unit, causes in isa.UNIT_CAUSES.items():
        for i, cause in enumerate(causes[1:]):
            out[f"{unit}_{cause.name.lower()}"] = 7 + i
        rest = cycles - sum(out[f"{unit}_{c.name.lower()}"] for c in causes)
        out[f"{unit}_busy"] = rest
    out |= {"array_rows": 400, "starved_weights": 80, "starved_token_ld": 20, "window": 500, "macs": 25600,
            "ld_slices": 10, "st_slices": 5}  # fmt: skip
    return out


def test_figures():
    report = RunReport.from_counters(TINY, "cocotb", counters(), sim_cycles=1200, sim_seconds=0.5)
    assert report.mxu_utilisation == 25600 / (64 * 1000)
    assert report.mxu_starvation == 0.2 and report.starvation_causes["weights"] == 0.16
    assert report.hbm_utilisation == 15 * 256 / (32 * 1000)
    assert report.sim_cycles_per_second == 2400
    figures = report.figures()
    for key in ("mxu_utilisation", "mxu_starvation", "hbm_utilisation"):
        assert 0 <= figures[key] <= 1
    for causes in figures["stalls"].values():
        assert sum(causes.values()) == figures["cycles"]
        assert {"busy", "idle"} <= set(causes)
    assert "MXU starvation   20.0 % (weights 16.0 %, token_ld 4.0 %)" in str(report)


@pytest.mark.parametrize("name", [f"{u}_{c.name.lower()}" for u, cs in isa.UNIT_CAUSES.items() for c in cs])
def test_counters_that_do_not_sum_are_refused(name):
    values = counters()
    values[name] += 1
    with pytest.raises(ReportError, match=f"counters of {name.split('_')[0]} sum to 1001, not to the 1000 cycles"):
        RunReport.from_counters(TINY, "cocotb", values)


def test_a_window_that_does_not_add_up_is_refused():
    with pytest.raises(ReportError, match="window"):
        RunReport.from_counters(TINY, "cocotb", counters() | {"window": 501})


def test_without_time():
    report = RunReport.from_counters(TINY, "golden", counters(), timed=False)
    figures = report.figures()
    assert figures["macs"] == 25600
    assert all(figures[k] is None for k in figures if k != "macs")
    assert "no cycle figures" in str(report)


def test_nothing_ran():
    zero = dict.fromkeys(csr.counters(), 0)
    report = RunReport.from_counters(TINY, "cocotb", zero)
    assert report.mxu_utilisation == report.mxu_starvation == report.hbm_utilisation == 0


def test_merge():
    one = RunReport.from_counters(TINY, "cocotb", counters(), sim_cycles=1000, sim_seconds=1.0)
    two = RunReport.from_counters(TINY, "cocotb", counters(3000), sim_cycles=3000, sim_seconds=1.0)
    both = RunReport.merge([one, two])
    assert (both.cycles, both.macs, both.programs, both.window) == (4000, 51200, 2, 1000)
    assert both.sim_cycles_per_second == 2000 and both.mxu_starvation == 0.2
    with pytest.raises(ReportError, match="different"):
        RunReport.merge([one, RunReport.from_counters(preset("small"), "cocotb", counters())])
