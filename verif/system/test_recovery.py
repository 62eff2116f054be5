"""Programs in a row, resets at any moment, and the first program after one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sluice.asm import assemble
from sluice.build import CocotbModel
from sluice.runtime import Device
from verif.system import workload
from verif.system.configs import CONFIGS
from verif.system.workload import Workload


@pytest.fixture(scope="module")
def work() -> Workload:
    return workload.make(8)


@pytest.fixture(scope="module")
def first_cycles(tiny_model: CocotbModel, work: Workload) -> int:
    """Cycles of the very first program after power-on; its result is checked, too."""
    with Device(CONFIGS["tiny"], "cocotb", model=tiny_model) as device:
        return work.run(device).cycles


def test_programs_in_a_row(tiny: Device, work: Workload, seed: int) -> None:
    """Without a reset between them: the same results and work every time, and other data give other results."""
    reports = [work.run(tiny) for _ in range(3)]
    assert reports[0].work == reports[1].work == reports[2].work
    assert max(r.cycles for r in reports) - min(r.cycles for r in reports) <= 2, "the same program takes the same time"
    other = workload.make(seed + 100)
    assert not np.array_equal(other.want, work.want)
    other.run(tiny)
    # The program that is loaded runs again on what its inputs are by now.
    work.load(tiny)
    tiny.run()
    work.check(tiny)


def test_soft_reset_in_the_middle(tiny: Device, work: Workload, first_cycles: int, seed: int) -> None:
    """At moments all over a program, then a clean run. What the program does not write stays as it was."""
    rng = random.Random(seed)
    size = tiny.config.slice_bytes
    moments = [1, 5, *(rng.randrange(10, first_cycles) for _ in range(5)), first_cycles - 40]
    stopped = 0
    for moment in moments:
        work.load(tiny)
        tiny.load_program(work.program)
        tiny.start()
        tiny.transport.advance(moment)
        stopped += tiny.status["running"]
        tiny.reset()
        status = tiny.status
        assert not any(status.values()), f"after a reset at cycle {moment}: {status}"
        for unit in ("LD", "ST", "MXU", "VPU"):
            state = tiny.read_fields(f"{unit}_STATE")
            assert (state["idle"], state["head"], state["level"]) == (1, 0, 0), f"{unit} at cycle {moment}: {state}"
            assert not tiny.read_csr(f"TOKENS_{unit}"), f"{unit} at cycle {moment}"
        hbm = np.frombuffer(tiny.read_memory(0, work.hbm.size), np.uint8)
        same = hbm == work.hbm
        same[18 * size : 22 * size] = True  # results, perhaps some of them
        assert same.all(), f"reset at cycle {moment} changed byte {np.flatnonzero(~same)[0]}"
        report = work.run(tiny)
        assert abs(report.cycles - first_cycles) <= 2, f"after a reset at cycle {moment}"
    assert stopped >= len(moments) - 3, "resets came while the program ran"


def test_reset_of_an_endless_program(tiny: Device, work: Workload) -> None:
    """Trains of the greatest length under way, queues full: the reset waits for HBM, and leaves a chip that works."""
    text = """
        addr r0 base=0
        addr r1 base=0x8000
        dma_shape unit=ld row_bytes=256 rows=16
        dma_shape unit=st row_bytes=256 rows=16
        addr r2 base=100
        loop 0 count=100000 {
          hbm_read_slice hbm=r0 vmem=r1 count=16
          hbm_write_slice hbm=r2 vmem=r1 count=16
        }
        halt
    """
    program = assemble(text, tiny.config)
    work.load(tiny)
    for moment in (100, 333, 1000):
        tiny.load_program(program)
        tiny.start()
        tiny.transport.advance(moment)
        assert tiny.status["running"]
        tiny.reset()
    work.run(tiny)


def test_idle_resets(tiny: Device, work: Workload) -> None:
    """Registers that a user set survive a reset, an idle chip's as well."""
    tiny.write_csr("WATCHDOG", 7777)
    tiny.write_csr("HBM_HI", 1234)
    for _ in range(3):
        tiny.reset()
    assert (tiny.read_csr("WATCHDOG"), tiny.read_csr("HBM_HI")) == (7777, 1234)
    work.run(tiny)
    tiny.write_csr("WATCHDOG", tiny.config.watchdog_cycles)
    tiny.write_csr("HBM_HI", tiny.config.hbm_slices)


@pytest.mark.parametrize("name", ["tiny", "wide"])
def test_two_entry_points(name: str, request: pytest.FixtureRequest) -> None:
    """One store, two programs, any number of times in any order."""
    device: Device = request.getfixturevalue(name)
    size = device.config.slice_bytes
    text = f"""
        addr r0 base=10
        addr r1 base=0
        dma_shape unit=ld row_bytes={size} rows=1
        hbm_read_slice hbm=r0 vmem=r1 count=1 signal=st
        dma_shape unit=st row_bytes={size} rows=1
        addr r2 base=11
        hbm_write_slice hbm=r2 vmem=r1 count=1 wait=ld
        halt code=1
        addr r0 base=10
        addr r1 base={size}
        dma_shape unit=ld row_bytes={size - 7} rows=1
        hbm_read_slice hbm=r0 vmem=r1 count=1 signal=st
        dma_shape unit=st row_bytes={size - 7} rows=1 pad=0xee
        addr r2 base=12
        hbm_write_slice hbm=r2 vmem=r1 count=1 wait=ld
        halt code=2
    """
    device.load_program(assemble(text, device.config))
    for step, entry in enumerate((0, 8, 8, 0, 8)):
        data = bytes((step * 31 + i * 7) & 255 for i in range(size))
        device.write_memory(10 * size, data + bytes(2 * size))
        report = device.run(entry=entry)
        workload.assert_accounted(report)
        assert report.halt_code == (2 if entry else 1)
        got = device.read_memory(11 * size, 2 * size)
        assert got == (bytes(size) + data[: size - 7] + b"\xee" * 7 if entry else data + bytes(size))
