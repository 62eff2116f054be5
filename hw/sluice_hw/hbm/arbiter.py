"""Several requesters of HBM onto one slice port, train by train."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..config import ChipConfig
from ..interfaces import SlicePortSignature

__all__ = ["SliceArbiter"]

#: Trains of each kind whose requester is remembered. Reads: as many as a memory may hold to cover its latency.
READS, WRITES = 64, 8


class SliceArbiter(wiring.Component):
    """Grants requests in turn (round robin over the ports that ask), reads and writes independently.

    Nothing is added to the latency. Answers return in the order of the requests; a port that does not take its data, or
    does not send what it has announced, holds the others up.

    Parameters
    ----------
    config : ChipConfig
    ports : int
        Requesters.

    Members
    -------
    ports : In(SlicePortSignature(config)).array(ports)
    memory : Out(SlicePortSignature(config))
    """

    def __init__(self, config: ChipConfig, ports: int = 2) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        if isinstance(ports, bool) or not isinstance(ports, int):
            raise TypeError(f"Number of ports must be an integer, not {ports!r}")
        if not 1 <= ports <= 16:
            raise ValueError(f"Number of ports must be 1 to 16, not {ports}")
        self._config, self._count = config, ports
        super().__init__({
            "ports": In(SlicePortSignature(config)).array(ports), "memory": Out(SlicePortSignature(config)),
        })  # fmt: skip

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        owner_bits = max(1, ceil_log2(self._count))
        ports, memory = list(self.ports), self.memory

        # Reads: who asked is remembered until the last beat.
        m.submodules.readers = readers = SyncFIFO(width=owner_bits, depth=READS)
        chosen = self._choose(m, "read", [p.read for p in ports], memory.read, readers.w_rdy)
        m.d.comb += [
            readers.w_data.eq(chosen), readers.w_en.eq(memory.read.valid & memory.read.ready),
            readers.r_en.eq(memory.read_data.valid & memory.read_data.ready & memory.read_data.payload.last),
        ]  # fmt: skip
        self._return(m, readers, [p.read_data for p in ports], memory.read_data)

        # Writes: who sends beats, and how many slices of them; and apart from that who waits for an answer.
        sender_layout = data.StructLayout({"owner": owner_bits, "count": 16})
        m.submodules.senders = senders = SyncFIFO(width=sender_layout.size, depth=WRITES)
        m.submodules.writers = writers = SyncFIFO(width=owner_bits, depth=WRITES)
        room = senders.w_rdy & writers.w_rdy
        chosen = self._choose(m, "write", [p.write for p in ports], memory.write, room)
        new = Signal(sender_layout)
        sender = data.View(sender_layout, senders.r_data)
        transfer = memory.write.valid & memory.write.ready
        m.d.comb += [
            new.owner.eq(chosen), new.count.eq(memory.write.payload.count),
            senders.w_data.eq(new), senders.w_en.eq(transfer & (memory.write.payload.count != 0)),
            writers.w_data.eq(chosen), writers.w_en.eq(transfer),
            writers.r_en.eq(memory.write_done.valid & memory.write_done.ready),
        ]  # fmt: skip
        self._return(m, writers, [p.write_done for p in ports], memory.write_done)

        beats = self._config.slice_beats
        beat, slice_ = Signal(max(1, ceil_log2(beats))), Signal(16)
        slice_ends = beat == beats - 1
        for i, p in enumerate(ports):
            owns = senders.r_rdy & (sender.owner == i)
            m.d.comb += p.write_data.ready.eq(owns & memory.write_data.ready)
            with m.If(owns):
                m.d.comb += [
                    memory.write_data.valid.eq(p.write_data.valid),
                    memory.write_data.payload.eq(p.write_data.payload),
                ]
        with m.If(memory.write_data.valid & memory.write_data.ready):
            m.d.sync += beat.eq(Mux(slice_ends, 0, beat + 1))
            with m.If(slice_ends):
                m.d.comb += senders.r_en.eq(slice_ == sender.count - 1)
                m.d.sync += slice_.eq(Mux(senders.r_en, 0, slice_ + 1))
        return m

    def _choose(self, m: Module, name: str, requests: list[stream.Interface], out: stream.Interface, room) -> Signal:
        """Connect one of ``requests`` to ``out`` while there is ``room``; gives its number, held until the transfer."""
        count = len(requests)
        chosen = Signal(max(1, ceil_log2(count)), name=f"{name}_chosen")
        locked = Signal(name=f"{name}_locked")
        last = Signal.like(chosen, name=f"{name}_last")
        valids = Cat(r.valid for r in requests)
        with m.If(locked):
            m.d.comb += chosen.eq(last)
        with m.Else(), m.Switch(last):
            for i in range(count):
                with m.Case(i):
                    # First priority to the one behind the last, hence assigned last.
                    for j in reversed([(i + 1 + k) % count for k in range(count)]):
                        with m.If(valids[j]):
                            m.d.comb += chosen.eq(j)
        for i, r in enumerate(requests):
            mine = chosen == i
            m.d.comb += r.ready.eq(room & mine & out.ready)
            with m.If(mine):
                m.d.comb += [out.valid.eq(r.valid & room), out.payload.eq(r.payload)]
        with m.If(out.valid):
            m.d.sync += [last.eq(chosen), locked.eq(~out.ready)]
        return chosen

    @staticmethod
    def _return(m: Module, owners: SyncFIFO, sinks: list[stream.Interface], source: stream.Interface) -> None:
        for i, sink in enumerate(sinks):
            owns = owners.r_rdy & (owners.r_data == i)
            m.d.comb += [sink.payload.eq(source.payload), sink.valid.eq(owns & source.valid)]
            with m.If(owns):
                m.d.comb += source.ready.eq(sink.ready)
