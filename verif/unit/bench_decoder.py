"""Random words, most of them nearly legal, against the rules as the assembler's tables state them."""

import cocotb
from cocotb.triggers import Timer

from sluice_hw import isa
from sluice_hw.decoder import verdict_layout
from sluice_hw.isa import Error, Op
from verif.transactors import parameter, seeded
from verif.unit.microcode import random_fields, unpack


def configuration():
    from verif.unit.test_decoder import CONFIGS

    return CONFIGS[parameter("CONFIG")]


def judge(word, config):
    """(code, field): what docs/architecture.md says of a word."""
    code = word & ((1 << isa.OPCODE_BITS) - 1)
    if code not in list(isa.ops_of(config)):
        return Error.ILLEGAL_OPCODE, 0
    op, at, values, bad = Op(code), isa.OPCODE_BITS, {}, []
    for f in isa.OPS[op].fields:
        value = word >> at & ((1 << f.width) - 1)
        if f.signed and value >> f.width - 1:
            value -= 1 << f.width
        values[f.name] = value
        at += f.width
        lo, hi = isa.field_range(f, config)
        if not lo <= value <= hi:
            bad.append(isa.field_index(op, f.name))
    if op is Op.ADDR and values["ring"]:
        bad += [isa.field_index(op, f"stride{i}") for i in range(isa.LOOP_LEVELS)
                if not 0 <= values[f"stride{i}"] <= values["ring"]]
    if bad:
        return Error.ILLEGAL_FIELD, min(bad)
    if word >> at:
        return Error.RESERVED_BITS, len(isa.OPS[op].fields) + 1
    return Error.NONE, 0


@cocotb.test
async def random_words(dut):
    config, rng = configuration(), seeded("words")
    seen = dict.fromkeys((Error.NONE, Error.ILLEGAL_OPCODE, Error.ILLEGAL_FIELD, Error.RESERVED_BITS), 0)
    for n in range(6000):
        op = rng.choice(list(isa.ops_of(config)))
        word = isa.encode(op, config, random_fields(op, rng, config))
        kind = rng.random()
        if kind < 0.1:
            word = rng.getrandbits(isa.WORD_BITS)
        elif kind < 0.7:
            for _ in range(rng.randint(1, 3)):
                word ^= 1 << rng.randrange(isa.WORD_BITS)
        dut.word.value = word
        await Timer(1, "ns")
        verdict = unpack(verdict_layout(), int(dut.verdict.value))
        code, field = judge(word, config)
        assert (verdict["code"], verdict["field"]) == (code, field), (n, hex(word), verdict, code, field)
        seen[code] += 1
    assert min(seen.values()) > 100, seen
