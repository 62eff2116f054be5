"""Sequencer: fetches microcode, runs the hardware loops, hands ops to the queues of the units, stops on errors.

Three stages. *Fetch* addresses the store; *check* holds the word in the store's output register and runs it through the
:class:`~.decoder.Decoder`; *execute* resolves addresses and predicates and offers the op to its queue, or acts on loops
and address registers itself. Words flow one a cycle; a taken END, a skipped loop and a start refill the stages.
"""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out, Signature

from . import csr, isa
from .addrgen import AddressRegisters
from .config import ChipConfig
from .decoder import Decoder, verdict_layout
from .interfaces import ADDR_BITS, fault_layout, op_layout
from .loops import COUNT_BITS, LoopLevels

__all__ = [
    "Sequencer", "UcodePortSignature", "UnitQueue", "address_fields", "error_layout", "state_layout",
    "ucode_request_layout",
]

_UNITS = [u.name.lower() for u in isa.Unit]
_LEVELS = isa.LOOP_LEVELS
_PC_BITS = 17  # one more than an address: the place behind the last of 65536 words is a value, too


def address_fields(op: isa.Op) -> list[str]:
    """Fields of ``op`` that name an address register whose value goes out as ``a``, ``b``, ``c`` of the micro-op."""
    if op is isa.Op.ADDR:
        return []
    return [f.name for f in isa.OPS[op].fields if f.name in ("hbm", "vmem", "acc", "src", "res", "dst", "addr")]


def error_layout() -> data.StructLayout:
    """Contents of the ERROR registers."""
    return data.StructLayout({"code": isa.Error, "pc": _PC_BITS, "field": 8, "info": 32, "unit": 3})


def state_layout() -> data.StructLayout:
    """The sequencer's part of the state dump."""
    return data.StructLayout({
        "pc": _PC_BITS,
        "open": _LEVELS,
        "first": _LEVELS,
        "last": _LEVELS,
        "iterations": data.ArrayLayout(unsigned(COUNT_BITS), _LEVELS),
        "addresses": data.ArrayLayout(unsigned(ADDR_BITS), isa.ADDRESS_REGISTERS),
        "cause": isa.Cause,
    })


def ucode_request_layout(config: ChipConfig) -> data.StructLayout:
    """Access to the microcode store."""
    return data.StructLayout({"write": 1, "addr": range(config.microcode_words), "lane": 2, "data": 64})


class UcodePortSignature(Signature):
    """Host's view of the microcode store: 64 bits at a time, ``lane`` 0 is the least significant part of word ``addr``.

    A request is taken at once. A read is answered by ``rsp_valid`` with ``rsp_data`` in the next cycle.
    """

    def __init__(self, config: ChipConfig) -> None:
        super().__init__({
            "req": Out(stream.Signature(ucode_request_layout(config))),
            "rsp_valid": In(1),
            "rsp_data": In(64),
        })


class UnitQueue(wiring.Component):
    """Queue in front of a unit.

    Parameters
    ----------
    depth : int
        Ops it holds, at least 2.

    Members
    -------
    i, o : stream of op_layout()
    enable : In(1)
        While low nothing comes out: the chip has stopped. (It then withdraws ``o.valid`` without a transfer.)
    level : Out
        Ops inside.
    empty : Out(1)
    head : Out(1)
        An op stands at the output, ``enable`` or not.
    opcode, pc : Out
        Of the op at the head, else of the one taken last.
    """

    def __init__(self, *, depth: int) -> None:
        if not isinstance(depth, int) or isinstance(depth, bool):
            raise TypeError(f"queue depth must be an integer, not {depth!r}")
        if depth < 2:
            raise ValueError(f"queue depth must be at least 2, not {depth}")
        self._depth = depth
        super().__init__({
            "i": In(stream.Signature(op_layout())),
            "o": Out(stream.Signature(op_layout())),
            "enable": In(1, init=1),
            "level": Out(range(depth + 1)),
            "empty": Out(1),
            "head": Out(1),
            "opcode": Out(isa.OPCODE_BITS),
            "pc": Out(16),
        })

    @property
    def depth(self) -> int:
        return self._depth

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.fifo = q = fifo.SyncFIFOBuffered(width=op_layout().size, depth=self.depth)
        word = data.View(isa.word_layout(isa.Op.HALT), self.o.payload.word)
        opcode = Signal(isa.OPCODE_BITS)
        pc = Signal(16)
        m.d.comb += [
            q.w_data.eq(self.i.payload),
            q.w_en.eq(self.i.valid),
            self.i.ready.eq(q.w_rdy),
            self.o.payload.eq(q.r_data),
            self.o.valid.eq(q.r_rdy & self.enable),
            q.r_en.eq(self.o.ready & self.enable),
            self.level.eq(q.level),
            self.empty.eq(q.level == 0),
            self.head.eq(q.r_rdy),
            self.opcode.eq(Mux(q.r_rdy, word.opcode, opcode)),
            self.pc.eq(Mux(q.r_rdy, self.o.payload.pc, pc)),
        ]
        with m.If(q.r_rdy):
            m.d.sync += [opcode.eq(word.opcode), pc.eq(self.o.payload.pc)]
        return m


class Sequencer(wiring.Component):
    """The sequencer with its microcode store.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    start, halt, step, resume : In(1)
        One-cycle commands. ``start`` acts when ``startable``; ``halt`` while a program runs; ``step`` and ``resume``
        while ``halted``. A halt lets the word on offer to a full queue go first; a stop by an error withdraws it.
    entry, params, watchdog, breakpoint : In
        Values of the CSRs.
    ucode : In(UcodePortSignature)
    ld, st, mxu, vpu : Out(stream of op_layout())
        To the queues.
    queue_empty, unit_idle : In(4)
        By :class:`isa.Unit`; HALT ends when all bits are high in two cycles in a row.
    unit_fault_valid, unit_fault : In
        The units' faults.
    token_fault_valid, token_fault, token_fault_unit : In
        From :class:`~.tokens.TokenCounters`.
    progress : In(1)
        Something in the units moves; for the watchdog.
    unit_state : array of In(isa.Cause)
        States of LD, ST, MXU, VPU and HBM, for the watchdog's report.
    unit_pc : array of In(16)
        Address of the op that each unit stands at (:attr:`UnitQueue.pc`), for the same.
    clear : Out(1)
        High in the cycle before a program runs: units, queues and token counters take their reset values.
    run : Out(1)
        A program runs and no error has stopped it; without it no op may start.
    running, done, halted, error, startable : Out(1)
    ended : Out(1)
        High in one cycle, the first after a program's end by HALT or error.
    halt_code, fault : Out
        ``fault`` is an error_layout().
    state : Out(state_layout())
    """

    def __init__(self, *, config: ChipConfig) -> None:
        self._config = config
        n = len(isa.Unit)
        super().__init__({
            "start": In(1),
            "halt": In(1),
            "step": In(1),
            "resume": In(1),
            "entry": In(16),
            "params": In(32).array(isa.PARAM_REGISTERS),
            "watchdog": In(32, init=config.watchdog_cycles),
            "breakpoint": In(data.StructLayout({"address": 16, "enable": 1})),
            "ucode": In(UcodePortSignature(config)),
            **{u: Out(stream.Signature(op_layout())) for u in _UNITS},
            "queue_empty": In(n),
            "unit_idle": In(n),
            "unit_fault_valid": In(n),
            "unit_fault": In(fault_layout()).array(n),
            "token_fault_valid": In(1),
            "token_fault": In(fault_layout()),
            "token_fault_unit": In(2),
            "progress": In(1),
            "unit_state": In(isa.Cause).array(n + 1),
            "unit_pc": In(16).array(n),
            "clear": Out(1),
            "run": Out(1),
            "running": Out(1),
            "done": Out(1),
            "halted": Out(1),
            "error": Out(1),
            "startable": Out(1),
            "ended": Out(1),
            "halt_code": Out(8),
            "fault": Out(error_layout()),
            "state": Out(state_layout()),
        })

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        words = self.config.microcode_words
        m.submodules.store = store = memory.Memory(shape=unsigned(isa.WORD_BITS), depth=words, init=[])
        m.submodules.decoder = decoder = Decoder(config=self.config)
        m.submodules.addresses = addresses = AddressRegisters()
        read = store.read_port()
        write = store.write_port(granularity=64)

        # -- commands and status ---------------------------------------------------------------------------------
        finish = Signal()  # HALT ends the program in this cycle
        stop = Signal()  # an error does
        stop_as = Signal(error_layout())
        complete = Signal()  # the word in execute is done in this cycle
        m.d.comb += [
            self.startable.eq(~self.running & ~self.error),
            self.clear.eq(self.start & self.startable),
            self.run.eq(self.running),
            addresses.clear.eq(self.clear),
        ]
        m.d.sync += self.ended.eq(finish | stop)
        with m.If(self.clear):
            m.d.sync += [self.running.eq(1), self.done.eq(0)]
        with m.Elif(stop):
            m.d.sync += [self.running.eq(0), self.error.eq(1), self.fault.eq(stop_as)]
        with m.Elif(finish):
            m.d.sync += [self.running.eq(0), self.done.eq(1)]

        # -- fetch and check -------------------------------------------------------------------------------------
        fetch_on = Signal()
        fetch_pc = Signal(_PC_BITS)
        in_store = Signal()
        check_valid = Signal()
        check_pc = Signal(_PC_BITS)
        check_range = Signal()  # the address lies outside the store
        exec_valid = Signal()
        exec_pc = Signal(_PC_BITS)
        exec_range = Signal()
        exec_verdict = Signal(verdict_layout())
        exec_word = Signal(isa.WORD_BITS, reset_less=True)
        jump = Signal()
        target = Signal(_PC_BITS)

        advance = ~exec_valid | complete
        host_read = Signal()
        fetch = Signal()
        m.d.comb += [
            in_store.eq(fetch_pc < words),
            host_read.eq(self.ucode.req.valid & ~self.ucode.req.payload.write),
            fetch.eq(fetch_on & ~host_read & (~check_valid | advance)),
            read.en.eq(host_read | (fetch & in_store)),
            read.addr.eq(Mux(host_read, self.ucode.req.payload.addr, fetch_pc)),
            decoder.word.eq(read.data),
        ]
        with m.If(advance):
            m.d.sync += [
                exec_valid.eq(check_valid),
                exec_pc.eq(check_pc),
                exec_range.eq(check_range),
                exec_verdict.eq(decoder.verdict),
                exec_word.eq(read.data),
                check_valid.eq(0),
            ]
        with m.Elif(host_read & check_valid):
            # The store's output register now gets the host's word: fetch the one it held again.
            m.d.sync += [check_valid.eq(0), fetch_pc.eq(check_pc), fetch_on.eq(1)]
        with m.If(fetch):
            m.d.sync += [
                check_valid.eq(1),
                check_pc.eq(fetch_pc),
                check_range.eq(~in_store),
                fetch_pc.eq(fetch_pc + 1),
                fetch_on.eq(in_store),
            ]
        with m.If(self.clear):
            m.d.sync += [fetch_on.eq(1), fetch_pc.eq(self.entry), check_valid.eq(0), exec_valid.eq(0)]
        with m.Elif(finish | stop):
            m.d.sync += [fetch_on.eq(0), check_valid.eq(0), exec_valid.eq(0)]
        with m.Elif(jump):
            m.d.sync += [fetch_on.eq(1), fetch_pc.eq(target), check_valid.eq(0), exec_valid.eq(0)]

        # The host's side of the store.
        lane = Signal(2)
        m.d.comb += [
            self.ucode.req.ready.eq(1),
            write.addr.eq(self.ucode.req.payload.addr),
            write.data.eq(self.ucode.req.payload.data.replicate(4)),
            write.en.eq(Mux(self.ucode.req.valid & self.ucode.req.payload.write, 1 << self.ucode.req.payload.lane, 0)),
            self.ucode.rsp_data.eq(read.data.word_select(lane, 64)),
        ]
        m.d.sync += [self.ucode.rsp_valid.eq(host_read), lane.eq(self.ucode.req.payload.lane)]

        # -- halting ---------------------------------------------------------------------------------------------
        offered = Signal()  # the word has been shown to its queue: it must go
        want_halt = Signal()
        single = Signal()  # one word may go although halted
        passed = Signal()  # the breakpoint at this word has been served
        at_break = Signal()
        blocked = Signal()
        m.d.comb += [
            at_break.eq(self.breakpoint.enable & (self.breakpoint.address == exec_pc) & ~passed),
            blocked.eq(~offered & Mux(self.halted, ~single, want_halt | at_break)),
        ]
        with m.If(self.halt & self.running & ~self.halted):
            m.d.sync += want_halt.eq(1)
        with m.If(self.running & exec_valid & ~self.halted & blocked):
            m.d.sync += [self.halted.eq(1), want_halt.eq(0)]
        with m.If(self.halted & self.step):
            m.d.sync += single.eq(1)
        with m.If(self.halted & self.resume):
            m.d.sync += [self.halted.eq(0), single.eq(0), passed.eq(1)]
        with m.If(complete):
            m.d.sync += [single.eq(0), passed.eq(0)]
        with m.If(self.clear | finish | stop):
            m.d.sync += [self.halted.eq(0), want_halt.eq(0), single.eq(0), passed.eq(0)]

        # -- execute ---------------------------------------------------------------------------------------------
        m.submodules.loops = loops = LoopLevels()
        own_valid = Signal()
        own_code = Signal(isa.Error)
        own_field = Signal(8)
        go = Signal()  # the word may act
        offer = Signal()
        halting = Signal()
        out = Signal(op_layout())
        dest = Signal(len(isa.Unit))
        opcode = data.View(isa.word_layout(isa.Op.HALT), exec_word).opcode
        loop = data.View(isa.word_layout(isa.Op.LOOP), exec_word)
        end = data.View(isa.word_layout(isa.Op.END), exec_word)
        addr = data.View(isa.word_layout(isa.Op.ADDR), exec_word)
        params = Array(self.params)

        ready = (Cat(getattr(self, u).ready for u in _UNITS) & dest).any()
        quiet = Signal()
        quiet_before = Signal()
        m.d.comb += [
            go.eq(self.running & exec_valid & ~blocked & ~addresses.busy),
            quiet.eq(halting & self.queue_empty.all() & self.unit_idle.all()),
            loops.clear.eq(self.clear),
            loops.pc.eq(exec_pc),
            loops.level.eq(loop.level),
            loops.count.eq(Mux(loop.from_param, params[loop.param], loop.count)),
            loops.end_pc.eq(loop.end),
            addresses.open.eq(Mux(loops.loop, 1 << loops.level, 0)),
            addresses.step.eq(loops.end),
            addresses.level.eq(end.level),
            addresses.last.eq(loops.leaves),
            addresses.active.eq(loops.open),
            addresses.reg.eq(addr.reg),
            addresses.values.base.eq(addr.base + Mux(addr.add_param, params[addr.param], 0)),
            addresses.values.ring.eq(addr.ring),
            *[addresses.values.strides[i].eq(addr[f"stride{i}"]) for i in range(_LEVELS)],
            *[addresses.done[i].eq(loops.done[i]) for i in range(_LEVELS)],
        ]
        m.d.sync += quiet_before.eq(quiet)
        m.d.sync += offered.eq(offer & ~ready)

        def refuse(code, field=0) -> None:
            m.d.comb += [own_valid.eq(1), own_code.eq(code), own_field.eq(field)]

        with m.If(go):
            with m.If(exec_range):
                refuse(isa.Error.FETCH_RANGE)
            with m.Elif(exec_verdict.code != isa.Error.NONE):
                refuse(exec_verdict.code, exec_verdict.field)
            with m.Elif(loops.at_end & (opcode != isa.Op.END)):
                refuse(isa.Error.LOOP_NESTING)
            with m.Elif(opcode == isa.Op.HALT):
                m.d.comb += [halting.eq(1), finish.eq(quiet & quiet_before & ~stop)]
            with m.Elif(opcode == isa.Op.LOOP):
                with m.If(loops.bad_level):
                    refuse(isa.Error.LOOP_NESTING, isa.field_index(isa.Op.LOOP, "level"))
                with m.Elif(loops.bad_end):
                    refuse(isa.Error.LOOP_NESTING, isa.field_index(isa.Op.LOOP, "end"))
                with m.Elif(loops.count == 0):
                    m.d.comb += [complete.eq(1), jump.eq(1), target.eq(loop.end + 1)]
                with m.Else():
                    m.d.comb += [complete.eq(1), loops.loop.eq(1)]
            with m.Elif(opcode == isa.Op.END):
                with m.If(loops.bad_close):
                    refuse(isa.Error.LOOP_NESTING, isa.field_index(isa.Op.END, "level"))
                with m.Else():
                    m.d.comb += [complete.eq(1), loops.end.eq(1), jump.eq(~loops.leaves), target.eq(loops.again)]
            with m.Elif(opcode == isa.Op.ADDR):
                m.d.comb += [complete.eq(1), addresses.set.eq(1)]
            with m.Else():
                m.d.comb += [offer.eq(1), complete.eq(ready)]
        with m.If(self.clear):
            m.d.sync += self.halt_code.eq(0)
        with m.Elif(finish):
            m.d.sync += self.halt_code.eq(data.View(isa.word_layout(isa.Op.HALT), exec_word).code)

        self._resolve(m, isa.ops_of(self._config), exec_word, exec_pc, loops, addresses, out, dest)
        for i, u in enumerate(_UNITS):
            port = getattr(self, u)
            m.d.comb += [port.valid.eq(offer & dest[i]), port.payload.eq(out)]

        # -- state and watchdog ----------------------------------------------------------------------------------
        m.d.comb += [
            self.state.pc.eq(Mux(exec_valid, exec_pc, Mux(check_valid, check_pc, fetch_pc))),
            self.state.open.eq(loops.open),
            self.state.first.eq(loops.first),
            self.state.last.eq(loops.last),
            self.state.addresses.eq(addresses.cur),
            *[self.state.iterations[i].eq(loops.done[i]) for i in range(_LEVELS)],
            self.state.cause.eq(isa.Cause.BUSY),
        ]
        with m.If(~self.running | self.halted & ~single | halting):
            m.d.comb += self.state.cause.eq(isa.Cause.IDLE)
        with m.Elif(offer & ~ready):
            m.d.comb += self.state.cause.eq(isa.Cause.QUEUE)

        hung = Signal(32)
        expired = Signal()
        waiting = Signal(range(csr.SEQUENCER + 1))
        waiting_for = Signal(isa.Cause)
        waiting_pc = Signal(_PC_BITS)
        with m.If(self.progress | complete | ~self.running | self.halted):
            m.d.sync += hung.eq(0)
        with m.Else():
            m.d.sync += hung.eq(hung + 1)
            m.d.comb += expired.eq((self.watchdog != 0) & (hung + 1 >= self.watchdog))
        m.d.comb += [waiting.eq(csr.SEQUENCER), waiting_for.eq(self.state.cause), waiting_pc.eq(self.state.pc)]
        for i in reversed(range(len(_UNITS))):
            state = self.unit_state[i]
            with m.If((state != isa.Cause.BUSY) & (state != isa.Cause.IDLE)):
                m.d.comb += [waiting.eq(i), waiting_for.eq(state), waiting_pc.eq(self.unit_pc[i])]

        # -- errors: the first stops the program -------------------------------------------------------------------
        with m.If(self.running):
            for i in range(len(_UNITS)):
                fault = self.unit_fault[i]
                with (m.If if i == 0 else m.Elif)(self.unit_fault_valid[i]):
                    m.d.comb += [
                        stop.eq(1),
                        stop_as.code.eq(fault.code),
                        stop_as.pc.eq(fault.pc),
                        stop_as.info.eq(fault.info),
                        stop_as.unit.eq(i),
                        # A unit that refuses a field tells which one in `info`.
                        stop_as.field.eq(Mux(fault.code == isa.Error.ILLEGAL_FIELD, fault.info, 0)),
                    ]
            with m.Elif(self.token_fault_valid):
                m.d.comb += [
                    stop.eq(1),
                    stop_as.code.eq(self.token_fault.code),
                    stop_as.pc.eq(self.token_fault.pc),
                    stop_as.info.eq(self.token_fault.info),
                    stop_as.unit.eq(self.token_fault_unit),
                ]
            with m.Elif(own_valid):
                m.d.comb += [
                    stop.eq(1),
                    stop_as.code.eq(own_code),
                    stop_as.pc.eq(exec_pc),
                    stop_as.field.eq(own_field),
                    stop_as.info.eq(Mux(exec_range, 0, exec_word[:32])),
                    stop_as.unit.eq(csr.SEQUENCER),
                ]
            with m.Elif(expired):
                info = data.View(csr.watchdog_info_layout(), stop_as.info)
                m.d.comb += [
                    stop.eq(1),
                    stop_as.code.eq(isa.Error.WATCHDOG),
                    stop_as.unit.eq(waiting),
                    stop_as.pc.eq(waiting_pc),
                    info.unit.eq(waiting),
                    info.cause.eq(waiting_for),
                    info.seq.eq(self.state.cause),
                    *[info[u].eq(self.unit_state[i]) for i, u in enumerate([*_UNITS, "hbm"])],
                ]
        return m

    @staticmethod
    def _resolve(m: Module, ops, word, pc, loops: LoopLevels, addresses: AddressRegisters, out, dest) -> None:
        """The micro-op of ``word`` and the queue it goes to (one-hot)."""

        def all_in(mask, flags):
            """Every level of ``mask`` that is open has its flag."""
            return ~(mask & loops.open & ~flags).any()

        m.d.comb += [out.word.eq(word), out.pc.eq(pc)]
        # What no op of the chip has must not be a constant, which Verilog would have to assign without an event.
        most = max(len(address_fields(op)) for op in ops)
        m.d.comb += [out[name].eq(addresses.cur[0]) for name in "abc"[most:]]
        with m.Switch(data.View(isa.word_layout(isa.Op.HALT), word).opcode):
            for op, spec in ops.items():
                if not spec.dispatched:
                    continue
                view = data.View(isa.word_layout(op), word)
                with m.Case(int(op)):
                    unit = view.unit if spec.unit == "field" else int(spec.unit)
                    m.d.comb += dest.eq(1 << unit)
                    for name, field in zip("abc", address_fields(op), strict=False):
                        m.d.comb += out[name].eq(addresses.cur[view[field]])
                    if any(f.name == "wait_ld" for f in spec.fields):
                        for i, u in enumerate(_UNITS):
                            m.d.comb += [
                                out.wait[i].eq(view[f"wait_{u}"] & all_in(view[f"wait_{u}_first"], loops.first)),
                                out.signal[i].eq(view[f"signal_{u}"] & all_in(view[f"signal_{u}_last"], loops.last)),
                            ]
                    if op is isa.Op.PULSE_ARRAY:
                        m.d.comb += out.swap.eq(view.swap & all_in(view.swap_first, loops.first))
                        with m.Switch(view.acc_mode):
                            with m.Case(int(isa.AccMode.ACCUMULATE)):
                                m.d.comb += out.accumulate.eq(1)
                            with m.Case(int(isa.AccMode.FIRST)):
                                m.d.comb += out.accumulate.eq(~all_in(view.acc_first, loops.first))
