"""The world around the host side: AXI masters, an HBM of slices, a microcode store."""

from __future__ import annotations

import random

import cocotb
from cocotb.triggers import RisingEdge, Timer
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiMaster

from sluice_hw.config import ChipConfig
from sluice_hw.csr import csr_map
from sluice_hw.interfaces import SlicePortSignature
from sluice_hw.sequencer import ucode_request_layout
from verif.transactors import StreamDriver, StreamSink, parameter, random_pauses, start_up
from verif.unit.microcode import CONFIG, unpack

CONFIGS: dict[str, ChipConfig] = {
    # Beats of 8 bytes (one lane), sizes of memory and store that are no powers of two.
    "narrow": CONFIG.replace(hbm_bytes_per_cycle=8, slice_bytes=64, hbm_bytes=64 * 37),
    "wide": CONFIG.replace(hbm_bytes_per_cycle=32, slice_bytes=256, hbm_bytes=256 * 37),
    # A slice of one beat.
    "single": CONFIG.replace(hbm_bytes_per_cycle=64, slice_bytes=64, hbm_bytes=64 * 63),
}


class Hbm:
    """Slices behind a slice port, with a request log and errors on demand."""

    def __init__(self, dut, config: ChipConfig, rng: random.Random, pause: float) -> None:
        self.config, self.rng = config, rng
        self.bytes = bytearray(rng.randbytes(config.hbm_bytes))
        self.log: list[tuple[str, int]] = []
        self.bad_reads: set[int] = set()
        self.bad_writes: set[int] = set()
        pauses = (lambda: random_pauses(pause, rng)) if pause else (lambda: None)
        members = SlicePortSignature(config).members
        shape = {name: members[name].signature.members["payload"].shape for name in members}
        self.reads = StreamSink(dut, "hbm__read", shape=shape["read"], pauses=pauses())
        self.read_data = StreamDriver(dut, "hbm__read_data", shape=shape["read_data"], pauses=pauses())
        self.writes = StreamSink(dut, "hbm__write", shape=shape["write"], pauses=pauses())
        self.write_data = StreamSink(dut, "hbm__write_data", shape=shape["write_data"], pauses=pauses())
        self.write_done = StreamDriver(dut, "hbm__write_done", shape=shape["write_done"], pauses=pauses())
        cocotb.start_soon(self._serve_reads())
        cocotb.start_soon(self._serve_writes())

    @property
    def pending(self) -> bool:
        return not (self.read_data.idle and self.write_done.idle)

    async def _serve_reads(self) -> None:
        size, width = self.config.slice_bytes, self.config.hbm_beat_bytes
        while True:
            request = await self.reads.get()
            assert request["count"] == 1
            self.log.append(("read", request["slice"]))
            assert (request["slice"] + 1) * size <= self.config.hbm_bytes
            if request["slice"] in self.bad_reads:
                await self.read_data.send({"data": [0] * width, "last": 1, "error": 1})
                continue
            for i in range(0, size, width):
                at = request["slice"] * size + i
                beat = list(self.bytes[at:at + width])
                await self.read_data.send({"data": beat, "last": int(i + width == size), "error": 0})

    async def _serve_writes(self) -> None:
        size = self.config.slice_bytes
        while True:
            request = await self.writes.get()
            assert request["count"] == 1
            beats = await self.write_data.get_many(self.config.slice_beats)
            self.log.append(("write", request["slice"]))
            error = request["slice"] in self.bad_writes
            if not error:
                at = request["slice"] * size
                self.bytes[at:at + size] = bytes(b for beat in beats for b in beat["data"])
            await self.write_done.send({"error": int(error)})


class Store:
    """Microcode store behind its port."""

    def __init__(self, dut, config: ChipConfig) -> None:
        self.dut, self.layout = dut, ucode_request_layout(config)
        self.lanes = [0] * (4 * config.microcode_words)
        dut.ucode__req__ready.value = 1
        cocotb.start_soon(self._serve())

    async def _serve(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            answer = None
            if int(dut.ucode__req__valid.value):
                request = unpack(self.layout, int(dut.ucode__req__payload.value))
                at = 4 * request["addr"] + request["lane"]
                if request["write"]:
                    self.lanes[at] = request["data"]
                else:
                    answer = self.lanes[at]
            dut.ucode__rsp_valid.value = int(answer is not None)
            # Garbage between answers: nothing may look at it.
            dut.ucode__rsp_data.value = answer if answer is not None else 0xBADBADBADBADBADB


class World:
    """A bench for the host side."""

    @classmethod
    async def create(cls, dut, rng: random.Random, *, pause: float = 0.0) -> World:
        self = cls()
        self.dut, self.rng = dut, rng
        self.config = CONFIGS[parameter("CONFIG")]
        self.csrs = csr_map(self.config)
        inputs = [h._name for h in dut if h._name.startswith(("s_axi_", "s_axil_"))]
        quiet = {n: 0 for n in inputs if n.endswith(("valid", "bready", "rready")) and not n.endswith(
            ("_bvalid", "_rvalid"))}
        await start_up(dut, startable=1, running=0, done=0, halted=0, error=0, ended=0, halt_code=0, fault=0, state=0,
                       counter_value=0, event=0, event_head=0, event_dropped=0, tokens=0, ucode__rsp_valid=0, **quiet)
        self.hbm = Hbm(dut, self.config, rng, pause)
        self.store = Store(dut, self.config)
        self.axil = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.axi = AxiMaster(AxiBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)
        if pause:
            for master in (self.axil, self.axi):
                for channel in (master.write_if.aw_channel, master.write_if.w_channel, master.write_if.b_channel,
                                master.read_if.ar_channel, master.read_if.r_channel):
                    channel.set_pause_generator(random_pauses(pause, rng))
        return self

    async def cycles(self, n: int) -> None:
        for _ in range(n):
            await RisingEdge(self.dut.clk)
        await Timer(1, "ns")

    async def csr_write(self, name: str, value: int) -> int:
        """AXI response."""
        done = await self.axil.write(self.csrs[name].offset, value.to_bytes(4, "little"))
        return int(done.resp)

    async def csr_read(self, name: str) -> int:
        done = await self.axil.read(self.csrs[name].offset, 4)
        assert int(done.resp) == 0, name
        return int.from_bytes(done.data, "little")
