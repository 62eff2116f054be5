"""The driver on the golden transport."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.asm import ProgramError, assemble
from sluice.errors import ChipError, DeviceMismatch, DeviceTimeout, UndefinedProgram, UsageError
from sluice.runtime import Device
from sluice.runtime.golden import GoldenTransport
from sluice_hw.isa import Error
from verif.unit.runtime.scenarios import SCENARIOS, TINY, example, fresh, matmul_tile


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_scenario(scenario):
    with fresh() as device:
        scenario(device)


def test_all_scenarios_on_one_device():
    """Nothing of one is left for the next."""
    with fresh() as device:
        for scenario in (*SCENARIOS, *reversed(SCENARIOS)):
            scenario(device)


@pytest.mark.parametrize(
    ("change", "register"),
    [({"rows": 4}, "ROWS"), ({"hbm_bytes": 1 << 20}, "HBM_SLICES"), ({"ld_queue": 5}, "QUEUES"),
     ({"acc_bytes": 1 << 13}, "ACC_ROWS")],
)  # fmt: skip
def test_another_chip_is_refused(change, register):
    with pytest.raises(DeviceMismatch, match=f"register {register} "):
        Device(TINY, transport=GoldenTransport(TINY.replace(**change)))


def test_another_version_is_refused(monkeypatch):
    transport = GoldenTransport(TINY)
    read = transport.csr_read
    monkeypatch.setattr(transport, "csr_read", lambda offset: read(offset) ^ (offset == 8))
    with pytest.raises(DeviceMismatch, match="CONFIG_HASH"):
        Device(TINY, transport=transport)


def test_unknown_backend():
    with pytest.raises(UsageError, match="unknown backend 'fpga'; known backends: golden, cocotb, rtl"):
        Device(TINY, "fpga")
    with pytest.raises(UsageError, match="waves"):
        Device(TINY, "golden", waves="x.fst")


def test_programs_that_are_refused_before_anything_is_written():
    with fresh() as device:
        device.load_program(assemble("halt code=9", TINY))
        bad = [
            (example("matmul_tile").to_bytes()[:-1], UsageError, "truncated"),
            (assemble("addr r0 base=0", TINY, check=False), ProgramError, "no HALT"),
            (assemble(".config small\nhalt"), UsageError, "for config 'small', the chip is a 'tiny'"),
            (assemble("\n".join(["addr r0 base=0"] * 1024 + ["halt"]), TINY, check=False), ProgramError, "1025 words"),
        ]
        for program, error, text in bad:
            with pytest.raises(error, match=text):
                device.run(program)
        assert device.run().halt_code == 9


def test_arguments():
    with fresh() as device:
        with pytest.raises(UsageError, match="no program is loaded"):
            device.run()
        device.load_program(assemble("halt", TINY))
        for call, text in (
            (lambda: device.run(params=[0] * 9), "8 parameter registers, not 9"),
            (lambda: device.run(params=[1 << 32]), "PARAM0 takes 0 to"),
            (lambda: device.run(entry=1024), "entry must be 0 to 1023, not 1024"),
            (lambda: device.breakpoint(-1), "breakpoint must be 0 to 1023, not -1"),
            (lambda: device.read_csr("NOPE"), "no register 'NOPE'"),
            (lambda: device.alloc((0, 3)), "dimensions must be integers from 1"),
            (lambda: device.alloc(8, "int64"), "elements must be int8, uint8, int32, uint32, float32, not 'int64'"),
            (lambda: device.alloc(8, "nonsense"), "not 'nonsense'"),
            (lambda: device.write_memory(TINY.hbm_bytes - 1, b"ab"), "do not lie inside"),
            (lambda: device.alloc(4, "int8").write(np.zeros(4, np.int32)), "takes int8, not int32"),
        ):
            with pytest.raises(UsageError, match=text):
                call()


def test_timeout_gives_the_state():
    with fresh() as device:
        text = "loop 0 count=1000000 {\n addr r1 base=0\n}\nhalt"
        with pytest.raises(DeviceTimeout, match="has not ended after 500 cycles") as caught:
            device.run(assemble(text, TINY), timeout_cycles=500)
        assert "loop 0:" in caught.value.dump and "running" in caught.value.dump
        device.write_csr("WATCHDOG", 0)  # nobody but the timeout ends it
        with pytest.raises(DeviceTimeout, match="MXU waits for a token from LD"):
            device.run(assemble("sync unit=mxu wait=ld\nhalt", TINY), timeout_cycles=500)
        matmul_tile(device)


def test_halt_while_it_runs():
    with fresh() as device:
        device.load_program(assemble("loop 0 count=1000 {\n addr r1 base=0\n}\nhalt code=1", TINY))
        device.start()
        device.transport.advance(50)
        device.halt()
        assert device.status["halted"] and device.read_csr("LOOP0") > 10
        with pytest.raises(UsageError, match="a program runs"):
            device.load_program(assemble("halt", TINY))
        device.resume()
        assert device.wait() == "done"


def test_undefined_programs_say_so():
    with fresh() as device:
        text = "addr r1 base=5\naddr r2 base=0\ndma_shape unit=ld row_bytes=8\nhbm_read_slice hbm=r1 vmem=r2\nhalt"
        with pytest.raises(UndefinedProgram, match="HBM_READ_SLICE at pc 3 reads HBM address 0x500, which has not"):
            device.run(assemble(text, TINY))
        matmul_tile(device)


def test_token_overflow():
    with fresh() as device, pytest.raises(ChipError, match="TOKEN_OVERFLOW") as caught:
        device.run(assemble("loop 0 count=256 {\n sync unit=ld signal=vpu\n}\nhalt", TINY))
    assert caught.value.fault.code is Error.TOKEN_OVERFLOW and caught.value.fault.unit == "LD"
