"""The chip's host ports against masters that break the rules; every bench function is a test."""

import pytest

from sluice.build import CocotbModel
from verif.harness import report_dir


@pytest.mark.parametrize(
    "case", [
        "data_out_of_range", "data_of_a_wrong_size", "registers", "a_program_under_backpressure", "bursts_over_4_kib",
        "soft_resets_under_bursts", "aborted_bursts",
    ],
)
def test_host_ports(case: str, tiny_model: CocotbModel) -> None:
    tiny_model.run("verif.system.bench_axi", testcase=case, env={"CONFIG": "tiny"}, results_dir=report_dir(case))
