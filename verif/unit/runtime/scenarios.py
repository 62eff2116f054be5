"""What every backend must do the same: programs on a device, wherever it runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sluice.asm import Program, assemble
from sluice.errors import AccessError, ChipError, OutOfMemory, UsageError
from sluice.runtime import Device
from sluice_hw import isa
from sluice_hw.config import ChipConfig, preset
from sluice_hw.csr import HostMap
from sluice_hw.isa import Error

TINY = preset("tiny")
EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "asm"


def example(name: str) -> Program:
    return assemble((EXAMPLES / f"{name}.s").read_text(), file=f"{name}.s")


def matmul_tile(device: Device, seed: int = 3) -> None:
    """examples/asm/matmul_tile.s against NumPy, with the counters that follow from its words."""
    rng = np.random.default_rng(seed)
    a, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((16, 8), (8, 8)))
    bias = rng.integers(-9999, 9999, 8).astype(np.int32)
    multiplier = rng.integers(1 << 29, 1 << 31, 8).astype(np.int32)
    shift = rng.integers(38, 42, 8).astype(np.uint8)
    params = np.frombuffer(bias.tobytes() + multiplier.tobytes() + shift.tobytes(), np.uint8)
    out = device.alloc_at(3, (16, 8), "int8")
    for first, array in ((0, a), (1, w), (2, params)):
        with device.alloc_at(first, array.shape, array.dtype) as buffer:
            buffer.write(array)
    report = device.run(example("matmul_tile"))
    acc = a.astype(np.int64) @ w.astype(np.int64) + bias
    wide = acc * multiplier.astype(np.int64) + (1 << (shift.astype(np.int64) - 1))
    want = np.clip((wide >> shift.astype(np.int64)) + 3, -128, 127)
    assert np.array_equal(out.read(), want) and len(np.unique(want)) > 20
    out.free()
    assert report.work == {
        "ld_slices": 3, "st_slices": 1, "macs": 16 * 64, "array_rows": 16, "weight_tiles": 1, "vector_rows": 16,
        "tokens": 5, "ops": 8,
    }  # fmt: skip
    if device.transport.timed:
        assert 16 <= report.window < report.cycles < 2000
        assert 0 < report.mxu_utilisation < 1 and 0 < report.hbm_utilisation < 1
    else:
        assert report.cycles is None and report.mxu_utilisation is None


def parameters_and_entry(device: Device) -> None:
    """Loop counts and slices from parameter registers, and a second entry point."""
    text = """
        addr r0 base=p1
        addr r1 base=0
        addr r2 base=p2 stride0=1
        dma_shape unit=ld row_bytes=256 rows=1
        dma_shape unit=st row_bytes=256 rows=1
        hbm_read_slice hbm=r0 vmem=r1 count=1 signal=st
        sync unit=st wait=ld
        loop count=p0 {
          hbm_write_slice hbm=r2 vmem=r1 count=1
        }
        halt code=7
        halt code=200
    """
    program = assemble(text, device.config)
    values = np.arange(256, dtype=np.uint8)
    with device.alloc_at(20, 256, "uint8") as source, device.alloc_at(30, 4 * 256, "uint8") as target:
        source.write(values)
        target.write(np.zeros(4 * 256, np.uint8))
        assert device.run(program, params=(3, 20, 30)).halt_code == 7
        assert np.array_equal(target.read().reshape(4, 256), [values] * 3 + [values * 0])
        assert device.run(program, entry=len(program) - 1).halt_code == 200
        # Registers that are not given are 0 again: no iteration.
        source.write(values[::-1].copy())
        assert device.run(program, params=(0, 20, 30)).halt_code == 7
        assert np.array_equal(target.read().reshape(4, 256)[0], values)


def partial_words(device: Device) -> None:
    """Bytes at any address; their neighbours stay."""
    base = 100 * device.config.slice_bytes
    rng = np.random.default_rng(4)
    model = bytearray(rng.bytes(64))
    device.write_memory(base, bytes(model))
    for _ in range(12):
        at, size = int(rng.integers(0, 60)), int(rng.integers(0, 40))
        data = rng.bytes(min(size, 64 - at))
        device.write_memory(base + at, data)
        model[at : at + len(data)] = data
        assert device.read_memory(base + at, len(data)) == data
    assert device.read_memory(base, 64) == model


def illegal_words(device: Device) -> None:
    """The chip names word and field of what the assembler would have refused, touches nothing, and goes on after."""
    good = isa.encode(isa.Op.HALT, device.config, {})
    weights = isa.OPS[isa.Op.LOAD_WEIGHTS].fields
    at = isa.OPCODE_BITS + sum(f.width for f in weights[: isa.field_index(isa.Op.LOAD_WEIGHTS, "k") - 1])
    too_long = int(isa.Op.LOAD_WEIGHTS) | 1000 << at
    cases = [
        (too_long, Error.ILLEGAL_FIELD, "k", "LOAD_WEIGHTS k must be 1 to 8, not 1000"),
        (63, Error.ILLEGAL_OPCODE, "", "opcode 63 is not implemented"),
        (good | 1 << 200, Error.RESERVED_BITS, "", "HALT has reserved bits set"),
    ]
    before = device.read_memory(0, 4096)
    for word, code, field, reason in cases:
        program = Program([good & ~0x3F | int(isa.Op.ADDR), word, good])
        with pytest.raises(ChipError) as caught:
            device.run(program, verify=False)
        fault = caught.value.fault
        assert (fault.code, fault.pc, fault.field_name, fault.unit) == (code, 1, field, "sequencer")
        assert reason in str(caught.value) and "word 1" in str(caught.value)
        assert device.last_error is None and device.status["error"] == 0  # it was reset
    assert device.read_memory(0, 4096) == before
    with pytest.raises(ChipError, match="runs past the last"):
        device.run(Program([good & ~0x3F | int(isa.Op.ADDR)]), verify=False)
    matmul_tile(device)


def range_faults(device: Device) -> None:
    """Units name the address."""
    last = device.config.hbm_slices
    text = "addr r1 base={}\naddr r2 base={}\ndma_shape unit=ld row_bytes=256\nhbm_read_slice hbm=r1 vmem=r2\nhalt"
    for slices, vmem, code, what in ((last, 0, Error.HBM_RANGE, last), (0, 65536 - 255, Error.VMEM_RANGE, 65536 - 255)):
        with pytest.raises(ChipError) as caught:
            device.run(assemble(text.format(slices, vmem), device.config))
        fault = caught.value.fault
        assert (fault.code, fault.pc, fault.unit, fault.info) == (code, 3, "LD", what)
        assert "hbm_read_slice hbm=r1 vmem=r2" in str(caught.value) and "(line 4)" in str(caught.value)
    device.write_csr("HBM_HI", 10)
    with pytest.raises(ChipError, match="HBM_RANGE"):
        device.run(assemble(text.format(10, 0), device.config))
    device.write_csr("HBM_HI", device.config.hbm_slices)


def deadlock(device: Device) -> None:
    """A wait for a token that nobody gives: the watchdog, who waits for what, and a chip that still works."""
    text = "addr r0 base=0\nload_weights vmem=r0 pitch=8 k=8 n=8 wait=ld\nhalt"
    device.write_csr("WATCHDOG", 300)
    with pytest.raises(ChipError) as caught:
        device.run(assemble(text, device.config))
    device.write_csr("WATCHDOG", device.config.watchdog_cycles)
    fault = caught.value.fault
    assert (fault.code, fault.pc, fault.unit) == (Error.WATCHDOG, 1, "MXU")
    assert "waits for a token from LD" in str(caught.value)
    assert "hung       MXU waits for a token from LD at word 1 `load_weights" in caught.value.dump
    matmul_tile(device)


def debugging(device: Device) -> None:
    """Breakpoint, single steps, registers on the way, resume."""
    text = "addr r1 base=5 stride0=2\nloop 0 count=3 {\n  addr r2 base=9\n}\nhalt code=4"
    device.load_program(assemble(text, device.config))
    device.breakpoint(2)
    device.start()
    assert device.wait(10_000) == "halted"
    assert device.status["halted"] and device.read_csr("PC") == 2
    assert device.read_csr("ADDR1") == 5 and device.read_csr("ADDR2") == 0
    device.breakpoint(None)
    assert device.step() == 3
    assert device.read_csr("ADDR2") == 9
    assert device.step() == 2
    assert device.read_csr("ADDR1") == 7 and device.read_csr("LOOP0") == 1
    assert "at word 2 `addr r2 base=0x9`" in device.dump() and "loop 0: 1 iterations done" in device.dump()
    device.resume()
    assert device.wait(10_000) == "done"
    assert device.read_csr("HALT_CODE") == 4 and device.read_csr("ADDR1") == 5
    with pytest.raises(UsageError, match="halted"):
        device.step()


def refused_accesses(device: Device) -> None:
    """Registers and addresses that do not exist, or must not be written."""
    with pytest.raises(AccessError, match="register ROWS"):
        device.write_csr("ROWS", 9)
    with pytest.raises(AccessError):
        device.transport.csr_read(0xFFC)
    with pytest.raises(AccessError, match="CTRL"):
        device.write_csr("CTRL", 3)
    end = device.config.hbm_bytes
    for address in (end, end - 8, HostMap.UCODE_BASE + device.config.microcode_words * 32):
        with pytest.raises(AccessError, match=f"{address:#x}"):
            device.transport.mem_read(address, 16)
        with pytest.raises(AccessError, match=f"{address:#x}"):
            device.transport.mem_write(address, bytes(16))
    with pytest.raises(AccessError, match="whole words of 8 bytes, not 4 bytes at 0x0"):
        device.transport.mem_read(0, 4)
    assert len(device.transport.mem_read(end - 8, 8)) == 8


def buffers(device: Device) -> None:
    """Arrays in slices: round trips of every type, reuse of what was freed, refusal of what does not fit."""
    rng = np.random.default_rng(5)
    free = device.hbm.free
    held = []
    for dtype in ("int8", "uint8", "int32", "uint32", "float32"):
        array = rng.integers(0, 100, (3, 5, 7)).astype(dtype)
        buffer = device.alloc(array.shape, dtype)
        buffer.write(array)
        held.append((buffer, array))
    for buffer, array in held:
        got = buffer.read()
        assert got.dtype == array.dtype and np.array_equal(got, array)
        with pytest.raises(UsageError, match="takes shape"):
            buffer.write(array[0])
        buffer.free()
    assert device.hbm.free == free
    with pytest.raises(UsageError, match="freed"):
        held[0][0].read()
    with pytest.raises(OutOfMemory, match=rf"needs .* \({free + 1} slices\), .* \({free} slices\) free"):
        device.alloc((free + 1) * device.config.slice_bytes)
    for _ in range(50):  # never leaks
        device.alloc(device.config.hbm_bytes // 2).free()


SCENARIOS = (
    matmul_tile, parameters_and_entry, partial_words, illegal_words, range_faults, deadlock, debugging,
    refused_accesses, buffers,
)  # fmt: skip


def fresh(config: ChipConfig = TINY) -> Device:
    """A device on golden, for tests that need no chip."""
    return Device(config, "golden")
