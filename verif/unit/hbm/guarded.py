"""An ECC guard with a memory behind it, and a reader that sees single beats: what its benches need."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped

from sluice_hw.hbm.guard import EccGuard
from sluice_hw.hbm.sram import SliceMemory

__all__ = ["GuardedMemory"]


class GuardedMemory(wiring.Component):
    """Guard in front of the SRAM back end; everything but the guard's memory side is a port."""

    def __init__(self, config, mode: str, entries: int = 4) -> None:
        self.guard, self.memory = EccGuard(config, mode=mode, entries=entries), SliceMemory(config)
        members = {k: v for k, v in self.guard.signature.members.items() if k != "memory"}
        super().__init__(members)
        assert self.signature.members["port"].flow is In

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.guard, m.submodules.memory = self.guard, self.memory
        connect(m, self.guard.memory, self.memory.port)
        for name in self.signature.members:
            mine, theirs = getattr(self, name), getattr(self.guard, name)
            if name in ("period", "clear"):
                m.d.comb += theirs.eq(mine)
            else:
                connect(m, flipped(mine), theirs)
        return m
