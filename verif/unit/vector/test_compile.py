"""Vector programs: size and order of the microcode, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.asm import Program
from sluice.compiler.errors import CompileError, DoesNotFit, ProgramTooLong, Unsupported
from sluice.errors import UsageError
from sluice.golden import transformer
from sluice.golden.vector_ops import AluOp, Reduction
from sluice.golden.vector_program import Alu, Column, Mask, Matmul, Part, Pass, Reduce, Row, Space
from sluice.runtime import Device
from sluice.vector import Tensor, compile_program
from sluice.vector.layer import random_weights, rows_of
from sluice_hw import isa
from sluice_hw.config import preset
from sluice_hw.isa import Op
from verif.models.vector_cases import TINY, WIDE, cases, encoder_case
from verif.unit.compiler.races import find_races


def test_every_access_is_ordered(seed):
    for config, chosen in ((TINY, cases(seed)), (WIDE, (c for c in cases(seed) if "x" in c.name))):
        for case in chosen:
            program = case.compile(config)
            assert not find_races(program.program, config, params=[1]), case.name


def test_a_missing_token_is_a_race(seed):
    case = next(c for c in cases(seed) if c.name.startswith("attention 5x9"))
    program = case.compile(TINY).program
    waiting = [pc for pc, word in enumerate(program.words) if _tokens(word)]
    assert len(waiting) > 4
    found = 0
    for pc in waiting:
        op, fields = isa.decode(program.words[pc])
        fields |= {name: 0 for name in fields if name.startswith("wait_")}
        words = [*program.words[:pc], isa.encode(op, TINY, fields), *program.words[pc + 1 :]]
        found += bool(find_races(Program(words, TINY.name), TINY, params=[1]))
    assert found == len(waiting)


def _tokens(word: int) -> bool:
    _, fields = isa.decode(word)
    return any(fields.get(f"wait_{unit.name.lower()}") for unit in isa.Unit)


@pytest.mark.parametrize("sequence", (17, 128))
def test_a_layer_is_short(sequence, seed):
    """Heads and tiles (132 of them) are loops, and setup is written where it changes."""
    rng = np.random.default_rng(seed)
    program = encoder_case(rows_of(rng, sequence, 384, 1.0), random_weights(rng, 384), 12).compile(preset("v2")).program
    assert len(program) <= 560
    ops = [isa.decode(word)[0] for word in program.words]
    assert ops.count(Op.FEED_SEGMENT) <= 10 and ops.count(Op.PULSE_ARRAY) <= 18


def refused(steps, tensors, message, kind=Unsupported, config=TINY, **more):
    with pytest.raises(kind, match=message) as caught:
        compile_program(steps, tensors, config, **more)
    assert isinstance(caught.value, (CompileError, UsageError))


def test_names_and_sizes():
    x = {"x": (2, 3)}
    refused([Pass("y", dst="z")], x, r"step 0, Pass\(src='y'.*there is no tensor 'y'; there are x")
    refused([Pass("x", dst="z")], x, "there is no tensor 'q' to give back; there are x, z", outputs=["q"])
    refused([Pass("x", first=Alu(AluOp.ADD, Row("x")), dst="z")], x, r"must have shape \(1, 3\), not \(2, 3\)")
    refused([Pass(Part("x", 1, 4), dst="z")], x, r"columns 1 to 4 are not in 'x' \(fp32 2 x 3\)")
    refused([Matmul("z", "x", "x", transposed=True)], x, r"operands of a matmul must be bf16, and 'x' \(fp32 2 x 3\)")
    half = {"a": Tensor((2, 3), bf16=True)}
    refused([Matmul("z", "a", "a")], half, "rows of a have 3 values, and b has 2")
    refused([Space("z", 2, 3), Pass("z", dst="y")], x, r"'z' \(bf16 2 x 3\) is read where no step has written it")
    with pytest.raises(ValueError, match=r"one or two positive sizes, not \(2, 0\)"):
        Tensor((2, 0))


def test_operands():
    x = {"x": (2, 3), "y": (2, 3), "z": (2, 3), "c": (2,)}
    three = Pass("x", first=Alu(AluOp.MUL_ADD, "y", "z"), second=Alu(AluOp.ADD, "x"), dst="r")
    refused([three], x, "two tensors or vectors beside its source, each for one ALU; 'x'")
    refused([Pass("x", first=Alu(AluOp.MUL_ADD, 1.0, 2.0), second=Alu(AluOp.ADD, 3.0), dst="r")], x, "two constants")
    both = Pass("x", first=Alu(AluOp.MUL, Column("c")), second=Alu(AluOp.ADD, Column("c")), dst="r")
    refused([both], x, "one column beside its source")
    over = Pass("x", first=Alu(AluOp.ADD, Part("y", 0, 3)), dst=Part("y", 0, 3))
    refused([over], x, "it writes over 'y' .* while it reads it as an operand")
    refused([Pass("x", dst="r", mask=Mask(1 << 23))], x, r"step 0, .* a mask's base must be within 2\*\*23")
    shift = Pass(Part("x", 0, 2), dst=Part("x", 1, 3))
    refused([shift], x, "it writes over other rows or columns of 'x'")


def test_what_does_not_fit():
    big = [Pass("x", reduce=Reduce(Reduction.MAX, "m")), Pass("x", first=Alu(AluOp.SUB, Column("m")), dst="y")]
    with pytest.raises(DoesNotFit, match=r"step 0, .*: tensor 'x' \(fp32 200 x 100\) does not fit in VMEM: needs "
                                         r"78.1 KiB, 64 KiB free, largest hole 64 KiB") as caught:  # fmt: skip
        compile_program(big, {"x": (200, 100)}, TINY)
    assert (caught.value.needed, caught.value.free) == (200 * 400, TINY.vmem_bytes)
    product = [Matmul("z", "a", "b")]
    tensors = {"a": Tensor((600, 8), True), "b": Tensor((8, 8), True)}
    refused(product, tensors, r"step 0, Matmul.*'z' \(fp32 600 x 8\) does not fit in the accumulators: needs 18.8 KiB, "
                              "16 KiB free", DoesNotFit)  # fmt: skip
    many = [Pass("x", first=Alu(AluOp(5 + i % 3), float(i)), dst="x") for i in range(600)]
    refused(many, {"x": (2, 3)}, "the vector program needs .* microcode words; the store has 1024", ProgramTooLong)


def test_chips_and_inputs():
    refused([Pass("x", dst="y")], {"x": (1, 1)}, "need a chip of bf16, and 'tiny' is one of int8", UsageError,
            preset("tiny"))  # fmt: skip
    refused([], {}, "at least one step", UsageError)
    program = compile_program(transformer.gelu("x", "y"), {"x": Tensor((2, 3), bf16=True)}, TINY)
    with Device(TINY, "golden") as device:
        x = np.ones((2, 3), np.float32)
        for given, message in (
            ({}, "tensor 'x' is missing; the program reads x"),
            ({"x": x.astype(np.float64)}, "takes float32, or uint32 patterns, not float64"),
            ({"x": x.T}, r"must have shape \(2, 3\), not \(3, 2\)"),
            ({"x": x / 3}, "must hold bf16 values"),
        ):  # fmt: skip
            with pytest.raises(UsageError, match=message):
                program.run(device, given)
        assert program.run(device, {"x": x, "unused": x})[0]["y"].shape == (2, 3)
        assert device.hbm.used == 0
