"""An AXI4 memory that answers in any order the protocol allows, as slowly and as badly as it is told to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import cocotb
from cocotb.triggers import RisingEdge

__all__ = ["Responder"]

OKAY, SLVERR, DECERR = 0, 2, 3


@dataclass
class Burst:
    """A burst under way: its id, the addresses of its beats to come, and for writes whether its data are complete."""

    id: int
    addresses: deque[int] = field(default_factory=deque)
    error: int = OKAY


class Responder:
    """Takes bursts of ``m_axi_*`` and checks them.

    Beats of read bursts with different ids are mixed at random, B of write bursts come in any order of their ids.

    Parameters
    ----------
    rng
        Chooses.
    idle
        Probability that a channel does nothing in a cycle.

    Attributes
    ----------
    contents
        The memory.
    bad
        Response by 4 KiB page, for pages that answer with an error.
    slow_b
        Probability, beside ``idle``, that no B comes in a cycle: answers gather, and come in another order.
    most
        Most read bursts, and write bursts, that were under way at a time.
    reordered
        Read beats that came while an older burst was not complete.
    """

    def __init__(self, dut, size: int, rng, *, idle: float, beat_bytes: int = 32) -> None:
        self.dut, self.rng, self.idle, self.width = dut, rng, idle, beat_bytes
        self.contents = bytearray(size)
        self.bad: dict[int, int] = {}
        self.slow_b = 0.0
        self.most = [0, 0]
        self.reordered = 0
        self._reads: list[Burst] = []
        self._writes: list[Burst] = []  # in the order of AW
        self._ready_b: list[Burst] = []
        self._early: deque[tuple[int, int]] = deque()  # data before their address
        for name in ("arready", "rvalid", "awready", "wready", "bvalid"):
            getattr(dut, f"m_axi_{name}").value = 0
        cocotb.start_soon(self._run())

    def _get(self, name: str) -> int:
        return int(getattr(self.dut, f"m_axi_{name}").value)

    def _put(self, **values: int) -> None:
        for name, value in values.items():
            getattr(self.dut, f"m_axi_{name}").value = value

    def _burst(self, x: str) -> Burst:
        address, beats = self._get(f"{x}addr"), self._get(f"{x}len") + 1
        assert self._get(f"{x}size") == 5 and self._get(f"{x}burst") == 1
        assert address % self.width == 0 and address + beats * self.width <= len(self.contents)
        assert address // 4096 == (address + beats * self.width - 1) // 4096, "a burst crosses 4 KiB"
        addresses = deque(range(address, address + beats * self.width, self.width))
        return Burst(self._get(f"{x}id"), addresses, self.bad.get(address // 4096, OKAY))

    def _works(self) -> bool:
        return self.rng.random() >= self.idle

    async def _run(self) -> None:
        held = {}
        while True:
            await RisingEdge(self.dut.clk)
            for x in ("ar", "aw"):  # VALID and what it says hold until READY
                now = tuple(self._get(f"{x}{n}") for n in ("valid", "addr", "len", "id"))
                assert x not in held or held[x] == now, f"{x} changed before its transfer"
                held.pop(x, None)
                if now[0] and not self._get(f"{x}ready"):
                    held[x] = now
            self._read_side()
            self._write_side()

    def _read_side(self) -> None:
        if self._get("arvalid") and self._get("arready"):
            burst = self._burst("ar")
            assert all(burst.id != other.id for other in self._reads), "an id twice"
            self._reads.append(burst)
            self.most[0] = max(self.most[0], len(self._reads))
        self._put(arready=self._works())
        if self._get("rvalid") and not self._get("rready"):
            return
        if self._reads and self._works():
            burst = self.rng.choice(self._reads)
            self.reordered += burst is not self._reads[0]
            at = burst.addresses.popleft()
            value = int.from_bytes(self.contents[at : at + self.width], "little")
            self._put(rvalid=1, rid=burst.id, rdata=value, rresp=burst.error, rlast=not burst.addresses)
            if not burst.addresses:
                self._reads.remove(burst)
        else:
            self._put(rvalid=0)

    def _write_side(self) -> None:
        if self._get("wvalid") and self._get("wready"):
            assert self._get("wstrb") == (1 << self.width) - 1
            self._early.append((self._get("wdata"), self._get("wlast")))
        if self._get("awvalid") and self._get("awready"):
            self._writes.append(self._burst("aw"))
        for burst in self._writes:
            while self._early and burst.addresses:
                value, last = self._early.popleft()
                at = burst.addresses.popleft()
                assert last == (not burst.addresses), "WLAST at the wrong beat"
                if burst.error == OKAY:
                    self.contents[at : at + self.width] = value.to_bytes(self.width, "little")
                if last:
                    self._ready_b.append(burst)
        self._writes = [burst for burst in self._writes if burst.addresses]
        self.most[1] = max(self.most[1], len(self._writes) + len(self._ready_b))
        # Some memories take the address only when its data are there.
        self._put(awready=self._works() and (self.rng.random() < 0.5 or self._get("wvalid") or bool(self._early)))
        self._put(wready=self._works())
        if self._get("bvalid") and not self._get("bready"):
            return
        if self._ready_b and self._works() and self.rng.random() >= self.slow_b:
            number = self.rng.choice(sorted({burst.id for burst in self._ready_b}))
            burst = next(b for b in self._ready_b if b.id == number)
            self._ready_b.remove(burst)
            self._put(bvalid=1, bid=burst.id, bresp=burst.error)
        else:
            self._put(bvalid=0)
