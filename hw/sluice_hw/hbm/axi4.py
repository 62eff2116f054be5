"""AXI4 back end of the slice port: a 256-bit manager for memories that bring their own controller."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Member, Out
from amaranth.utils import ceil_log2

from .. import isa
from ..config import ChipConfig
from ..host.ports import Burst, axi4_members
from ..interfaces import SlicePortSignature
from ..ram import Ram1R1W

__all__ = ["BEAT_BYTES", "BURST_BEATS", "Axi4Memory", "axi4_manager_members"]

#: Bytes of a beat, and the beats of 4 KiB, which no burst crosses.
BEAT_BYTES, BURST_BEATS = 32, 128
_SIZE = ceil_log2(BEAT_BYTES)
#: Trains waiting at each side.
TRAINS = 4
#: From a train's request to its address on the port, and from a beat on the port to the one shown, together.
PORT_CLOCKS = 4


def axi4_manager_members(address_bits: int, id_bits: int) -> dict[str, Member]:
    """Ports of an AXI4 manager with 256-bit data, ``m_axi_*``."""
    members = axi4_members(id_bits, address_bits=address_bits, data_bytes=BEAT_BYTES)
    return {f"m{name[1:]}": member.flip() for name, member in members.items()}


class Axi4Memory(wiring.Component):
    """Turns trains into bursts, several of which are under way, and puts what comes back in order.

    A burst is as long as its train and the next multiple of 4 KiB allow. Each read burst under way has an id and a
    place for all of its beats, so that data are always taken, whatever their order. Bursts of a write train share an
    id; trains are answered in order. A read beat with SLVERR or DECERR has ``error`` set; a write train of which any
    burst was answered so has ``error`` in its answer. Trains that reach beyond the memory, and trains of no slices, are
    refused without a burst.

    Bursts under way must be completed: a reset while ``idle`` is low would leave the memory with answers that nobody
    expects.

    Parameters
    ----------
    config : ChipConfig
        With ``hbm_beat_bytes`` of 32.
    base : int
        Byte address of slice 0, a multiple of 4 KiB.
    reads : int
        Read bursts that may be under way, a power of two from 2.
    address_bits, id_bits : int

    Members
    -------
    port : In(SlicePortSignature(config))
    state : Out(isa.Cause)
        As :class:`~.sram.SliceMemory`.
    idle : Out(1)
        No burst is under way.
    m_axi_* : AXI4 manager (:func:`axi4_manager_members`)

    Raises
    ------
    ValueError
        For what cannot be built, naming the parameter.
    """

    def __init__(
        self, config: ChipConfig, *, base: int = 0, reads: int = 8, address_bits: int = 40, id_bits: int = 4
    ) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        if config.hbm_beat_bytes != BEAT_BYTES:
            raise ValueError(f"hbm_beat_bytes of a chip on AXI4 must be {BEAT_BYTES}, not {config.hbm_beat_bytes}")
        if base < 0 or base % (BEAT_BYTES * BURST_BEATS):
            raise ValueError(f"base must be a multiple of 4096, not {base}")
        if reads < 2 or reads & (reads - 1):
            raise ValueError(f"reads must be a power of two from 2, not {reads}")
        if base + config.hbm_bytes > 1 << address_bits:
            raise ValueError(f"address_bits must reach byte {base + config.hbm_bytes - 1}; {address_bits} do not")
        if 1 << id_bits < max(reads, TRAINS):
            raise ValueError(f"id_bits must tell {max(reads, TRAINS)} bursts apart; {id_bits} do not")
        self._config, self._base, self._reads = config, base, reads
        super().__init__({
            "port": In(SlicePortSignature(config)), "state": Out(isa.Cause), "idle": Out(1),
            **axi4_manager_members(address_bits, id_bits),
        })  # fmt: skip

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        reading, read_moves = self._read(m)
        writing, write_moves = self._write(m)
        m.d.comb += self.idle.eq(~(reading | writing))
        with m.If(read_moves | write_moves):
            m.d.comb += self.state.eq(isa.Cause.BUSY)
        with m.Elif(reading | writing):
            m.d.comb += self.state.eq(isa.Cause.HBM)
        with m.Else():
            m.d.comb += self.state.eq(isa.Cause.IDLE)
        return m

    def _split(self, m: Module, name: str, request, room: Value):
        """Take a request's trains and cut them into bursts.

        Gives the burst's first beat, its beats, whether it is the train's last, whether the train is refused, its
        beats left, whether there is one, and the signal that takes it.
        """
        config = self._config
        beats = config.slice_beats
        at = Signal(ceil_log2(config.hbm_slices * beats) + 1, name=f"{name}_at", reset_less=True)
        left = Signal(16 + ceil_log2(beats), name=f"{name}_left", reset_less=True)
        active, refused = Signal(name=f"{name}_active"), Signal(name=f"{name}_refused", reset_less=True)
        burst, take, last = Signal(8, name=f"{name}_burst"), Signal(name=f"{name}_take"), Signal(name=f"{name}_last")
        to_edge = Signal(8, name=f"{name}_to_edge")
        ask = request.payload
        m.d.comb += [
            to_edge.eq(BURST_BEATS - at[: ceil_log2(BURST_BEATS)]),
            burst.eq(Mux(left < to_edge, left, to_edge)),
            last.eq(refused | (left == burst)),
            request.ready.eq((~active | (take & last)) & room),
        ]
        with m.If(take):
            m.d.sync += [at.eq(at + burst), left.eq(left - burst)]
            with m.If(last):
                m.d.sync += active.eq(0)
        with m.If(request.valid & request.ready):
            m.d.sync += [
                active.eq(1), at.eq(ask.slice * beats), left.eq(ask.count * beats),
                refused.eq((ask.count == 0) | (ask.slice + ask.count > config.hbm_slices)),
            ]  # fmt: skip
        return at, burst, last, refused, left, active, take

    def _channel(self, m: Module, x: str, send: Value, at: Value, burst: Value, id_: Value) -> Value:
        """An address channel with its registers; gives whether it is free for another burst."""
        valid = getattr(self, f"m_axi_{x}valid")
        free = ~valid | getattr(self, f"m_axi_{x}ready")
        m.d.comb += [
            getattr(self, f"m_axi_{x}size").eq(_SIZE), getattr(self, f"m_axi_{x}burst").eq(Burst.INCR),
            getattr(self, f"m_axi_{x}cache").eq(0b0011),
        ]  # fmt: skip
        with m.If(free):
            m.d.sync += valid.eq(send)
        with m.If(send):
            m.d.sync += [
                getattr(self, f"m_axi_{x}addr").eq(self._base + (at << _SIZE)),
                getattr(self, f"m_axi_{x}len").eq(burst - 1), getattr(self, f"m_axi_{x}id").eq(id_),
            ]  # fmt: skip
        return free

    def _read(self, m: Module) -> tuple[Value, Value]:
        """Read trains; gives whether anything is under way, and whether a beat moves."""
        out, slots = self.port.read_data, self._reads
        at, burst, last, refused, _, active, take = self._split(m, "read", self.port.read, 1)
        index = range(slots)
        # Slots in the order of their bursts, from `head` on; each has its part of the buffer.
        head, tail, used = Signal(index), Signal(index), Signal(range(slots + 1))
        layout = data.StructLayout({"beats": 8, "last": 1, "refused": 1})
        info = Array(Signal(layout, name=f"slot{i}", reset_less=True) for i in index)
        filled = Array(Signal(range(BURST_BEATS + 1), name=f"filled{i}") for i in index)
        m.submodules.buffer = buffer = Ram1R1W(depth=slots * BURST_BEATS, width=8 * BEAT_BYTES + 1)

        ar_free = Signal()
        m.d.comb += [
            ar_free.eq(self._channel(m, "ar", take & ~refused, at, burst, tail)),
            take.eq(active & (used != slots) & (refused | ar_free)),
        ]
        with m.If(take):
            m.d.sync += [
                tail.eq(tail + 1), filled[tail].eq(0),
                info[tail].beats.eq(Mux(refused, 1, burst)), info[tail].last.eq(last), info[tail].refused.eq(refused),
            ]  # fmt: skip

        # Data are always taken.
        slot = self.m_axi_rid[: len(tail)]
        m.d.comb += [
            self.m_axi_rready.eq(1), buffer.we.eq(self.m_axi_rvalid),
            buffer.waddr.eq(Cat(filled[slot][: ceil_log2(BURST_BEATS)], slot)),
            buffer.wdata.eq(Cat(self.m_axi_rdata, self.m_axi_rresp[1])),
        ]  # fmt: skip
        with m.If(self.m_axi_rvalid):
            m.d.sync += filled[slot].eq(filled[slot] + 1)

        # The oldest burst's beats leave as they come.
        given = Signal(range(BURST_BEATS + 1))
        shown, shown_last, shown_refused = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        fetch, ends = Signal(), Signal()
        now = info[head]
        m.d.comb += [
            fetch.eq((used != 0) & (now.refused | (filled[head] > given)) & (~shown | out.ready)),
            ends.eq(given + 1 == now.beats),
            buffer.re.eq(fetch), buffer.raddr.eq(Cat(given[: ceil_log2(BURST_BEATS)], head)),
            out.valid.eq(shown), Value.cast(out.payload.data).eq(buffer.rdata[:-1]),
            out.payload.last.eq(shown_last), out.payload.error.eq(shown_refused | buffer.rdata[-1]),
        ]  # fmt: skip
        with m.If(fetch):
            m.d.sync += [
                shown.eq(1),
                shown_last.eq(now.last & ends),
                shown_refused.eq(now.refused),
                given.eq(given + 1),
            ]
            with m.If(ends):
                m.d.sync += [head.eq(head + 1), given.eq(0)]
        with m.Elif(out.ready):
            m.d.sync += shown.eq(0)
        m.d.sync += used.eq(used + take - (fetch & ends))
        return active | (used != 0) | shown, self.m_axi_rvalid | (shown & out.ready)

    def _write(self, m: Module) -> tuple[Value, Value]:
        """Write trains; gives whether anything is under way, and whether a beat moves."""
        index = range(TRAINS)
        # Trains in the order of their requests, from `oldest` on: answers they wait for, whether there will be more.
        oldest, newest, trains = Signal(index), Signal(index), Signal(range(TRAINS + 1))
        waits = Array(Signal(8, name=f"waits{i}") for i in index)
        open_ = Array(Signal(name=f"open{i}") for i in index)
        failed = Array(Signal(name=f"failed{i}", reset_less=True) for i in index)
        room = trains != TRAINS
        at, burst, last, refused, left, active, take = self._split(m, "write", self.port.write, room)
        begins = self.port.write.valid & self.port.write.ready
        train = Signal(index)  # the one being cut
        with m.If(begins):
            m.d.sync += [train.eq(newest), newest.eq(newest + 1), open_[newest].eq(1), failed[newest].eq(0)]

        # Beats follow in the order of the bursts; those of a refused train go nowhere.
        beats_layout = data.StructLayout({"left": len(left), "drop": 1, "train": len(train)})
        m.submodules.bursts = bursts = SyncFIFO(width=beats_layout.size, depth=4)
        new, now = Signal(beats_layout), data.View(beats_layout, bursts.r_data)
        aw_free, none = Signal(), left == 0
        m.d.comb += [
            aw_free.eq(self._channel(m, "aw", take & ~refused, at, burst, train)),
            take.eq(active & bursts.w_rdy & (refused | (aw_free & ~waits[train].all()))),
            new.left.eq(Mux(refused, left, burst)), new.drop.eq(refused), new.train.eq(train),
            bursts.w_data.eq(new), bursts.w_en.eq(take & ~none),
        ]  # fmt: skip
        sent = Signal(len(left))
        beat, send = self.port.write_data, Signal()
        ends = sent + 1 == now.left
        m.d.comb += [
            self.m_axi_wvalid.eq(beat.valid & bursts.r_rdy & ~now.drop),
            self.m_axi_wdata.eq(Value.cast(beat.payload.data)), self.m_axi_wstrb.eq(~0), self.m_axi_wlast.eq(ends),
            beat.ready.eq(bursts.r_rdy & (now.drop | self.m_axi_wready)),
            send.eq(beat.valid & beat.ready), bursts.r_en.eq(send & ends),
        ]  # fmt: skip
        with m.If(send):
            m.d.sync += sent.eq(Mux(ends, 0, sent + 1))

        # Answers, in any order of the trains.
        m.d.comb += self.m_axi_bready.eq(1)
        answered = self.m_axi_bid[: len(train)]
        for i in index:
            dropped = send & ends & now.drop & (now.train == i)
            came = self.m_axi_bvalid & (answered == i)
            m.d.sync += waits[i].eq(waits[i] + (take & ~none & (train == i)) - came - dropped)
            with m.If(came & self.m_axi_bresp[1]):
                m.d.sync += failed[i].eq(1)
            with m.If(take & (train == i)):
                m.d.sync += open_[i].eq(~last)
                with m.If(refused):
                    m.d.sync += failed[i].eq(1)
        done = self.port.write_done
        m.d.comb += [
            done.valid.eq((trains != 0) & ~open_[oldest] & (waits[oldest] == 0)), done.payload.error.eq(failed[oldest]),
        ]  # fmt: skip
        ended = done.valid & done.ready
        with m.If(ended):
            m.d.sync += oldest.eq(oldest + 1)
        m.d.sync += trains.eq(trains + begins - ended)
        return trains != 0, send
