"""DRAM behind the slice port, with or without a code on its words: what stands in a chip in the place of its memory."""

from __future__ import annotations

import dataclasses

from amaranth import DomainRenamer, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .. import isa
from ..interfaces import ADDR_BITS, SlicePortSignature
from .controller import DramController
from .crossing import SliceCrossing
from .dram import DramSignature
from .dram_config import DramConfig
from .guard import EccGuard, EccStatusSignature

__all__ = ["DramMemory"]


class DramMemory(wiring.Component):
    """A :class:`DramController` and, with ``ecc``, the code in front of it, its check bits beside the data.

    The code's pipelines add to the latency of a slice what they are long, always the same. With ``config.crosses`` the
    port alone is in the domain ``sync``, and everything else in the domain ``memory``.

    Parameters
    ----------
    config : DramConfig
        Its ``coded`` is not looked at.
    ecc : bool

    Members
    -------
    port : In(SlicePortSignature(config.chip))
    period, clear, status
        As of :class:`~.guard.EccGuard`.
    others
        As of :class:`DramController`.
    """

    def __init__(self, config: DramConfig, *, ecc: bool = False) -> None:
        self._config, self._ecc = dataclasses.replace(config, coded=ecc), ecc
        super().__init__({
            "port": In(SlicePortSignature(config.chip)), "lo": In(ADDR_BITS), "hi": In(ADDR_BITS),
            "dram": Out(DramSignature(config)), "state": Out(isa.Cause), "fault": Out(1),
            "waiting": Out(2), "granted": Out(1), "granted_write": Out(1), "done": Out(1), "done_write": Out(1),
            "period": In(32), "clear": In(1), "status": Out(EccStatusSignature(config.chip)),
        })  # fmt: skip

    @property
    def config(self) -> DramConfig:
        return self._config

    @property
    def ecc(self) -> bool:
        return self._ecc

    def elaborate(self, platform) -> Module:
        m = Module()
        renamed = DomainRenamer("memory") if self._config.crosses else (lambda component: component)
        controller = DramController(self._config)
        m.submodules.controller = renamed(controller)
        connect(m, controller.dram, flipped(self.dram))
        m.d.comb += [controller.lo.eq(self.lo), controller.hi.eq(self.hi)]
        for name in ("state", "fault", "waiting", "granted", "granted_write", "done", "done_write"):
            m.d.comb += getattr(self, name).eq(getattr(controller, name))
        inner = controller.port
        if self._ecc:
            guard = EccGuard(self._config.chip, mode="sideband", model=False)
            m.submodules.guard = renamed(guard)
            connect(m, guard.memory, inner)
            connect(m, guard.status, flipped(self.status))
            m.d.comb += [guard.period.eq(self.period), guard.clear.eq(self.clear)]
            inner = guard.port
        if self._config.crosses:
            m.submodules.crossing = crossing = SliceCrossing(self._config.chip)
            connect(m, flipped(self.port), crossing.port)
            connect(m, crossing.memory, inner)
        else:
            connect(m, flipped(self.port), inner)
        return m
