"""The driver on the Verilated chip: the same scenarios as on golden, and what only a simulation can do."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sluice.asm import assemble
from sluice.errors import DeviceMismatch, DeviceTimeout, TransportError
from sluice.runtime import Device, RunReport
from sluice.runtime.chip_model import build_chip
from sluice.runtime.matmul import run_matmul
from verif.unit.runtime.scenarios import SCENARIOS, TINY, example, matmul_tile


@pytest.fixture(scope="module")
def model():
    return build_chip(TINY)


@pytest.fixture(scope="module")
def device(model):
    with Device(TINY, "cocotb", model=model) as device:
        yield device


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_scenario(device, scenario):
    scenario(device)


def test_scenarios_in_any_order(device, seed):
    rng = random.Random(seed)
    for scenario in rng.choices(SCENARIOS, k=6):
        scenario(device)


def test_work_equals_golden(device):
    """Work counters of a program that keeps every unit busy, in hardware and in golden."""
    program, reports = example("matmul_loop"), []
    rng = np.random.default_rng(8)
    arrays = [(0, rng.integers(-128, 128, 4096).astype(np.int8)), (16, rng.integers(-128, 128, 256).astype(np.int8)),
              (17, np.concatenate([np.zeros(32, np.uint8), np.full(8, 2.0**-9, "<f4").view(np.uint8)]))]  # fmt: skip
    results = []
    for chip in (device, Device(TINY, "golden")):
        for first, array in arrays:
            with chip.alloc_at(first, array.shape, array.dtype) as buffer:
                buffer.write(array)
        # The last 8 bytes of the parameters (shifts) are not used by the float dialect, but they are read.
        chip.write_memory(17 * 256 + 64, bytes(8))
        reports.append(chip.run(program))
        results.append(chip.read_memory(18 * 256, 1024))
    assert results[0] == results[1] and len(set(results[0])) > 100
    assert reports[0].work == reports[1].work
    assert reports[0].mxu_utilisation > 0.3, "loads, array and stores overlap"


def test_events(device):
    """The ring holds start and finish of every op, in order, inside of the run."""
    matmul_tile(device)
    events, cycles = device.events(), device.report().cycles
    assert len(events) == 16 and [e.time for e in events] == sorted(e.time for e in events)
    begun: dict[int, int] = {}
    for event in events:
        assert 0 < event.time < cycles and event.op
        if event.kind == 0:
            begun[event.pc] = event.time
        else:
            assert event.kind == 1 and begun.pop(event.pc) < event.time
    assert not begun
    assert "LD        start  word 10  hbm_read_slice hbm=r1 vmem=r5 signal=mxu" in device.dump()


def test_report_adds_up(device):
    """Every unit's causes sum to the cycles (the report refuses anything else), alone and merged."""
    reports = [run_matmul(TINY, *shape, device=device).report for shape in ((1, 1, 1), (20, 30, 9))]
    for report in (*reports, RunReport.merge(reports)):
        assert all(sum(causes.values()) == report.cycles for causes in report.stalls.values())
        for ratio in (report.mxu_utilisation, report.mxu_starvation, report.hbm_utilisation):
            assert 0 <= ratio <= 1
        assert report.sim_cycles >= report.cycles and report.sim_cycles_per_second > 0
    assert reports[1].macs == 20 * 30 * 9


@pytest.mark.parametrize("out", ["int8", "int32"])
def test_matmul(device, seed, out):
    rng = random.Random(f"{seed}/{out}")
    for _ in range(4):
        m, k, n = (rng.randint(1, 40) for _ in range(3))
        done = run_matmul(TINY, m, k, n, seed=rng.randrange(1000), out=out, relu=rng.random() < 0.5, device=device)
        assert done.verification.mismatches == 0 and done.verification.values == m * n, (m, k, n)


def test_timeout_with_the_state(device):
    with pytest.raises(DeviceTimeout, match="after 700 cycles") as caught:
        device.run(assemble("loop 0 count=1000000 {\n addr r1 base=0\n}\nhalt", TINY), timeout_cycles=700)
    assert "loop 0: " in caught.value.dump
    matmul_tile(device)


def test_the_wrong_chip_is_refused(model):
    with pytest.raises(DeviceMismatch, match="register ACC_ROWS"):
        Device(TINY.replace(acc_bytes=1 << 13), "cocotb", model=model)


def test_a_simulation_that_dies_is_an_error(model):
    device = Device(TINY, "cocotb", model=model)
    with pytest.raises(TransportError, match="the simulation has ended by itself"):
        device.transport._ask(99)
    with pytest.raises(TransportError):
        device.status  # noqa: B018
    log = device.transport.folder / "sim.log"
    device.close()
    assert "99 is not a valid Request" in log.read_text(), "the log stays"
    device.close()
