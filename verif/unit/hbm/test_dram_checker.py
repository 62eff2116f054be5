"""The checker bites: a legal trace passes, with one command a clock too early it breaks the rule it is named for."""

from __future__ import annotations

import dataclasses

import pytest

from sluice_hw.config import ChipConfig
from sluice_hw.hbm.dram_config import DramConfig
from sluice_hw.hbm.timing import TIMINGS
from verif.models.dram import Checker, build, tables


@pytest.fixture(scope="module")
def library():
    return build(DramConfig(chip=ChipConfig(slice_bytes=4096, hbm_bytes=64 << 20)))


def test_the_checkers_own_tables_agree_with_the_controllers(library):
    own = tables(library)
    assert set(own) == set(TIMINGS)
    for name, values in own.items():
        timing = TIMINGS[name]
        ours = {**dataclasses.asdict(timing), "row_bursts": timing.row_bursts}
        assert values == {field: ours[field] for field in values}, name


# Banks of a group are numbered together: 0 to 3, 4 to 7, ... Each case: rule, device, commands at their earliest clock;
# the last is then given a clock earlier.
OPEN = [(100, "ACT", 0, 0), (110, "ACT", 0, 4)]
CASES = {
    "tRCD": ("hbm2-4gb", [(100, "ACT", 0, 0), (114, "RD", 0, 0)]),
    "tRCD of WR": ("hbm3-4gb", [(100, "ACT", 0, 0), (115, "WR", 0, 0)]),
    "tRP": ("hbm2-4gb", [(100, "ACT", 0, 0), (140, "PRE", 0, 0), (154, "ACT", 0, 0)]),
    "tRP of REFSB": ("hbm2-4gb", [(100, "ACT", 0, 0), (140, "PRE", 0, 0), (154, "REFSB", 0, 0)]),
    "tRP of REF": ("hbm2-4gb", [(100, "ACT", 0, 0), (140, "PREA", 0, 0), (154, "REF", 0, 0)]),
    "tRAS": ("hbm2-4gb", [(100, "ACT", 0, 0), (134, "PRE", 0, 0)]),
    "tRC": ("hbm3-4gb", [(100, "ACT", 0, 0), (145, "PRE", 0, 0), (172, "ACT", 0, 0)]),
    "tRRD_S": ("hbm2-4gb", [(100, "ACT", 0, 0), (104, "ACT", 0, 4)]),
    "tRRD_L": ("hbm2-4gb", [(100, "ACT", 0, 0), (106, "ACT", 0, 1)]),
    "tFAW": ("hbm2-4gb", [*[(100 + 6 * i, "ACT", 0, 4 * i) for i in range(4)], (130, "ACT", 0, 1)]),
    "tCCD_S": ("hbm2-4gb", [*OPEN, (130, "RD", 0, 0), (132, "RD", 0, 4)]),
    "tCCD_L": ("hbm2-4gb", [*OPEN, (130, "RD", 0, 0), (134, "RD", 0, 0)]),
    "tCCD_L of WR": ("hbm2-4gb", [*OPEN, (130, "WR", 0, 0), (134, "WR", 0, 0)]),
    "tWTR_S": ("hbm2-4gb", [*OPEN, (130, "WR", 0, 0), (142, "RD", 0, 4)]),
    "tWTR_L": ("hbm2-4gb", [*OPEN, (130, "WR", 0, 0), (144, "RD", 0, 0)]),
    "tRTW": ("hbm2-4gb", [*OPEN, (130, "RD", 0, 0), (144, "WR", 0, 4)]),
    "tRTP": ("hbm2-4gb", [*OPEN, (140, "RD", 0, 0), (146, "PRE", 0, 0)]),
    "tWR": ("hbm2-4gb", [*OPEN, (140, "WR", 0, 0), (162, "PRE", 0, 0)]),
    "tRFC": ("hbm2-4gb", [(100, "REF", 0, 0), (360, "ACT", 0, 0)]),
    "tRFC of REF": ("hbm2-8gb", [(100, "REF", 0, 0), (450, "REF", 0, 0)]),
    "tRFCSB": ("hbm2-4gb", [(100, "REFSB", 0, 0), (260, "ACT", 0, 0)]),
    "tRFCSB of REF": ("hbm2-8gb", [(100, "REFSB", 0, 0), (300, "REF", 0, 0)]),
    "tRREFD": ("hbm2-4gb", [(100, "REFSB", 0, 0), (108, "ACT", 0, 4)]),
    "tRREFD of REFSB": ("hbm2-4gb", [(100, "REFSB", 0, 0), (108, "REFSB", 0, 4)]),
    "row bus": ("hbm2-4gb", [(100, "ACT", 0, 0), (102, "ACT", 1, 0)]),
    "column bus": ("hbm2-4gb", [(100, "ACT", 0, 0), (102, "ACT", 1, 0), (130, "RD", 0, 0), (131, "RD", 1, 0)]),
}
#: Rules that cannot be broken alone.
WITH = {"tCCD_S": {"data bus"}}


@pytest.mark.parametrize("case", CASES)
def test_each_rule_is_broken_once_and_seen(library, case):
    rule = case.partition(" of ")[0]
    table, commands = CASES[case]
    with Checker(library, table) as checker:
        for command in commands:
            checker.command(*command)
        assert checker.counts == {}
    with Checker(library, table) as checker:
        for command in [*commands[:-1], (commands[-1][0] - 1, *commands[-1][1:])]:
            checker.command(*command)
        assert set(checker.counts) == {rule} | WITH.get(rule, set())


@pytest.mark.parametrize(
    ("rule", "commands"),
    [
        ("bank state", [(100, "ACT", 0, 0), (200, "ACT", 0, 0)]),
        ("bank state", [(100, "RD", 0, 0)]),
        ("bank state", [(100, "ACT", 0, 0), (150, "PRE", 0, 0), (160, "WR", 0, 0)]),
        ("bank state", [(100, "ACT", 0, 0), (200, "REFSB", 0, 0)]),
        ("bank state", [(100, "ACT", 0, 3), (200, "REF", 0, 0)]),
        ("data bus", [*OPEN, (130, "RD", 0, 0), (139, "WR", 0, 4)]),
        ("refresh round", [(100, "REFSB", 0, 0), (400, "REFSB", 0, 0)]),
        ("command", [(100, "ACT", 0, 16)]),
        ("command", [(100, "ACT", 0, 0, 1 << 14)]),
    ],
)
def test_states(library, rule, commands):
    with Checker(library) as checker:
        for command in commands:
            checker.command(*command)
        assert rule in checker.counts


def test_other_banks_and_pseudo_channels_are_free(library):
    with Checker(library) as checker:
        for at, op, pc, bank in [
            (100, "ACT", 0, 0), (102, "ACT", 1, 0), (104, "REFSB", 0, 4), (112, "ACT", 0, 8),
            (120, "RD", 0, 0), (121, "RD", 1, 0), (130, "RD", 0, 8), (140, "PRE", 0, 0),
        ]:  # fmt: skip
            checker.command(at, op, pc, bank)
        assert checker.counts == {}


def test_a_refresh_may_be_late_by_eight_intervals(library):
    t = TIMINGS["hbm2-4gb"]
    for late, expected in ((8, {}), (9, {"tREFI": 32})):
        with Checker(library) as checker:
            for n in range(1, late + 1):
                checker.tick(n * t.refi)
            assert checker.counts == expected


def test_one_bank_that_is_left_out_is_seen(library):
    t = TIMINGS["hbm2-4gb"]
    with Checker(library) as checker:
        for n in range(1, 12):
            checker.tick(n * t.refi)
            for bank in range(16):
                for pc in (0, 1):
                    if n == 1 or (bank, pc) != (5, 1):
                        checker.command(n * t.refi + 200 * bank + pc, "REFSB", pc, bank)
        # The round of this pseudo-channel never ends, so its other banks come again too early.
        assert checker.counts["tREFI"] > 0 and set(checker.counts) == {"tREFI", "refresh round"}


def test_refreshes_may_be_early_by_eight_intervals(library):
    t = TIMINGS["hbm2-4gb"]
    with Checker(library) as checker:
        for n in range(8):
            checker.command(100 + n * t.rfc, "REF", 0)
        assert checker.counts == {}
        checker.command(100 + 8 * t.rfc, "REF", 0)
        assert set(checker.counts) == {"tREFI early"}
