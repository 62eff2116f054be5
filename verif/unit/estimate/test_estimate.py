"""The cost model by itself: what its parts add up to, and rules that hold whatever the chip takes."""

from __future__ import annotations

import dataclasses

import pytest

from sluice.asm import assemble
from sluice.compiler import Unsupported, matmul_graph
from sluice.compiler import compile as compile_graph
from sluice.estimate import Estimate, EstimateError, Timing, estimate
from sluice.estimate.pattern import pattern
from sluice.runtime import RunReport
from sluice_hw import csr
from sluice_hw.config import PRESETS, ChipConfig, preset
from sluice_hw.isa import UNIT_CAUSES, Unit


def matmul(config: ChipConfig, m: int, k: int, n: int) -> Estimate:
    return estimate(compile_graph(matmul_graph(m, k, n), config).program, config)


@pytest.mark.parametrize("name", [name for name, config in PRESETS.items() if not config.is_float])
def test_parts_add_up(name: str) -> None:
    config = preset(name)
    m, k, n = 3 * config.rows // 2, 2 * config.rows, config.cols + 1
    e = matmul(config, m, k, n)
    assert e.fill + e.needs["array"] + e.starved + e.drain == e.cycles and e.starved >= 0
    assert e.macs == m * k * n
    assert e.needs["array"] == m * 2 * 2, "two tiles down, two across"
    assert all(0 <= need <= e.cycles for need in e.needs.values())
    assert set(e.units) == {u.name.lower() for u in Unit}
    assert e.critical in {*e.needs, "fill/drain"}
    moved = m * k + k * n + m * n
    assert e.needs["HBM"] >= moved / config.hbm_bytes_per_cycle
    assert e.to_json()["cycles"] == e.cycles and str(e.cycles) in str(e)


def test_bf16_is_refused() -> None:
    config = preset("v2")
    with pytest.raises(EstimateError, match="knows int8 chips, and 'v2' multiplies bf16"):
        estimate(assemble("halt\n", config), config)
    with pytest.raises(Unsupported, match="lowers int8 graphs, and chip 'v2' multiplies bf16"):
        compile_graph(matmul_graph(8, 8, 8), config)


def test_halt_alone() -> None:
    config = preset("tiny")
    e = estimate(assemble("halt\n", config), config)
    assert e.cycles == Timing.FETCH + Timing.HALT
    assert (e.fill, e.drain, e.critical) == (e.cycles, 0, "fill/drain")


def test_words_cost_what_they_cost() -> None:
    """Every word a cycle, a loop's END that goes on its jump, an ADDR inside a later iteration its product."""
    config = preset("tiny")

    def cycles(text: str) -> int:
        return estimate(assemble(f"{text}\nhalt\n", config), config).cycles

    alone = cycles("")
    assert cycles("addr r0 base=1\naddr r1 base=2") == alone + 2
    assert cycles("loop 0 count=5 {\naddr r0 base=1\n}") == alone + 1 + 5 + 5 + 4 * (Timing.JUMP - 1)
    once, twice = (cycles(f"loop 0 count={n} {{\naddr r0 base=1 stride0=1\n}}") for n in (1, 2))
    assert twice - once == 2 + Timing.JUMP - 1 + Timing.ADDRESS_PRODUCT


def test_a_slower_memory_takes_longer() -> None:
    """Latency once for what it cannot hide, and the rate for every beat."""
    config = preset("small")
    fast = matmul(config, 64, 64, 64)
    late = matmul(dataclasses.replace(config, hbm_latency=140), 64, 64, 64)
    assert 100 <= late.cycles - fast.cycles <= 250
    load = assemble("dma_shape unit=ld row_bytes=25600 rows=1\nhbm_read_slice hbm=r0 vmem=r0 count=100\nhalt\n", config)
    whole, part = (
        estimate(load, dataclasses.replace(config, hbm_bytes_per_cycle=rate)).cycles for rate in (32, 24))
    assert part - whole == pytest.approx(800 * 4 / 3 - 800, abs=2)


def test_dram() -> None:
    """One train waits for the schedule once; reads and writes pay for their turn; the rate is that of the channel."""
    config = preset("tiny-hbm2").replace(ecc="off")
    shape = "dma_shape unit={0} row_bytes={1} rows=1\n"
    load, store = "hbm_read_slice hbm=r0 vmem=r0 count={}\n", "hbm_write_slice hbm=r1 vmem=r0 count={}\n"

    def cycles(text: str, config: ChipConfig = config) -> int:
        return estimate(assemble(text + "halt\n", config), config).cycles

    def loads(n: int, config: ChipConfig = config) -> int:
        return cycles(shape.format("ld", 4096 * n) + load.format(n), config)

    # As measured on the chip after power-on (`verif/system/baselines` has whole programs).
    assert (loads(1), loads(4)) == (179, 563)
    assert [cycles(shape.format("st", 4096 * n) + store.format(n)) for n in (1, 4)] == [305, 689]
    both = cycles(shape.format("ld", 4096) + shape.format("st", 4096) + load.format(1) + store.format(1))
    assert both == 434
    sideband = config.replace(ecc="sideband")
    assert loads(1, sideband) == 181
    slow = config.replace(memory_clocks=1, core_clocks=2)
    assert loads(4, slow) - loads(1, slow) == pytest.approx(3 * 256, abs=2)
    with pytest.raises(EstimateError, match="knows no check bits in HBM itself, and 'axi' has ECC 'inband'"):
        cycles("", ChipConfig(name="axi", memory="axi4", ecc="inband"))


def test_parameters_give_loop_counts() -> None:
    config = preset("tiny")
    program = assemble("loop 0 count=p2 {\naddr r0 base=1\n}\nhalt\n", config)
    zero, four, five = (estimate(program, config, params=[0, 0, n]).cycles for n in (0, 4, 5))
    assert five - four == 2 + Timing.JUMP - 1 and zero < four


@pytest.mark.parametrize(("text", "message"), [
    ("hbm_read_slice hbm=r0 vmem=r0 count=1", "HBM_READ_SLICE at word 0 needs DMA_SHAPE"),
    ("hbm_write_slice hbm=r0 vmem=r0 count=1", "HBM_WRITE_SLICE at word 0 needs DMA_SHAPE"),
    ("feed_segment index=0 lo=0 hi=8\npulse_array vmem=r0 acc=r0", "PULSE_ARRAY at word 1 needs FEED_SHAPE"),
    ("vector_shape n2=4 s2=1 d2=8\nvector src=r0 dst=r0", "VECTOR at word 1 needs VECTOR_MODE"),
])  # fmt: skip
def test_missing_setup(text: str, message: str) -> None:
    config = preset("tiny")
    with pytest.raises(EstimateError, match=message):
        estimate(assemble(f"{text}\nhalt\n", config, check=False), config)


def test_patterns() -> None:
    """A row that lies apart makes one access; rows that overlap share a word; a padded row makes none."""
    config = preset("tiny")
    shape = dict.fromkeys(("s0", "s1", "s2", "pad", "x_step", "y_step", "line_bytes", "height", "zero_point"), 0)
    shape |= {"n0": 4, "n1": 1, "n2": 1, "segments": 1}
    segment = {"lo": 0, "hi": 8, "offset": 3, "x": 0, "y": 0}
    apart = pattern(config, shape | {"s0": 8}, {0: segment})
    assert apart.simple and apart.places == (3, 11, 19, 27) and (apart.lo, apart.hi) == (3, 34)
    sliding = pattern(config, shape | {"s0": 2}, {0: segment | {"hi": 4}})
    assert sliding.places == (3, 11) and [len(row.accesses) for row in sliding.rows] == [1, 0, 0, 1]
    assert not sliding.simple
    inside = {"pad": 1, "x_step": 8, "line_bytes": 16, "height": 1, "s0": 8}
    padded = pattern(config, shape | inside, {0: segment | {"x": -8}})
    assert [len(row.reads) for row in padded.rows] == [0, 1, 1, 0]




def test_in_run_reports() -> None:
    """Beside measured cycles, in text and JSON; merged reports add it up; backends without time have none."""
    config = preset("tiny")
    program = assemble("addr r0 base=0\nhalt\n", config)
    counters = dict.fromkeys(csr.counters(), 0) | {"cycles": 7}
    counters |= {f"{unit}_idle": 7 for unit in UNIT_CAUSES}
    report = RunReport.from_counters(config, "rtl", counters)
    assert report.estimated is None and "estimated" not in str(report)
    with_it = report.with_estimate(program)
    assert with_it.estimated == 5 and with_it.to_json()["estimated_cycles"] == 5
    assert "  estimated        5 (-2, -28.57 %)" in str(with_it).splitlines()
    assert RunReport.merge([with_it, with_it]).estimated == 10
    assert RunReport.merge([with_it, report]).estimated is None
    assert RunReport.from_counters(config, "golden", counters, timed=False).with_estimate(program).estimated is None
    hangs = assemble("sync unit=ld wait=mxu\nhalt\n", config, check=False)
    assert report.with_estimate(hangs).estimated is None
