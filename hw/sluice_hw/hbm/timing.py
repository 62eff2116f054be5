"""What a DRAM channel asks of its controller: organisation and timings, in memory clocks.

Sources. The command set, the organisation and the rules are JEDEC's: JESD235 (HBM, HBM2) and JESD238 (HBM3). Vendors'
tables of the values are not public; these are the strictest that the public simulators agree on for 2 Gb/s pins and a
1 ns clock: DRAMsim3 ``HBM2_8Gb_x128.ini`` (tRCD, tRP, tRAS, tFAW, tWTR, tWR, tRTP, latencies), Ramulator ``HBM2.cpp``
(tRFC and rows by density, tRFCSB), DRAMSys ``HBM2.json`` (tRREFD). HBM3 is Ramulator 2's ``HBM3_6400Mbps``. tRTW is
RL + burst + 2 - WL: two clocks for the data bus to turn.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

__all__ = ["TIMINGS", "DramTiming"]


@dataclass(frozen=True, kw_only=True)
class DramTiming:
    """A channel of two pseudo-channels that take 32 bytes in a burst of two clocks. Times in memory clocks.

    HBM2: a channel of 128 bits, bursts of four on 64 bits, two beats a clock. HBM3: a channel of 64 bits, bursts of
    eight on 32 bits, four beats a clock. Either moves 32 bytes per clock.

    Raises
    ------
    ValueError
        For values that contradict each other; the message names the field.
    """

    name: str
    clock_mhz: int
    #: Gigabits of the channel, both pseudo-channels together.
    density_gb: int
    #: Banks of a pseudo-channel: groups, and banks in each.
    bank_groups: int = 4
    banks_per_group: int
    #: Rows of a bank.
    rows: int
    #: Bytes of a row of one bank of one pseudo-channel.
    row_bytes: int = 1024
    #: From RD to its data, from WR to its data.
    rl: int
    wl: int
    #: Clocks of a burst on the pins.
    burst: int = 2
    rcd_rd: int
    rcd_wr: int
    rp: int
    ras: int
    rc: int
    rrd_s: int
    rrd_l: int
    faw: int
    ccd_s: int
    ccd_l: int
    #: From the end of written data to RD, other and same bank group.
    wtr_s: int
    wtr_l: int
    #: From RD to WR.
    rtw: int
    #: From RD to PRE of the bank.
    rtp: int
    #: From the end of written data to PRE of the bank.
    wr: int
    #: All-bank refresh; refresh of one bank; from a refresh of one bank to ACT or REFSB of another.
    rfc: int
    rfc_sb: int
    rrefd: int
    #: Average interval of refreshes of each bank; how many intervals one may be late (or early).
    refi: int
    postpone: int = 8

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "name" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{field.name} of {self.name!r} must be a positive integer, not {value!r}")
        bits = 2 * self.bank_groups * self.banks_per_group * self.rows * self.row_bytes * 8
        if bits != self.density_gb << 30:
            raise ValueError(
                f"density_gb of {self.name!r} is {self.density_gb}, but banks, rows and row_bytes make {bits} bits"
            )
        if self.bank_groups != 4:
            raise ValueError(f"bank_groups of {self.name!r} must be 4, not {self.bank_groups}")
        if self.ccd_s != self.burst or self.ccd_l > 2 * self.burst:
            raise ValueError(
                f"ccd_s of {self.name!r} must be the burst and ccd_l at most two, not {self.ccd_s}, {self.ccd_l}"
            )

    @property
    def banks(self) -> int:
        """Banks of a pseudo-channel."""
        return self.bank_groups * self.banks_per_group

    @property
    def bytes(self) -> int:
        """Bytes of the channel."""
        return self.density_gb << 27

    @property
    def row_bursts(self) -> int:
        """Bursts of a row."""
        return self.row_bytes // 32


def _hbm2(density_gb: int, *, banks_per_group: int, rows: int, rfc: int, rfc_sb: int) -> DramTiming:
    return DramTiming(
        name=f"hbm2-{density_gb}gb", clock_mhz=1000, density_gb=density_gb, banks_per_group=banks_per_group, rows=rows,
        rl=14, wl=4, rcd_rd=14, rcd_wr=14, rp=14, ras=34, rc=48, rrd_s=4, rrd_l=6, faw=30, ccd_s=2, ccd_l=4,
        wtr_s=6, wtr_l=8, rtw=14, rtp=6, wr=16, rfc=rfc, rfc_sb=rfc_sb, rrefd=8, refi=3900,
    )  # fmt: skip


#: Channels by name.
TIMINGS: dict[str, DramTiming] = {
    t.name: t
    for t in (
        _hbm2(2, banks_per_group=2, rows=1 << 14, rfc=160, rfc_sb=160),
        _hbm2(4, banks_per_group=4, rows=1 << 14, rfc=260, rfc_sb=160),
        _hbm2(8, banks_per_group=4, rows=1 << 15, rfc=350, rfc_sb=200),
        DramTiming(
            name="hbm3-4gb", clock_mhz=1600, density_gb=4, banks_per_group=4, rows=1 << 14, rl=20, wl=10, rcd_rd=31,
            rcd_wr=15, rp=26, ras=45, rc=72, rrd_s=4, rrd_l=5, faw=24, ccd_s=2, ccd_l=4, wtr_s=7, wtr_l=10, rtw=20,
            rtp=9, wr=33, rfc=416, rfc_sb=320, rrefd=13, refi=6240,
        ),
    )
}  # fmt: skip
