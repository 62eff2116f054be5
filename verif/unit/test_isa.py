"""Encodings: every op round-trips, every edge of every field is kept, one beyond is refused by name."""

import pytest

from sluice_hw import isa
from sluice_hw.config import preset
from sluice_hw.isa import OPS, Op
from verif.unit.microcode import with_op

TINY = preset("tiny")


@pytest.mark.parametrize("op", Op, ids=lambda op: op.name)
def test_field_edges(op: Op) -> None:
    fields, config = OPS[op].fields, with_op(TINY, op)
    assert isa.word_layout(op).size == isa.WORD_BITS
    for field in fields:
        lo, hi = isa.field_range(field, config)
        assert lo <= hi, f"{op.name} {field.name} has no legal value"
        for value in {lo, hi}:
            word = isa.encode(op, config, {field.name: value})
            assert 0 <= word < 1 << isa.WORD_BITS
            decoded, values = isa.decode(word)
            assert decoded is op and values[field.name] == value
        for value in (lo - 1, hi + 1):
            with pytest.raises(ValueError, match=rf"{op.name} {field.name} must be {lo} to {hi}, not {value}"):
                isa.encode(op, config, {field.name: value})
    assert [isa.field_index(op, f.name) for f in fields] == list(range(1, len(fields) + 1))


def test_ops_of_other_chips() -> None:
    assert {op for op in Op if op not in isa.ops_of(TINY)} >= {Op.PASS_SHAPE, Op.VECTOR_PASS, Op.TRANSPOSE}
    with pytest.raises(ValueError, match="VECTOR_PASS is not an op of chips of int8"):
        isa.encode(Op.VECTOR_PASS, TINY, {})


def test_unknown_words() -> None:
    with pytest.raises(ValueError, match="opcode 0 "):
        isa.decode(0)
    with pytest.raises(ValueError, match="HALT has reserved bits set"):
        isa.decode(Op.HALT | 1 << 255)
    with pytest.raises(ValueError, match="HALT has no field 'cod'.*code"):
        isa.encode(Op.HALT, TINY, {"cod": 1})
    with pytest.raises(KeyError, match="cod"):
        isa.field_index(Op.HALT, "cod")
