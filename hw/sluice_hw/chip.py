"""The chip: units, queues, tokens, memories and the host side, put together."""

from __future__ import annotations

from amaranth.hdl import Cat, ClockDomain, ClockSignal, Const, DomainRenamer, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect

from .config import ChipConfig
from .counters import Counters
from .csr import ECC_COUNTERS
from .debug import EventRing
from .dma import DmaLoad, DmaStore
from .emit.grid import EMISSIONS
from .hbm.arbiter import SliceArbiter
from .hbm.back_end import BackEnd, memory_members
from .hbm.guard import EccGuard
from .hbm.sram import SliceMemory
from .host import Host, axi4_members, axi_lite_members, forward
from .isa import Cause, Unit
from .mxu import Mxu
from .sequencer import Sequencer, UnitQueue
from .tokens import TokenCounters
from .vmem import Vmem
from .vpu import FloatUnit, Vpu

__all__ = ["Chip"]


class Chip(wiring.Component):
    """One chip with its memory behind it.

    Two domains share the clock of ``sync`` and add to its reset: ``system`` (sequencer, counters, memory path) is
    reset by a soft reset, ``core`` (units, queues, tokens) also when a program starts. The host side knows neither:
    AXI bursts under way are completed across a soft reset.

    Parameters
    ----------
    config : ChipConfig
    emission : 'structural' or 'loop'
        How the array and the vector lanes are emitted.
    id_bits : int
        Width of AXI ids.
    memory : Component with ``port : In(SlicePortSignature(config))`` and ``state : Out(isa.Cause)``, optional
        Behind the slice port in the place of what ``config.memory`` says: a :class:`.hbm.sram.SliceMemory`, or the
        :class:`.hbm.back_end.BackEnd` of a memory outside.

    Members
    -------
    s_axil_* : AXI4-Lite subordinate, CSRs (``csr.py``)
    s_axi_* : AXI4 subordinate, data (``csr.HostMap``)
    irq : Out(1), level
    dram_*, m_axi_* : pins of a memory outside (:func:`.hbm.back_end.memory_members`)

    Raises
    ------
    ValueError
        For an unknown emission.
    """

    def __init__(
        self, config: ChipConfig, *, emission: str = "structural", id_bits: int = 4,
        memory: wiring.Component | None = None,
    ) -> None:  # fmt: skip
        if emission not in EMISSIONS:
            raise ValueError(f"emission must be one of {', '.join(EMISSIONS)}, not {emission!r}")
        self._config, self._emission, self._id_bits = config, emission, id_bits
        self._pins = memory_members(config) if memory is None else {}
        if memory is None:
            memory = SliceMemory(config) if config.memory == "sram" else BackEnd(config)
        self._memory = memory
        super().__init__({**axi_lite_members(), **axi4_members(id_bits), "irq": Out(1), **self._pins})

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        cfg = self._config
        for name in ("system", "core"):
            m.domains += ClockDomain(name, local=True)
            m.d.comb += ClockSignal(name).eq(ClockSignal())

        def system(component):
            return DomainRenamer("system")(component)

        def core(component):
            return DomainRenamer("core")(component)

        host = Host(config=cfg, id_bits=self._id_bits)
        sequencer = Sequencer(config=cfg)
        counters, events = Counters(), EventRing(entries=cfg.event_ring)
        arbiter, memory = SliceArbiter(cfg), self._memory
        tokens = TokenCounters(token_max=cfg.token_max)
        queues = [UnitQueue(depth=cfg.queue_depth(u.name.lower())) for u in Unit]
        vmem = Vmem(cfg)
        ld, st = DmaLoad(cfg), DmaStore(cfg)
        mxu = Mxu(cfg, emission=self._emission)
        vpu = (FloatUnit if cfg.is_float else Vpu)(cfg, emission=self._emission)
        units = {Unit.LD: ld, Unit.ST: st, Unit.MXU: mxu, Unit.VPU: vpu}
        ports = [units[u].unit for u in Unit]

        m.submodules.host = host
        outside = isinstance(memory, BackEnd)  # completes across a soft reset what is under way
        for name, component in (("sequencer", sequencer), ("counters", counters), ("events", events),
                                ("arbiter", arbiter), ("memory", memory)):
            m.submodules[name] = component if component is memory and outside else system(component)
        for name, component in (("tokens", tokens), ("vmem", vmem), ("ld", ld), ("st", st), ("mxu", mxu), ("vpu", vpu)):
            m.submodules[name] = core(component)
        for u, queue in zip(Unit, queues, strict=True):
            m.submodules[f"{u.name.lower()}_queue"] = core(queue)

        m.d.comb += [
            ResetSignal("system").eq(ResetSignal() | host.core_reset),
            ResetSignal("core").eq(ResetSignal("system") | sequencer.clear),
        ]

        # -- host --------------------------------------------------------------------------------------------------
        forward(m, self, host, {**axi_lite_members(), **axi4_members(self._id_bits)})
        m.d.comb += self.irq.eq(host.irq)
        connect(m, host.ucode, sequencer.ucode)
        for name in ("start", "halt", "step", "resume", "entry", "watchdog", "breakpoint"):
            m.d.comb += getattr(sequencer, name).eq(getattr(host, name))
        for mine, theirs in zip(sequencer.params, host.params, strict=True):
            m.d.comb += mine.eq(theirs)
        for name in ("startable", "running", "done", "halted", "error", "ended", "halt_code", "fault", "state"):
            m.d.comb += getattr(host, name).eq(getattr(sequencer, name))

        # -- queues, tokens ------------------------------------------------------------------------------------------
        progress = []
        m.d.comb += tokens.enable.eq(sequencer.run)
        for u, queue, port in zip(Unit, queues, ports, strict=True):
            connect(m, getattr(sequencer, u.name.lower()), queue.i)
            connect(m, queue.o, port.op)
            connect(m, port.take, tokens.take[u])
            m.d.comb += [
                port.missing.eq(tokens.missing[u]),
                queue.enable.eq(sequencer.run),
                tokens.give[u].eq(port.give), tokens.give_pc[u].eq(port.finished_pc),
                sequencer.queue_empty[u].eq(queue.empty), sequencer.unit_idle[u].eq(port.idle),
                sequencer.unit_fault_valid[u].eq(port.fault_valid), sequencer.unit_fault[u].eq(port.fault),
                sequencer.unit_state[u].eq(port.state), sequencer.unit_pc[u].eq(queue.pc),
                host.units[u].cause.eq(port.state), host.units[u].idle.eq(port.idle), host.units[u].head.eq(queue.head),
                host.units[u].opcode.eq(queue.opcode), host.units[u].level.eq(queue.level),
                host.units[u].wait.eq(port.take.payload & port.take.valid.replicate(len(Unit))),
                host.units[u].missing.eq(tokens.missing[u]), host.units[u].pc.eq(queue.pc),
                events.started[u].eq(port.started), events.started_pc[u].eq(port.started_pc),
                events.finished[u].eq(port.finished), events.finished_pc[u].eq(port.finished_pc),
            ]
            progress += [port.state == Cause.BUSY, port.started, port.finished]
        m.d.comb += [
            sequencer.unit_state[len(Unit)].eq(memory.state),
            sequencer.progress.eq(Cat(*progress, memory.state == Cause.BUSY).any()),
            sequencer.token_fault_valid.eq(tokens.fault_valid), sequencer.token_fault.eq(tokens.fault),
            sequencer.token_fault_unit.eq(tokens.fault_unit),
            host.tokens.eq(tokens.counts),
        ]

        # -- memories ------------------------------------------------------------------------------------------------
        for name, port in (
            ("act", mxu.act), ("weights", mxu.weights), ("residual", vpu.residual), ("source", vpu.source),
            ("params", vpu.params), ("result", vpu.result), ("ld", ld.vmem), ("st", st.vmem),
        ):
            connect(m, port, getattr(vmem, name))
        connect(m, vpu.acc, mxu.acc)
        if cfg.is_float:
            connect(m, vpu.acc_write, mxu.acc_write)
        dma = arbiter.ports[0]
        connect(m, ld.read, dma.read)
        connect(m, dma.read_data, ld.read_data)
        connect(m, st.write, dma.write)
        connect(m, st.write_data, dma.write_data)
        connect(m, dma.write_done, st.write_done)
        connect(m, host.hbm, arbiter.ports[1])
        if outside:
            m.d.comb += memory.cut.eq(host.core_reset)
            forward(m, self, memory, self._pins)
        if cfg.ecc == "off" or outside:
            connect(m, arbiter.memory, memory.port)
            ecc = memory
        else:
            m.submodules.ecc = ecc = system(EccGuard(cfg, mode=cfg.ecc))
            connect(m, arbiter.memory, ecc.port)
            connect(m, ecc.memory, memory.port)
        if cfg.ecc != "off":
            m.d.comb += [
                ecc.period.eq(host.ecc.period), ecc.clear.eq(host.ecc.clear), ecc.inject.valid.eq(host.ecc.inject),
                ecc.inject.payload.eq(host.ecc.error), host.ecc_status.taken.eq(ecc.inject.valid & ecc.inject.ready),
                *(host.ecc_status[name].eq(getattr(ecc.status, name)) for name in ECC_COUNTERS),
            ]  # fmt: skip
        for unit in (ld, st):
            m.d.comb += [unit.hbm_lo.eq(host.hbm_lo), unit.hbm_hi.eq(host.hbm_hi)]

        # -- counters, events ----------------------------------------------------------------------------------------
        given = sum((bit for port in ports for bit in port.give), Const(0, 1))
        finished = sum((port.finished for port in ports), Const(0, 1))
        m.d.comb += [
            counters.clear.eq(sequencer.clear), counters.running.eq(sequencer.running),
            counters.seq.eq(sequencer.state.cause), counters.hbm.eq(memory.state),
            counters.ld.eq(ld.unit.state), counters.st.eq(st.unit.state), counters.mxu.eq(mxu.unit.state),
            counters.vpu.eq(vpu.unit.state),
            counters.work.ld_slices.eq(ld.slices), counters.work.st_slices.eq(st.slices),
            counters.work.macs.eq(mxu.macs), counters.work.array_rows.eq(mxu.array_rows),
            counters.work.weight_tiles.eq(mxu.weight_tiles), counters.work.vector_rows.eq(vpu.vector_rows),
            counters.work.tokens.eq(given), counters.work.ops.eq(finished),
            counters.select.eq(host.counter_select), host.counter_value.eq(counters.value),
            events.clear.eq(sequencer.clear), events.select.eq(host.event_select), host.event.eq(events.event),
            host.event_head.eq(events.head), host.event_dropped.eq(events.dropped),
            events.error.eq(sequencer.ended & sequencer.error), events.error_pc.eq(sequencer.fault.pc),
            events.error_unit.eq(sequencer.fault.unit),
        ]
        return m
