"""What the host sees and does while a program runs, is halted or hangs: halt, step, breakpoint, events, dump."""

from __future__ import annotations

import random

import pytest

from sluice.asm import assemble
from sluice.errors import AccessError
from sluice.runtime import Device
from sluice_hw.csr import Irq
from sluice_hw.isa import Op
from verif.system import workload
from verif.system.configs import CONFIGS

TINY = CONFIGS["tiny"]
ALL = (1 << len(Irq)) - 1


def test_breakpoint_in_a_busy_program(tiny: Device) -> None:
    """Halted at every turn of the outer loop, looked at, resumed: the result is the same as without."""
    work = workload.make(11)
    program = work.program
    work.load(tiny)
    tiny.load_program(program)
    store = max(i for i, w in enumerate(program.words) if w & 63 == Op.HBM_WRITE_SLICE)
    tiny.breakpoint(store)
    tiny.start()
    for turn in range(4):
        assert tiny.wait(20_000) == "halted"
        assert tiny.status["running"] and tiny.status["halted"] and tiny.read_csr("PC") == store
        assert tiny.read_csr("LOOP0") == turn and tiny.read_csr("ADDR5") == 18 + turn
        dump = tiny.dump()
        assert f"at word {store} `hbm_write_slice" in dump and f"loop 0: {turn} iterations done" in dump
        assert "last events" in dump
        tiny.resume()
    assert tiny.wait(20_000) == "done"
    tiny.breakpoint(None)
    work.check(tiny)
    work.run(tiny)


def test_halts_at_any_moment(tiny: Device, seed: int) -> None:
    """Halt, a few single steps, resume, over and over: units go on with what they have, and nothing is lost."""
    rng = random.Random(seed)
    work = workload.make(12)
    work.load(tiny)
    tiny.load_program(work.program)
    tiny.start()
    tiny.transport.advance(60)  # the slice buffer is written back first
    halts = 0
    while tiny.status["running"]:
        tiny.transport.advance(rng.randrange(1, 40))
        tiny._command("halt")
        if tiny.wait(20_000) == "done":
            break
        halts += 1
        before = tiny.read_csr("PC")
        tiny.transport.advance(300)
        assert tiny.status["halted"] and tiny.read_csr("PC") == before, "halted means halted"
        for unit in ("LD", "ST", "MXU", "VPU"):  # what can end has ended; who waits, waits for a token
            state = tiny.read_fields(f"{unit}_STATE")
            assert state["idle"] or state["head"], f"{unit}: {state}"
        for _ in range(rng.randrange(3)):
            assert tiny.step() < len(work.program)
        tiny.resume()
    assert halts >= 3
    work.check(tiny)
    assert tiny.status["done"] and not tiny.status["halted"]


def test_halt_right_after_start(tiny: Device) -> None:
    """The chip halts what runs; the driver waits until the slice buffer is written back and something does."""
    tiny.load_program(assemble("loop 0 count=1000000 {\n addr r1 base=1\n}\nhalt", TINY))
    tiny.write_memory(8, bytes(8))
    tiny.start()
    tiny.halt()
    assert tiny.status["halted"] and tiny.read_csr("PC") < 3
    tiny.reset()


def test_stepping_through(tiny: Device) -> None:
    """Every word of a program with loops, one by one, from the first."""
    text = "addr r1 base=3 stride1=4\nloop 1 count=2 {\n loop 2 count=2 {\n  addr r2 base=1\n }\n}\nhalt code=5"
    tiny.load_program(assemble(text, TINY))
    tiny.breakpoint(0)
    tiny.start()
    assert tiny.wait(5000) == "halted" and tiny.read_csr("PC") == 0
    tiny.breakpoint(None)
    turn = [2, 3, 4]  # LOOP 2, ADDR, END 2; the loop goes back behind its LOOP
    path = [1, *turn, 3, 4, 5, *turn, 3, 4, 5, 6]
    assert [tiny.step() for _ in path] == path
    assert tiny.read_csr("ADDR1") == 3 and not tiny.read_fields("SEQ_STATE")["open"]
    tiny.step()
    assert tiny.status["done"] and tiny.read_csr("HALT_CODE") == 5


def test_event_ring(tiny: Device) -> None:
    """Starts and finishes of a program: every op twice, in order of time, with its unit and its address."""
    text = """
        addr r0 base=0
        addr r1 base=0
        dma_shape unit=ld row_bytes=256 rows=1
        dma_shape unit=st row_bytes=256 rows=1
        hbm_read_slice hbm=r0 vmem=r1 count=1 signal=st
        addr r0 base=50
        hbm_write_slice hbm=r0 vmem=r1 count=1 wait=ld
        halt
    """
    report = tiny.run(assemble(text, TINY))
    events = tiny.events()
    assert [(e.kind, e.unit, e.pc) for e in events] == [(0, 0, 4), (1, 0, 4), (0, 1, 6), (1, 1, 6)]
    assert [e.time for e in events] == sorted(e.time for e in events) and events[-1].time <= report.cycles
    assert events[0].op.startswith("hbm_read_slice") and "finish" in str(events[1])
    # A ring of 64 keeps the newest.
    tiny.run(assemble("loop 0 count=50 {\n sync unit=vpu\n}\nhalt", TINY))
    events = tiny.events()
    assert len(events) == TINY.event_ring and tiny.read_csr("EVENT_HEAD") + tiny.read_csr("EVENT_DROPPED") == 100
    assert all(e.unit == 3 and e.pc == 1 for e in events)


def test_dump_while_running_and_hung(tiny: Device) -> None:
    """Nothing of the state changes what happens, and what hangs can be seen before the watchdog bites."""
    work = workload.make(13)
    work.load(tiny)
    tiny.load_program(work.program)
    tiny.start()
    tiny.transport.advance(60)
    dumps = [tiny.dump()]
    assert tiny.wait(20_000) == "done"
    work.check(tiny)
    tiny.load_program(assemble("addr r9 base=0x99\nsync unit=mxu wait=vpu\nsync unit=vpu wait=mxu\nhalt", TINY))
    tiny.start()
    tiny.transport.advance(500)
    dumps.append(tiny.dump())
    assert tiny.status["running"]
    tiny.reset()
    assert "status     running" in dumps[0]
    assert "MXU        waits for a token from VPU at word 1 `sync" in dumps[1] and "r9=0x99" in dumps[1]
    assert "VPU        waits for a token from MXU at word 2 `sync" in dumps[1]


def test_interrupt_enable_and_status(tiny: Device) -> None:
    """A bit of IRQ_STATUS stands whether enabled or not; the line is high while an enabled one stands."""
    done, error, halted = (1 << b for b in (Irq.DONE, Irq.ERROR, Irq.HALTED))
    tiny.load_program(assemble("addr r1 base=1\nhalt", TINY))
    tiny.write_csr("IRQ_ENABLE", 0)
    tiny.start()
    assert not tiny.transport.wait_interrupt(200)
    assert tiny.read_csr("IRQ_STATUS") == done and tiny.status["done"]
    tiny.write_csr("IRQ_ENABLE", error | halted)
    assert not tiny.transport.wait_interrupt(20)
    tiny.write_csr("IRQ_ENABLE", done)
    assert tiny.transport.wait_interrupt(20), "a level, not an edge"
    tiny.write_csr("IRQ_STATUS", error | halted)  # other bits
    assert tiny.transport.wait_interrupt(20) and tiny.read_csr("IRQ_STATUS") == done
    tiny.write_csr("IRQ_STATUS", done)
    assert not tiny.transport.wait_interrupt(20) and tiny.read_csr("IRQ_STATUS") == 0
    tiny.write_csr("IRQ_ENABLE", ALL)
    tiny.breakpoint(1)
    tiny.start()
    assert tiny.transport.wait_interrupt(500) and tiny.read_csr("IRQ_STATUS") == halted
    tiny.write_csr("IRQ_STATUS", halted)
    tiny.breakpoint(None)
    tiny.resume()
    assert tiny.wait(500) == "done"
    assert tiny.read_csr("IRQ_STATUS") == 0


def test_no_second_start(tiny: Device) -> None:
    """A start while a program runs is refused and changes nothing."""
    work = workload.make(14)
    work.load(tiny)
    tiny.load_program(work.program)
    tiny.start()
    with pytest.raises(AccessError):
        tiny._command("start")
    assert tiny.wait(20_000) == "done"
    work.check(tiny)
