"""Text and binary forms give back exactly the words they were made from."""

from __future__ import annotations

import os
import random

import pytest

from sluice.asm import Program, assemble, check_word, disassemble, fields
from sluice_hw import isa
from sluice_hw.config import preset
from sluice_hw.isa import Op
from verif.unit.asm.words import random_fields, random_word
from verif.unit.microcode import with_op

SEED = int(os.environ.get("SLUICE_SEED", "1"))
CONFIGS = [preset("tiny"), preset("v1"), preset("tiny").replace(name="custom", rows=5, cols=3, acc_bytes=24 * 40)]


def round_trip(words: list[int], config) -> str:
    text = disassemble(Program(words), config)
    assert assemble(text, config, check=False).words == words, text
    return text


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("op", Op, ids=lambda op: op.name)
def test_every_op(op, config):
    rng = random.Random(f"{SEED} {op.name}")
    config = with_op(config, op)
    for _ in range(150):
        word = random_word(op, config, rng)
        text = round_trip([word], config)
        assert op.name.lower() in text


def test_sequences_of_random_words():
    config = CONFIGS[0]
    rng = random.Random(SEED)
    for _ in range(60):
        ops = rng.choices([*isa.ops_of(config), Op.LOOP, Op.LOOP, Op.END, Op.END, Op.END], k=rng.randrange(1, 25))
        words = []
        for op in ops:
            f = random_fields(op, config, rng)
            if op in (Op.LOOP, Op.END):
                f["level"] = rng.randrange(3)
            if op is Op.LOOP:
                f["end"] = rng.randrange(26)
            words.append(isa.encode(op, config, f))
        round_trip(words, config)


def test_nested_loops_are_braces():
    config = CONFIGS[0]
    text = "loop 0 count=2 {\n  loop 3 count=p1 {\n    sync unit=ld\n  }\n}\nhalt\n"
    program = assemble(text, config)
    assert [isa.decode(w)[1].get("end") for w in program.words[:2]] == [4, 3]
    assert disassemble(program, config) == ".config tiny\n" + text


def test_illegal_words_round_trip_unchecked():
    config = CONFIGS[0]
    rng = random.Random(SEED)
    words = [rng.getrandbits(256) for _ in range(200)] + [0]
    text = round_trip(words, config)
    assert text.count(".word") > 150
    assert ".word 0x0  # opcode 0 is not implemented" in text


def test_every_default_is_left_out():
    for op in Op:
        config = with_op(CONFIGS[0], op)
        text = disassemble(Program([isa.encode(op, config, {})]), config).splitlines()[-1]
        named = {Op.ADDR: " r0", Op.LOOP: " 0", Op.END: " 0", Op.SYNC: " unit=ld", Op.DMA_SHAPE: " unit=ld",
                 Op.PASS_STREAM: " stream=source"}.get(op, "")
        assert text == op.name.lower() + named


def test_scales_are_decimal_where_that_is_exact():
    config = CONFIGS[0]
    rng = random.Random(SEED)
    patterns = [0x3C000000, 1, 0x7F7FFFFF, 0x80000001, 0x7F800000, 0x7FC00001, 0x80000000]
    for bits in patterns + [rng.getrandbits(32) for _ in range(300)]:
        word = isa.encode(Op.VECTOR_MODE, config, {"requant": isa.Requant.FLOAT, "multiplier": bits})
        text = round_trip([word], config)
        finite = bits & 0x7F800000 != 0x7F800000
        assert ("scale=" in text) == finite
    assert "scale=0.1 " in disassemble(Program([isa.encode(
        Op.VECTOR_MODE, config, {"requant": isa.Requant.FLOAT, "multiplier": fields.float_bits(0.1)})]), config)


def test_constants_of_passes_are_numbers_where_they_look_like_some():
    config = with_op(CONFIGS[0], Op.PASS_MODE)
    rng = random.Random(SEED)
    told = {0: None, 1: "1", 0xFFFF: "65535", 0x10000: "0x10000", 0x3F800000: "1.0", 0xBF000000: "-0.5",
            0xFF800000: "0xff800000", 0x7FC00000: "0x7fc00000", 0x80000000: "0x80000000", 0x7F7FFFFF: "3.4028235e+38",
            0x00800000: "1.1754944e-38"}
    for bits in [*told, *(rng.getrandbits(32) for _ in range(300))]:
        word = isa.encode(Op.PASS_MODE, config, {"store": 1, "k0": bits, "k1": bits})
        text = round_trip([word], config).splitlines()[-1]
        if told.get(bits):
            assert text == f"pass_mode store k0={told[bits]} k1={told[bits]}"


def test_sugar_equals_plain_fields():
    config = CONFIGS[0]
    pairs = [
        ("pulse_array swap@first(0,2) acc_mode=first(1)",
         "pulse_array swap=1 swap_first=5 acc_mode=first acc_first=2"),
        ("sync unit=st wait=ld,vpu@first(2,3) signal=mxu@last(0)",
         "sync unit=st wait_ld=1 wait_vpu=1 wait_vpu_first=0b1100 signal_mxu=1 signal_mxu_last=1"),
        ("vector_mode bias requant=float scale=0.25 cols=8",
         "vector_mode bias=1 requant=float multiplier=0x3e800000 cols=8"),
        ("vector_residual ratio1=2 ratio2=-0.5", "vector_residual m1=0x40000000 m2=0xbf000000"),
        ("addr r3 base=p2+0x20", "addr reg=r3 base=32 add_param=1 param=p2"),
        ("x: loop 1 count=p4 end=x", "loop level=1 from_param param=p4"),
    ]
    for sugar, plain in pairs:
        assert assemble(sugar, config, check=False).words == assemble(plain, config, check=False).words, sugar


def test_field_kinds_follow_the_tables():
    """The names that decide how a field is written agree with the descriptions of the fields."""
    for spec in isa.OPS.values():
        for f in spec.fields:
            assert (f.name in fields.ADDRESS_FIELDS) == f.doc.startswith("address register"), f.name
            if f.name in fields.ENUM_FIELDS and f.name not in ("unit", "first_op", "second_op"):
                kind = fields.ENUM_FIELDS[f.name]
                assert all(f"{k.value} {k.name.lower()}" in f.doc for k in kind), f.name


def test_bytes():
    rng = random.Random(SEED)
    program = Program([rng.getrandbits(256) for _ in range(9)])
    image = program.to_bytes()
    assert len(image) == 9 * 32
    assert image[32:64] == program.words[1].to_bytes(32, "little")
    assert Program.from_bytes(image).words == program.words
    assert disassemble(image, CONFIGS[0]) == disassemble(program, CONFIGS[0])
    for length in (0, 1, 31, 33, len(image) - 1):
        with pytest.raises(ValueError, match=f"program of {length} bytes is truncated.*multiple of 32"):
            Program.from_bytes(image[:length])


def test_program_refuses_words_that_do_not_fit():
    with pytest.raises(ValueError, match="word 1 must be an unsigned 256-bit integer"):
        Program([0, 1 << 256])


def test_check_word_agrees_with_encode():
    rng = random.Random(SEED)
    for op in Op:
        config = with_op(CONFIGS[0], op)
        f = random_fields(op, config, rng)
        assert check_word(isa.encode(op, config, f), config) == (op, f)
