"""Vector memory: single-port banks shared by the streams of all units.

A byte address splits into ``group | index | offset``: the byte in a word (W = ``word_bytes``), the bank among the
G = ``vmem_interleave`` banks that consecutive words rotate over, and the row counted over the whole memory. Regions
need not be a power of two of rows, so the region is found by comparing ``group`` with their constant bounds.

Requests are granted, and reach the banks, in the cycle of their transfer; the words read are put together and rotated
in the next cycle, into the response registers. A write is visible to every read granted after it.
"""

from functools import reduce
from operator import or_

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .config import ChipConfig
from .interfaces import ADDR_BITS, VMEM_LATENCY, VmemReadSignature, VmemWriteSignature
from .lanes import lanes_below, rotate_up, window
from .ram import Ram1RW

__all__ = ["NARROW_READS", "PORTS", "Vmem"]

#: Read ports of a word's width, first priority first.
NARROW_READS = ("act", "weights", "residual", "source", "params")
#: All ports, first priority first.
PORTS = (*NARROW_READS, "result", "ld", "st")


def _any_of(values: list[Value]) -> Value:
    return reduce(or_, values)


def _gate(value: Value, enable: Value) -> Value:
    """``value`` where ``enable`` is high, else 0."""
    return value & enable.replicate(len(value))


class _Access:
    """The place a port's address names: row and bank of its word, one-hot, and of the word behind it."""

    def __init__(self, m: Module, config: ChipConfig, name: str, addr: Value) -> None:
        group_banks, rows, regions = config.vmem_interleave, config.vmem_bank_rows, config.vmem_regions
        offset_bits, index_bits = ceil_log2(config.word_bytes), ceil_log2(group_banks)
        group = addr[offset_bits + index_bits :]
        self.offset = addr[:offset_bits]
        self.index = addr[offset_bits : offset_bits + index_bits]
        # reach[k]: at or beyond the start of region k; the last one: beyond the memory.
        reach = Signal(regions + 1, name=f"{name}_reach")
        self.region = Signal(regions, name=f"{name}_region")
        self.row = Signal(range(max(rows, 2)), name=f"{name}_row")
        start = _any_of([_gate(Const(k * rows, len(group)), hot) for k, hot in enumerate(self.region)])
        m.d.comb += [
            reach.eq(Cat(Const(1, 1), (group >= k * rows for k in range(1, regions + 1)))),
            self.region.eq(reach[:-1] & ~reach[1:]),
            self.row.eq(group - start),
        ]
        self.inside = ~reach[regions]
        # The next word: the next bank, and behind the last bank of a group the next row, which may open a new region.
        self.next_index = Signal(index_bits, name=f"{name}_next_index")
        self.next_row = Signal.like(self.row, name=f"{name}_next_row")
        self.next_region = Signal.like(self.region, name=f"{name}_next_region")
        wraps = self.index == group_banks - 1
        ends = self.row == rows - 1
        m.d.comb += [
            self.next_index.eq(self.index + 1),
            self.next_row.eq(Mux(wraps, Mux(ends, 0, self.row + 1), self.row)),
            self.next_region.eq(Mux(wraps & ends, self.region << 1, self.region)),
        ]
        self.next_inside = self.next_region.any()
        self._banks = group_banks

    def banks(self, region: Value, in_group: Value) -> Value:
        """Bit per bank: those of ``in_group`` (bit per bank of a group) in ``region`` (one-hot)."""
        return Cat(_gate(in_group, hot) for hot in region)

    def one(self, index: Value) -> Value:
        """Bit per bank of a group: the one of ``index``."""
        return Cat(index == j for j in range(self._banks))


class Vmem(wiring.Component):
    """Banked vector memory with fixed priority, and no aliasing: what lies outside is never accessed.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    act, weights, residual, source, params : In(VmemReadSignature(word_bytes))
        Read a word's width of bytes at any byte address. Bytes behind the end of memory read as 0.
    result : In(VmemWriteSignature(word_bytes))
        Write at any byte address; only the banks of bytes in the mask are claimed.
    ld : In(VmemWriteSignature(hbm_beat_bytes))
        Write at an address that is a multiple of the port's width (lower address bits are not looked at).
    st : In(VmemReadSignature(hbm_beat_bytes, masked=True))
        Read likewise; words without a byte in the mask are not claimed and what they read is undefined.
    fault : Out(StructLayout)
        A bit per port: one cycle after its transfer, a request whose first byte (reads) or any byte in the mask
        (writes) lies outside. Such a request changed nothing and a read gives 0.
    fault_addr : Out(32)
        Address of the request with a fault, of the first one in priority order when there are several.
    """

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self._config = config
        word, beat = config.word_bytes, config.hbm_beat_bytes
        super().__init__({
            **{name: In(VmemReadSignature(word)) for name in NARROW_READS},
            "result": In(VmemWriteSignature(word)),
            "ld": In(VmemWriteSignature(beat)),
            "st": In(VmemReadSignature(beat, masked=True)),
            "fault": Out(data.StructLayout(dict.fromkeys(PORTS, 1))),
            "fault_addr": Out(ADDR_BITS),
        })

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        config = self._config
        m = Module()
        width = config.word_bytes
        group_banks = config.vmem_interleave
        banks = [Ram1RW(depth=config.vmem_bank_rows, width=8 * width, granularity=8) for _ in range(config.vmem_banks)]
        for number, bank in enumerate(banks):
            m.submodules[f"bank{number}"] = bank

        requests: dict[str, stream.Interface] = {name: getattr(self, name).req for name in PORTS}
        access = {name: _Access(m, config, name, req.payload.addr) for name, req in requests.items()}
        want = {name: Signal(config.vmem_banks, name=f"{name}_want") for name in PORTS}
        bad = {name: Signal(name=f"{name}_bad") for name in PORTS}

        for name in NARROW_READS:
            self._want_read(m, access[name], want[name], bad[name])
        result_data, result_masks = self._want_result(m, access["result"], want["result"], bad["result"])
        ld_words, ld_masks = self._want_wide(m, "ld", access["ld"], want["ld"], bad["ld"])
        self._want_wide(m, "st", access["st"], want["st"], bad["st"])

        # A port waits when any port before it wants one of its banks, whether or not that one gets all of its own.
        grant = {}
        taken = Const(0, config.vmem_banks)
        for name, req in requests.items():
            grant[name] = Signal(config.vmem_banks, name=f"{name}_grant")
            m.d.comb += [
                req.ready.eq(~(want[name] & taken).any()),
                grant[name].eq(_gate(want[name], req.valid & req.ready)),
            ]
            after = Signal(config.vmem_banks, name=f"{name}_taken")
            m.d.comb += after.eq(taken | _gate(want[name], req.valid))
            taken = after

        # The row that a port asks of bank j of a group: a narrow one has two words, which may lie in different rows.
        rows: dict[str, list[Signal]] = {name: [] for name in PORTS}
        masks = []
        for j in range(group_banks):
            for name, a in access.items():
                rows[name].append(Signal.like(a.row, name=f"{name}_row{j}"))
                m.d.comb += rows[name][j].eq(
                    a.row if name in ("ld", "st") else Mux(a.index == j, a.row, a.next_row)
                )
            masks.append(Signal(width, name=f"result_mask{j}"))
            m.d.comb += masks[j].eq(Mux(access["result"].index == j, result_masks[0], result_masks[1]))
        for number, bank in enumerate(banks):
            j = number % group_banks
            result, ld = grant["result"][number], grant["ld"][number]
            m.d.comb += [
                bank.en.eq(Cat(grant[name][number] for name in PORTS).any()),
                bank.addr.eq(_any_of([_gate(rows[name][j], grant[name][number]) for name in PORTS])),
                bank.wdata.eq(Mux(result, result_data, ld_words[j])),
                bank.we.eq(Mux(result, masks[j], _gate(ld_masks[j], ld))),
            ]

        for name in NARROW_READS:
            self._respond_narrow(m, name, access[name], banks)
        self._respond_wide(m, access["st"], banks)

        m.d.sync += self.fault.eq(0)
        for name, req in reversed(requests.items()):
            with m.If(req.valid & req.ready & bad[name]):
                m.d.sync += [self.fault[name].eq(1), self.fault_addr.eq(req.payload.addr)]
        return m

    @staticmethod
    def _want_read(m: Module, a: _Access, want: Signal, bad: Signal) -> None:
        crosses = a.offset != 0
        m.d.comb += [
            bad.eq(~a.inside),
            want.eq(
                a.banks(a.region, a.one(a.index)) | _gate(a.banks(a.next_region, a.one(a.next_index)), crosses)
            ),
        ]

    def _want_result(self, m: Module, a: _Access, want: Signal, bad: Signal) -> tuple[Signal, tuple[Signal, Signal]]:
        """Rotated data, and its masks for the addressed word and the one behind."""
        width = self._config.word_bytes
        payload = self.result.req.payload
        rotated = rotate_up(m, "result_data", Value.cast(payload.data), a.offset, 8)
        turned = rotate_up(m, "result_mask", payload.mask, a.offset)
        masks = Signal(width, name="result_mask_first"), Signal(width, name="result_mask_next")
        wraps = Signal(width, name="result_lanes_next")
        m.d.comb += [
            wraps.eq(lanes_below(a.offset, width)),
            masks[0].eq(turned & ~wraps),
            masks[1].eq(turned & wraps),
            bad.eq((masks[0].any() & ~a.inside) | (masks[1].any() & ~a.next_inside)),
            want.eq(_gate(
                _gate(a.banks(a.region, a.one(a.index)), masks[0].any())
                | _gate(a.banks(a.next_region, a.one(a.next_index)), masks[1].any()),
                ~bad)),
        ]
        return rotated, masks

    def _want_wide(self, m: Module, name: str, a: _Access, want: Signal, bad: Signal) -> tuple[list, list]:
        """Data (writes only) and mask of a wide port for each bank of a group."""
        config = self._config
        width, beat, group_banks = config.word_bytes, config.hbm_beat_bytes, config.vmem_interleave
        payload = getattr(self, name).req.payload
        bits = Value.cast(payload.data) if name == "ld" else Const(0, 8 * beat)
        words, masks = [], []
        for j in range(group_banks):
            if beat > width:  # all banks of a group
                words.append(bits[8 * width * j : 8 * width * (j + 1)])
                masks.append(payload.mask[width * j : width * (j + 1)])
            else:  # a part of one word
                part = a.offset[ceil_log2(beat) :]
                if not j:
                    mask = Signal(width, name=f"{name}_word_mask")
                    m.d.comb += mask.eq(Cat(_gate(payload.mask, part == i) for i in range(width // beat)))
                words.append(bits.replicate(width // beat))
                masks.append(mask)
        used = Signal(group_banks, name=f"{name}_used")
        m.d.comb += [
            used.eq(Cat((mask.any() & (True if beat > width else a.index == j)) for j, mask in enumerate(masks))),
            bad.eq(payload.mask.any() & ~a.inside),
            want.eq(a.banks(a.region, used)),
        ]
        return words, masks

    def _respond_narrow(self, m: Module, name: str, a: _Access, banks: list[Ram1RW]) -> None:
        port = getattr(self, name)
        valid = Signal(name=f"{name}_read")
        offset = Signal(len(a.offset), name=f"{name}_offset", reset_less=True)
        m.d.sync += [valid.eq(port.req.valid & port.req.ready), port.rsp_valid.eq(valid)]
        words = []
        for place, region, index in ("first", a.region, a.index), ("next", a.next_region, a.next_index):
            hit = Signal(name=f"{name}_{place}_hit", reset_less=True)
            which = Signal(range(len(banks)), name=f"{name}_{place}_bank", reset_less=True)
            with m.If(port.req.valid):
                m.d.sync += [hit.eq(region.any()), which.eq(self._number(region, index))]
            words.append(self._word(m, f"{name}_{place}", hit, which, banks))
        with m.If(port.req.valid):
            m.d.sync += offset.eq(a.offset)
        turned = window(m, f"{name}_window", *words, offset)
        with m.If(valid):
            m.d.sync += Value.cast(port.rsp_data).eq(turned)

    def _respond_wide(self, m: Module, a: _Access, banks: list[Ram1RW]) -> None:
        port = self.st
        config = self._config
        width, beat, group_banks = config.word_bytes, config.hbm_beat_bytes, config.vmem_interleave
        valid = Signal(name="st_read")
        hit = Signal(name="st_hit", reset_less=True)
        which = Signal(range(len(banks)), name="st_bank", reset_less=True)
        part = Signal(max(1, ceil_log2(width // beat) if beat < width else 1), name="st_part", reset_less=True)
        m.d.sync += [valid.eq(port.req.valid & port.req.ready), port.rsp_valid.eq(valid)]
        with m.If(port.req.valid):
            m.d.sync += [
                hit.eq(a.inside),
                which.eq(self._number(a.region, Const(0, len(a.index)) if beat > width else a.index)),
                part.eq(a.offset[ceil_log2(beat) :] if beat < width else 0),
            ]
        if beat > width:
            words = Cat(self._word(m, f"st_{j}", hit, which, banks, j) for j in range(group_banks))
        else:
            word = self._word(m, "st", hit, which, banks)
            words = Array(word[8 * i : 8 * (i + beat)] for i in range(0, width, beat))[part]
        with m.If(valid):
            m.d.sync += Value.cast(port.rsp_data).eq(words)

    def _number(self, region: Value, index: Value) -> Value:
        regions = range(len(region))
        bits = ceil_log2(len(region))
        return Cat(index, _any_of([_gate(Const(k, bits), region[k]) for k in regions])) if bits else index

    def _word(
        self, m: Module, name: str, hit: Value, which: Value, banks: list[Ram1RW], step: int | None = None
    ) -> Signal:
        """What bank ``which`` gave, or bank ``step`` of the group that begins at ``which``; 0 without ``hit``.

        A case and not a sum of gated words, which costs simulation much more.
        """
        word = Signal(8 * self._config.word_bytes, name=f"{name}_word")
        numbers = range(0, len(banks), self._config.vmem_interleave if step is not None else 1)
        with m.If(hit), m.Switch(which):
            for number in numbers:
                with m.Default() if number == numbers[-1] else m.Case(number):
                    m.d.comb += word.eq(banks[number + (step or 0)].rdata)
        return word


assert VMEM_LATENCY == 2, "the pipeline above takes two cycles"
