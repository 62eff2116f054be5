"""Timings, and the schedule that follows from them, checked command by command against the pairs' spacings."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from sluice_hw.config import ChipConfig
from sluice_hw.hbm.dram_config import DramConfig
from sluice_hw.hbm.schedule import Command, Kind, Schedule, spacing
from sluice_hw.hbm.timing import TIMINGS


@pytest.fixture(scope="module", params=["hbm2-8gb", "hbm3-4gb"])
def schedule(request) -> Schedule:
    return Schedule(TIMINGS[request.param])


def whole(schedule: Schedule, write: int) -> list[Command]:
    """A unit with all of its column commands, written down once more."""
    t, half, kind = schedule.timing, schedule.unit // 2, (Kind.RD, Kind.WR)[write]
    columns = []
    for burst in range(schedule.unit // t.burst):
        first_half = burst < schedule.unit // t.burst // 2
        bank = (0 if first_half else 2) + burst % 2
        columns += [Command(schedule.column + burst * t.burst + pc, kind, pc, bank) for pc in (0, 1)]
    assert len({(c.bank, c.pc) for c in columns}) == 8 and columns[-1].at < schedule.column + 2 * half
    return [*schedule.rows, *columns]


def too_close(schedule: Schedule, commands: list[tuple[Command, int]]) -> list:
    """Pairs of commands of (program's start added, set) that break a rule, by looking at all of them."""
    bad = []
    commands = sorted(commands, key=lambda c: c[0].at)
    for i, (a, set_a) in enumerate(commands):
        for b, set_b in commands[i + 1 :]:
            gap = b.at - a.at
            # No spacing of a column command is longer.
            if gap > 60 and (a.is_column or b.is_column):
                if a.is_column:
                    break
                continue
            if a.is_column == b.is_column and gap < (2 if a.kind is Kind.ACT else 1):
                bad.append((a, b, "bus"))
            if a.pc == b.pc:
                group = a.bank == b.bank
                least = spacing(schedule.timing, a.kind, b.kind, same_bank=group and set_a == set_b, same_group=group)
                if gap < least:
                    bad.append((a, b, least))
    return bad


def shifted(commands, by: int, bank_set: int) -> list[tuple[Command, int]]:
    return [(dataclasses.replace(c, at=c.at + by), bank_set) for c in commands]


@pytest.mark.parametrize("write", [0, 1])
@pytest.mark.parametrize("sets", [(0, 0), (0, 1)])
def test_units_follow_each_other_without_a_gap(schedule, write, sets):
    unit = whole(schedule, write)
    assert schedule.follow[write, write][schedule.unit]
    assert too_close(schedule, shifted(unit, 0, sets[0]) + shifted(unit, schedule.unit, sets[1])) == []


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_where_a_unit_may_follow_is_exactly_where_no_rule_breaks(schedule, first, second):
    rule = schedule.follow[first, second]
    a, b = whole(schedule, first), whole(schedule, second)
    t = schedule.timing
    edges = {schedule.unit} | {
        d + n for d in range(schedule.unit, schedule.span) for n in (0, 1) if rule[d] != rule[d + 1]
    }
    for distance in edges:
        bad = [bool(too_close(schedule, shifted(a, 0, 0) + shifted(b, distance, other))) for other in (0, 1)]
        assert rule[distance] == (not any(bad)), distance
    least = {(0, 1): t.rtw - t.burst, (1, 0): t.wl + t.wtr_s}.get((first, second), 0)
    assert rule.index(True) == schedule.unit + least


def test_a_refresh_fits_into_every_unit_of_another_set(schedule):
    at = schedule.refresh_in_unit
    for write, before, after in itertools.product((0, 1), repeat=3):
        gaps = [d for d in range(schedule.unit, schedule.unit + 30) if schedule.follow[before, write][d]]
        later = [d for d in range(schedule.unit, schedule.unit + 30) if schedule.follow[write, after][d]]
        for gap, then in itertools.product(gaps[::4], later[::4]):
            commands = shifted(schedule.rows, -gap, 1) + shifted(schedule.rows, 0, 0)
            commands += shifted(schedule.rows, then, 2) + shifted(schedule.refresh, at, 1)
            assert too_close(schedule, commands) == []
    # The set is needed again by the unit after next at the earliest: that is how far ahead one has to look.
    assert at + schedule.own_after_refresh <= 2 * schedule.unit


def test_after_a_refresh(schedule):
    unit, refresh = schedule.rows, schedule.refresh
    for distance, bank_set in ((schedule.after_refresh, 1), (schedule.own_after_refresh, 0)):
        assert too_close(schedule, shifted(refresh, 0, 0) + shifted(unit, distance, bank_set)) == []
        assert too_close(schedule, shifted(refresh, 0, 0) + shifted(unit, distance - 1, bank_set)) != []
    assert all(c.at + schedule.timing.rp <= schedule.refresh_all for c in schedule.rows if c.kind is Kind.PRE)


def test_four_activations_are_never_too_near(schedule):
    for refresh_at in (schedule.refresh_in_unit, None):
        program = [c for c in schedule.rows if c.kind is Kind.ACT]
        program += (
            [] if refresh_at is None else [dataclasses.replace(c, at=c.at + refresh_at) for c in schedule.refresh]
        )
        for pc in (0, 1):
            times = sorted(c.at + n * schedule.unit for c in program if c.pc == pc for n in range(4))
            assert min(b - a for a, b in zip(times, times[4:], strict=False)) >= schedule.timing.faw


def test_the_numbers_of_hbm2():
    schedule = Schedule(TIMINGS["hbm2-4gb"])
    assert (schedule.unit, schedule.bank_bursts, schedule.column) == (128, 16, 17)
    assert [c.at for c in schedule.rows if c.kind is Kind.ACT] == [0, 2, 4, 6, 64, 66, 68, 70]
    assert Schedule(TIMINGS["hbm3-4gb"]).unit == 256


def test_what_cannot_be_scheduled_is_refused():
    slow = dataclasses.replace(TIMINGS["hbm2-4gb"], name="slow", rp=120, rc=160)
    with pytest.raises(ValueError, match="'slow'"):
        Schedule(slow)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rl": 0}, "rl"),
        ({"density_gb": 8}, "density_gb"),
        ({"ccd_l": 5}, "ccd_l"),
        ({"banks_per_group": True}, "banks"),
    ],
)
def test_timings_that_contradict_each_other(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TIMINGS["hbm2-4gb"], **change)


CHIP = ChipConfig(slice_bytes=4096)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timing": "ddr9"}, "timing"), ({"refresh": "never"}, "refresh"), ({"refresh_group": 9}, "refresh_group"),
        ({"turn_max": 0}, "turn_max"), ({"turn_min": 17}, "turn_min"), ({"phy_clocks": -1}, "phy_clocks"),
        ({"coded": 1}, "coded"), ({"clock_ratio": (0, 1)}, "clock_ratio"), ({"clock_ratio": 2}, "clock_ratio"),
        ({"chip": ChipConfig()}, "slice_bytes"), ({"timing": "hbm3-4gb"}, "slice_bytes"),
        ({"chip": ChipConfig(slice_bytes=4096, hbm_bytes_per_cycle=16)}, "hbm_bytes_per_cycle"),
        ({"chip": ChipConfig(slice_bytes=4096, hbm_bytes=1 << 30)}, "hbm_bytes"),
    ],
)  # fmt: skip
def test_configs_that_cannot_be_built(change, message):
    with pytest.raises(ValueError, match=message):
        DramConfig(**{"chip": CHIP, **change})


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("units", [1, 2, 8])
def test_slices_have_places_of_their_own(timing, units):
    unit = Schedule(TIMINGS[timing]).unit * 32
    config = DramConfig(chip=ChipConfig(slice_bytes=units * unit, hbm_bytes=1 << 28), timing=timing)
    sample = [*range(200), *range(config.chip.hbm_slices - 200, config.chip.hbm_slices)]
    places = [config.place(number, u) for number in sample for u in range(config.units)]
    assert len(set(places)) == len(places)
    assert max(row for _, row, _ in places) < config.timing.rows
    for number in sample:
        assert len({config.place(number, u)[0] for u in range(config.units)}) == 1
    assert {config.place(number)[0] for number in range(64)} == set(range(config.sets))
