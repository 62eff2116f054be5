"""The registers of :mod:`~sluice_hw.csr`: storage, commands, what the host reads back."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import csr, isa
from ..config import ChipConfig
from ..debug import event_layout
from ..hbm.errors import injection_layout
from ..sequencer import error_layout, state_layout
from .axil import CsrBusSignature

__all__ = ["Registers", "control_members", "unit_status_layout"]

_N = len(isa.Unit)


def unit_status_layout() -> data.StructLayout:
    """What register ``<UNIT>_STATE`` and ``<UNIT>_PC`` show of a unit and its queue."""
    return data.StructLayout({
        "cause": isa.Cause, "idle": 1, "head": 1, "opcode": isa.OPCODE_BITS, "level": 7, "wait": _N, "missing": _N,
        "pc": 16,
    })


def ecc_layout(config: ChipConfig) -> data.StructLayout:
    """What the registers tell the ECC guard: ``inject`` holds until it is taken, ``clear`` is high in one cycle."""
    return data.StructLayout({"period": 32, "clear": 1, "inject": 1, "error": injection_layout(config)})


def ecc_status_layout() -> data.StructLayout:
    """What it tells them: an injection is taken, and the values of :data:`~sluice_hw.csr.ECC_COUNTERS`."""
    return data.StructLayout({"taken": 1, **{name: 32 for name in csr.ECC_COUNTERS}})


def control_members(config: ChipConfig) -> dict[str, wiring.Member]:
    """Ports between the registers and the rest of the chip, from the registers' view.

    To the sequencer: ``start``, ``halt``, ``step``, ``resume`` (one cycle each), ``entry``, ``params``, ``watchdog``,
    ``breakpoint``; from it: ``startable``, ``running``, ``done``, ``halted``, ``error``, ``ended``, ``halt_code``,
    ``fault``, ``state``. ``hbm_lo``, ``hbm_hi``: bounds in slices. ``core_reset``: high in one cycle, resets everything
    but the host side and the memories. ``counter_select`` / ``counter_value`` and ``event_select`` / ``event``: values
    follow the selection by one cycle. ``event_head``, ``event_dropped``; ``units``: a unit_status_layout() per unit;
    ``tokens``: counts by giver, then by receiver. With ECC: ``ecc`` and ``ecc_status``.
    """
    ecc = {} if config.ecc == "off" else {"ecc": Out(ecc_layout(config)), "ecc_status": In(ecc_status_layout())}
    return {
        **ecc,
        "start": Out(1),
        "halt": Out(1),
        "step": Out(1),
        "resume": Out(1),
        "entry": Out(16),
        "params": Out(32).array(isa.PARAM_REGISTERS),
        "watchdog": Out(32),
        "breakpoint": Out(data.StructLayout({"address": 16, "enable": 1})),
        "hbm_lo": Out(32),
        "hbm_hi": Out(32),
        "core_reset": Out(1),
        "irq": Out(1),
        "startable": In(1),
        "running": In(1),
        "done": In(1),
        "halted": In(1),
        "error": In(1),
        "ended": In(1),
        "halt_code": In(8),
        "fault": In(error_layout()),
        "state": In(state_layout()),
        "counter_select": Out(range(len(csr.counters()))),
        "counter_value": In(64),
        "event_select": Out(16),
        "event": In(event_layout()),
        "event_head": In(32),
        "event_dropped": In(16),
        "units": In(unit_status_layout()).array(_N),
        "tokens": In(data.ArrayLayout(data.ArrayLayout(config.token_max.bit_length(), _N), _N)),
    }


class Registers(wiring.Component):
    """The CSR file.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    bus : In(CsrBusSignature())
    flush, flushed : Out, In
        Of :class:`~.axi.HostAxi`: held from CTRL.start until the slice buffer is written back; then the program starts.
    hold, train_idle : Out, In
        Of :class:`~.slice_buffer.SliceBuffer`: a soft reset waits until no train is under way.
    write_error : In(1)
        Sets IRQ_STATUS.host_error.
    """

    def __init__(self, *, config: ChipConfig) -> None:
        self._config = config
        super().__init__({
            "bus": In(CsrBusSignature()),
            **control_members(config),
            "flush": Out(1),
            "flushed": In(1),
            "hold": Out(1),
            "train_idle": In(1),
            "write_error": In(1),
        })

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        table = csr.csr_map(self.config)
        held = {name: Signal(r.width, init=r.reset, name=name.lower())
                for name, r in table.items() if r.access in (csr.Access.RW, csr.Access.W1C)}
        starting = Signal()
        resetting = Signal()
        upper = Signal(32)

        # -- read ------------------------------------------------------------------------------------------------
        first_counter = table["CYCLES_LO"].offset
        values = self._values(m, table, held, starting, resetting, upper)
        m.d.comb += [
            self.counter_select.eq((self.bus.addr - first_counter) >> 3),
            self.event_select.eq(held["EVENT_SELECT"]),
        ]
        value = Signal(32)
        known = Signal()
        with m.Switch(self.bus.addr):
            for name, r in table.items():
                with m.Case(r.offset):
                    m.d.comb += [value.eq(values[name]), known.eq(1)]

        # A counter's value follows its selection by a cycle, so an access takes three.
        act = Signal()
        refused = Signal()
        with m.FSM():
            with m.State("IDLE"), m.If(self.bus.valid):
                m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += act.eq(1)
                m.d.sync += [self.bus.rdata.eq(value), self.bus.error.eq(~known | refused)]
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += self.bus.ready.eq(1)
                m.next = "IDLE"
        with m.If(act & ~self.bus.write):
            for name, r in table.items():
                if name.endswith("_LO") and first_counter <= r.offset < table["EVENT_HEAD"].offset:
                    with m.If(self.bus.addr == r.offset):
                        m.d.sync += upper.eq(self.counter_value[32:])

        # -- write -----------------------------------------------------------------------------------------------
        events = Signal(len(csr.Irq))
        was_halted = Signal()
        m.d.sync += was_halted.eq(self.halted)
        m.d.comb += [
            events[csr.Irq.DONE].eq(self.ended & self.done),
            events[csr.Irq.ERROR].eq(self.ended & self.error),
            events[csr.Irq.HALTED].eq(self.halted & ~was_halted),
            events[csr.Irq.HOST_ERROR].eq(self.write_error),
        ]
        status = held["IRQ_STATUS"]
        m.d.sync += status.eq(status | events)
        m.d.sync += self.irq.eq((status & held["IRQ_ENABLE"]).any())
        command = Signal(table["CTRL"].width)
        with m.If(act & self.bus.write), m.Switch(self.bus.addr):
            for name, r in table.items():
                with m.Case(r.offset):
                    if r.access is csr.Access.RO:
                        m.d.comb += refused.eq(1)
                    elif r.access is csr.Access.RW:
                        m.d.sync += held[name].eq(self.bus.wdata)
                    elif r.access is csr.Access.W1C:
                        m.d.sync += held[name].eq((held[name] & ~self.bus.wdata) | events)
                    elif name == "CTRL":
                        m.d.comb += command.eq(self.bus.wdata)
                    else:
                        self._ecc_command(m, refused)

        # -- commands --------------------------------------------------------------------------------------------
        several = (command & (command - 1)).any()
        start, soft_reset, halt, step, resume = (command[table["CTRL"].field(f).lsb] & ~several for f in (
            "start", "soft_reset", "halt", "step", "resume"))
        may_start = self.startable & ~starting & ~resetting
        with m.If(several | (start & ~may_start)):
            m.d.comb += refused.eq(1)
        m.d.comb += [
            self.halt.eq(halt),
            self.step.eq(step),
            self.resume.eq(resume),
            self.flush.eq(starting),
            self.start.eq(starting & self.flushed & ~soft_reset),
            self.hold.eq(resetting),
            self.core_reset.eq(resetting & self.train_idle),
        ]
        with m.If(soft_reset):
            m.d.sync += [resetting.eq(1), starting.eq(0)]
        with m.Else():
            with m.If(self.core_reset):
                m.d.sync += resetting.eq(0)
            with m.If(start & may_start):
                m.d.sync += starting.eq(1)
            with m.Elif(self.flushed):
                m.d.sync += starting.eq(0)

        if self.config.ecc != "off":
            with m.If(self.ecc_status.taken):
                m.d.sync += self.ecc.inject.eq(0)
            error = self.ecc.error
            m.d.comb += [
                self.ecc.period.eq(held["ECC_PERIOD"]), error.slice.eq(held["ECC_INJECT_SLICE"]),
                error.word.eq(held["ECC_INJECT_WORD"]), error.check.eq(held["ECC_INJECT_CHECK"]),
                error.data.eq(Cat(held["ECC_INJECT_DATA_LO"], held["ECC_INJECT_DATA_HI"])),
            ]

        breakpoint = table["BREAKPOINT"]
        m.d.comb += [
            self.entry.eq(held["ENTRY"]),
            self.watchdog.eq(held["WATCHDOG"]),
            self.hbm_lo.eq(held["HBM_LO"]),
            self.hbm_hi.eq(held["HBM_HI"]),
            self.breakpoint.address.eq(held["BREAKPOINT"] >> breakpoint.field("address").lsb),
            self.breakpoint.enable.eq(held["BREAKPOINT"] >> breakpoint.field("enable").lsb),
            *[self.params[i].eq(held[f"PARAM{i}"]) for i in range(isa.PARAM_REGISTERS)],
        ]
        return m

    def _ecc_command(self, m: Module, refused: Signal) -> None:
        clear, inject = self.bus.wdata[0], self.bus.wdata[1]
        m.d.comb += [self.ecc.clear.eq(clear), refused.eq(inject & self.ecc.inject)]
        with m.If(inject):
            m.d.sync += self.ecc.inject.eq(1)

    def _values(self, m: Module, table, held, starting, resetting, upper) -> dict[str, Value | int]:
        """What the host reads, by register name."""

        def pack(name: str, **parts) -> Signal:
            whole = Signal(32, name=name.lower())
            for f in table[name].fields:
                m.d.comb += whole[f.lsb:f.lsb + f.width].eq(parts[f.name])
            return whole

        out: dict[str, Value | int] = dict(held)
        fault, state, event = self.fault, self.state, self.event
        out |= {
            "CTRL": 0,
            "STATUS": pack(
                "STATUS", running=self.running, done=self.done, halted=self.halted, error=self.error,
                watchdog=self.error & (fault.code == isa.Error.WATCHDOG), starting=starting, resetting=resetting),
            "HALT_CODE": self.halt_code,
            "ERROR_CODE": fault.code,
            "ERROR_PC": fault.pc,
            "ERROR_FIELD": fault.field,
            "ERROR_INFO": fault.info,
            "ERROR_UNIT": fault.unit,
            "EVENT_HEAD": self.event_head,
            "EVENT_DROPPED": self.event_dropped,
            "EVENT_TIME": event.time,
            "EVENT_INFO": pack("EVENT_INFO", pc=event.pc, unit=event.unit, kind=event.kind),
            "PC": state.pc,
            "SEQ_STATE": pack("SEQ_STATE", open=state.open, first=state.first, last=state.last, cause=state.cause),
        }
        for i in range(isa.LOOP_LEVELS):
            out[f"LOOP{i}"] = state.iterations[i]
        for i in range(isa.ADDRESS_REGISTERS):
            out[f"ADDR{i}"] = state.addresses[i]
        for u in isa.Unit:
            unit = self.units[u]
            name = f"{u.name}_STATE"
            out[name] = pack(name, **{f.name: unit[f.name] for f in table[name].fields})
            out[f"{u.name}_PC"] = unit.pc
            name = f"TOKENS_{u.name}"
            out[name] = pack(name, **{f"to_{v.name.lower()}": self.tokens[u][v] for v in isa.Unit})
        for name in csr.counters():
            out[f"{name.upper()}_LO"] = self.counter_value[:32]
            out[f"{name.upper()}_HI"] = upper
        if self.config.ecc != "off":
            out |= {"ECC_CTRL": 0, "ECC_STATUS": self.ecc.inject}
            out |= {f"ECC_{name.upper()}": self.ecc_status[name] for name in csr.ECC_COUNTERS}
        for name, r in table.items():
            if name not in out:  # identification and geometry: constants
                if r.access is not csr.Access.RO or r.offset >= table["CTRL"].offset:
                    raise AssertionError(f"register {name} has no value")
                out[name] = r.reset
        return out
