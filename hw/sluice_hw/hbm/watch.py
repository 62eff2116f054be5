"""ECC mode ``device``: the memory corrects by itself and marks what it cannot; here that is noticed and named."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import ChipConfig
from ..interfaces import SlicePortSignature
from .coded import READS, EventSignature
from .position import Position

__all__ = ["DeviceWatch"]


class DeviceWatch(wiring.Component):
    """Passes everything, and reports beats that the memory has marked with ``error``.

    Refused trains are told from such beats: their only beat ends a train that should have had more, or lies outside.

    Members
    -------
    port : In(SlicePortSignature(config))
    memory : Out(SlicePortSignature(config))
    event : Out(EventSignature(config))
        A marked beat counts as one word, the beat's first.
    """

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        super().__init__({
            "port": In(SlicePortSignature(config)), "memory": Out(SlicePortSignature(config)),
            "event": Out(EventSignature(config)),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config, port, memory, event = self._config, self.port, self.memory, self.event
        m.submodules.position = position = Position(config, depth=READS)
        room = position.room
        for a, b, when in (
            (port.read, memory.read, room), (port.write, memory.write, 1), (port.write_data, memory.write_data, 1),
            (memory.read_data, port.read_data, 1), (memory.write_done, port.write_done, 1),
        ):  # fmt: skip
            m.d.comb += [b.valid.eq(a.valid & when), b.payload.eq(a.payload), a.ready.eq(b.ready & when)]
        beat = memory.read_data
        m.d.comb += [
            position.push.eq(memory.read.valid & memory.read.ready),
            position.first.eq(port.read.payload.slice), position.count.eq(port.read.payload.count),
            position.step.eq(beat.valid & beat.ready), position.end.eq(beat.payload.last),
            event.slice.eq(position.slice), event.word.eq(position.beat * (config.hbm_beat_bytes // 8)),
            event.detected.eq(position.step & beat.payload.error & (
                ~beat.payload.last | (position.final & (position.slice < config.hbm_slices)))),
        ]  # fmt: skip
        return m
