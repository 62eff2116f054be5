"""Matrix unit: queue head, feeder, weight loader, systolic array, accumulators.

The queue head starts ops in order. PULSE_ARRAY starts when the feeder can walk it, which is while rows of the one
before are still being issued, and its first row waits for its weight tile in the feeder; LOAD_WEIGHTS starts, and reads
ahead, when the PULSE_ARRAY that swaps in the tile before has started. Rows and tiles still enter the array in the order
and under the conditions of docs/architecture.md; what starts early is only what cannot fail to follow: an op that would
have to wait for an op behind it (a swap without a tile, a second tile without a swap) does not start.

Ops end in any order (a tile may be loaded long before the pass before it has left the array) and more than one may in a
cycle. They are reported one a cycle, with their tokens.
"""

from __future__ import annotations

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from . import isa
from .accumulator import PASSES, Accumulator
from .array import SystolicArray
from .config import ChipConfig
from .feeder import FEED_LATENCY, Feeder, access_fault_layout, segment_layout, shape_layout
from .interfaces import AccReadSignature, AccWriteSignature, UnitSignature, VmemReadSignature
from .tokens import token_cause
from .weights import TILES, WeightLoader

__all__ = ["Mxu"]


class Mxu(wiring.Component):
    """Matrix unit.

    A unit that raised a fault starts no further op until it is reset. A pass that leaves VMEM ends, with zeros in place
    of what lies outside; one that leaves the accumulators does not start.

    Parameters
    ----------
    config : ChipConfig
    emission : str
        Form of the array, see :class:`~sluice_hw.array.SystolicArray`.

    Members
    -------
    unit : Out(UnitSignature())
        Its queue, tokens, state, events. ``state`` is BUSY in a cycle in which a row enters the array.
    act, weights : Out(VmemReadSignature(word_bytes))
    acc : In(AccReadSignature(cols))
    acc_write : In(AccWriteSignature(cols)), chips of bf16 only
    array_rows : Out(1)
        A row enters the array.
    macs : Out
        Multiply-adds of that row that count: k x n of its weight tile, else 0.
    weight_tiles : Out(1)
        A tile was loaded.

    Raises
    ------
    TypeError, ValueError
        If ``config`` is not a ChipConfig, or `emission` is unknown.
    """

    def __init__(self, config: ChipConfig, emission: str = "structural") -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self._config = config
        self._array = SystolicArray(
            rows=config.rows, cols=config.cols, latency=config.pe_latency, dtype=config.dtype, emission=emission)
        self._emission = emission
        super().__init__({
            "unit": Out(UnitSignature()),
            "act": Out(VmemReadSignature(config.word_bytes)),
            "weights": Out(VmemReadSignature(config.word_bytes)),
            "acc": In(AccReadSignature(config.cols)),
            **({"acc_write": In(AccWriteSignature(config.cols))} if config.is_float else {}),
            "array_rows": Out(1),
            "macs": Out(range(config.rows * config.cols + 1)),
            "weight_tiles": Out(1),
        })

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.feeder = feeder = Feeder(self._config)
        m.submodules.loader = loader = WeightLoader(self._config, self._emission)
        m.submodules.array = array = self._array
        m.submodules.accumulator = accumulator = Accumulator(self._config, self._emission)
        wiring.connect(m, feeder.act, wiring.flipped(self.act))
        wiring.connect(m, loader.vmem, wiring.flipped(self.weights))
        wiring.connect(m, accumulator.acc, wiring.flipped(self.acc))
        if self._config.is_float:
            wiring.connect(m, accumulator.write, wiring.flipped(self.acc_write))
        m.d.comb += [
            feeder.tile_ready.eq(loader.tile_ready),
            loader.swap.eq(feeder.issue_swap),
            array.a_valid.eq(feeder.a_valid),
            array.a_swap.eq(feeder.a_swap),
            array.a_data.eq(feeder.a_data),
            array.w_valid.eq(loader.w_valid),
            array.w_start.eq(loader.w_start),
            array.w_data.eq(loader.w_data),
            accumulator.p_valid.eq(array.p_valid),
            accumulator.p_data.eq(array.p_data),
        ]
        self._head(m, feeder, loader, accumulator)
        self._count(m, feeder, loader)
        return m

    def _head(self, m: Module, feeder: Feeder, loader: WeightLoader, accumulator: Accumulator) -> None:
        """Start ops in order, and report their ends."""
        unit = self.unit
        op = unit.op.payload
        words = {kind: data.View(isa.word_layout(kind), op.word) for kind in (
            isa.Op.FEED_SHAPE, isa.Op.FEED_SEGMENT, isa.Op.LOAD_WEIGHTS, isa.Op.PULSE_ARRAY)}
        opcode = words[isa.Op.PULSE_ARRAY].opcode
        is_shape, is_segment, is_load, is_pulse = (opcode == kind for kind in words)
        is_sync = opcode == isa.Op.SYNC

        # Setup words write registers and are gone.
        m.d.comb += feeder.shape_valid.eq(unit.op.valid & is_shape)
        m.d.comb += feeder.segment_valid.eq(unit.op.valid & is_segment)
        m.d.comb += [feeder.shape[name].eq(words[isa.Op.FEED_SHAPE][name]) for name in shape_layout().members]
        m.d.comb += [feeder.segment[name].eq(words[isa.Op.FEED_SEGMENT][name]) for name in segment_layout().members]

        ended = data.StructLayout({"signal": len(isa.Unit), "pc": 16})
        running_load = fifo.SyncFIFO(width=ended.size, depth=TILES)
        running_pass = fifo.SyncFIFOBuffered(width=ended.size, depth=PASSES)
        m.submodules.running_load, m.submodules.running_pass = running_load, running_pass
        sync_valid, sync = Signal(), Signal(ended, reset_less=True)
        stopped = Signal()
        tile_free = Signal()  # a tile was started that no started pass swaps in

        row_end = Signal(range(3 * self._config.acc_rows + 1))
        unshaped, beyond = Signal(), Signal()
        first_beyond = Signal.like(op.b)  # accumulator row
        m.d.comb += [
            unshaped.eq(feeder.rows == 0),
            first_beyond.eq(Mux(op.b < self._config.acc_rows, self._config.acc_rows, op.b)),
            row_end.eq(op.b[: len(accumulator.start.payload.first)] + feeder.rows),
            beyond.eq((row_end > self._config.acc_rows) | (op.b >= self._config.acc_rows)),
        ]
        able = Signal()
        with m.If(is_load):
            m.d.comb += able.eq(loader.start.ready & running_load.w_rdy & ~tile_free)
        with m.Elif(is_pulse):
            m.d.comb += able.eq(
                feeder.start.ready & feeder.rows_valid & running_pass.w_rdy & (tile_free | ~op.swap)
                & ~unshaped & ~beyond)
        with m.Elif(is_sync):
            m.d.comb += able.eq(~sync_valid)
        # A word that is no business of this unit is dropped: the decoder lets none through.
        works = is_load | is_pulse | is_sync
        needs = op.wait.any()
        starts = Signal()
        m.d.comb += [
            unit.take.valid.eq(unit.op.valid & able & needs & ~stopped),
            unit.take.payload.eq(op.wait),
            starts.eq(unit.op.valid & able & ~stopped & (~needs | unit.take.ready)),
            unit.op.ready.eq(Mux(works, starts, ~stopped)),

            loader.start.valid.eq(starts & is_load),
            loader.start.payload.vmem.eq(op.a),
            loader.start.payload.pc.eq(op.pc),
            feeder.start.valid.eq(starts & is_pulse),
            feeder.start.payload.vmem.eq(op.a),
            feeder.start.payload.swap.eq(op.swap),
            feeder.start.payload.pc.eq(op.pc),
            accumulator.start.valid.eq(starts & is_pulse),
            accumulator.start.payload.first.eq(op.b),
            accumulator.start.payload.rows.eq(feeder.rows),
            accumulator.start.payload.accumulate.eq(op.accumulate),
            running_load.w_en.eq(starts & is_load),
            running_load.w_data.eq(Cat(op.signal, op.pc)),
            running_pass.w_en.eq(starts & is_pulse),
            running_pass.w_data.eq(Cat(op.signal, op.pc)),
        ]
        load = loader.start.payload
        from_word = (name for name in load.shape().members if name not in ("vmem", "pc"))
        m.d.comb += [load[name].eq(words[isa.Op.LOAD_WEIGHTS][name]) for name in from_word]
        if self._config.both:
            int8 = words[isa.Op.PULSE_ARRAY].int8
            m.d.comb += [feeder.start.payload.int8.eq(int8), accumulator.start.payload.int8.eq(int8)]
            m.d.comb += self._array.a_bf16.eq(feeder.a_bf16)
        if self._config.is_float:
            self._keep_apart(m, feeder, starts & is_pulse)
        m.d.sync += [unit.started.eq(starts), unit.started_pc.eq(op.pc)]
        with m.If(starts & is_load):
            m.d.sync += tile_free.eq(1)
        with m.Elif(starts & is_pulse & op.swap):
            m.d.sync += tile_free.eq(0)

        # Ends. Loads end in order, passes end in order; a SYNC ends when those that were running at its start have.
        loads, passes = Signal(range(TILES + 1)), Signal(range(PASSES + 1))  # ended, to be reported
        sync_loads, sync_passes = Signal.like(loads, reset_less=True), Signal.like(passes, reset_less=True)
        load_ends, pass_ends, sync_ends = Signal(), Signal(), Signal()
        with m.If(loads != 0):
            m.d.comb += load_ends.eq(1)
        with m.Elif(passes != 0):
            m.d.comb += pass_ends.eq(1)
        with m.Elif(sync_valid & (sync_loads == 0) & (sync_passes == 0)):
            m.d.comb += sync_ends.eq(1)
        running_loads, running_passes = Signal.like(loads), Signal.like(passes)
        m.d.sync += [
            loads.eq(loads + loader.fed - load_ends),
            passes.eq(passes + accumulator.finished - pass_ends),
            running_loads.eq(running_loads + (starts & is_load) - load_ends),
            running_passes.eq(running_passes + (starts & is_pulse) - pass_ends),
        ]
        with m.If(starts & is_sync):
            m.d.sync += [
                sync_valid.eq(1), sync.signal.eq(op.signal), sync.pc.eq(op.pc),
                sync_loads.eq(running_loads - load_ends), sync_passes.eq(running_passes - pass_ends),
            ]
        with m.Else():
            with m.If(load_ends & (sync_loads != 0)):
                m.d.sync += sync_loads.eq(sync_loads - 1)
            with m.If(pass_ends & (sync_passes != 0)):
                m.d.sync += sync_passes.eq(sync_passes - 1)
            with m.If(sync_ends):
                m.d.sync += sync_valid.eq(0)
        end = Signal(ended)
        m.d.comb += [
            running_load.r_en.eq(load_ends),
            running_pass.r_en.eq(pass_ends),
            end.eq(Mux(load_ends, running_load.r_data, Mux(pass_ends, running_pass.r_data, sync))),
        ]
        any_ends = load_ends | pass_ends | sync_ends
        m.d.sync += [
            unit.give.eq(Mux(any_ends, end.signal, 0)),
            unit.finished.eq(any_ends),
            unit.finished_pc.eq(end.pc),
        ]
        m.d.comb += unit.idle.eq((running_loads == 0) & (running_passes == 0) & ~sync_valid & ~unit.finished)

        # Faults: the first one counts, the others would be behind it in the program or of the same op.
        off_end = unit.op.valid & is_pulse & feeder.rows_valid & (unshaped | beyond) & ~stopped
        m.d.sync += unit.fault_valid.eq((feeder.fault_valid | loader.fault_valid | off_end) & ~stopped)
        with m.If(feeder.fault_valid | loader.fault_valid | off_end):
            m.d.sync += stopped.eq(1)
        with m.If(~stopped):
            access = Signal(access_fault_layout())
            m.d.comb += access.eq(Mux(feeder.fault_valid, feeder.fault, loader.fault))
            with m.If(feeder.fault_valid | loader.fault_valid):
                m.d.sync += [
                    unit.fault.code.eq(isa.Error.VMEM_RANGE),
                    unit.fault.pc.eq(access.pc),
                    unit.fault.info.eq(access.addr),
                ]
            with m.Else():
                m.d.sync += [
                    unit.fault.code.eq(Mux(unshaped, isa.Error.ILLEGAL_FIELD, isa.Error.ACC_RANGE)),
                    unit.fault.pc.eq(op.pc),
                    unit.fault.info.eq(Mux(unshaped, 0, first_beyond)),
                ]

        # What the array would wait for, were it not for the rows that the feeder holds.
        self._held = Signal(isa.Cause)
        m.d.comb += self._held.eq(isa.Cause.IDLE)
        with m.If(unit.take.valid & ~unit.take.ready):
            m.d.comb += self._held.eq(token_cause(m, isa.Unit.MXU, unit.missing))
        with m.Elif((running_loads != 0) | unit.op.valid & (is_load & tile_free | is_pulse & op.swap & ~tile_free)):
            # The second part is a hang, which the watchdog must lay to this unit.
            m.d.comb += self._held.eq(isa.Cause.WEIGHTS)

    def _keep_apart(self, m: Module, feeder: Feeder, starts: Value) -> None:
        """Tell the feeder which passes must not follow the one before at once.

        Rows of one pass go to different accumulator rows, and those of a pass of at least ``acc_revisit`` rows keep
        the passes around it apart. What remains: a shorter pass before, or one whose last rows this one begins with.
        """
        config, op = self._config, self.unit.op.payload
        short = Signal()
        end, tail = Signal(range(config.acc_rows + 1), reset_less=True), Signal(range(config.acc_rows), reset_less=True)
        with m.If(starts):
            m.d.sync += [
                short.eq(feeder.rows < config.acc_revisit),
                end.eq(op.b + feeder.rows),
                tail.eq(op.b + feeder.rows - config.acc_revisit),
            ]
        m.d.comb += feeder.start.payload.apart.eq(op.accumulate & (short | ((op.b > tail) & (op.b < end))))

    def _count(self, m: Module, feeder: Feeder, loader: WeightLoader) -> None:
        """State and work, in the cycles of the array's edge: FEED_LATENCY behind the feeder."""
        macs = Signal.like(self.macs)
        now = Signal.like(self.macs)
        m.d.comb += now.eq(Mux(feeder.issue_swap, loader.tile_macs, macs))
        with m.If(feeder.issue_swap):
            m.d.sync += macs.eq(loader.tile_macs)
        state = Signal(isa.Cause)
        m.d.comb += state.eq(Mux(feeder.waits == isa.Cause.IDLE, self._held, feeder.waits))
        counted = Mux(feeder.issue, now, 0)
        for stage in range(FEED_LATENCY):
            next_state = Signal(isa.Cause, name=f"state{stage}", init=isa.Cause.IDLE)
            next_counted = Signal.like(self.macs, name=f"macs{stage}")
            m.d.sync += [next_state.eq(state), next_counted.eq(counted)]
            state, counted = next_state, next_counted
        m.d.comb += [
            self.unit.state.eq(state),
            self.macs.eq(counted),
            self.array_rows.eq(feeder.a_valid),
            self.weight_tiles.eq(loader.fed),
        ]
