"""An ECC guard with a memory behind it, and a reader that sees single beats: what its benches need."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped

from sluice_hw.hbm.guard import EccGuard, usable_slices
from sluice_hw.hbm.sram import SliceMemory

__all__ = ["GuardedMemory"]


class GuardedMemory(wiring.Component):
    """Guard in front of the SRAM back end; everything but the guard's memory side is a port.

    While ``poison`` is high, the memory says of each beat of check bits in slices of their own that it is wrong.
    """

    def __init__(self, config, mode: str, entries: int = 4) -> None:
        self._data_slices = usable_slices(config, mode)
        self.guard, self.memory = EccGuard(config, mode=mode, entries=entries), SliceMemory(config)
        members = {k: v for k, v in self.guard.signature.members.items() if k != "memory"}
        super().__init__({**members, "poison": In(1)})
        assert self.signature.members["port"].flow is In

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.guard, m.submodules.memory = self.guard, self.memory
        guard, memory = self.guard.memory, self.memory.port
        connect(m, guard, memory)
        of_checks = Signal()  # guards that keep check bits so ask for one train at a time
        with m.If(memory.read.valid & memory.read.ready):
            m.d.sync += of_checks.eq(memory.read.payload.slice >= self._data_slices)
        m.d.comb += guard.read_data.payload.error.eq(memory.read_data.payload.error | (self.poison & of_checks))
        for name in self.guard.signature.members.keys() - {"memory"}:
            mine, theirs = getattr(self, name), getattr(self.guard, name)
            if name in ("period", "clear"):
                m.d.comb += theirs.eq(mine)
            else:
                connect(m, flipped(mine), theirs)
        return m
