"""Benches of the harness's own test: a FIFO with streams ``i`` and ``o`` of ``{tag, value}``."""

import subprocess
import sys

import cocotb
from amaranth.hdl import signed, unsigned
from amaranth.lib import data
from cocotb.triggers import RisingEdge, with_timeout

from verif.transactors import (
    StreamDriver,
    StreamMonitor,
    StreamSink,
    bursts,
    check_protocol,
    parameter,
    random_pauses,
    seeded,
    start_up,
)

ITEM = data.StructLayout({"tag": unsigned(5), "value": signed(8)})


@cocotb.test()
@cocotb.parametrize(bubbles=[False, True], backpressure=[False, True])
async def ordered(dut, bubbles, backpressure):
    """Every item comes out once, in order, whatever the pauses; without pauses there is one a cycle."""
    rng = seeded("ordered")
    await start_up(dut)
    driver = StreamDriver(dut, "i", pauses=random_pauses(0.4, rng) if bubbles else None)
    seen = []
    monitor = StreamMonitor(dut, "i", callback=seen.append)
    sink = StreamSink(dut, "o", pauses=bursts(rng, 5) if backpressure else None)
    items = [rng.randrange(1 << 13) for _ in range(200)]
    await with_timeout(driver.send_all(items), 50, "us")
    assert await with_timeout(sink.get_many(200), 50, "us") == items
    assert seen == items == driver.sent == monitor.items
    assert driver.idle
    gaps = [b - a for a, b in zip(sink.cycles, sink.cycles[1:], strict=False)]
    if bubbles or backpressure:
        assert max(gaps) > 1
    elif int(parameter("DEPTH")) > 1:
        assert set(gaps) == {1}
    for _ in range(10):
        await RisingEdge(dut.clk)
    assert len(sink.items) == 200  # and nothing more


@cocotb.test()
async def fields(dut):
    """Items by field name, signed ones included."""
    seeded()
    await start_up(dut)
    driver = StreamDriver(dut, "i", shape=ITEM)
    sink = StreamSink(dut, "o", shape=ITEM, after_valid=True)
    items = [{"tag": 31, "value": -128}, {"tag": 0, "value": 127}, {"tag": 7, "value": -1}]
    await with_timeout(driver.send_all(items), 10, "us")
    assert await with_timeout(sink.get_many(3), 10, "us") == items


@cocotb.test()
async def protocol(dut):
    """Fails on a component that breaks the stream rules at its output."""
    rng = seeded("protocol")
    await start_up(dut)
    check_protocol(dut, "i")
    driver = StreamDriver(dut, "i")
    sink = StreamSink(dut, "o", pauses=random_pauses(0.5, rng), after_valid=True)
    await with_timeout(driver.send_all(range(20)), 10, "us")
    await with_timeout(sink.get_many(20), 10, "us")


@cocotb.test()
async def wrong_on_purpose(dut):
    await start_up(dut)
    assert len("wrong on purpose") == 0


@cocotb.test()
async def hangs(dut):
    await start_up(dut, limit_cycles=500)
    while True:
        await RisingEdge(dut.clk)


@cocotb.test()
async def subprocess_is_python(dut):
    """A program that a test starts is that program, whatever way the simulator was started."""
    await start_up(dut)
    done = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
    assert done.stdout == "42\n"
