"""The whole memory path as one component: both engines, VMEM, HBM, and a port for the host."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.dma import DmaLoad, DmaStore
from sluice_hw.hbm.arbiter import SliceArbiter
from sluice_hw.hbm.sram import SliceMemory
from sluice_hw.interfaces import SlicePortSignature, UnitSignature, VmemReadSignature
from sluice_hw.vmem import Vmem


class MemoryPath(wiring.Component):
    """Engines ``ld`` and ``st`` share VMEM and HBM; ``host`` reaches HBM, ``act`` reads VMEM with priority."""

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        super().__init__({
            "ld": Out(UnitSignature()), "st": Out(UnitSignature()), "host": In(SlicePortSignature(config)),
            "act": In(VmemReadSignature(config.word_bytes)), "hbm_state": Out(isa.Cause),
            "ld_slices": Out(1), "st_slices": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        m.submodules.load_engine = load = DmaLoad(config)
        m.submodules.store_engine = store = DmaStore(config)
        m.submodules.vmem = vmem = Vmem(config)
        m.submodules.arbiter = arbiter = SliceArbiter(config)
        m.submodules.hbm = hbm = SliceMemory(config)
        connect(m, arbiter.memory, hbm.port)
        connect(m, arbiter.ports[1], flipped(self.host))
        connect(m, load.vmem, vmem.ld)
        connect(m, store.vmem, vmem.st)
        connect(m, flipped(self.act), vmem.act)
        connect(m, load.unit, flipped(self.ld))
        connect(m, store.unit, flipped(self.st))
        dma = arbiter.ports[0]
        for name in ("read", "read_data"):
            connect(m, getattr(load, name), getattr(dma, name))
        for name in ("write", "write_data", "write_done"):
            connect(m, getattr(store, name), getattr(dma, name))
        for engine in (load, store):
            m.d.comb += [engine.hbm_lo.eq(0), engine.hbm_hi.eq(config.hbm_slices)]
        m.d.comb += [
            self.hbm_state.eq(hbm.state), self.ld_slices.eq(load.slices), self.st_slices.eq(store.slices),
        ]  # fmt: skip
        return m
