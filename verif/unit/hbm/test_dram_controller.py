"""The slice controller's RTL under traffic: every DRAM command judged, every beat compared, every wait counted."""

from __future__ import annotations

import dataclasses
import os
import random

import numpy as np
import pytest

from sluice.build.model import lint
from sluice_hw.config import ChipConfig
from sluice_hw.emit import WAIVERS
from sluice_hw.emit.verilog import to_verilog
from sluice_hw.hbm.controller import DramController
from sluice_hw.hbm.dram_config import DramConfig
from sluice_hw.hbm.dram_memory import DramMemory
from sluice_hw.hbm.timing import TIMINGS
from verif.models.dram import DramBench, build

CHIP = ChipConfig(slice_bytes=4096, hbm_bytes=64 << 20)
PLAIN = DramConfig(chip=CHIP)
#: What differs in more than numbers. 2 Gb: two sets only. Two channels in step, slices of two units in each.
CONFIGS = {
    "per-bank": PLAIN,
    "all-bank": DramConfig(chip=CHIP, refresh="all-bank"),
    "two-sets-two-channels": DramConfig(
        chip=ChipConfig(slice_bytes=16384, hbm_bytes=128 << 20, hbm_bytes_per_cycle=64), timing="hbm2-2gb", phy_clocks=3
    ),
}
#: The memory's clock is not the core's: slower, and faster.
CLOCKS = {
    "slow-memory": dataclasses.replace(PLAIN, clock_ratio=(2, 5)),
    "fast-memory": dataclasses.replace(PLAIN, clock_ratio=(10, 7)),
}
MORE = {
    "8gb": DramConfig(chip=CHIP, timing="hbm2-8gb"),
    "hbm3": DramConfig(chip=ChipConfig(slice_bytes=8192, hbm_bytes=64 << 20), timing="hbm3-4gb"),
    "hbm3-all-bank": DramConfig(
        chip=ChipConfig(slice_bytes=8192, hbm_bytes=64 << 20), timing="hbm3-4gb", refresh="all-bank", refresh_group=4
    ),
    "long-slices": DramConfig(chip=ChipConfig(slice_bytes=65536, hbm_bytes=64 << 20), turn_max=4),
    "turns": DramConfig(chip=CHIP, turn_min=4, turn_max=8),
}


def seed_of() -> int:
    return int(os.environ["SLUICE_SEED"])


def settle(bench: DramBench, **expected: int):
    """Nothing is wrong; gives the counts."""
    counts = bench.counts()
    assert not counts.wrong and not counts.stuck, bench.first_wrong or "it stands still"
    assert bench.broken == {}, bench.first_wrong
    assert not counts.wrong_checks
    for name, value in expected.items():
        assert getattr(counts, name) == value, name
    return counts


def mixed(bench: DramBench, rng: random.Random, trains: int) -> int:
    """Trains of both kinds, near each other and at the end of memory; some that are to be refused. Gives these."""
    slices, refused = bench.config.chip.hbm_slices, 0
    for _ in range(trains):
        for ask in (bench.read, bench.write):
            count = rng.choice([0, 1, 1, 1, 2, 3, 5, 8])
            start = rng.choice([rng.randrange(64), rng.randrange(slices), slices - rng.randrange(1, 9)])
            refused += count == 0 or start + count > slices
            ask(start, count)
    return refused


@pytest.mark.parametrize("name", CONFIGS)
def test_random_trains(name):
    random_trains(CONFIGS[name])


@pytest.mark.parametrize("name", ["slow-memory", pytest.param("fast-memory", marks=pytest.mark.soak)])
def test_two_clocks(name):
    config = CLOCKS[name]
    random_trains(config)
    with DramBench(config, build(config)) as bench:
        bench.read(0, 500)
        bench.run(5_000)
        bench.clear()
        bench.run(25_000)
        # Whoever is slower sets the pace.
        settle(bench)
        assert bench.counts().utilisation == pytest.approx(
            min(1, config.clock_ratio[1] / config.clock_ratio[0]), abs=0.01
        )
        # A reset of both sides empties the crossing.
        bench.reset(20)
        bench.write(0, 30)
        bench.drain()
        bench.read(0, 30)
        bench.drain()
        settle(bench)


@pytest.mark.soak
@pytest.mark.parametrize("name", MORE)
def test_random_trains_of_more_configs(name):
    random_trains(MORE[name], rounds=6)


def random_trains(config: DramConfig, *, rounds: int = 2) -> None:
    library, rng = build(config), random.Random(seed_of())
    for n in range(rounds):
        with DramBench(config, library, seed=rng.randrange(1 << 30)) as bench:
            if n % 2:
                bench.pauses(
                    request=rng.choice([0, 90, 99]), sink=rng.choice([0, 20, 60]), source=rng.choice([0, 20, 60])
                )
            refused = mixed(bench, rng, 400 // config.units)
            bench.drain()
            counts = settle(bench, refused=refused, read_trains=400 // config.units, write_trains=400 // config.units)
            assert counts.distinct_latencies == [config.latency]
            assert max(counts.worst_wait) <= config.wait_bound


def test_a_granted_slice_takes_the_same_time_whatever_happens():
    rng = random.Random(seed_of())
    with DramBench(PLAIN, build(PLAIN), seed=seed_of()) as bench:
        slices = CHIP.hbm_slices
        bench.write(0, 64)
        for i in range(10_000):
            ask = bench.write if rng.random() < 0.3 else bench.read
            bench.pauses(request=rng.choice([0, 0, 95])) if i == 0 else None
            ask(rng.randrange(slices))
        bench.drain()
        counts = settle(bench)
        assert counts.read_slices + counts.write_slices == 10_064
        assert counts.distinct_latencies == [PLAIN.latency]
        assert len(counts.distinct_port_latencies) == 1
        assert max(counts.worst_wait) <= PLAIN.wait_bound


def test_whoever_is_slow_is_waited_for():
    """Beats out at a third of the pace and in at a third, each against a stream of the other kind at its own."""
    for slow in ({"sink": 70}, {"source": 70}, {"sink": 95, "source": 95}):
        with DramBench(PLAIN, build(PLAIN), seed=seed_of()) as bench:
            bench.write(0, 40)
            bench.drain()
            bench.pauses(**slow)
            bench.read(0, 40)
            bench.write(100, 40)
            bench.drain()
            counts = settle(bench, read_slices=40, write_slices=80)
            assert counts.distinct_latencies == [PLAIN.latency]


@pytest.mark.parametrize("name", ["per-bank", "all-bank"])
def test_a_stream_stops_for_nothing_but_its_refresh(name):
    config, t = CONFIGS[name], TIMINGS["hbm2-4gb"]
    with DramBench(config, build(config)) as bench:
        bench.read(0, 3000)
        bench.run(2000)
        bench.clear()
        counts = bench.run(30 * t.refi)
        settle(bench)
        assert counts.utilisation >= (0.98 if name == "per-bank" else 0.99 * (1 - t.rfc / t.refi))


@pytest.mark.parametrize("write", [False, True])
def test_one_set_of_banks_is_refreshed_in_time(write):
    """The pattern in which no refresh is free: every slice in the same four banks."""
    with DramBench(PLAIN, build(PLAIN)) as bench:
        step = PLAIN.run * PLAIN.sets
        for i in range(1500):
            (bench.write if write else bench.read)(i * 7 % 200 * step)
        bench.run(16 * 3900)
        bench.clear()
        counts = bench.run(20 * 3900)
        settle(bench)
        assert counts.utilisation > 0.95
        assert max(counts.worst_wait) <= PLAIN.wait_bound


def test_idle_memory_is_refreshed():
    for config in (PLAIN, CONFIGS["all-bank"]):
        with DramBench(config, build(config)) as bench:
            counts = bench.run(20 * 3900)
            settle(bench)
            per = 5 if config.refresh == "per-bank" else 4
            assert counts.row_commands[per] >= 18 * (32 if per == 5 else 2)


def test_where_slices_lie():
    """The memory behind the pins, seen as an array, has a slice where ``place`` says, in the order of its beats."""
    with DramBench(PLAIN, build(PLAIN)) as bench:
        rng = np.random.default_rng(seed_of())
        for number in (0, 1, 4, 5, 17, CHIP.hbm_slices - 1):
            bench.write(number)
        bench.drain()
        seen = [np.concatenate([v.copy() for v in bench.slice_view(n)]) for n in (0, 1, 4, 5, 17, CHIP.hbm_slices - 1)]
        assert all(part.any() for part in seen)
        # A slice that is put there from outside is read from there.
        for to, source in ((2, 17), (40, 0)):
            for view, part in zip(bench.slice_view(to), bench.slice_view(source), strict=True):
                view[:] = part
        assert rng is not None and not any(v.any() for v in bench.slice_view(3))
        settle(bench)


def test_trains_outside_their_window_are_refused():
    with DramBench(PLAIN, build(PLAIN)) as bench:
        bench.window(100, 200)
        before = bench.memory()[:, :64].copy()
        for ask in (bench.read, bench.write):
            for start, count in ((99, 1), (200, 1), (199, 2), (0, 300), (150, 0), (1 << 31, 1), (0xFFFFFFFF, 2)):
                ask(start, count)
        bench.drain()
        counts = settle(bench, refused=14, errors=7, read_slices=0, write_slices=0, columns=0)
        assert counts.read_trains == counts.write_trains == 7
        assert np.array_equal(before, bench.memory()[:, :64])
        bench.write(100, 100)
        bench.drain()
        bench.read(100, 100)
        bench.drain()
        settle(bench, read_slices=100, write_slices=100)


def test_a_reset_in_the_middle_of_trains():
    rng = random.Random(seed_of())
    with DramBench(PLAIN, build(PLAIN), seed=seed_of()) as bench:
        for _ in range(12):
            bench.write(rng.randrange(100), 6)
            bench.read(200 + rng.randrange(100), 6)
            bench.run(rng.randrange(330, 1400))
            bench.reset(rng.choice([1, 2, 50]))
        # Banks that were open are closed, refreshes that had begun are complete: what follows is clean.
        bench.write(0, 150)
        bench.drain()
        bench.read(0, 150)
        bench.drain()
        settle(bench)


def test_channels_that_bring_nothing():
    with DramBench(PLAIN, build(PLAIN)) as bench:
        bench.write(0, 8)
        bench.drain()
        bench.expect_errors()
        bench.read(0, 8)
        bench.run(400)
        bench.silence()
        bench.drain(20_000)
        counts = settle(bench)
        assert bench.fault and counts.errors > 0 and counts.read_trains == 1
        # Nothing is trusted until a reset; everything is answered.
        bench.write(20, 1)
        before = counts.errors
        bench.drain(20_000)
        assert settle(bench).errors > before
        bench.silence(False)
        bench.reset()
        bench.expect_errors(False)
        assert not bench.fault
        bench.write(0, 8)
        bench.drain()
        bench.read(0, 8)
        bench.drain()
        settle(bench)


@pytest.fixture(scope="module")
def coded():
    return build(PLAIN, ecc=True)


def test_wrong_bits_are_corrected_without_a_bubble_and_scrubbed(coded):
    rng = random.Random(seed_of())
    with DramBench(PLAIN, coded, ecc=True) as bench:
        bench.write(0, 64)
        bench.drain()
        for _ in range(300):
            bench.read(rng.randrange(64))
        bench.drain()
        clean = settle(bench)
        assert clean.corrected == clean.detected == 0
        base = bench.memory().ctypes.data
        words = sorted(
            {(bench.slice_view(n)[v].ctypes.data - base) // 8 for n in range(0, 64, 7) for v in range(0, 256, 9)}
        )
        for i, word in enumerate(words):
            bench.flip(word, data=1 << i % 64 if i % 8 else 0, check=0 if i % 8 else 1 << i // 8 % 8)
        for n in range(64):
            bench.read(n)
        bench.drain()
        counts = settle(bench, errors=0)
        assert counts.corrected == len(words) and counts.detected == 0
        assert counts.distinct_latencies == [PLAIN.latency] and len(counts.distinct_port_latencies) == 1
        # The scrubber writes them back, and keeps the rules and the latency.
        bench.scrub(2000)
        bench.run(64 * 2000 + 4000)
        counts = settle(bench)
        assert counts.scrubbed >= 64 and counts.repaired == 10
        assert counts.distinct_latencies == [PLAIN.latency]
        before = counts.corrected
        bench.scrub(0)
        for n in range(64):
            bench.read(n)
        bench.drain()
        assert settle(bench, errors=0).corrected == before


def test_two_wrong_bits_are_an_error_of_their_beat(coded):
    with DramBench(PLAIN, coded, ecc=True) as bench:
        bench.write(0, 4)
        bench.drain()
        bench.flip((bench.slice_view(2)[10].ctypes.data - bench.memory().ctypes.data) // 8, data=3 << 20)
        bench.expect_errors()
        bench.read(0, 4)
        bench.drain()
        counts = settle(bench, errors=1)
        assert counts.detected == 1 and not bench.fault
        bench.write(2)
        bench.drain()
        bench.expect_errors(False)
        bench.read(0, 4)
        bench.drain()
        settle(bench, errors=1)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("rcd_rd", 13, "tRCD"), ("rp", 12, "tRP"), ("rfc_sb", 159, "tRFCSB"), ("wr", 15, "tWR"), ("rtw", 12, "tRTW"),
        ("wtr_s", 4, "tWTR_S"), ("refi", 8000, "tREFI"), ("rl", 13, ""), ("wl", 3, ""),
    ],
)  # fmt: skip
def test_a_controller_with_other_timings_than_its_memory_is_caught(field, value, rule):
    """The device is as ever; the controller believes something else."""
    changes = {field: value}
    if field == "rcd_rd":
        changes["rcd_wr"] = value
    timing = dataclasses.replace(TIMINGS["hbm2-4gb"], **changes)
    # Only a refresh of all banks comes nearly as soon as tRP allows.
    config = DramConfig(chip=CHIP, timing=timing, refresh="all-bank" if field == "rp" else "per-bank")
    with DramBench(config, build(config), seed=seed_of()) as bench:
        step = config.run * config.sets
        for i in range(300):
            bench.read(i * step)
            bench.write((500 + i) * step)
        for i in range(300):
            bench.read(i % 16)
        bench.run(300_000 if field != "refi" else 120_000)
        counts = bench.counts()
        assert rule in bench.broken if rule else counts.wrong or counts.errors, bench.broken


@pytest.mark.parametrize(("name", "ecc"), [("all-bank", False), ("two-sets-two-channels", True)])
def test_the_emitted_verilog_is_clean(name, ecc):
    lint(to_verilog(DramMemory(CONFIGS[name], ecc=ecc), name="sluice_dram"), "sluice_dram", WAIVERS)


def test_what_is_no_config_is_refused():
    with pytest.raises(TypeError, match="DramConfig"):
        DramController(CHIP)
