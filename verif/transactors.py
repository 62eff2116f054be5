"""Drivers, monitors and checkers for cocotb benches.

A stream port ``p`` of a component appears in Verilog as ``p__valid``, ``p__ready`` and ``p__payload`` (or, when its
payload is a nested interface, ``p__payload__field``). The classes here speak in payload values: an ``int``, or a
``dict`` of fields when the payload has an :mod:`amaranth.lib.data` layout.

All of them sample on the rising edge, where cocotb still shows the values before the edge.
"""

import logging
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import cocotb
from amaranth.hdl import Const, Shape, ShapeCastable
from amaranth.lib import data
from cocotb.clock import Clock
from cocotb.handle import HierarchyObject, LogicArrayObject
from cocotb.triggers import Event, RisingEdge, Timer

from verif.cover import Cover, covering

__all__ = [
    "Payload",
    "StreamDriver",
    "StreamMonitor",
    "StreamSink",
    "bursts",
    "check_protocol",
    "parameter",
    "random_pauses",
    "seeded",
    "start_clock",
    "start_up",
]

#: What a stream carries: a number, or fields by name.
Payload = int | dict[str, Any]

#: Clock period of benches. Only ratios matter in simulation, so one figure serves all.
PERIOD_NS = 10


def parameter(name: str, default: str | None = None) -> str:
    """Value that the pytest side passed through ``env``; raises ``KeyError`` when absent and without default."""
    value = os.environ.get(name, default)
    if value is None:
        raise KeyError(f"bench parameter {name!r} is not set")
    return value


def seeded(stream: str = "") -> random.Random:
    """Random generator derived from the run's seed and a name, so that one stream's draws never shift another's."""
    seed = os.environ.get("SLUICE_SEED", "1")
    cocotb.log.info("seed %s%s", seed, f" for {stream!r}" if stream else "")
    return random.Random(f"{seed}/{stream}")


def random_pauses(probability: float, rng: random.Random) -> Iterator[bool]:
    """Endless pause generator: pauses a cycle with the given probability."""
    if not 0 <= probability < 1:
        raise ValueError(f"pause probability must be in [0, 1), not {probability!r}: at 1 nothing would ever move")
    while True:
        yield rng.random() < probability


def bursts(rng: random.Random, longest: int = 16) -> Iterator[bool]:
    """Endless pause generator with random runs of free and of paused cycles, each 1 to ``longest`` long."""
    while True:
        for pause in (False, True):
            for _ in range(rng.randint(1, longest)):
                yield pause


def start_clock(dut: HierarchyObject, *, period_ns: int = PERIOD_NS) -> None:
    """Start the clock ``clk``, which then runs in the simulator and costs Python nothing."""
    Clock(dut.clk, period_ns, unit="ns").start()


async def _limit(cycles: int, period_ns: int) -> None:
    await Timer(cycles * period_ns, unit="ns")
    raise AssertionError(f"the test has not ended after {cycles} cycles")


async def start_up(
    dut: HierarchyObject, *, cycles: int = 3, period_ns: int = PERIOD_NS, limit_cycles: int = 1_000_000, **inputs: int
) -> None:
    """Start the clock, set inputs, and hold reset for some cycles.

    Inputs that are not named here start at 0, so that no stream moves before a driver takes it over.

    Parameters
    ----------
    dut
        A component with ``clk`` and, unless it has no resettable register, ``rst``.
    cycles
        Clock edges under reset.
    limit_cycles
        Cycles after which the test fails, so that hardware that hangs does not hang the regression.
    inputs
        Values of further inputs, by name.
    """
    for name, value in inputs.items():
        getattr(dut, name).value = value
    reset = getattr(dut, "rst", None)
    if reset is not None:
        reset.value = 1
    start_clock(dut, period_ns=period_ns)
    cocotb.start_soon(_limit(limit_cycles, period_ns))
    for _ in range(cycles):
        await RisingEdge(dut.clk)
    if reset is not None:
        reset.value = 0
    await Timer(1, unit="ns")  # past the edge, where the write above has taken effect


# What can happen on a stream: neither side ready, only the taker, only the giver, both; and two sequences.
_STREAM_BINS = ("idle", "starved", "stalled", "transfer", "back to back", "transfer after stall")


class _Port:
    """Handles of one stream port, and the conversion of its payload."""

    def __init__(self, dut: HierarchyObject, name: str, shape: Any):
        self.name = name
        self.clock = dut.clk
        self.reset = getattr(dut, "rst", None)
        self.valid: LogicArrayObject = _handle(dut, f"{name}__valid")
        # An always-ready or always-valid side has a constant, which the emitted Verilog leaves out.
        self.ready: LogicArrayObject | None = getattr(dut, f"{name}__ready", None)
        self.payload = getattr(dut, f"{name}__payload", None)
        self.shape = shape
        self.fields: dict[str, LogicArrayObject] = {}
        if self.payload is None:
            prefix = f"{name}__payload__"
            self.fields = {h._name.removeprefix(prefix): h for h in dut if h._name.startswith(prefix)}
            # A payload of width 0 has no port at all; such a stream carries the number 0.

    def in_reset(self) -> bool:
        return self.reset is not None and int(self.reset.value) == 1

    def fires(self) -> bool:
        return self.is_valid() and self.is_ready()

    def is_valid(self) -> bool:
        return int(self.valid.value) == 1

    def is_ready(self) -> bool:
        return self.ready is None or int(self.ready.value) == 1

    def raw(self) -> Any:
        """Payload bits, for comparison."""
        if self.payload is not None:
            return int(self.payload.value)
        return tuple(int(handle.value) for handle in self.fields.values())

    def read(self) -> Payload:
        if self.payload is not None:
            return _unpack(self.shape, int(self.payload.value))
        return {name: int(handle.value) for name, handle in self.fields.items()} if self.fields else 0

    def write(self, value: Payload) -> None:
        if self.payload is not None:
            self.payload.value = _pack(self.shape, value)
            return
        if not self.fields:
            if value != 0:
                raise ValueError(f"stream {self.name!r} has no payload, yet {value!r} was sent")
            return
        if not isinstance(value, Mapping) or set(value) != set(self.fields):
            raise ValueError(f"payload of {self.name!r} must have the fields {sorted(self.fields)}, not {value!r}")
        for name, field in value.items():
            self.fields[name].value = field


class StreamDriver:
    """Sends items into a stream port: drives ``valid`` and ``payload``.

    Parameters
    ----------
    dut
        The component, with its clock ``clk``.
    name
        Port name.
    shape
        Layout or shape of the payload, to send fields by name or signed numbers; without one, send raw bits.
    pauses
        As :meth:`set_pause_generator`.

    Attributes
    ----------
    sent
        Items that the component accepted, in order.
    """

    def __init__(self, dut: HierarchyObject, name: str, *, shape: Any = None, pauses: Iterable[bool] | None = None):
        self._port = _Port(dut, name, shape)
        self._queue: deque[tuple[Payload, Event]] = deque()
        self._wake = Event()
        self._pauses: Iterator[bool] | None = None
        self.sent: list[Payload] = []
        self.set_pause_generator(pauses)
        self._port.valid.value = 0
        self._task = cocotb.start_soon(self._run())

    def set_pause_generator(self, pauses: Iterable[bool] | None) -> None:
        """Insert bubbles: before each item, one idle cycle per ``True`` drawn. ``None`` or an exhausted one: none."""
        self._pauses = iter(pauses) if pauses is not None else None

    def send_nowait(self, item: Payload) -> Event:
        """Queue an item; the event is set when the component has taken it."""
        done = Event()
        self._queue.append((item, done))
        self._wake.set()
        return done

    async def send(self, item: Payload) -> None:
        """Send an item and wait until the component has taken it."""
        await self.send_nowait(item).wait()

    async def send_all(self, items: Iterable[Payload]) -> None:
        """Send items back to back (but for pauses) and wait until the last is taken."""
        done = None
        for item in items:
            done = self.send_nowait(item)
        if done is not None:
            await done.wait()

    @property
    def idle(self) -> bool:
        """No item waits or is being sent."""
        return not self._queue

    async def _run(self) -> None:
        port = self._port
        edge = RisingEdge(port.clock)
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            while self._pauses is not None and next(self._pauses, False):
                await edge
            item, done = self._queue[0]
            port.write(item)
            port.valid.value = 1
            await edge
            while port.in_reset() or not port.is_ready():
                await edge
            port.valid.value = 0
            self._queue.popleft()
            self.sent.append(item)
            done.set()


class StreamMonitor:
    """Watches a stream port: records every transfer and checks the protocol.

    Parameters
    ----------
    dut, name, shape
        As for :class:`StreamDriver`.
    callback
        Called with each item, for example a scoreboard's.
    check
        Fail the test when ``valid`` falls or the payload changes before the transfer.

    Attributes
    ----------
    items
        All items seen, in order.
    cycles
        For each item the index of its clock edge, counted from the monitor's start.
    """

    def __init__(
        self,
        dut: HierarchyObject,
        name: str,
        *,
        shape: Any = None,
        callback: Callable[[Payload], None] | None = None,
        check: bool = True,
    ):
        self._port = _Port(dut, name, shape)
        self._callback = callback
        self._check = check
        self._news = Event()
        self._taken = 0
        self.items: list[Payload] = []
        self.cycles: list[int] = []
        self._cover = Cover(f"stream.{dut._name}.{name}", _STREAM_BINS) if covering() else None
        self._task = cocotb.start_soon(self._run())

    async def get(self) -> Payload:
        """Next item that no earlier call has returned, waiting for it if need be."""
        while self._taken >= len(self.items):
            self._news.clear()
            await self._news.wait()
        self._taken += 1
        return self.items[self._taken - 1]

    async def get_many(self, count: int) -> list[Payload]:
        """The next ``count`` items."""
        return [await self.get() for _ in range(count)]

    def _drive(self) -> None:
        """Hook of :class:`StreamSink`: runs at each edge, after sampling."""

    async def _run(self) -> None:
        port = self._port
        edge = RisingEdge(port.clock)
        held: Any = None
        before = ""
        cycle = 0
        while True:
            await edge
            if port.in_reset():
                held = None
                before = ""
            elif port.is_valid():
                raw = port.raw()
                if self._check and held is not None and held != raw:
                    raise AssertionError(f"stream {port.name!r}: payload changed from {held} to {raw} before transfer")
                held = raw
                if port.is_ready():
                    held = None
                    item = port.read()
                    self.items.append(item)
                    self.cycles.append(cycle)
                    self._news.set()
                    if self._callback is not None:
                        self._callback(item)
            else:
                if self._check and held is not None:
                    raise AssertionError(f"stream {port.name!r}: valid fell before the transfer of {held}")
                held = None
            if self._cover is not None and not port.in_reset():
                before = self._count(before)
            cycle += 1
            self._drive()

    def _count(self, before: str) -> str:
        """Functional coverage of one cycle; returns its state."""
        state = ("idle", "starved", "stalled", "transfer")[2 * self._port.is_valid() + self._port.is_ready()]
        self._cover.hit(state)
        if state == before == "transfer":
            self._cover.hit("back to back")
        if before == "stalled" and state == "transfer":
            self._cover.hit("transfer after stall")
        return state


class StreamSink(StreamMonitor):
    """Takes items out of a stream port: drives ``ready``, and otherwise is a :class:`StreamMonitor`.

    Parameters
    ----------
    pauses
        As :meth:`set_pause_generator`.
    after_valid
        Raise ``ready`` only in a cycle after ``valid`` was seen. A component that waits for ``ready`` before it raises
        ``valid``, which the stream rules forbid, then hangs.
    """

    def __init__(
        self,
        dut: HierarchyObject,
        name: str,
        *,
        shape: Any = None,
        callback: Callable[[Payload], None] | None = None,
        check: bool = True,
        pauses: Iterable[bool] | None = None,
        after_valid: bool = False,
    ):
        super().__init__(dut, name, shape=shape, callback=callback, check=check)
        if self._port.ready is None:
            raise ValueError(f"stream {name!r} has no ready to drive; use StreamMonitor")
        self._after_valid = after_valid
        self.set_pause_generator(pauses)
        self._drive()

    def set_pause_generator(self, pauses: Iterable[bool] | None) -> None:
        """Apply backpressure: ``ready`` is low in each cycle that draws ``True``. ``None`` or exhausted: never."""
        self._pauses = iter(pauses) if pauses is not None else None

    def _drive(self) -> None:
        ready = not (self._pauses is not None and next(self._pauses, False))
        if self._after_valid:
            # Ready follows a cycle in which an item was held, so that it never leads valid.
            ready = ready and self._port.is_valid() and not self._port.is_ready()
        self._port.ready.value = int(ready)


def check_protocol(dut: HierarchyObject, *names: str) -> list[StreamMonitor]:
    """Watch ports only for their protocol; the benches' other transactors need not touch them."""
    return [StreamMonitor(dut, name) for name in names]


def _handle(dut: HierarchyObject, name: str) -> Any:
    handle = getattr(dut, name, None)
    if handle is None:
        known = sorted(h._name for h in dut if "__" in h._name)
        raise AttributeError(f"{dut._name} has no signal {name!r}; its interface signals are {known}")
    return handle


def _pack(shape: Any, value: Payload) -> int:
    if isinstance(value, int) and not isinstance(shape, ShapeCastable):
        return value & ((1 << Shape.cast(shape).width) - 1) if shape is not None else value
    if shape is None:
        raise TypeError(f"a payload of fields needs shape=..., got {value!r} without one")
    if isinstance(value, int):
        return value
    _check_fields(shape, value)
    constant = Const.cast(shape.const(value))
    return constant.value & ((1 << constant.width) - 1)


def _check_fields(shape: Any, value: Any) -> None:
    """A field left out would read as 0 and a wrong one as an obscure error, so both are refused by name."""
    if isinstance(shape, data.StructLayout) and isinstance(value, Mapping):
        if set(value) != set(shape.members):
            raise ValueError(f"payload must have the fields {list(shape.members)}, not {list(value)}")


def _unpack(shape: Any, bits: int) -> Any:
    if shape is None:
        return bits
    if isinstance(shape, type) and issubclass(shape, data.Struct | data.Union):
        shape = data.Layout.cast(shape)
    if isinstance(shape, data.StructLayout | data.UnionLayout):
        return {
            name: _unpack(field.shape, (bits >> field.offset) & ((1 << field.width) - 1)) for name, field in shape
        }
    if isinstance(shape, data.ArrayLayout):
        return [_unpack(field.shape, (bits >> field.offset) & ((1 << field.width) - 1)) for _, field in shape]
    plain = Shape.cast(shape)
    if plain.signed and bits >> (plain.width - 1) & 1:
        bits -= 1 << plain.width
    return shape(bits) if isinstance(shape, type) and callable(shape) and shape is not int else bits


logging.getLogger("cocotb.clock").setLevel(logging.WARNING)
