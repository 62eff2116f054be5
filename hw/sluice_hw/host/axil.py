"""AXI4-Lite subordinate in front of the registers."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, Signature

from .. import csr
from .ports import Resp, axi_lite_members

__all__ = ["CsrBusSignature", "HostAxiLite"]


class CsrBusSignature(Signature):
    """Requester's view: ``valid`` and its companions are held until ``ready``, which brings ``rdata`` and ``error``."""

    def __init__(self) -> None:
        super().__init__({
            "valid": Out(1),
            "write": Out(1),
            "addr": Out(csr.ADDRESS_BITS),
            "wdata": Out(32),
            "ready": In(1),
            "rdata": In(32),
            "error": In(1),
        })


class HostAxiLite(wiring.Component):
    """One access at a time, reads and writes in turn when both wait.

    SLVERR, without any effect, for an address that is not a multiple of 4, for strobes other than all, and where the
    register behind says so.

    Members
    -------
    s_axil_* : AXI4-Lite, 32 bits of data
    bus : Out(CsrBusSignature())
    """

    def __init__(self) -> None:
        super().__init__({**axi_lite_members(), "bus": Out(CsrBusSignature())})

    def elaborate(self, platform) -> Module:
        m = Module()
        aw_full, w_full, ar_full = Signal(), Signal(), Signal()
        awaddr = Signal(csr.ADDRESS_BITS)
        araddr = Signal(csr.ADDRESS_BITS)
        wdata = Signal(32)
        whole = Signal()
        write_next = Signal()
        m.d.comb += [
            self.s_axil_awready.eq(~aw_full),
            self.s_axil_wready.eq(~w_full),
            self.s_axil_arready.eq(~ar_full),
            self.bus.addr.eq(Mux(self.bus.write, awaddr, araddr)),
            self.bus.wdata.eq(wdata),
        ]
        with m.If(self.s_axil_awvalid & self.s_axil_awready):
            m.d.sync += [aw_full.eq(1), awaddr.eq(self.s_axil_awaddr)]
        with m.If(self.s_axil_wvalid & self.s_axil_wready):
            m.d.sync += [w_full.eq(1), wdata.eq(self.s_axil_wdata), whole.eq(self.s_axil_wstrb.all())]
        with m.If(self.s_axil_arvalid & self.s_axil_arready):
            m.d.sync += [ar_full.eq(1), araddr.eq(self.s_axil_araddr)]

        can_write = aw_full & w_full
        with m.FSM():
            with m.State("IDLE"):
                with m.If(can_write & (write_next | ~ar_full)):
                    m.d.sync += write_next.eq(0)
                    m.next = "WRITE"
                with m.Elif(ar_full):
                    m.d.sync += write_next.eq(1)
                    m.next = "READ"
            with m.State("WRITE"):
                refused = awaddr[:2].any() | ~whole
                m.d.comb += [self.bus.valid.eq(~refused), self.bus.write.eq(1)]
                with m.If(refused | self.bus.ready):
                    m.d.sync += [
                        aw_full.eq(0),
                        w_full.eq(0),
                        self.s_axil_bvalid.eq(1),
                        self.s_axil_bresp.eq(Mux(refused | self.bus.error, Resp.SLVERR, Resp.OKAY)),
                    ]
                    m.next = "RESPOND"
            with m.State("READ"):
                refused = araddr[:2].any()
                m.d.comb += self.bus.valid.eq(~refused)
                with m.If(refused | self.bus.ready):
                    m.d.sync += [
                        ar_full.eq(0),
                        self.s_axil_rvalid.eq(1),
                        self.s_axil_rdata.eq(Mux(refused | self.bus.error, 0, self.bus.rdata)),
                        self.s_axil_rresp.eq(Mux(refused | self.bus.error, Resp.SLVERR, Resp.OKAY)),
                    ]
                    m.next = "RESPOND"
            with m.State("RESPOND"):
                with m.If(self.s_axil_bvalid & self.s_axil_bready):
                    m.d.sync += self.s_axil_bvalid.eq(0)
                    m.next = "IDLE"
                with m.If(self.s_axil_rvalid & self.s_axil_rready):
                    m.d.sync += self.s_axil_rvalid.eq(0)
                    m.next = "IDLE"
        return m
