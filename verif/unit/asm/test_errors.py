"""Mistakes in the text: the place, the field, its value and what is allowed."""

from __future__ import annotations

import pytest

from sluice.asm import AsmError, WordError, assemble, check_word
from sluice.asm.fields import ADDRESS_FIELDS, ENUM_FIELDS
from sluice_hw import isa
from sluice_hw.config import preset
from sluice_hw.isa import Error, Op
from verif.unit.microcode import with_op

TINY = preset("tiny")
PARAM = "param"


def numeric_fields():
    for op, spec in isa.OPS.items():
        for f in spec.fields:
            if f.name not in ADDRESS_FIELDS and f.name not in ENUM_FIELDS and f.name != PARAM:
                yield pytest.param(op, f, id=f"{op.name}-{f.name}")


@pytest.mark.parametrize("op, field", list(numeric_fields()))
def test_edges_of_every_field(op, field):
    config = with_op(TINY, op)
    lo, hi = isa.field_range(field, config)
    for value in (lo, hi):
        word = assemble(f"{op.name.lower()} {field.name}={value}", config, check=False).words[0]
        assert check_word(word, config)[1][field.name] == value
    for value in (lo - 1, hi + 1):
        with pytest.raises(AsmError) as error:
            assemble(f"# first\n  {op.name.lower()} {field.name}={value}", config, file="a.s", check=False)
        column = 3 + len(op.name) + 1 + len(field.name) + 1
        assert str(error.value) == f"a.s:2:{column}: {op.name} {field.name} must be {lo} to {hi}, not {value}"


@pytest.mark.parametrize("op, field", list(numeric_fields()))
def test_words_beyond_the_edges_are_refused_as_the_chip_does(op, field):
    config = with_op(TINY, op)
    lo, hi = isa.field_range(field, config)
    at = isa.OPCODE_BITS
    for f in isa.OPS[op].fields:
        if f.name == field.name:
            break
        at += f.width
    clean = isa.encode(op, config, {}) & ~(((1 << field.width) - 1) << at)
    smallest = -(1 << (field.width - 1)) if field.signed else 0
    largest = smallest + (1 << field.width) - 1
    for value in {lo - 1, hi + 1, smallest, largest}:
        if smallest <= value <= largest and not lo <= value <= hi:
            with pytest.raises(WordError) as error:
                check_word(clean | (value & ((1 << field.width) - 1)) << at, config)
            assert error.value.code is Error.ILLEGAL_FIELD
            assert error.value.field == isa.field_index(op, field.name)


@pytest.mark.parametrize("op", Op, ids=lambda op: op.name)
def test_reserved_bits(op):
    config = with_op(TINY, op)
    used = isa.OPCODE_BITS + sum(f.width for f in isa.OPS[op].fields)
    for bit in {used, 255} if used < 256 else set():
        with pytest.raises(WordError, match=f"{op.name} has reserved bits set") as error:
            check_word(isa.encode(op, config, {}) | 1 << bit, config)
        assert error.value.code is Error.RESERVED_BITS
        assert error.value.field == len(isa.OPS[op].fields) + 1


def test_opcodes_that_are_not_built():
    built = {int(op) for op in Op}
    for code in set(range(64)) - built:
        with pytest.raises(WordError, match=f"opcode {code} is not implemented") as error:
            check_word(code, TINY)
        assert (error.value.code, error.value.field) == (Error.ILLEGAL_OPCODE, 0)


@pytest.mark.parametrize("op", [op for op in Op if op not in isa.ops_of(TINY)], ids=lambda op: op.name)
def test_ops_of_other_chips(op):
    message = f"{op.name} is not an op of chips of int8"
    with pytest.raises(WordError, match=message) as error:
        check_word(isa.encode(op, with_op(TINY, op), {}), TINY)
    assert (error.value.code, error.value.field) == (Error.ILLEGAL_OPCODE, 0)
    with pytest.raises(AsmError, match=f"1:1: {message}"):
        assemble(op.name.lower(), TINY)


@pytest.mark.parametrize("text, place, message", [
    ("halt\nfoo", "2:1", "unknown op 'foo'; known ops: halt, sync"),
    ("halt q=1", "1:6", "HALT has no field 'q'; its fields: code"),
    ("halt code", "1:6", "HALT code must be a number, not 'code'"),
    ("halt code=", "1:6", "expected field=value, not 'code='"),
    ("halt code=1x", "1:11", "HALT code must be a number, not '1x'"),
    ("halt 1 2", "1:8", "expected field=value, not '2'"),
    ("halt code=1 code=1", "1:13", "HALT code is given twice"),
    ("addr r16", "1:6", "ADDR reg must be r0 to r15, not 'r16'"),
    ("addr r0 base=p8", "1:14", "ADDR base must be p0 to p7, not 'p8'"),
    ("addr r0 base=p1 param=p2", "1:17", "ADDR param is given twice"),
    ("addr r0 ring=8 stride2=9", "1:24", "ADDR stride2 must be 0 to 8, not 9"),
    ("addr r0 ring=8 stride0=-1", "1:24", "ADDR stride0 must be 0 to 8, not -1"),
    ("sync unit=hbm", "1:11", "SYNC unit must be ld, st, mxu, vpu, not 'hbm'"),
    ("sync wait=foo", "1:11", "SYNC wait must be units (ld, st, mxu, vpu), each with or without @first(levels), not"),
    ("sync wait=ld@last(1)", "1:11", "SYNC wait must be units"),
    ("sync signal=ld,ld", "1:13", "SYNC signal names ld twice"),
    ("sync signal=ld@last(6)", "1:13", "SYNC signal loop level must be 0 to 5, not 6"),
    ("sync signal=ld@last()", "1:13", "SYNC signal loop levels must be numbers"),
    ("halt wait=ld", "1:6", "HALT has no field 'wait'"),
    ("pulse_array acc_mode=add", "1:22", "PULSE_ARRAY acc_mode must be overwrite, accumulate, first, not 'add'"),
    ("vector_mode scale=1e99", "1:19", "VECTOR_MODE scale must be finite in fp32, not 1e+99"),
    ("vector_mode scale=nan", "1:19", "VECTOR_MODE scale must be finite in fp32"),
    ("vector_mode scale=x", "1:19", "VECTOR_MODE scale must be a number, not 'x'"),
    ("loop 0 count=2 {\nhalt", "1:1", "loop without its closing }"),
    ("halt\n }", "2:2", "} without an open loop"),
    ("loop 0 count=2 {\n} halt", "2:3", "nothing may follow }, not 'halt'"),
    ("loop 0 count=2 end=3 {\n}", "1:20", "LOOP end is given by } here"),
    ("loop 1 {\nloop 1 {\n}\n}", "2:6", "LOOP level must be above 1, the level of the loop around it, not 1"),
    ("loop 0 end=x\nend", "1:12", "LOOP end names the label 'x', which is not defined; labels: none"),
    ("x: halt\nx: halt", "2:1", "label 'x' is defined twice"),
    (".word 1x", "1:7", ".word takes a number"),
    (".word -1", "1:7", ".word must be 0 to 2**256 - 1, not -1"),
    (".word 0", "1:7", "opcode 0 is not implemented"),
    (".bss", "1:1", "unknown directive '.bss'; known: .config, .word"),
    (".config", "1:1", ".config takes a configuration name, not 0 values"),
    (".config huge", "1:9", "the text is for config 'huge', but 'tiny' was asked for"),
    ("halt\n.config tiny", "2:1", ".config must stand before the first op"),
])
def test_messages(text, place, message):
    with pytest.raises(AsmError) as error:
        assemble(text, TINY, file="prog.s")
    assert str(error.value).startswith(f"prog.s:{place}: {message}")
    line, column = place.split(":")
    assert (error.value.line, error.value.column) == (int(line), int(column))


def test_unknown_config():
    with pytest.raises(AsmError, match="<text>:1:9: unknown config 'huge'; known configs: tiny"):
        assemble(".config huge\nhalt")
    with pytest.raises(AsmError, match="no configuration"):
        assemble("halt")
    assert assemble(".config small\nhalt").config_name == "small"
