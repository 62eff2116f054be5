"""The sequencer's side of a DMA engine, as its benches need it."""

from collections.abc import Iterable
from dataclasses import dataclass

import cocotb
from cocotb.triggers import Event, RisingEdge

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.interfaces import op_layout
from verif.transactors import StreamDriver, StreamMonitor, StreamSink
from verif.unit.memory import Rows

CODE_BITS = max(isa.Error).bit_length()
#: The word of a train of each engine.
TRAIN = {isa.Unit.LD: isa.Op.HBM_READ_SLICE, isa.Unit.ST: isa.Op.HBM_WRITE_SLICE}


@dataclass(frozen=True)
class Fault:
    code: isa.Error
    pc: int
    info: int


class Engine:
    """Sends ops, grants tokens, and records what the engine reports, with cycle numbers that all records share.

    Attributes
    ----------
    started, finished
        (cycle, pc) of each op.
    given
        (cycle, mask) of each cycle with tokens.
    faults
        (cycle, Fault).
    states
        State in each cycle.
    slices
        Cycles with a pulse of the slice counter.
    """

    def __init__(
        self, dut, port: str, unit: isa.Unit, config: ChipConfig, *, slices: str = "slices",
        op_pauses: Iterable[bool] | None = None, take_pauses: Iterable[bool] | None = None,
    ) -> None:  # fmt: skip
        self.dut, self.port, self.unit, self.config = dut, port, unit, config
        self.ops = StreamDriver(dut, f"{port}__op", shape=op_layout(), pauses=op_pauses)
        self.op_monitor = StreamMonitor(dut, f"{port}__op")
        self.takes = StreamSink(dut, f"{port}__take", pauses=take_pauses)
        #: Whose token is missing while ``take`` is not ready; None: another unit's each cycle.
        self.missing: isa.Unit | None = None
        self.started: list[tuple[int, int]] = []
        self.finished: list[tuple[int, int]] = []
        self.given: list[tuple[int, int]] = []
        self.faults: list[tuple[int, Fault]] = []
        self.states: list[isa.Cause] = []
        self.slices: list[int] = []
        self.cycle = 0
        self._slices = getattr(dut, slices)
        self._news = Event()
        cocotb.start_soon(self._watch())

    def _signal(self, name: str) -> int:
        return int(getattr(self.dut, f"{self.port}__{name}").value)

    async def _watch(self) -> None:
        allowed = isa.UNIT_CAUSES[self.unit.name.lower()]
        others = [unit for unit in isa.Unit if unit != self.unit]
        missing = None
        while True:
            await RisingEdge(self.dut.clk)
            state = isa.Cause(self._signal("state"))
            assert state in allowed, f"{state!r} is none of {allowed}"
            if state.name.startswith("TOKEN_"):
                assert state is isa.Cause[f"TOKEN_{missing.name}"], f"{state!r}, but a token of {missing!r} is missing"
            missing = others[self.cycle % len(others)] if self.missing is None else self.missing
            getattr(self.dut, f"{self.port}__missing").value = 1 << missing
            self.states.append(state)
            if self._signal("started"):
                self.started.append((self.cycle, self._signal("started_pc")))
            if self._signal("finished"):
                self.finished.append((self.cycle, self._signal("finished_pc")))
                self._news.set()
            if self._signal("give"):
                assert self._signal("finished"), "tokens without the end of an op"
                self.given.append((self.cycle, self._signal("give")))
            if self._signal("fault_valid"):
                bits = self._signal("fault")
                code, pc, info = bits & (1 << CODE_BITS) - 1, bits >> CODE_BITS & 0xFFFF, bits >> (CODE_BITS + 16)
                self.faults.append((self.cycle, Fault(isa.Error(code), pc, info)))
                self._news.set()
            if int(self._slices.value):
                self.slices.append(self.cycle)
            self.cycle += 1

    def op(
        self, op: isa.Op, *, a: int = 0, b: int = 0, wait: int = 0, signal: int = 0, pc: int = 0, **fields: int
    ) -> Event:
        """Queue an op."""
        return self.ops.send_nowait({
            "word": isa.encode(op, self.config, fields), "a": a, "b": b, "c": 0, "wait": wait, "signal": signal,
            "accumulate": 0, "swap": 0, "pc": pc,
        })  # fmt: skip

    def shape(self, rows: Rows, pad: int = 0) -> Event:
        """Queue the setup word of ``rows``."""
        return self.op(
            isa.Op.DMA_SHAPE, unit=self.unit, row_bytes=rows.row_bytes, rows=rows.rows, pitch=rows.pitch, pad=pad
        )

    def train(self, rows: Rows, hbm: int, *, wait: int = 0, signal: int = 0, pc: int = 0) -> Event:
        """Queue the train of ``rows``."""
        return self.op(TRAIN[self.unit], a=hbm, b=rows.vmem, wait=wait, signal=signal, pc=pc, count=rows.count)

    def sync(self, *, wait: int = 0, signal: int = 0, pc: int = 0) -> Event:
        return self.op(isa.Op.SYNC, wait=wait, signal=signal, pc=pc, unit=self.unit)

    async def ends(self, count: int) -> None:
        """Wait until ``count`` ops are finished or a fault is reported."""
        while len(self.finished) < count and not self.faults:
            self._news.clear()
            await self._news.wait()

    def is_idle(self) -> bool:
        return self._signal("idle") == 1
