"""ECC as the host sees it: counters, the places of the last errors, injection, scrubbing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.errors import DeviceTimeout, UsageError
from sluice_hw.csr import ECC_COUNTERS
from sluice_hw.hbm.hsiao import CHECK_BITS, DATA_BITS

if TYPE_CHECKING:
    from .device import Device

__all__ = ["EccStatus", "detected_text", "inject_error", "read_status"]

_BITS = DATA_BITS + CHECK_BITS
_WORD = DATA_BITS // 8


@dataclass(frozen=True)
class EccStatus:
    """Values of the registers ``ECC_*``: words, slices, and where the last errors were; see ``docs/csr.md``."""

    corrected: int
    detected: int
    scrubbed: int
    repaired: int
    corrected_slice: int
    corrected_word: int
    detected_slice: int
    detected_word: int


def need_ecc(device: Device) -> None:
    if device.config.ecc == "off":
        raise UsageError(f"chip {device.config.name!r} has no ECC; its config field ecc is 'off'")


def read_status(device: Device) -> EccStatus:
    """Read the registers."""
    need_ecc(device)
    return EccStatus(**{name: device.read_csr(f"ECC_{name.upper()}") for name in ECC_COUNTERS})


def inject_error(device: Device, address: int, bits: Iterable[int]) -> None:
    """Invert bits of the 64-bit word at a byte address; see :meth:`Device.inject_error`."""
    need_ecc(device)
    mode = device.config.ecc
    if mode == "device":
        raise UsageError(f"the memory of chip {device.config.name!r} corrects by itself: nothing to inject errors into")
    bits_allowed = DATA_BITS if mode == "inband" else _BITS
    if not 0 <= address < device.config.hbm_bytes or address % _WORD:
        raise UsageError(
            f"the address of a word must be a multiple of {_WORD} below {device.config.hbm_bytes}, not {address}"
        )
    mask = 0
    for bit in bits:
        if not 0 <= bit < bits_allowed:
            allowed = f"0 to {DATA_BITS - 1}" + (f", or to {_BITS - 1} for check bits" if mode == "sideband" else "")
            raise UsageError(f"a bit of a word must be {allowed}, not {bit}")
        mask ^= 1 << bit
    slice_, within = divmod(address, device.config.slice_bytes)
    low, high, check = mask & 0xFFFFFFFF, mask >> 32 & 0xFFFFFFFF, mask >> DATA_BITS
    registers = {"SLICE": slice_, "WORD": within // _WORD, "DATA_LO": low, "DATA_HI": high, "CHECK": check}
    for name, value in registers.items():
        device.write_csr(f"ECC_INJECT_{name}", value)
    device.write_csr("ECC_CTRL", 1 << device.registers["ECC_CTRL"].field("inject").lsb)
    device.transport.advance(16)
    if device.read_csr("ECC_STATUS"):
        raise DeviceTimeout(
            "the chip has no room for another wrong word; the injection waits until one is written or repaired"
        )


def detected_text(device: Device) -> str:
    """The last double error in words, with what lies there; "" when there is none."""
    if device.config.ecc == "off" or not device.read_csr("ECC_DETECTED"):
        return ""
    slice_, word = device.read_csr("ECC_DETECTED_SLICE"), device.read_csr("ECC_DETECTED_WORD")
    what = device.hbm.what_at(slice_)
    where = f"HBM slice {slice_}, word {word}" + (f", in {what}," if what else "")
    return f"{where} has an error of two bits, which ECC cannot correct"
