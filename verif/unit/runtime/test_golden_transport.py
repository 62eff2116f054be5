"""The registers that golden emulates, against the table."""

from __future__ import annotations

import pytest

from sluice.asm import assemble
from sluice.errors import AccessError
from sluice.runtime import Device
from sluice.runtime.golden import GoldenTransport
from sluice_hw.config import preset
from sluice_hw.csr import Access, HostMap, Irq, csr_table

TINY = preset("tiny")


@pytest.mark.parametrize("register", csr_table(TINY), ids=lambda r: r.name)
def test_access_and_reset(register):
    transport = GoldenTransport(TINY)
    if register.access is not Access.WO:
        idle = {"LD_STATE", "ST_STATE", "MXU_STATE", "VPU_STATE", "SEQ_STATE"}
        want = {"SEQ_STATE": 1 << 24}.get(register.name, 1 << 4 | 1) if register.name in idle else register.reset
        assert transport.csr_read(register.offset) == want
    if register.access is Access.RO:
        with pytest.raises(AccessError, match=f"{register.name} is read-only"):
            transport.csr_write(register.offset, 1)
    elif register.access is Access.RW:
        transport.csr_write(register.offset, 0xFFFFFFFF)
        assert transport.csr_read(register.offset) == (1 << register.width) - 1


def test_interrupts():
    transport = GoldenTransport(TINY)
    at = {r.name: r.offset for r in csr_table(TINY)}
    transport.mem_write(HostMap.UCODE_BASE, assemble("halt code=3", TINY).to_bytes())
    transport.csr_write(at["CTRL"], 1)
    assert not transport.wait_interrupt(100), "not enabled"
    assert transport.csr_read(at["IRQ_STATUS"]) == 1 << Irq.DONE
    transport.csr_write(at["IRQ_ENABLE"], 1 << Irq.DONE)
    assert transport.wait_interrupt(1)
    transport.csr_write(at["IRQ_STATUS"], 1 << Irq.ERROR)
    assert transport.wait_interrupt(1), "only bits written as 1 are cleared"
    transport.csr_write(at["IRQ_STATUS"], 1 << Irq.DONE)
    assert not transport.wait_interrupt(1)
    assert transport.csr_read(at["HALT_CODE"]) == 3


def test_start_is_refused_while_running_and_after_an_error():
    transport = GoldenTransport(TINY)
    ctrl = next(r.offset for r in csr_table(TINY) if r.name == "CTRL")
    transport.mem_write(HostMap.UCODE_BASE, assemble("sync unit=ld wait=st\nhalt", TINY).to_bytes())
    transport.csr_write(ctrl, 1)
    with pytest.raises(AccessError, match="start"):
        transport.csr_write(ctrl, 1)
    transport.advance(100)  # deadlock: the watchdog
    with pytest.raises(AccessError, match="start"):
        transport.csr_write(ctrl, 1)
    transport.csr_write(ctrl, 2)
    transport.csr_write(ctrl, 1)


def test_microcode_store_is_memory():
    with Device(TINY, "golden") as device:
        port, last = device.transport, HostMap.UCODE_BASE + TINY.microcode_words * HostMap.WORD_BYTES
        port.mem_write(last - 16, bytes(range(16)))
        assert port.mem_read(last - 16, 16) == bytes(range(16))
        for address in (last - 8, last, HostMap.UCODE_BASE - 8):
            with pytest.raises(AccessError, match="neither in HBM"):
                port.mem_write(address, bytes(16))
