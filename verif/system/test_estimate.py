"""The cost model against the chip's cycle counter: every recorded program on every preset, a part of them unseen.

Constants of the model may be tuned with the calibration part only; which part a program belongs to is fixed by the hash
of its name (:attr:`~verif.system.cycle_programs.Case.unseen`). The chip's cycles are the recorded ones, which
``test_cycles.py`` measures again.
"""

from __future__ import annotations

import json

import pytest

from sluice.estimate import EstimateError, estimate
from sluice_hw.config import PRESETS
from verif.harness import report_dir
from verif.system import baseline
from verif.system.cycle_programs import CASES, CHIPS, chip, estimated


def bound(cycles: int) -> float:
    """Cycles that an estimate may be off: 2 %, or 50."""
    return max(0.02 * cycles, 50)


def test_split() -> None:
    """At least a third of the programs is unseen, and of those of every preset a quarter."""
    cases = [case for case in CASES if estimated(case.config)]
    assert sum(case.unseen for case in cases) * 3 >= len(cases)
    for config in PRESETS.keys() & CHIPS.keys():
        mine = [case.unseen for case in CASES if case.config == config]
        assert len(mine) >= 10 and sum(mine) * 4 >= len(mine), config


@pytest.mark.parametrize("config", [config for config in CHIPS if estimated(config)])
def test_estimates(config: str) -> None:
    """No estimate is off by more than the bound, neither of programs that the model was tuned with nor of others."""
    recorded = baseline.load()
    if not any(chip_name == config for chip_name, _ in recorded):
        pytest.skip(f"no cycles of {config} are recorded: make baseline CONFIGS={config}")
    programs, rows = baseline.load_programs(), []
    for case in CASES:
        entry = recorded.get((config, case.name))
        if case.config != config or entry is None:
            continue
        program = programs[config, case.name]
        assert baseline.program_hash(program) == entry["program"], f"{case}: {baseline.PROGRAMS} is of other programs"
        cycles = estimate(program, chip(config)).cycles
        rows.append({"config": config, "name": case.name, "unseen": case.unseen, "measured": entry["cycles"],
                     "estimated": cycles, "error": cycles / entry["cycles"] - 1})  # fmt: skip
    report = report_dir("estimate") / f"estimate-{config}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    for unseen in (False, True):
        off = [row for row in rows if row["unseen"] == unseen
               and abs(row["estimated"] - row["measured"]) > bound(row["measured"])]  # fmt: skip
        assert not off, f"{'unseen' if unseen else 'calibration'} programs: {off}"


def test_programs_that_cannot_be_estimated() -> None:
    from sluice.asm import assemble

    config = chip("tiny")
    with pytest.raises(EstimateError, match="LD waits at word 0, SYNC, for a token from MXU"):
        estimate(assemble("sync unit=ld wait=mxu\nhalt\n", config), config)
    with pytest.raises(EstimateError, match="does not end"):
        estimate(assemble("load_weights vmem=r0 pitch=8 k=8 n=8\nload_weights vmem=r0 pitch=8 k=8 n=8\nhalt\n", config),
                 config)  # fmt: skip
    with pytest.raises(EstimateError, match="more than 100 words"):
        estimate(assemble("loop 0 count=1000 {\naddr r0 base=0\n}\nhalt\n", config), config, word_limit=100)
    with pytest.raises(EstimateError, match="word 1"):
        estimate([assemble("addr r0 base=0\nhalt\n", config).words[0]], config)
