"""The checksum of frames: hardware, reference and the distance that the documentation states."""

import random

import numpy as np
import pytest

from sluice_hw.ici.crc import CRC_BITS, POLYNOMIAL, Crc, _columns, crc_value
from verif.harness import run_bench


def test_reference():
    """Against the check value of CRC-32C for "123456789" (bits reversed, inverted)."""
    def reflected(value: int, bits: int) -> int:
        return int(f"{value:0{bits}b}"[::-1], 2)

    # The published check value takes bytes from their lowest bit on, as crc_value does.
    message = int.from_bytes(b"123456789", "little")
    assert reflected(crc_value(message, 72), CRC_BITS) ^ 0xFFFFFFFF == 0xE3069283
    with pytest.raises(ValueError, match="message must be a number of 3 bits, not 0x8"):
        crc_value(8, 3)


def test_columns(seed):
    rng = random.Random(seed)
    for length in (1, 31, 32, 33, 200):
        for _ in range(20):
            message = rng.getrandbits(length)
            wanted = crc_value(0, length)
            for i in range(length):
                wanted ^= _columns(length)[i] * (message >> i & 1)
            assert wanted == crc_value(message, length)


def distance_at_least_6(bits: int, polynomial: int = POLYNOMIAL) -> bool:
    """Whether no error of 1 to 5 of `bits` bits (checksum included) goes unseen."""
    # An error is unseen when the syndromes of its bits cancel: a message bit's column, a checksum bit's own place.
    syndromes = np.array([*_columns(bits - CRC_BITS, polynomial), *(1 << i for i in range(CRC_BITS))], dtype=np.uint32)
    # The generator has the factor x + 1, an even number of terms: odd errors are seen.
    if bin(1 << CRC_BITS | polynomial).count("1") % 2:
        return False
    one, two = np.triu_indices(len(syndromes), 1)
    pairs = syndromes[one] ^ syndromes[two]
    # No pair cancels, and no two pairs (which then share no bit) have the same syndrome.
    return bool(pairs.all()) and len(np.unique(pairs)) == len(pairs)


@pytest.mark.parametrize("bits", [134, 180, 250, 400, 700, 1250])
def test_distance(bits):
    """Errors of up to 5 bits are found at the length of greetings and of frames to the widest flits."""
    assert distance_at_least_6(bits)


@pytest.mark.parametrize("polynomial", [0x04C11DB7, 0x00000006 | 1])
def test_a_weaker_code_is_told(polynomial):
    """Ethernet's (no factor x + 1), and one of few terms, which repeats itself."""
    assert not distance_at_least_6(250, polynomial)


@pytest.mark.soak
def test_where_the_distance_ends():
    """Beyond 5243 message bits the distance is 4: the check finds the published end."""
    assert distance_at_least_6(5243 + CRC_BITS)
    assert not distance_at_least_6(5244 + CRC_BITS)


@pytest.mark.parametrize("length", [pytest.param(7, marks=pytest.mark.soak), 193])
def test_hardware(length):
    run_bench(Crc(length), "verif.unit.ici.bench_link_crc", name=f"link_crc_{length}", env={"LENGTH": str(length)})
