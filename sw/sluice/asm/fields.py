"""How the value of a field is written in the text form.

Which text a field takes follows from its name: address registers are ``r0`` to ``r15``, parameter registers ``p0`` to
``p7``, enumerations go by name, level masks are ``first(..)``/``last(..)`` lists or plain numbers.
"""

from __future__ import annotations

import enum
import math
import re
import struct
from collections.abc import Iterable

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.functions import Function
from sluice_hw.vector_ops import AluOp, Reduction

__all__ = [
    "ADDRESS_FIELDS",
    "ENUM_FIELDS",
    "default_of",
    "float_bits",
    "format_tokens",
    "format_value",
    "levels_mask",
    "mask_levels",
    "parse_float",
    "parse_tokens",
    "parse_value",
]

#: Fields that hold the number of an address register.
ADDRESS_FIELDS = frozenset({"reg", "hbm", "vmem", "acc", "src", "res", "dst", "addr"})
#: Fields that hold the number of a parameter register.
PARAM_FIELDS = frozenset({"param"})
#: Fields with named values.
ENUM_FIELDS: dict[str, type[enum.IntEnum]] = {
    "unit": isa.Unit,
    "acc_mode": isa.AccMode,
    "source": isa.Source,
    "reduce": isa.Reduce,
    "requant": isa.Requant,
    "residual": isa.Residual,
    "stream": isa.Stream,
    "memory": isa.Source,
    "format": isa.Format,
    "function": Function,
    "reduction": Reduction,
    **{f"{alu}_op": AluOp for alu in ("first", "second")},
    **{f"{alu}_{operand}": isa.Operand for alu in ("first", "second") for operand in "bc"},
}
#: Fields that read best in hexadecimal.
HEX_FIELDS = frozenset({"base", "multiplier", "m1", "m2", "mo", "ring"})
#: Fields of 32 bits that hold fp32 or an integer: a number with a point or an exponent is fp32.
WORD_FIELDS = frozenset({"k0", "k1"})

_INT = re.compile(r"[+-]?(0[xX][0-9a-fA-F_]+|0[bB][01_]+|[0-9][0-9_]*)\Z")
_TOKEN = re.compile(r"(?P<unit>[a-z]+)(?:@(?P<when>[a-z]+)\((?P<levels>[^()]*)\))?\Z")


def default_of(field: isa.Field, config: ChipConfig) -> int:
    """Value of a field that is not written: 0, or the legal value next to 0."""
    lo, hi = isa.field_range(field, config)
    return min(max(0, lo), hi)


def parse_int(text: str) -> int:
    """A decimal, ``0x`` or ``0b`` number with an optional sign."""
    if not _INT.match(text):
        raise ValueError(f"{text!r} is not a number")
    sign = -1 if text[0] == "-" else 1
    body = text.lstrip("+-")
    return sign * (int(body, 0) if body[:2].lower() in ("0x", "0b") else int(body, 10))


def _register(text: str, letter: str, count: int) -> int:
    if not re.fullmatch(rf"{letter}[0-9]+", text) or int(text[1:]) >= count:
        raise ValueError(f"must be {letter}0 to {letter}{count - 1}, not {text!r}")
    return int(text[1:])


def parse_value(name: str, text: str) -> int:
    """Value of field ``name`` from its text; raises ``ValueError`` that says what is allowed (not the range)."""
    if name in ADDRESS_FIELDS:
        return _register(text, "r", isa.ADDRESS_REGISTERS)
    if name in PARAM_FIELDS:
        return _register(text, "p", isa.PARAM_REGISTERS)
    kind = ENUM_FIELDS.get(name)
    if kind is not None:
        for member in kind:
            if member.name.lower() == text:
                return int(member)
        raise ValueError(f"must be {', '.join(k.name.lower() for k in kind)}, not {text!r}")
    try:
        return parse_int(text)
    except ValueError:
        if name in WORD_FIELDS:
            return parse_float(text)
        raise ValueError(f"must be a number, not {text!r}") from None


def format_value(name: str, value: int) -> str:
    """Text of a legal value; :func:`parse_value` reads it back."""
    if name in ADDRESS_FIELDS:
        return f"r{value}"
    if name in PARAM_FIELDS:
        return f"p{value}"
    if name in ENUM_FIELDS:
        return ENUM_FIELDS[name](value).name.lower()
    if name in HEX_FIELDS:
        return f"{value:#x}"
    if name in WORD_FIELDS:
        return _format_word(value)
    return str(value)


def _format_word(bits: int) -> str:
    """A number with a point or an exponent for what is a normal number in fp32, else an integer."""
    if not 0 < bits >> 23 & 0xFF < 255:
        return str(bits) if bits < 1 << 16 else f"{bits:#x}"
    text = format_float(bits)
    if text is None:
        raise AssertionError(f"{bits:#x} is a finite number")
    return text if "." in text or "e" in text else f"{text}.0"


def float_bits(value: float) -> int:
    """fp32 bit pattern of a finite number, rounded to nearest even; raises ``ValueError`` if it is not finite there."""
    try:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        raise ValueError(f"must be finite in fp32, not {value!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"must be finite in fp32, not {value!r}")
    return bits


def parse_float(text: str) -> int:
    """fp32 bit pattern of a decimal number."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"must be a number, not {text!r}") from None
    return float_bits(value)


def format_float(bits: int) -> str | None:
    """Shortest decimal that :func:`parse_float` reads back as ``bits``; None for patterns that no decimal gives."""
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    if not math.isfinite(value):
        return None
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        try:
            if float_bits(float(text)) == bits:
                return text
        except ValueError:
            continue  # rounded up beyond the largest fp32
    return None


def levels_mask(levels: Iterable[int]) -> int:
    """Mask of loop levels; raises ``ValueError`` for a level that does not exist."""
    mask = 0
    for level in levels:
        if not 0 <= level < isa.LOOP_LEVELS:
            raise ValueError(f"loop level must be 0 to {isa.LOOP_LEVELS - 1}, not {level}")
        mask |= 1 << level
    return mask


def mask_levels(mask: int) -> list[int]:
    """Loop levels of a mask, outermost first."""
    return [level for level in range(isa.LOOP_LEVELS) if mask >> level & 1]


def parse_levels(text: str) -> int:
    """Mask from ``2,3``."""
    parts = [p.strip() for p in text.split(",")]
    if not all(p.isdecimal() for p in parts):
        raise ValueError(f"loop levels must be numbers with commas between them, not {text!r}")
    return levels_mask(int(p) for p in parts)


def format_levels(mask: int) -> str:
    """The inverse of :func:`parse_levels`."""
    return ",".join(map(str, mask_levels(mask)))


def split_list(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    return re.split(r",(?![^()]*\))", text)


def parse_tokens(kind: str, text: str) -> dict[str, int]:
    """Fields of ``wait=ld,vpu@first(2,3)`` (``kind`` "wait") or ``signal=st@last(1)`` ("signal")."""
    when = {"wait": "first", "signal": "last"}[kind]
    out: dict[str, int] = {}
    for item in split_list(text):
        match = _TOKEN.match(item)
        units = [u.name.lower() for u in isa.Unit]
        if match is None or match["unit"] not in units or match["when"] not in (None, when):
            raise ValueError(f"must be units ({', '.join(units)}), each with or without @{when}(levels), not {item!r}")
        name = f"{kind}_{match['unit']}"
        if name in out:
            raise ValueError(f"names {match['unit']} twice: {text!r}")
        out[name] = 1
        if match["when"]:
            out[f"{name}_{when}"] = parse_levels(match["levels"])
    return out


def format_tokens(kind: str, fields: dict[str, int]) -> tuple[str, set[str]]:
    """Text of the tokens in ``fields``, and the names of the fields that it covers."""
    when = {"wait": "first", "signal": "last"}[kind]
    items, covered = [], set()
    for unit in isa.Unit:
        name = f"{kind}_{unit.name.lower()}"
        if not fields.get(name):
            continue
        mask = fields[f"{name}_{when}"]
        items.append(unit.name.lower() + (f"@{when}({format_levels(mask)})" if mask else ""))
        covered |= {name, f"{name}_{when}"}
    return ",".join(items), covered
