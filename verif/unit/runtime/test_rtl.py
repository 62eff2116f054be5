"""The driver on the chip inside this process: the scenarios of all backends, and what only this one has."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from sluice.asm import assemble
from sluice.errors import DeviceMismatch, DeviceTimeout, TransportError, UsageError
from sluice.runtime import Device, chip_model
from sluice.runtime.chip_model import build_chip, build_library, chip_archive
from sluice.runtime.matmul import run_matmul
from sluice_hw.csr import HostMap
from verif.unit.runtime.scenarios import SCENARIOS, TINY, matmul_tile

ENDLESS = "loop 0 count=1000000 {\n loop 1 count=1000000 {\n  addr r1 base=0\n }\n}\nhalt"


@pytest.fixture(scope="module")
def library():
    return build_library(TINY)


@pytest.fixture(scope="module", params=["view", "axi"])
def device(request, library):
    with Device(TINY, "rtl", library=library, host_path=request.param) as device:
        yield device


@pytest.fixture(scope="module")
def view(library):
    with Device(TINY, "rtl", library=library) as device:
        yield device


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_scenario(device, scenario):
    scenario(device)


def test_scenarios_in_any_order(device, seed):
    rng = random.Random(seed)
    for scenario in rng.choices(SCENARIOS, k=12):
        scenario(device)


def test_matmul(device, seed):
    rng = random.Random(seed)
    for out in ("int8", "int32"):
        m, k, n = (rng.randint(1, 60) for _ in range(3))
        done = run_matmul(TINY, m, k, n, seed=rng.randrange(1000), out=out, device=device)
        assert done.verification.mismatches == 0 and done.verification.values == m * n, (m, k, n)


def test_the_same_cycles_as_behind_cocotb(view):
    with Device(TINY, "cocotb", model=build_chip(TINY)) as other:
        reports = [run_matmul(TINY, 20, 30, 9, device=chip).report for chip in (view, other)]
    assert reports[0].work == reports[1].work
    assert abs(reports[0].cycles - reports[1].cycles) <= 2


def test_an_edge_is_an_evaluation(view, monkeypatch):
    """Cycles by a call of the model's NBA region, and by evaluating both halves of a clock: nothing differs."""
    archive = chip_archive(TINY)
    assert archive.one_edge, "the fast way is taken with this Verilator"
    honest = chip_model.chip_library(archive, edge=False)
    assert honest != chip_model.chip_library(archive)
    with Device(TINY, "rtl", library=honest) as slow, Device(TINY, "rtl", library=build_library(TINY)) as fast:
        ends = []
        for chip in (slow, fast):
            for scenario in SCENARIOS:
                scenario(chip)
            report = run_matmul(TINY, 33, 17, 40, device=chip).report
            ends.append((report.cycles, report.stalls, chip.transport.sim_time().cycles, chip.read_memory(0, 1 << 16)))
    assert ends[0] == ends[1]


def test_view_and_port_agree(library, seed):
    """What is written through the port is in memory once a program has begun; what is put there comes through it."""
    rng = np.random.default_rng(seed)
    halt = assemble("halt", TINY)
    size = TINY.slice_bytes
    with Device(TINY, "rtl", library=library, host_path="axi") as device:
        memory = device.transport._hbm
        assert memory.shape == (TINY.hbm_bytes,) and memory.dtype == np.uint8 and not memory.any()
        places = [0, size - 8, 5 * size, TINY.hbm_bytes - 3 * size, *(8 * rng.integers(0, 1 << 20, 6))]
        for at in map(int, places):
            data = rng.bytes(min(8 * int(rng.integers(1, 600)), TINY.hbm_bytes - at))
            device.write_memory(at, data)
            device.run(halt)
            assert memory[at : at + len(data)].tobytes() == data, f"written at {at:#x}"
            memory[at : at + len(data)] ^= 0x5A
            assert device.read_memory(at, len(data)) == bytes(b ^ 0x5A for b in data), f"read at {at:#x}"
            device.run(halt)
        with pytest.raises(UsageError, match="host_path='view', not 'axi'"):
            device.hbm_view()


def test_view_is_what_the_chip_reads_and_writes(view):
    """A copy program, its data put into and taken out of the array; no cycle passes for that."""
    size, rng = TINY.slice_bytes, np.random.default_rng(3)
    text = f"""
        addr r0 base=700
        addr r1 base=0
        dma_shape unit=ld row_bytes={size} rows=1
        dma_shape unit=st row_bytes={size} rows=1
        hbm_read_slice hbm=r0 vmem=r1 count=1 signal=st
        addr r0 base=900
        hbm_write_slice hbm=r0 vmem=r1 count=1 wait=ld
        halt
    """
    hbm, before = view.hbm_view(), view.transport.sim_time().cycles
    hbm[700 * size : 701 * size] = rng.integers(0, 256, size)
    view.write_memory(900 * size, bytes(size))
    assert view.transport.sim_time().cycles == before
    view.run(assemble(text, TINY))
    assert np.array_equal(hbm[900 * size : 901 * size], hbm[700 * size : 701 * size])
    assert view.hbm_view() is hbm or np.shares_memory(view.hbm_view(), hbm)


def test_a_new_chip_has_an_empty_memory(library):
    for _ in range(3):
        with Device(TINY, "rtl", library=library) as device:
            assert not device.hbm_view().any()
            device.hbm_view()[:] = 0xFF


def test_other_threads_run_meanwhile(library):
    """Within one call into the library the counter of another thread moves on; two chips run at once."""
    count = [0]
    moved: dict[int, bool] = {}
    with Device(TINY, "rtl", library=library) as a, Device(TINY, "rtl", library=library) as b:

        def body(number: int, device: Device) -> None:
            transport = device.transport
            moved[number] = False
            for _ in range(200):
                before = count[0]
                transport._library.sluice_run(transport._handle(), 2000, 0)
                moved[number] |= count[0] > before
                if moved[number]:
                    break
            matmul_tile(device, seed=number)

        threads = [threading.Thread(target=body, args=pair) for pair in enumerate((a, b))]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            count[0] += 1
        for thread in threads:
            thread.join()
    assert moved == {0: True, 1: True}


def test_timeout_with_the_state(view):
    with pytest.raises(DeviceTimeout, match="after 700 cycles") as caught:
        view.run(assemble(ENDLESS, TINY), timeout_cycles=700)
    assert "loop 0: " in caught.value.dump
    matmul_tile(view)


def test_progress(view):
    told: list[int] = []
    view.on_progress(told.append)
    with pytest.raises(DeviceTimeout):
        view.run(assemble(ENDLESS, TINY), timeout_cycles=30_000)
    view.on_progress(None)
    assert told == sorted(told) and len(told) >= 2 and told[-1] == 30_000


def test_arguments(library):
    with pytest.raises(UsageError, match="host_path must be view or axi, not 'dma'"):
        Device(TINY, "rtl", library=library, host_path="dma")
    with pytest.raises(DeviceMismatch, match="register ACC_ROWS"):
        Device(TINY.replace(acc_bytes=1 << 13), "rtl", library=library)
    device = Device(TINY, "rtl", library=library)
    device.close()
    device.close()
    for call in (device.hbm_view, lambda: device.status, lambda: device.transport.mem_read(HostMap.HBM_BASE, 8)):
        with pytest.raises(TransportError, match="closed"):
            call()
    with pytest.raises(UsageError, match="backend 'golden' has no view of HBM"):
        Device(TINY, "golden").hbm_view()


_INTERRUPTED = """
import sys
from sluice.asm import assemble
from sluice.runtime import Device
from verif.unit.runtime.scenarios import TINY, matmul_tile
from verif.unit.runtime.test_rtl import ENDLESS
with Device(TINY, sys.argv[1]) as device:
    device.on_progress(lambda cycles: print("running", flush=True))
    try:
        device.run(assemble(ENDLESS, TINY))
    except KeyboardInterrupt as stop:
        print(stop.state)
    device.on_progress(None)
    assert device.status["running"]
    device.reset()
    matmul_tile(device)
    print("usable", flush=True)
"""


def _interrupt(command: list[str], stream: str, sign: str) -> tuple[int, str, str]:
    """Start a program, send it SIGINT when ``sign`` is in a line of its output, and wait for its end."""
    pipe = subprocess.PIPE
    # Where the tests run as a job in the background, SIGINT is ignored, and the child would inherit that.
    process = subprocess.Popen(
        [sys.executable, *command], stdout=pipe, stderr=pipe, text=True, env=_environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    out: list[str] = []
    for line in getattr(process, stream):
        out.append(line)
        if sign in line:
            break
    process.send_signal(signal.SIGINT)
    try:
        rest = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, *rest


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.mark.parametrize("backend", ["rtl", "cocotb"])
def test_interruption_leaves_a_chip_that_works(library, backend):
    code, out, err = _interrupt(["-c", _INTERRUPTED, backend], "stdout", "running")
    assert code == 0 and out.endswith("usable\n"), err
    assert "cycles since the start of the program" in out and "sequencer  works, at word" in out and "MXU  " in out


def test_interruption_of_a_command(library, tmp_path):
    source = tmp_path / "endless.s"
    source.write_text(f".config tiny\n{ENDLESS}\n")
    code, _, err = _interrupt(["-m", "sluice.cli", "run", str(source), "--progress"], "stderr", "cycles")
    assert code == 130, err
    assert "sluice run: interrupted; the chip:" in err and "at word" in err and "Traceback" not in err
