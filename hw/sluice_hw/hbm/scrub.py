"""The background scrubber: rewrites slices in which single errors have accumulated, before they become double ones."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import ChipConfig
from ..interfaces import ADDR_BITS, SlicePortSignature
from ..ram import Ram1R1W

__all__ = ["Scrubber"]


class Scrubber(wiring.Component):
    """Reads slice after slice, and writes back what the decoder behind it had to correct.

    It stands in the port's way and uses it between trains: a scrub begins when none is under way and none asks, and
    when it has waited for a period, at the end of those that are. Until it ends, others wait, so that nothing can be
    written between its read and its write. They wait for one scrub a period at most; the latency of a train that has
    been let through does not change. A slice that cannot be corrected is left as it is.

    Parameters
    ----------
    config : ChipConfig
    slices : int
        Slices to walk, from 0 on.

    Members
    -------
    port : In(SlicePortSignature(config))
    memory : Out(SlicePortSignature(config))
        Towards the decoder.
    corrected : In(1)
        The beat on ``memory.read_data`` had a single error.
    period : In(32)
        Cycles from one scrub becoming due to the next; 0: none ever is.
    slice : Out(32)
        The next one.
    scrubbed, repaired : Out(1)
        Pulses when a slice was read, and when it was written back.
    busy : Out(1)
        A scrub is under way.
    """

    def __init__(self, config: ChipConfig, *, slices: int) -> None:
        self._config, self._slices = config, slices
        super().__init__({
            "port": In(SlicePortSignature(config)), "memory": Out(SlicePortSignature(config)),
            "corrected": In(1), "period": In(32), "slice": Out(ADDR_BITS), "scrubbed": Out(1), "repaired": Out(1),
            "busy": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        port, memory = self.port, self.memory
        beats = self._config.slice_beats
        m.submodules.buffer = buffer = Ram1R1W(depth=beats, width=8 * self._config.hbm_beat_bytes)

        # Due every period; late when it has been due for one.
        clock, due, late = Signal(32), Signal(), Signal()
        begin = Signal()
        with m.If(self.period == 0):
            m.d.sync += [clock.eq(0), due.eq(0), late.eq(0)]
        with m.Elif(clock >= self.period - 1):
            m.d.sync += [clock.eq(0), due.eq(1), late.eq(due & ~begin)]
        with m.Else():
            m.d.sync += clock.eq(clock + 1)
            with m.If(begin):
                m.d.sync += [due.eq(0), late.eq(0)]

        # Requests pass while `open_` of their kind says so, which falls only where none stands on the port.
        ours, open_read, open_write = Signal(), Signal(init=1), Signal(init=1)
        under_way, passes = {}, {}
        for name, is_open, answer in (
            ("read", open_read, memory.read_data.valid & memory.read_data.ready & memory.read_data.payload.last),
            ("write", open_write, memory.write_done.valid & memory.write_done.ready),
        ):
            asked, ask = getattr(port, name), getattr(memory, name)
            count = under_way[name] = Signal(16, name=f"{name}s_under_way")
            with m.If(~ours):
                passed = passes[name] = Signal(name=f"{name}_passes")
                m.d.comb += [
                    ask.valid.eq(asked.valid & is_open), ask.payload.eq(asked.payload),
                    asked.ready.eq(ask.ready & is_open), passed.eq(ask.valid & ask.ready),
                ]  # fmt: skip
                m.d.sync += count.eq(count + passed - answer)
                with m.If(~asked.valid | asked.ready):
                    m.d.sync += is_open.eq(~late)
        # Beats of trains that have passed; others must not go ahead of a scrub's.
        owed = Signal(16 + (beats - 1).bit_length() + 3)
        with m.If(~ours):
            for a, b, when in ((memory.read_data, port.read_data, 1), (memory.write_done, port.write_done, 1),
                               (port.write_data, memory.write_data, owed != 0)):  # fmt: skip
                m.d.comb += [b.valid.eq(a.valid & when), b.payload.eq(a.payload), a.ready.eq(b.ready & when)]
            m.d.sync += owed.eq(
                owed
                + Mux(passes["write"], port.write.payload.count * beats, 0)
                - (memory.write_data.valid & memory.write_data.ready)
            )

        quiet = (under_way["read"] == 0) & (under_way["write"] == 0)
        asks = (port.read.valid & open_read) | (port.write.valid & open_write)
        index, dirty, poisoned = Signal(range(beats + 1)), Signal(), Signal()
        last_slice = self.slice == self._slices - 1
        m.d.comb += [
            self.busy.eq(ours), buffer.wdata.eq(Value.cast(memory.read_data.payload.data)),
            buffer.waddr.eq(index),
        ]  # fmt: skip
        with m.If(ours):
            m.d.comb += [
                memory.read.payload.slice.eq(self.slice), memory.read.payload.count.eq(1),
                memory.write.payload.slice.eq(self.slice), memory.write.payload.count.eq(1),
                Value.cast(memory.write_data.payload.data).eq(buffer.rdata),
            ]  # fmt: skip
        end = Signal()
        with m.If(end):
            m.d.comb += self.scrubbed.eq(1)
            m.d.sync += [self.slice.eq(Mux(last_slice, 0, self.slice + 1)), open_read.eq(1), open_write.eq(1)]
        with m.FSM():
            with m.State("PASS"):
                with m.If(due & quiet & ~asks):
                    m.d.comb += begin.eq(1)
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += [ours.eq(1), memory.read.valid.eq(1)]
                m.d.sync += [index.eq(0), dirty.eq(0), poisoned.eq(0)]
                with m.If(memory.read.ready):
                    m.next = "READ_DATA"
            with m.State("READ_DATA"):
                m.d.comb += [ours.eq(1), memory.read_data.ready.eq(1)]
                with m.If(memory.read_data.valid):
                    m.d.comb += buffer.we.eq(1)
                    wrong = dirty | self.corrected
                    bad = poisoned | memory.read_data.payload.error
                    m.d.sync += [index.eq(index + 1), dirty.eq(wrong), poisoned.eq(bad)]
                    with m.If(memory.read_data.payload.last):
                        with m.If(wrong & ~bad):
                            m.next = "WRITE"
                        with m.Else():
                            m.d.comb += end.eq(1)
                            m.next = "PASS"
            with m.State("WRITE"):
                m.d.comb += [ours.eq(1), memory.write.valid.eq(1), buffer.re.eq(1), buffer.raddr.eq(0)]
                m.d.sync += index.eq(1)
                with m.If(memory.write.ready):
                    m.next = "WRITE_DATA"
            with m.State("WRITE_DATA"):
                # The buffer shows the beat that is offered; its transfer reads the next one.
                m.d.comb += [ours.eq(1), memory.write_data.valid.eq(1)]
                with m.If(memory.write_data.ready):
                    m.d.comb += [buffer.re.eq(index != beats), buffer.raddr.eq(index)]
                    m.d.sync += index.eq(index + 1)
                    with m.If(index == beats):
                        m.next = "WRITE_DONE"
            with m.State("WRITE_DONE"):
                m.d.comb += [ours.eq(1), memory.write_done.ready.eq(1)]
                with m.If(memory.write_done.valid):
                    m.d.comb += [end.eq(1), self.repaired.eq(~memory.write_done.payload.error)]
                    m.next = "PASS"
        return m
