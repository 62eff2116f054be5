"""Cycles of the fixed set of programs: exactly the recorded ones, in both directions.

Where they change on purpose, ``make baseline REASON="..."`` records them anew.
"""

from __future__ import annotations

import pytest

from verif.system import baseline
from verif.system.cycle_programs import CASES, CHIPS
from verif.tools.summary import note_cycles

#: More cycles than this are for `make soak`.
QUICK = 30_000
#: Chips whose short programs `make test` runs.
RUN = {"tiny", "small", "tiny-bf16"}


def check(config: str, most: int | None) -> None:
    """Run the recorded programs of a chip, those of at most ``most`` cycles."""
    recorded = baseline.load()
    wrong = []
    with baseline.open_chip(config) as device:
        for case in CASES:
            entry = recorded.get((config, case.name))
            if case.config != config or (entry and most is not None and entry["cycles"] > most):
                continue
            cycles, _ = baseline.measure(device, case)
            if entry is None or cycles != entry["cycles"]:
                before = entry["cycles"] if entry else None
                note_cycles(case.name, config, before, cycles)
                wrong.append(f"{case.name}: {before} -> {cycles}")
    assert not wrong, "\n".join([f"cycles on {config} are not the recorded ones (make baseline REASON=...):", *wrong])


@pytest.mark.parametrize("config", sorted(CHIPS.keys() - RUN))
def test_recorded_matmuls(config: str) -> None:
    """The words of matmuls are the recorded ones, on chips where only `make soak` runs them.

    Those of networks hold scales, which depend on how a machine's BLAS rounds.
    """
    recorded = baseline.load()
    wrong = [case.name for case in CASES if case.config == config and case.name.startswith("matmul-")
             and baseline.program_hash(case.build()) != recorded[config, case.name]["program"]]  # fmt: skip
    assert not wrong, f"programs on {config} are not the recorded ones (make baseline REASON=...): {', '.join(wrong)}"


@pytest.mark.parametrize("config", sorted(RUN))
def test_recorded_cycles(config: str) -> None:
    check(config, QUICK)


@pytest.mark.soak
@pytest.mark.parametrize("config", CHIPS)
def test_all_recorded_cycles(config: str) -> None:
    check(config, None)


def test_recording() -> None:
    """A first run is recorded without history, an equal one changes nothing, and a change keeps what was and why."""
    case = CASES[0]
    first = baseline.change(None, case, 100, "p", "")
    assert first == {"config": case.config, "name": case.name, "cycles": 100, "program": "p", "history": []}
    assert baseline.change(first, case, 100, "p", "why") is first
    second = baseline.change(first, case, 90, "q", "faster loads")
    assert (second["cycles"], second["program"]) == (90, "q")
    assert second["history"] == [{"cycles": 100, "reason": "faster loads"}]
    third = baseline.change(second, case, 95, "q", "back")
    assert [h["cycles"] for h in third["history"]] == [100, 90]


def test_every_program_is_recorded() -> None:
    recorded = baseline.load()
    chips = {config for config, _ in recorded}
    assert set(recorded) == {(case.config, case.name) for case in CASES if case.config in chips}
    assert {"tiny", "small", "mid128"} <= chips
    assert all(h["reason"].strip() for entry in recorded.values() for h in entry["history"])
