"""Matrix unit: programs of micro-ops against NumPy, at small sizes of the array."""

import functools

import pytest

from sluice_hw.accumulator import PASSES
from sluice_hw.config import preset
from sluice_hw.mxu import Mxu
from verif.harness import run_verilog, verilog_of

BENCH = "verif.unit.bench_mxu"
FAULTS = ("act", "act_negative", "weights", "acc", "acc_far", "acc_huge")
SIZES = [
    (8, 8, "structural"), (5, 12, "loop"), (12, 5, "loop"), (2, 1, "loop"),
    pytest.param(16, 16, "loop", marks=pytest.mark.soak),
]  # fmt: skip
#: Of bf16 only.
TRANSPOSED = ("transposed_weights", "transposed_tiles_follow_without_a_bubble")
#: Tests that need no parameter of their own.
PLAIN = (
    "first_row_after_reset", "every_edge_size", "random_sizes_with_refusals", "extremes_over_the_longest_k",
    "tiles_of_every_k_back_to_back", "short_passes_add_to_the_same_rows", "tiles_follow_without_a_bubble",
    "passes_without_swap_follow_without_a_bubble", "same_accumulator_row_again_and_again", "random_walks",
    "last_bytes_of_vmem", "tokens", "a_token_comes_after_the_last_row", "what_it_waits_for",
)
CONVS = ("convolutions", "convolutions_with_refusals", "few_channels_stream_a_row_every_cycle")


def acc_bytes(cols: int) -> int:
    return 2 * 4 * cols * 256


@functools.cache
def verilog(rows: int, cols: int, emission: str, latency: int = 0, dtype: str = "bf16") -> str:
    kind = {"dtype": dtype, "pe_latency": latency} if latency else {}
    config = preset("tiny").replace(name="test", rows=rows, cols=cols, acc_bytes=acc_bytes(cols), **kind)
    return verilog_of(Mxu(config, emission=emission), name="mxu")


def run(rows: int, cols: int, emission: str, tests, latency: int = 0, dtype: str = "bf16", opt: str = "-O1",
        **env: str) -> None:  # fmt: skip
    """With `latency`, on bf16 or both types."""
    kind = {"DTYPE": dtype, "PE_LATENCY": str(latency)} if latency else {}
    name = f"mxu_{rows}x{cols}_{emission}" + f"_{dtype.replace('+', '_')}_l{latency}" * bool(kind)
    run_verilog(
        verilog(rows, cols, emission, latency, dtype), BENCH, name=name, top="mxu", testcases=tests, opt=opt,
        env={"ROWS": str(rows), "COLS": str(cols), "ACC_BYTES": str(acc_bytes(cols)), **kind, **env})


@pytest.mark.parametrize(("rows", "cols", "emission"), SIZES)
def test_programs(rows: int, cols: int, emission: str) -> None:
    run(rows, cols, emission, PLAIN)


@pytest.mark.parametrize(("rows", "cols", "emission", "latency"), [
    (8, 8, "loop", 4),
    pytest.param(5, 12, "structural", 2, marks=pytest.mark.soak),
    pytest.param(12, 5, "loop", 6, marks=pytest.mark.soak),
    pytest.param(2, 1, "loop", 1, marks=pytest.mark.soak),
])
def test_programs_of_bf16(rows: int, cols: int, emission: str, latency: int) -> None:
    # One is about int8. With few rows short passes are kept apart for the adder's sake, and PASSES of four rows do not
    # fill an array whose sums take longer.
    without = {"extremes_over_the_longest_k"}
    if rows < latency + 3:
        without.add("tiles_follow_without_a_bubble")
    if rows * latency + cols > 4 * PASSES - 10:
        without.add("passes_without_swap_follow_without_a_bubble")
    run(rows, cols, emission, tuple(test for test in PLAIN + TRANSPOSED if test not in without), latency)


#: Of chips of both types only.
BOTH = ("types_by_turns", "int8_over_the_longest_k")


@pytest.mark.parametrize(("rows", "cols", "emission", "latency"), [
    (4, 5, "loop", 2),
    pytest.param(8, 8, "loop", 4, marks=pytest.mark.soak),
    pytest.param(5, 2, "structural", 1, marks=pytest.mark.soak),
])
def test_both_types(rows: int, cols: int, emission: str, latency: int) -> None:
    some = ("random_walks", "short_passes_add_to_the_same_rows") if emission == "structural" else ()
    run(rows, cols, emission, BOTH + some, latency, "int8+bf16", opt="-O0")


@pytest.mark.soak
def test_a_fault_of_transposed_weights() -> None:
    run(12, 5, "loop", "faults", 6, FAULT="weights_transposed")


def test_convolutions() -> None:
    run(8, 8, "structural", CONVS)


@pytest.mark.parametrize("kind", FAULTS)
def test_faults(kind: str) -> None:
    run(8, 8, "structural", "faults", FAULT=kind)


@pytest.mark.parametrize("kind", ["load", "swap"])
def test_deadlocks(kind: str) -> None:
    run(8, 8, "structural", "blocked_as_the_rules_say", BLOCKED=kind)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("config", [None, 8, "tiny"])
def test_config_is_checked(config) -> None:
    with pytest.raises(TypeError, match="config must be a ChipConfig, not"):
        Mxu(config)
