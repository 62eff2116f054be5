"""A memory on an AXI4 port: in order, a beat a cycle, with the latency that a configuration says."""

from __future__ import annotations

from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.utils import ceil_log2

from ..config import ChipConfig
from ..hbm.axi4 import BEAT_BYTES, BURST_BEATS
from ..hbm.back_end import AXI_ADDRESS_BITS, AXI_ID_BITS, memory_members
from ..hbm.sram import SliceMemory
from ..host.ports import Resp

__all__ = ["Axi4Ram"]

#: Bursts of a kind whose id is remembered.
BURSTS = 64


class Axi4Ram(wiring.Component):
    """The other side of a chip's ``m_axi_*``: bursts become trains of a :class:`~..hbm.sram.SliceMemory`, ``slices``.

    Takes what :class:`~..hbm.axi4.Axi4Memory` sends: bursts of whole slices, or of 4 KiB where slices are larger.

    Parameters
    ----------
    config : ChipConfig
        With memory ``axi4``. The first beat of a burst comes ``hbm_latency`` cycles after its address.
    """

    def __init__(self, config: ChipConfig) -> None:
        if config.memory != "axi4":
            raise ValueError(f"memory of a chip on AXI4 must be 'axi4', not {config.memory!r}")
        self.config = config
        super().__init__({name: member.flip() for name, member in memory_members(config).items()})

    def answers(self, m: Module) -> Value:
        """Whether addresses are taken and answers given in this cycle: always, but a test may have it so."""
        return Value.cast(1)

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        piece = min(config.slice_bytes, BEAT_BYTES * BURST_BEATS)
        inner = config.replace(
            memory="sram", ecc="off", slice_bytes=piece, hbm_bytes=config.memory_slices * config.slice_bytes
        )
        m.submodules.slices = slices = SliceMemory(inner)
        m.submodules.reads = reads = SyncFIFO(width=AXI_ID_BITS, depth=BURSTS)
        m.submodules.writes = writes = SyncFIFO(width=AXI_ID_BITS, depth=BURSTS)
        port, on = slices.port, self.answers(m)
        shift, beats = ceil_log2(piece), ceil_log2(inner.slice_beats)
        for ask, ids, valid, ready, address, length, id_ in (
            (port.read, reads, self.m_axi_arvalid, self.m_axi_arready, self.m_axi_araddr, self.m_axi_arlen,
             self.m_axi_arid),
            (port.write, writes, self.m_axi_awvalid, self.m_axi_awready, self.m_axi_awaddr, self.m_axi_awlen,
             self.m_axi_awid),
        ):  # fmt: skip
            m.d.comb += [
                ask.valid.eq(valid & ids.w_rdy & on), ready.eq(ask.ready & ids.w_rdy & on),
                ask.payload.slice.eq(address[shift:AXI_ADDRESS_BITS]),
                ask.payload.count.eq((length + 1) >> beats),
                ids.w_data.eq(id_), ids.w_en.eq(valid & ready),
            ]  # fmt: skip
        beat, done = port.read_data, port.write_done
        m.d.comb += [
            self.m_axi_rvalid.eq(beat.valid & on), beat.ready.eq(self.m_axi_rready & on),
            self.m_axi_rdata.eq(Value.cast(beat.payload.data)), self.m_axi_rlast.eq(beat.payload.last),
            self.m_axi_rresp.eq(beat.payload.error * Resp.SLVERR), self.m_axi_rid.eq(reads.r_data),
            reads.r_en.eq(beat.valid & beat.ready & beat.payload.last),
            port.write_data.valid.eq(self.m_axi_wvalid), self.m_axi_wready.eq(port.write_data.ready),
            Value.cast(port.write_data.payload.data).eq(self.m_axi_wdata),
            self.m_axi_bvalid.eq(done.valid & on), done.ready.eq(self.m_axi_bready & on),
            self.m_axi_bresp.eq(done.payload.error * Resp.SLVERR), self.m_axi_bid.eq(writes.r_data),
            writes.r_en.eq(done.valid & done.ready),
        ]  # fmt: skip
        return m
