"""Activation feeder alone."""

import pytest

from sluice_hw.config import preset
from sluice_hw.feeder import Feeder
from verif.harness import run_bench

ANY = ("plain_rows_stream_at_any_alignment", "random_walks", "nothing_is_read_for_padding", "a_far_walk_stays_outside",
       "an_op_reads_anew", "counts_rows", "faults", "faults_of_every_port")


@pytest.mark.parametrize(("rows", "ports"), [(8, 4), (5, 1), (13, 3), (2, 2)])
def test_feeder(rows: int, ports: int) -> None:
    config = preset("tiny").replace(name="test", rows=rows, feed_ports=ports, acc_bytes=1 << 14)
    # A row of three lines of a 3x3 kernel needs three ports and nine array rows.
    tests = (*ANY, "each_byte_is_read_once") if ports >= 3 and rows >= 9 else ANY
    run_bench(Feeder(config), "verif.unit.bench_feeder", name=f"feeder_{rows}_{ports}", testcases=tests, opt="-O0",
              env={"ROWS": str(rows), "PORTS": str(ports)})


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_config_is_checked() -> None:
    with pytest.raises(TypeError, match="config must be a ChipConfig, not 'tiny'"):
        Feeder("tiny")
