"""Events of all units at once against a list."""

import cocotb
from cocotb.triggers import RisingEdge, Timer

from sluice_hw.debug import EventKind, event_layout
from verif.transactors import seeded, start_up
from verif.unit.microcode import unpack

ENTRIES = 16


async def create(dut):
    await start_up(dut, clear=0, started=0, finished=0, error=0, error_pc=0, error_unit=0, select=0)


async def cycle(dut, **values):
    for name, value in values.items():
        getattr(dut, name).value = value
    await RisingEdge(dut.clk)
    await Timer(1, "ns")


async def read(dut, number):
    await cycle(dut, select=number & 0xFFFF)
    return unpack(event_layout(), int(dut.event.value))


async def restart(dut):
    """After this the next cycle is number 0 of the program."""
    await cycle(dut, clear=1, started=0, finished=0, error=0)
    dut.clear.value = 0


@cocotb.test
async def spaced_events(dut):
    """Events far enough apart all arrive, in order, and the ring keeps the last of them."""
    await create(dut)
    rng = seeded("spaced")
    for _ in range(3):
        await restart(dut)
        expected, now = [], 0
        for _ in range(rng.randint(5, 60)):
            kind, unit, pc = rng.choice(list(EventKind)), rng.randrange(4), rng.getrandbits(16)
            if kind is EventKind.ERROR:
                await cycle(dut, error=1, error_pc=pc, error_unit=unit)
            else:
                port = "started" if kind is EventKind.START else "finished"
                await cycle(dut, **{port: 1 << unit, f"{port}_pc__{unit}": pc})
            expected.append({"time": now, "pc": pc, "unit": unit, "kind": kind})
            now += 1
            dut.started.value = dut.finished.value = dut.error.value = 0
            for _ in range(rng.randint(0, 6)):
                await cycle(dut)
                now += 1
        await cycle(dut)
        assert int(dut.head.value) == len(expected) and int(dut.dropped.value) == 0
        for number in range(max(0, len(expected) - ENTRIES), len(expected)):
            assert await read(dut, number) == expected[number], number
            assert await read(dut, number + ENTRIES) == expected[number], "modulo"


@cocotb.test
async def all_at_once(dut):
    """Nine events in one cycle: none is lost, all have the time they came at."""
    await create(dut)
    await restart(dut)
    for _ in range(5):
        await cycle(dut)
    for u in range(4):
        getattr(dut, f"started_pc__{u}").value = 10 + u
        getattr(dut, f"finished_pc__{u}").value = 20 + u
    await cycle(dut, started=15, finished=15, error=1, error_pc=30, error_unit=4)
    await cycle(dut, started=0, finished=0, error=0)
    for _ in range(12):
        await cycle(dut)
    assert int(dut.head.value) == 9 and int(dut.dropped.value) == 0
    got = [await read(dut, i) for i in range(9)]
    assert all(e["time"] == 5 for e in got)
    expected = {(EventKind.START, u, 10 + u) for u in range(4)} | {(EventKind.FINISH, u, 20 + u) for u in range(4)}
    expected.add((EventKind.ERROR, 4, 30))
    assert {(e["kind"], e["unit"], e["pc"]) for e in got} == expected


@cocotb.test
async def flood(dut):
    """Under a flood, events written and events dropped make up all that came, and what is written is right."""
    await create(dut)
    await restart(dut)
    rng = seeded("flood")
    came = {}
    total = 0
    for now in range(200):
        started, finished = rng.getrandbits(4), rng.getrandbits(4)
        for u in range(4):
            pc = rng.getrandbits(16)
            getattr(dut, f"started_pc__{u}").value = pc
            came[now, EventKind.START, u] = pc
            pc = rng.getrandbits(16)
            getattr(dut, f"finished_pc__{u}").value = pc
            came[now, EventKind.FINISH, u] = pc
        total += started.bit_count() + finished.bit_count()
        await cycle(dut, started=started, finished=finished)
    await cycle(dut, started=0, finished=0)
    for _ in range(12):
        await cycle(dut)
    head, dropped = int(dut.head.value), int(dut.dropped.value)
    assert head + dropped == total and dropped > 0 and head > 190
    for number in range(head - ENTRIES, head):
        e = await read(dut, number)
        assert came[e["time"], e["kind"], e["unit"]] == e["pc"]
