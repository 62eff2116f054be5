"""Bench of encoder and decoder: a beat a cycle with errors and stops, against the functions of the host."""

import cocotb
from cocotb.triggers import RisingEdge, Timer

from sluice_hw.hbm.hsiao import check_bits, decode
from verif.transactors import seeded, start_clock

WORDS, LATENCY = 2, 3
KINDS = {"ok": 0, "corrected": 1, "detected": 2}


def errors(rng) -> int:
    """A mask of 72 bits: none, one, two or more."""
    return sum(1 << bit for bit in rng.sample(range(72), rng.choice([0, 0, 1, 1, 1, 2, 2, 3, 5])))


@cocotb.test()
async def beats(dut):
    start_clock(dut)
    rng = seeded("beats")
    dut.enable.value = 1
    sent, masks, counts = [], [], dict.fromkeys(KINDS, 0)
    low = (1 << 64) - 1
    while len(sent) < 1000:
        words = [rng.getrandbits(64) for _ in range(WORDS)]
        mask = [errors(rng) for _ in range(WORDS)]
        enable = rng.random() < 0.8
        dut.enable.value = enable
        dut.data.value = words[0] | words[1] << 64
        # They meet what the encoder shows now: the beat before.
        dut.errors.value = mask[0] & low | (mask[1] & low) << 64
        dut.check_errors.value = mask[0] >> 64 | mask[1] >> 64 << 8
        await Timer(1, unit="ns")
        if len(sent) >= LATENCY:
            for i, word in enumerate(sent[-LATENCY]):
                wrong = (word | check_bits(word) << 64) ^ masks[1 - LATENCY][i]
                expected, kind = decode(wrong & low, wrong >> 64)
                assert int(dut.out_data.value) >> 64 * i & low == expected
                got = int(dut.corrected.value) >> i & 1 | (int(dut.detected.value) >> i & 1) << 1
                assert got == KINDS[kind], (kind, bin(masks[1 - LATENCY][i]))
                counts[kind] += 1
        if sent:
            assert int(dut.check.value) == check_bits(sent[-1][0]) | check_bits(sent[-1][1]) << 8
        await RisingEdge(dut.clk)
        if enable:
            sent.append(words)
            masks.append(mask)
    assert min(counts.values()) > 100, counts
