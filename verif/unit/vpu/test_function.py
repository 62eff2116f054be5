"""The function unit's lane against golden, bit for bit: all bf16 inputs, and fp32 inputs."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sluice.golden.function_errors import FP32_INPUTS, bf16_inputs, fp32_inputs
from sluice.golden.functions import Function, apply
from sluice.golden.numerics_float import fp32_bits
from sluice_hw.vpu.function import FunctionLane
from verif.models.lanes import LaneRow


@pytest.fixture(scope="module")
def lanes():
    with LaneRow(FunctionLane(), name="function_lanes", cols=8) as row:
        yield row


def check(lanes: LaneRow, function: Function, x: np.ndarray, *, bf16: bool, bubbles: bool = False) -> None:
    bits = fp32_bits(x)
    got = lanes.run({"x": bits}, {"function": function, "bf16": bf16}, bubbles=bubbles)["result"]
    wanted = fp32_bits(apply(function, bits, bf16=bf16))
    wrong = np.flatnonzero(got != wanted)
    cases = ", ".join(f"0x{bits[k]:08X} gave 0x{got[k]:08X}, not 0x{wanted[k]:08X}" for k in wrong[:3])
    assert not len(wrong), f"{function.name}, bf16={bf16}: {len(wrong)} of {len(bits)} differ: {cases}"


@pytest.mark.parametrize("function", Function)
def test_all_bf16_inputs(lanes, function):
    check(lanes, function, bf16_inputs(), bf16=True)


@pytest.mark.parametrize("function", Function)
def test_fp32_inputs(lanes, function, seed):
    x = fp32_inputs(function, 30_000, seed=seed)
    check(lanes, function, x, bf16=False, bubbles=True)
    check(lanes, function, x[::7], bf16=True)


@pytest.mark.soak
@pytest.mark.parametrize("function", Function)
def test_all_fp32_inputs_of_the_figures(lanes, function):
    check(lanes, function, fp32_inputs(function, FP32_INPUTS), bf16=False)


def test_one_result_a_cycle(lanes):
    before = lanes.cycles
    lanes.run({"x": np.zeros(8 * 1000, np.uint32)}, {"function": Function.EXP, "bf16": 0})
    assert lanes.cycles - before == 1000 + FunctionLane.LATENCY - 1


@pytest.mark.soak
def test_structural_form(seed):
    with LaneRow(FunctionLane(), name="function_lanes", cols=2, emission="structural", opt="-O0") as lanes:
        for function in Function:
            check(lanes, function, fp32_inputs(function, 4_000, seed=seed), bf16=False, bubbles=True)


@pytest.mark.soak
def test_a_wrong_coefficient_is_found():
    def change(text: str) -> str:
        return re.sub(r"(rom_4\[5\] = 34'h)(\w+)", lambda m: f"{m[1]}{int(m[2], 16) ^ 1 << 10:x}", text)

    with LaneRow(FunctionLane(), name="function_lanes", cols=8, mutate=change) as lanes, pytest.raises(AssertionError):
        check(lanes, Function.RECIPROCAL, fp32_inputs(Function.RECIPROCAL, 20_000), bf16=False)
