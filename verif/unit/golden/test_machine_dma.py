"""HBM_READ_SLICE and HBM_WRITE_SLICE: packing, unpacking, what they refuse; the host's view of HBM."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.golden import GoldenMachine, UnwrittenReadError
from sluice_hw import isa
from sluice_hw.isa import Error, Op
from verif.unit.golden.machine_kit import SCHEDULES, TINY, int8, peek, poke, rng_of, run_text

SLICE = TINY.slice_bytes


@pytest.mark.parametrize("rows, row_bytes, pitch, count", [
    (1, 1, 0, 1), (10, 25, 25, 1), (10, 25, 32, 1), (3, 200, 256, 3), (7, 36, -40, 1), (256, 1, 3, 1), (2, 256, 300, 2),
])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rows_there_and_back(rows, row_bytes, pitch, count, schedule):
    rng = rng_of("dma", rows, row_bytes)
    machine = GoldenMachine(TINY)
    stream = int8(rng, count * SLICE).view(np.uint8)
    machine.write_hbm(5 * SLICE, stream)
    result = run_text(machine, f"""
        addr r0 base=5
        addr r1 base=1001
        addr r2 base=9
        dma_shape unit=ld row_bytes={row_bytes} rows={rows} pitch={pitch}
        dma_shape unit=st row_bytes={row_bytes} rows={rows} pitch={pitch} pad=165
        hbm_read_slice hbm=r0 vmem=r1 count={count} signal=st
        hbm_write_slice hbm=r2 vmem=r1 count={count} wait=ld
        halt""", schedule_seed=schedule)
    assert result.halted
    assert (result.counters.ld_slices, result.counters.st_slices, result.counters.ops) == (count, count, 2)
    used = rows * row_bytes
    written = set()
    for i in range(rows):
        at = 1001 + i * pitch
        assert peek(machine.vmem, at, (row_bytes,), np.uint8).tolist() == \
            stream[i * row_bytes : (i + 1) * row_bytes].tolist()
        written |= set(range(at, at + row_bytes))
    assert set(np.flatnonzero(machine.vmem.written).tolist()) == written
    out = machine.read_hbm(9 * SLICE, count * SLICE)
    np.testing.assert_array_equal(out[:used], stream[:used])
    assert (out[used:] == 165).all()


def test_overlapping_rows_go_in_order():
    machine = GoldenMachine(TINY)
    machine.write_hbm(0, np.arange(SLICE, dtype=np.uint8))
    run_text(machine, "dma_shape unit=ld row_bytes=4 rows=3 pitch=2\nhbm_read_slice hbm=r0 vmem=r0 count=1\nhalt")
    assert machine.vmem.data[:8].tolist() == [0, 1, 4, 5, 8, 9, 10, 11]


REFUSED = [
    # count too small for the rows: raised by the unit, naming the field
    ("count=1", "rows=3 row_bytes=100", 0, 0, Error.ILLEGAL_FIELD, isa.field_index(Op.HBM_READ_SLICE, "count")),
    ("count=1", "", 65536, 0, Error.HBM_RANGE, 65536),
    ("count=2", "", 65535, 0, Error.HBM_RANGE, 65535),
    ("count=1", "", 0, TINY.vmem_bytes, Error.VMEM_RANGE, TINY.vmem_bytes),
    ("count=1", "rows=2 row_bytes=8 pitch=16", 0, TINY.vmem_bytes - 16, Error.VMEM_RANGE, TINY.vmem_bytes),
    ("count=1", "row_bytes=8", 0, TINY.vmem_bytes - 7, Error.VMEM_RANGE, TINY.vmem_bytes - 7),
    ("count=1", "row_bytes=8", 0, 2**32 - 4, Error.VMEM_RANGE, 2**32 - 4),
    ("count=1", "rows=2 row_bytes=8 pitch=-16", 0, 8, Error.VMEM_RANGE, 2**32 - 8),
]


@pytest.mark.parametrize("op", ["hbm_read_slice", "hbm_write_slice"])
@pytest.mark.parametrize("count, shape, hbm, vmem, code, info", REFUSED)
def test_refused(op, count, shape, hbm, vmem, code, info):
    machine = GoldenMachine(TINY)
    machine.hbm.written[:] = machine.vmem.written[:] = True
    before = machine.hbm.data.copy(), machine.vmem.data.copy()
    unit = "ld" if op == "hbm_read_slice" else "st"
    result = run_text(machine, f"""
        addr r0 base={hbm}
        addr r1 base={vmem}
        dma_shape unit={unit} {shape}
        {op} hbm=r0 vmem=r1 {count} signal=mxu
        halt""")
    assert not result.halted
    error = result.error
    assert (error.code, error.pc, error.info, error.unit) == (code, 3, info, unit)
    assert error.field == (info if code is Error.ILLEGAL_FIELD else 0)
    assert not result.tokens_left and result.counters.ops == 0
    np.testing.assert_array_equal(machine.hbm.data, before[0])
    np.testing.assert_array_equal(machine.vmem.data, before[1])


def test_bounds():
    machine = GoldenMachine(TINY)
    machine.write_hbm(0, bytes(16 * SLICE))
    machine.hbm_lo, machine.hbm_hi = 4, 6
    text = "addr r0 base=p0\ndma_shape unit=ld\nhbm_read_slice hbm=r0 count=2\nhalt"
    assert run_text(machine, text, params=[4]).halted
    for first in (3, 5, 6):
        error = run_text(machine, text, params=[first]).error
        assert (error.code, error.info) == (Error.HBM_RANGE, first)
    machine.hbm_hi = TINY.hbm_slices + 9
    error = run_text(machine, text, params=[TINY.hbm_slices - 1]).error
    assert (error.code, error.info) == (Error.HBM_ERROR, TINY.hbm_slices - 1)


def test_unwritten():
    machine = GoldenMachine(TINY)
    machine.write_hbm(0, bytes(100))
    text = "dma_shape unit=ld row_bytes=50 rows={rows} pitch=64\nhbm_read_slice count=1\nhalt"
    assert run_text(machine, text.format(rows=2)).halted
    with pytest.raises(UnwrittenReadError, match="HBM_READ_SLICE at pc 1 reads HBM address 0x64, which has not been"):
        run_text(machine, text.format(rows=3))
    with pytest.raises(UnwrittenReadError) as error:
        run_text(machine, "dma_shape unit=st row_bytes=51 rows=1\nhbm_write_slice count=1\nhalt")
    e = error.value
    assert (e.memory, e.address, e.op, e.pc) == ("VMEM", 50, "HBM_WRITE_SLICE", 1)


def test_host():
    machine = GoldenMachine(TINY)
    machine.write_hbm(3, np.array([[1, -2], [3, 4]], np.int16))
    assert machine.read_hbm(3, 8).tobytes() == np.array([1, -2, 3, 4], "<i2").tobytes()
    with pytest.raises(UnwrittenReadError, match="the host reads HBM address 0xb, which has not been written"):
        machine.read_hbm(3, 9)
    assert machine.read_hbm(3, 9, allow_unwritten=True)[8] == 0
    end = TINY.hbm_bytes
    for address, count in ((-1, 1), (end, 1), (end - 1, 2)):
        with pytest.raises(ValueError, match=f"must lie in 0 to {end} bytes of HBM"):
            machine.write_hbm(address, bytes(count))
        with pytest.raises(ValueError, match=f"must lie in 0 to {end} bytes of HBM"):
            machine.read_hbm(address, count)
    poke(machine.vmem, 0, np.zeros(4, np.int8))
    machine.clear_memories()
    assert not machine.vmem.written.any() and not machine.hbm.written.any() and not machine.hbm.data.any()
