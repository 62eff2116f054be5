"""Chips whose memory is outside: DRAM behind the slice controller, AXI4. Results, the host's view, faults, resets."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from sluice.asm import assemble
from sluice.compiler import compile as compile_graph
from sluice.compiler import matmul_graph
from sluice.errors import ChipError, UsageError
from sluice.runtime import CompiledModel, Device
from sluice_hw.emit.chip import chip_verilog
from sluice_hw.hbm.dram_config import DramConfig
from sluice_hw.isa import Error
from verif.harness import open_chip, report_dir
from verif.models.failing_memory import PAUSE, TRIGGER, SilentDram, StuckAxi
from verif.random_programs.compare import Bench
from verif.random_programs.replay import run_seeds
from verif.system.configs import MEMORY_CONFIGS, SETTLED
from verif.system.workload import assert_accounted

pytestmark = pytest.mark.soak

LITTLE = MEMORY_CONFIGS["little-hbm2"]
M, K, N = 24, 20, 12


@pytest.fixture(scope="module", params=MEMORY_CONFIGS)
def chip(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The first as everybody builds it; the others with a memory that can fail."""
    config = MEMORY_CONFIGS[request.param]
    source = None
    if config is not LITTLE:
        device = SilentDram(DramConfig.of(config)) if config.is_dram else StuckAxi(config)
        source = chip_verilog(config, emission="loop", simulated=True, device=device)
    with open_chip(config, source=source) as opened:
        opened.transport.advance(SETTLED)
        yield opened


@pytest.fixture(autouse=True)
def bounds(chip: Device) -> None:
    """Random programs leave others."""
    chip.write_csr("HBM_LO", 0)
    chip.write_csr("HBM_HI", chip.config.hbm_slices)


@pytest.fixture
def model(chip: Device, seed: int) -> Iterator[CompiledModel]:
    weights = np.random.default_rng(seed).integers(-128, 128, (K, N)).astype(np.int8)
    with CompiledModel(compile_graph(matmul_graph(M, K, N, weights=weights), chip.config), chip) as model:
        chip.scrub(0)
        chip.ecc_status(clear=True)
        yield model


def run(model: CompiledModel, seed: int):
    done = model.run(np.random.default_rng([seed, 1]).integers(-128, 128, (M, K)).astype(np.int8), verify=True)
    assert done.verification.mismatches == 0, done.verification.first
    assert_accounted(done.report)
    return done.report


def copy_program(chip: Device, first: int, target: int, count: int):
    """Slices ``first`` on to ``target`` on, by one train of each kind."""
    size = chip.config.slice_bytes
    return assemble(
        f"""
        addr r0 base={first}
        addr r1 base={target}
        dma_shape unit=ld row_bytes={size * count} rows=1
        dma_shape unit=st row_bytes={size * count} rows=1
        hbm_read_slice hbm=r0 vmem=r2 count={count} signal=st
        hbm_write_slice hbm=r1 vmem=r2 count={count} wait=ld
        halt
        """, chip.config,
    )  # fmt: skip


def test_results_and_errors_that_are_corrected(model: CompiledModel, chip: Device, seed: int) -> None:
    clean = run(model, seed)
    status = chip.ecc_status()
    assert (status.corrected, status.detected) == (0, 0)
    weights = max(model.compiled.constants, key=lambda c: c.slices)
    at = weights.slice_address * chip.config.slice_bytes
    for word, bit in enumerate((7, 63, 40)):
        chip.inject_error(at + 8 * word, [bit])
    wrong = run(model, seed)
    status = chip.ecc_status(clear=True)
    assert status.corrected >= 3 and status.detected == 0 and status.corrected_slice == weights.slice_address
    assert wrong.work == clean.work
    for word, bit in enumerate((7, 63, 40)):
        chip.inject_error(at + 8 * word, [bit])
    run(model, seed)
    assert chip.ecc_status().corrected == 0


def test_double_error_ends_the_program(model: CompiledModel, chip: Device, seed: int) -> None:
    """Which tensor it was is told; after the reset the chip goes on."""
    weights = max(model.compiled.constants, key=lambda c: c.slices)
    address = weights.slice_address * chip.config.slice_bytes + 8
    chip.inject_error(address, [3, 50])
    with pytest.raises(ChipError, match=f"word 1, in constant {weights.name} of ") as caught:
        run(model, seed)
    assert (caught.value.fault.code, caught.value.fault.unit) == (Error.HBM_ERROR, "LD")
    chip.inject_error(address, [3, 50])
    run(model, seed)


def test_view(chip: Device, seed: int) -> None:
    """What the host writes into its view, the chip reads, and the other way round; check bits are right by themselves.
    Where they lie in memory only the chip can write."""
    size, slices = chip.config.slice_bytes, chip.config.hbm_slices
    data = np.random.default_rng(seed).integers(0, 256, 3 * size).astype(np.uint8)
    if chip.config.ecc == "inband":
        with pytest.raises(UsageError, match="a view of HBM needs host_path='view', not 'axi'"):
            chip.hbm_view()
        with pytest.raises(UsageError, match="host_path must be 'axi' with ECC 'inband'"):
            Device(chip.config, "rtl", host_path="view")
        chip.write_memory(7 * size, data.tobytes())
        chip.run(copy_program(chip, 7, slices - 8, 3))
        assert chip.read_memory((slices - 8) * size, 3 * size) == data.tobytes()
        return
    chip.ecc_status(clear=True)
    view = chip.hbm_view()
    assert view.shape == (chip.config.hbm_bytes,) and np.shares_memory(view, chip.hbm_view())
    view[7 * size : 10 * size] = data
    chip.run(copy_program(chip, 7, slices - 8, 3))
    assert np.array_equal(view[(slices - 8) * size : (slices - 5) * size], data)
    assert chip.ecc_status().detected == 0


def test_reset_in_a_write_train(chip: Device, seed: int) -> None:
    """The train is completed, whatever it writes; the rest of memory is as it was, and the next program is right."""
    size, rng = chip.config.slice_bytes, random.Random(seed)
    count = min(6, chip.config.vmem_bytes // size)
    before = np.random.default_rng(seed).integers(0, 256, 40 * size).astype(np.uint8)
    program = copy_program(chip, 0, 20, count)
    chip.write_memory(0, before.tobytes())
    whole = chip.run(program).cycles
    cut = 0
    for moment in [*(rng.randrange(whole // 2, whole) for _ in range(4)), whole // 4]:
        chip.write_memory(0, before.tobytes())
        chip.load_program(program)
        chip.start()
        chip.transport.advance(moment)
        cut += chip.status["running"]
        chip.reset()
        after = np.frombuffer(chip.read_memory(0, before.size), np.uint8)
        same = after == before
        same[20 * size : (20 + count) * size] = True
        assert same.all(), f"a reset at cycle {moment} changed byte {np.flatnonzero(~same)[0]}"
        report = chip.run(program)
        assert_accounted(report)
        after = np.frombuffer(chip.read_memory(0, before.size), np.uint8)
        assert np.array_equal(after[20 * size : (20 + count) * size], before[: count * size])
        assert abs(report.cycles - whole) < 1500, "one cold start at most"
    assert cut >= 3, "resets came while the program ran"


def test_random_programs(chip: Device, seed: int) -> None:
    first = 8_000_000 + seed * 1000
    failed = run_seeds(Bench(chip), range(first, first + 25), report_dir("memories"))
    assert not failed, "\n\n".join(failed)


def test_scrubber(model: CompiledModel, chip: Device, seed: int) -> None:
    """It repairs what it meets while programs run, and they are right."""
    weights = max(model.compiled.constants, key=lambda c: c.slices)
    chip.inject_error(weights.slice_address * chip.config.slice_bytes, [1])
    chip.scrub(50)
    for _ in range(200):
        run(model, seed)
        if chip.ecc_status().repaired and chip.ecc_status().scrubbed >= chip.config.hbm_slices:
            break
        chip.transport.advance(5000)
    chip.scrub(0)
    status = chip.ecc_status(clear=True)
    assert status.repaired == 1 and status.detected == 0
    run(model, seed)
    assert chip.ecc_status().corrected == 0


def test_memory_that_stops_answering(chip: Device, seed: int) -> None:
    """DRAM that brings no data: an error at once. AXI4: the watchdog; the reset waits for what is under way. Either way
    the next program is right."""
    config = chip.config
    if config is LITTLE:
        pytest.skip("has a memory that always answers")
    size = config.slice_bytes
    data = np.random.default_rng(seed).integers(0, 256, 3 * size).astype(np.uint8)
    chip.write_memory(0, data.tobytes())
    chip.write_memory(20 * size, TRIGGER * (size // len(TRIGGER)))
    chip.write_csr("WATCHDOG", 1000)
    if config.is_dram:  # else the host has written through the port
        chip.run(copy_program(chip, 20, 21, 1))
    with pytest.raises(ChipError) as caught:
        chip.run(copy_program(chip, 0, 9, 3))
    fault = caught.value.fault
    assert fault.code is (Error.HBM_ERROR if config.is_dram else Error.WATCHDOG), caught.value
    if not config.is_dram:
        assert "LD" in str(caught.value)
        # Nothing gets through yet: the next program is stopped as well, and hurts nothing.
        with pytest.raises(ChipError) as again:
            chip.run(copy_program(chip, 0, 9, 3))
        assert again.value.fault.code is Error.WATCHDOG
    chip.transport.advance(2 * PAUSE)
    chip.run(copy_program(chip, 0, 9, 3))
    assert chip.read_memory(9 * size, 3 * size) == data.tobytes()
    chip.write_csr("WATCHDOG", config.watchdog_cycles)
