"""The register table as data."""

import pytest

from sluice_hw import csr
from sluice_hw.config import PRESETS, preset
from sluice_hw.isa import UNIT_CAUSES


@pytest.mark.parametrize("name", PRESETS)
def test_table_is_well_formed(name):
    table = csr.csr_table(preset(name))
    offsets = [r.offset for r in table]
    assert offsets == sorted(set(offsets)) and all(o % 4 == 0 for o in offsets)
    assert len({r.name for r in table}) == len(table)
    for r in table:
        assert 0 <= r.reset < 1 << r.width <= 1 << 32, r.name
        assert r.doc
        used = 0
        for f in r.fields:
            assert f.mask < 1 << 32 and not used & f.mask, (r.name, f.name)
            used |= f.mask


def test_names_and_places_are_the_same_for_every_chip():
    chips = [c.replace(ecc="off") for c in PRESETS.values()]  # ECC has registers of its own
    places = {tuple((r.name, r.offset, r.access) for r in csr.csr_table(c)) for c in chips}
    assert len(places) == 1


def test_every_cause_has_a_counter():
    names = csr.csr_map(preset("tiny"))
    for unit, causes in UNIT_CAUSES.items():
        for cause in causes:
            for half in ("LO", "HI"):
                assert f"{unit.upper()}_{cause.name}_{half}" in names
    assert names["CYCLES_HI"].offset == names["CYCLES_LO"].offset + 4


def test_hash_follows_what_software_depends_on():
    base = preset("tiny")
    known = csr.config_hash(base)
    for change in ({"name": "other"}, {"clock_mhz": 1}, {"hbm_latency": 99}, {"watchdog_cycles": 64},
                   {"event_ring": 8}):
        assert csr.config_hash(base.replace(**change)) == known, change
    for change in ({"rows": 7}, {"cols": 4}, {"vmem_bytes": 1 << 17}, {"mxu_queue": 9}, {"feed_ports": 3},
                   {"microcode_words": 999}, {"token_max": 7}, {"acc_bytes": 1 << 13}, {"hbm_bytes": 1 << 20}):
        assert csr.config_hash(base.replace(**change)) != known, change


def test_fields_pack_and_unpack():
    status = csr.csr_map(preset("tiny"))["STATUS"]
    assert status.unpack(0b1001) == {"running": 1, "done": 0, "halted": 0, "error": 1, "watchdog": 0, "starting": 0,
                                     "resetting": 0}
    with pytest.raises(KeyError, match="register STATUS has no field 'speed'"):
        status.field("speed")


def test_markdown_lists_every_register():
    text = csr.markdown(preset("tiny"))
    for r in csr.csr_table(preset("tiny")):
        assert f"| {r.offset:#05x} | {r.name} | " in text
