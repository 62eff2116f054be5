"""The slice controller: trains of slices onto DRAM channels, by a schedule."""

from __future__ import annotations

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect
from amaranth.utils import ceil_log2

from .. import isa
from ..interfaces import ADDR_BITS, SlicePortSignature
from .coded import CodedPortSignature
from .dram import CommandEngine, DramSignature, RowOp, unit_layout
from .dram_config import DramConfig
from .refresh import RefreshAccount
from .trains import ReadAnswers, TrainQueue, WriteBeats

__all__ = ["DramController"]


class DramController(wiring.Component):
    """Serves slice trains from DRAM channels in step; its clock is the memory's.

    A slice is *granted* when its whole way is clear: from then on it takes ``DramConfig.latency`` clocks, whatever its
    address and whatever came before. It waits at most ``DramConfig.wait_bound`` clocks for that, once it is the first
    of its direction and its beats, or the room for them, are there. Directions take turns at the ends of trains.

    Parameters
    ----------
    config : DramConfig

    Members
    -------
    port : In(SlicePortSignature(config.chip)), or In(CodedPortSignature(config.chip)) with ``config.coded``
    lo, hi : In(32)
        Trains outside of slices lo to hi - 1 are refused.
    dram : Out(DramSignature(config))
    state : Out(isa.Cause)
        BUSY when data move, HBM when a request is open and none do, else IDLE.
    fault : Out(1)
        The channels did not bring data when they had to; until reset. Reads have an error on such beats, writes are
        answered with an error from then on.
    waiting : Out(2)
        A slice of a read (bit 0), of a write (bit 1) waits for its grant and nothing but the schedule.
    granted, granted_write : Out(1)
        A slice is granted.
    done, done_write : Out(1)
        Its last beat is through.
    """

    def __init__(self, config: DramConfig) -> None:
        if not isinstance(config, DramConfig):
            raise TypeError(f"config must be a DramConfig, not {config!r}")
        self._config = config
        port = CodedPortSignature if config.coded else SlicePortSignature
        super().__init__({
            "port": In(port(config.chip)), "lo": In(ADDR_BITS), "hi": In(ADDR_BITS),
            "dram": Out(DramSignature(config)), "state": Out(isa.Cause), "fault": Out(1),
            "waiting": Out(2), "granted": Out(1), "granted_write": Out(1), "done": Out(1), "done_write": Out(1),
        })  # fmt: skip

    @property
    def config(self) -> DramConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        config, schedule, timing = self._config, self._config.schedule, self._config.timing
        chip, port = config.chip, self.port
        m.submodules.engine = engine = CommandEngine(config)
        m.submodules.account = account = RefreshAccount(config)
        m.submodules.reads = reads = TrainQueue(chip)
        m.submodules.writes = writes = TrainQueue(chip)
        m.submodules.answers = answers = ReadAnswers(config)
        m.submodules.beats = beats = WriteBeats(config)
        connect(m, reads.answer, answers.train)
        connect(m, writes.answer, beats.train)
        m.d.comb += [
            self.dram.row.eq(engine.row), self.dram.column.eq(engine.column),
            self.done.eq(engine.done), self.done_write.eq(engine.done_write),
            beats.done.eq(engine.done & engine.done_write), beats.failed.eq(self.fault),
        ]  # fmt: skip
        for queue, request in ((reads, port.read), (writes, port.write)):
            m.d.comb += [
                queue.request.valid.eq(request.valid), queue.request.payload.eq(request.payload),
                request.ready.eq(queue.request.ready), queue.lo.eq(self.lo), queue.hi.eq(self.hi),
            ]  # fmt: skip
        m.d.comb += [
            port.read_data.valid.eq(answers.out.valid),
            port.read_data.payload.eq(answers.out.payload),
            answers.out.ready.eq(port.read_data.ready),
            beats.beats.valid.eq(port.write_data.valid),
            beats.beats.payload.eq(port.write_data.payload),
            port.write_data.ready.eq(beats.beats.ready),
            port.write_done.valid.eq(beats.out.valid),
            port.write_done.payload.eq(beats.out.payload),
            beats.out.ready.eq(port.write_done.ready),
        ]
        self._data(m, engine, answers, beats)

        # After a reset: until all that was under way is over, then every bank is closed.
        running = self._start(m, engine)

        # How long the last unit's grant was ago, up to where nothing depends on it any more.
        top = schedule.span + 1
        assert schedule.unit + schedule.after_refresh > top
        age, last_write = Signal(range(top + 1), init=top), Signal()
        with m.If(engine.grant):
            m.d.sync += [age.eq(1), last_write.eq(engine.unit.write)]
        with m.Elif(age != top):
            m.d.sync += age.eq(age + 1)

        def rule(bits: list[bool]) -> Value:
            return Const(sum(ok << d for d, ok in enumerate(bits)) | 1 << top, top + 1).bit_select(age, 1)

        follows = [Mux(last_write, rule(schedule.follow[1, v]), rule(schedule.follow[0, v])) for v in (0, 1)]

        # What is closed to grants, and for how long: everything, and sets under refresh.
        longest = max(schedule.own_after_refresh, timing.rfc)
        hold = Signal(range(longest + 1))
        with m.If(hold != 0):
            m.d.sync += hold.eq(hold - 1)
        blocked = Signal(config.sets)
        for i in range(config.sets):
            count = Signal(range(longest + 1), name=f"blocked{i}")
            with m.If(engine.refresh & (engine.refresh_set == i)):
                m.d.sync += count.eq(schedule.own_after_refresh - 1)
            with m.Elif(count != 0):
                m.d.sync += count.eq(count - 1)
            m.d.comb += blocked[i].eq(count != 0)
        closed = Signal()  # for a refresh of all banks

        # The two slices that can be next.
        heads = [Signal(unit_layout(config), name=f"{name}_head") for name in ("read", "write")]
        resource = [answers.room, beats.ready]
        forced = Signal()  # the refresh of account.owed_set can wait no longer, though slices want its banks
        eligible = Signal(2)
        for v, queue in enumerate((reads, writes)):
            head = heads[v]
            self._place(m, head, queue.slice)
            m.d.comb += [
                head.write.eq(v), head.last.eq(config.units == 1),
                self.waiting[v].eq(queue.valid & resource[v] & running),
                eligible[v].eq(
                    self.waiting[v] & ~closed & ~blocked.bit_select(head.set, 1)
                    & ~(forced & (head.set == account.owed_set))
                ),
            ]  # fmt: skip

        # Whose turn it is.
        turn, count, ended = Signal(), Signal(range(config.turn_max + 1)), Signal()
        other_first = (count == config.turn_max) | (ended & (count >= config.turn_min))
        mine, other = eligible.bit_select(turn, 1), eligible.bit_select(~turn, 1)
        pick = Signal()
        more = Signal(range(max(2, config.units)))  # units of the granted slice that are still to come
        m.d.comb += [
            pick.eq(Mux(other & (other_first | ~mine), ~turn, turn)),
            self.granted.eq(eligible.bit_select(pick, 1) & (hold == 0) & (more == 0) & Array(follows)[pick]),
            self.granted_write.eq(pick),
            reads.take.eq(self.granted & ~pick),
            writes.take.eq(self.granted & pick),
            answers.reserve.eq(reads.take),
            beats.grant.eq(writes.take),
        ]
        with m.If(self.granted):
            m.d.sync += [
                turn.eq(pick),
                ended.eq(Mux(pick, writes.last, reads.last)),
                count.eq(Mux(pick != turn, 1, count + (count != config.turn_max))),
            ]

        # Units: the first of a slice, and the others one after the other.
        unit = Signal(unit_layout(config))
        m.d.comb += unit.eq(Mux(pick, heads[1], heads[0]))
        if config.units > 1:
            number = Signal(range(config.units))
            current = Signal(unit_layout(config), reset_less=True)
            part_bits = ceil_log2(config.row_parts)
            with m.If(self.granted):
                m.d.sync += [more.eq(config.units - 1), number.eq(1), current.eq(unit)]
            with m.Elif(engine.grant):
                m.d.sync += [more.eq(more - 1), number.eq(number + 1)]
            with m.If(self.granted):
                m.d.comb += engine.unit.eq(unit)
            with m.Else():
                # Slices begin at a multiple of their units: no carry.
                m.d.comb += [
                    engine.unit.eq(current),
                    engine.unit.last.eq(more == 1),
                    engine.unit.row.eq(current.row | number >> part_bits),
                    engine.unit.part.eq(number[:part_bits] if part_bits else 0),
                ]
            m.d.comb += engine.grant.eq(self.granted | ((more != 0) & (age == schedule.unit)))
        else:
            m.d.comb += [engine.unit.eq(unit), engine.grant.eq(self.granted)]

        busy_set = Signal(range(config.sets), reset_less=True)
        with m.If(self.granted):
            m.d.sync += busy_set.eq(unit.set)
        any_waits = reads.valid | writes.valid
        # Sets that a refresh would keep slices waiting for. Not those of the other direction where the next slice is
        # surely of this one, nor any while a slice has more units to come: there is time. But no slice is kept waiting
        # in this way twice.
        clear = [self.waiting[v] & ~blocked.bit_select(heads[v].set, 1) for v in (0, 1)]
        sure = Mux(turn, clear[1], clear[0]) & ~ended & (count != config.turn_max)
        wanted = []
        for v, queue in enumerate((reads, writes)):
            spared = Signal(name=f"spared{v}")
            with m.If(queue.take):
                m.d.sync += spared.eq(0)
            with m.Elif(engine.refresh & (engine.refresh_set == heads[v].set) & queue.valid):
                m.d.sync += spared.eq(1)
            far = (more != 0) | (sure & (turn != v))
            wanted.append(Mux(queue.valid & (spared | ~far), 1 << heads[v].set, 0))
        m.d.comb += [
            account.waiting.eq(Mux(age < schedule.unit, 1 << busy_set, 0) | wanted[0] | wanted[1] | blocked),
            account.set.eq(engine.refresh_set),
        ]
        if config.refresh == "per-bank":
            self._refresh_sets(
                m,
                engine,
                account,
                running=running,
                hold=hold,
                age=age,
                busy_set=busy_set,
                forced=forced,
                blocked=blocked,
                stuck=(eligible == 0) & (more == 0),
                idle=~any_waits & (more == 0),
                alone=rule(schedule.refresh_alone),
            )
        else:
            # When enough is due nothing is granted any more; REF when all banks are closed; then the next.
            rest = Signal(range(timing.rfc + 1))
            begun = Signal(range(config.refresh_group + 1))
            start = Signal()
            with m.If(rest != 0):
                m.d.sync += rest.eq(rest - 1)
            m.d.comb += [
                closed.eq(account.due | (begun != 0) | (rest > 1)),
                start.eq(
                    running
                    & (age == top)
                    & (rest == 0)
                    & (more == 0)
                    & ((begun != 0) | account.due | (account.one_due & ~any_waits))
                ),
                account.taken.eq(start),
            ]
            with m.If(start):
                m.d.comb += engine.special.eq(RowOp.REF)
                m.d.sync += rest.eq(timing.rfc - 1)
                with m.If(begun != 0):
                    m.d.sync += begun.eq(begun - 1)
                with m.Elif(account.due):
                    m.d.sync += begun.eq(config.refresh_group - 1)
            with m.If(start):
                m.d.comb += closed.eq(1)

        open_ = answers.busy | beats.busy
        with m.If(engine.fetch | engine.arriving):
            m.d.comb += self.state.eq(isa.Cause.BUSY)
        with m.Elif(open_):
            m.d.comb += self.state.eq(isa.Cause.HBM)
        with m.Else():
            m.d.comb += self.state.eq(isa.Cause.IDLE)
        return m

    def _place(self, m: Module, unit, number: Value) -> None:
        """``DramConfig.place`` of a slice's first unit."""
        config = self._config
        run, sets, units = ceil_log2(config.run), ceil_log2(config.sets), ceil_log2(config.units)
        parts = ceil_log2(config.row_parts)
        at = Cat(Const(0, units), number[:run], number[run + sets :])
        m.d.comb += [
            unit.set.eq(number[run : run + sets]),
            unit.part.eq(at[:parts] if parts else 0),
            unit.row.eq(at[parts:]),
        ]

    def _start(self, m: Module, engine: CommandEngine) -> Value:
        schedule, timing = self._config.schedule, self._config.timing
        # The longest that a command cut off by a reset keeps a bank busy, the refresh of a set being completed first.
        quiet = max(timing.rfc, schedule.refresh[-1].at + timing.rfc_sb, timing.ras, timing.wl + 2 + timing.wr) + 4
        left = Signal(range(quiet + timing.rp + 4), init=quiet + timing.rp + 3)
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        with m.If(left == timing.rp + 3):
            m.d.comb += engine.special.eq(RowOp.PREA)
        return left == 0

    def _refresh_sets(
        self, m, engine, account, *, running, hold, age, busy_set, blocked, forced, stuck, idle, alone
    ) -> None:
        """Refresh of one set while a unit of another moves data, or alone."""
        schedule = self._config.schedule
        in_unit = age == schedule.refresh_in_unit
        quiet = alone & (hold == 0)
        ready = ~blocked.bit_select(account.owed_set, 1)
        m.d.comb += [
            forced.eq(account.urgent & ~account.free),
            account.taken.eq(engine.refresh),
            engine.refresh_set.eq(Mux(account.free, account.candidate, account.owed_set)),
        ]
        with m.If(running & in_unit & account.due):
            m.d.comb += engine.refresh.eq(account.free | (forced & ready & (account.owed_set != busy_set)))
        with m.Elif(
            running & quiet & account.due & ((idle & account.free) | (account.urgent & stuck & (account.free | ready)))
        ):
            m.d.comb += engine.refresh.eq(1)
            m.d.sync += hold.eq(schedule.after_refresh - 1)

    def _data(self, m: Module, engine: CommandEngine, answers: ReadAnswers, beats: WriteBeats) -> None:
        """The pipelines between pins and buffers. Pseudo-channel 1 is a clock behind 0."""
        config, dram = self._config, self.dram
        channels = range(config.channels)

        def beat_of(first: Value, second: Value, bits: int) -> Value:
            return Cat(Cat(half.word_select(c, bits) for half in (first, second)) for c in channels)

        def half_of(beat: Value, pc: int, bits: int) -> Value:
            return Cat(beat.word_select(2 * c + pc, bits) for c in channels)

        first = Signal(128 * config.channels, reset_less=True)
        first_check = Signal(16 * config.channels, reset_less=True)
        arrived, first_there = Signal(), Signal(reset_less=True)
        m.d.sync += [
            arrived.eq(engine.arriving), first.eq(dram.read_data[0]), first_check.eq(dram.read_check[0]),
            first_there.eq(dram.read_valid[0]),
        ]  # fmt: skip
        there = first_there & dram.read_valid[1]
        data, check = beat_of(first, dram.read_data[1], 128), beat_of(first_check, dram.read_check[1], 16)
        silent = arrived & ~there
        fault = Signal()
        with m.If(silent):
            m.d.sync += fault.eq(1)
        m.d.comb += self.fault.eq(fault)
        m.d.comb += [
            answers.push.eq(arrived),
            answers.data.eq(Cat(data, check)),
            answers.error.eq(silent),
            beats.fetch.eq(engine.fetch),
        ]
        data = beats.data[: 256 * config.channels]
        check = beats.data[256 * config.channels :] if config.coded else Const(0, 32 * config.channels)
        for what, value, bits in (("data", data, 128), ("check", check, 16)):
            pins = getattr(dram, f"write_{what}")
            second = Signal(bits * config.channels, name=f"second_{what}", reset_less=True)
            out = [Signal(bits * config.channels, name=f"{what}_pins{pc}", reset_less=True) for pc in (0, 1)]
            m.d.sync += [
                out[0].eq(half_of(value, 0, bits)),
                second.eq(half_of(value, 1, bits)),
                out[1].eq(second),
            ]
            m.d.comb += [pins[pc].eq(out[pc]) for pc in (0, 1)]
