"""What is said of the presets."""

import pytest

from sluice.presets import NOTES, gigabytes_per_second, markdown, peak_tops
from sluice_hw.config import PRESETS, preset


def test_every_preset_is_told_of():
    assert list(NOTES) == list(PRESETS)
    assert all(note.purpose and note.follows and note.differs for note in NOTES.values())
    assert "|" not in "".join(note.purpose + note.follows + note.differs for note in NOTES.values())


def test_published_figures():
    """Jouppi et al. 2017: 92 TOPS, 24 + 4 MiB, 4096 accumulator rows, 34 GB/s; Coral: 4 TOPS."""
    v1, ddr3, edge = preset("v1"), preset("v1-ddr3"), preset("edgetpu")
    assert round(peak_tops(v1)) == 92 and v1.vmem_bytes + v1.acc_bytes == 28 << 20 and v1.acc_rows == 4096
    assert gigabytes_per_second(ddr3) == pytest.approx(34, rel=0.02)
    assert ddr3.replace(name="v1", hbm_bytes_per_cycle=v1.hbm_bytes_per_cycle) == v1
    assert round(peak_tops(edge)) == 4 and edge.vmem_bytes == 8 << 20


@pytest.mark.parametrize("name", PRESETS)
def test_figures_in_words_are_those_of_the_preset(name):
    c, words = preset(name), NOTES[name].follows + NOTES[name].differs
    for figure in ("GB/s", "bytes a cycle"):
        if figure in words and name != "small":
            value = gigabytes_per_second(c) if figure == "GB/s" else c.hbm_bytes_per_cycle
            assert f"{value:.0f} {figure}" in words or f"{value:.1f} {figure}" in words, figure
    row = next(line for line in markdown().splitlines() if line.startswith(f"| `{name}` |"))
    assert f"{c.rows}x{c.cols}" in row and f"{peak_tops(c):.2f} TOPS" in row
