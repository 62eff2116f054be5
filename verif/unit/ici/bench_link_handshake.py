"""Greetings, timers and reasons to die of one end."""

import cocotb
from cocotb.triggers import RisingEdge, Timer

from sluice_hw.ici.frame import Parameter, Reason, State, hello_layout, parameters
from sluice_hw.ici.link_config import LinkConfig
from verif.models.link import TORUS
from verif.transactors import start_up
from verif.unit.ici.test_link_parts import CONFIG

LAYOUT = hello_layout()
MINE = {parameter.name.lower(): value for parameter, value in parameters(LinkConfig.for_torus(TORUS, **CONFIG)).items()}


def greeting(**fields):
    return LAYOUT.const({**MINE, "nonce": 77, **fields}).as_value().value


async def begin(dut):
    names = ("cleared", "hello", "greeting", "frame", "waiting", "progress", "overflow", "close")
    await start_up(dut, **dict.fromkeys(names, 0))
    assert int(dut.state.value) == State.CLEAR
    dut.cleared.value = 1
    await RisingEdge(dut.clk)
    await Timer(1, "ns")
    assert int(dut.state.value) == State.HELLO
    return said(dut)["nonce"]


def said(dut):
    value = int(dut.say.value)
    return {name: value >> field.offset & (1 << field.width) - 1 for name, field in LAYOUT}


async def hear(dut, **fields):
    """One greeting; afterwards the outputs have settled."""
    dut.hello.value, dut.greeting.value = 1, greeting(**fields)
    await RisingEdge(dut.clk)
    dut.hello.value = 0
    await Timer(1, "ns")


async def come_up(dut):
    nonce = await begin(dut)
    await hear(dut, seen=1, echo=nonce)
    assert int(dut.state.value) == State.UP


async def wait(dut, cycles):
    for _ in range(cycles):
        await RisingEdge(dut.clk)
    await Timer(1, "ns")


def dead(dut, reason):
    return int(dut.state.value) == State.DEAD and int(dut.reason.value) == reason and said(dut)["dead"]


@cocotb.test
async def greets_until_its_nonce_comes_back(dut):
    nonce = await begin(dut)
    assert int(dut.say_hello.value) and not said(dut)["seen"]
    await hear(dut)
    assert int(dut.state.value) == State.HELLO and said(dut)["seen"] and said(dut)["echo"] == 77
    # An echo of an earlier life, and the farewell of one.
    await hear(dut, seen=1, echo=(nonce - 1) % 256)
    await hear(dut, dead=1, seen=1, echo=nonce)
    assert int(dut.state.value) == State.HELLO
    await hear(dut, seen=1, echo=nonce)
    assert int(dut.state.value) == State.UP and not int(dut.say_hello.value) and not int(dut.ready.value)
    # It answers one who is not up, and not one who is.
    dut.hello.value = 1
    for up in (0, 1):
        dut.greeting.value = greeting(seen=1, echo=nonce, up=up)
        await Timer(1, "ns")
        assert int(dut.say_hello.value) == (not up)


@cocotb.test
async def every_parameter(dut):
    """Each difference is named, with the other end's value; of two the first."""
    for parameter in list(Parameter)[1:]:
        await begin(dut)
        name = parameter.name.lower()
        other = MINE[name] ^ 5
        await hear(dut, **{name: other, "map_bits": 3})
        assert dead(dut, Reason.MISMATCH)
        assert int(dut.mismatch.value) == parameter
        assert int(dut.theirs.value) == (3 if name == "map_bits" else other)
        dut.rst.value = 1
        await wait(dut, 1)


@cocotb.test
async def nonces_differ(dut):
    seen = set()
    for _ in range(5):
        seen.add(await begin(dut))
        dut.rst.value = 1
        await wait(dut, 1)
    assert len(seen) == 5


@cocotb.test
async def silence(dut):
    await begin(dut)
    await wait(dut, CONFIG["hello_after"])
    assert int(dut.state.value) == State.HELLO
    await wait(dut, 1)
    assert dead(dut, Reason.SILENT)

    dut.rst.value = 1
    await wait(dut, 1)
    await come_up(dut)
    assert not int(dut.ready.value)
    for _ in range(3):  # a frame in time keeps it alive, and shows that the other end is up
        await wait(dut, CONFIG["dead_after"] - 1)
        dut.frame.value = 1
        await wait(dut, 1)
        dut.frame.value = 0
        assert int(dut.ready.value)
    await wait(dut, CONFIG["dead_after"])
    assert int(dut.state.value) == State.UP
    await wait(dut, 1)
    assert dead(dut, Reason.SILENT)


@cocotb.test
async def no_progress(dut):
    await come_up(dut)
    dut.frame.value = dut.waiting.value = 1
    await wait(dut, CONFIG["stall_after"] - 5)
    dut.progress.value = 1
    await wait(dut, 1)
    dut.progress.value = 0
    await wait(dut, CONFIG["stall_after"])
    assert int(dut.state.value) == State.UP
    await wait(dut, 1)
    assert dead(dut, Reason.NO_PROGRESS)


@cocotb.test
async def other_ends(dut):
    for reason, fields in ((Reason.PEER_RESTART, {"nonce": 78}), (Reason.PEER_DEAD, {"dead": 1})):
        await come_up(dut)
        await hear(dut, **fields)
        assert dead(dut, reason)
        await hear(dut)  # for good
        assert dead(dut, reason)
        dut.rst.value = 1
        await wait(dut, 1)
    for reason, name in ((Reason.OVERFLOW, "overflow"), (Reason.CLOSED, "close")):
        await come_up(dut)
        getattr(dut, name).value = 1
        await wait(dut, 1)
        assert dead(dut, reason)
        dut.rst.value = 1
        await wait(dut, 1)
    await begin(dut)  # also before it is up
    dut.close.value = 1
    await wait(dut, 1)
    assert dead(dut, Reason.CLOSED)
