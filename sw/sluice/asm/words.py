"""Legality of a single word, in the order and the terms of the chip's decoder."""

from __future__ import annotations

from sluice_hw import isa
from sluice_hw.config import ChipConfig

__all__ = ["WordError", "check_word"]


class WordError(ValueError):
    """A word that the decoder refuses.

    Attributes
    ----------
    code
        ILLEGAL_OPCODE, ILLEGAL_FIELD or RESERVED_BITS.
    field
        ERROR_FIELD of the chip: number of the first bad field, 0 for the opcode, one past the last for reserved bits.
    """

    def __init__(self, code: isa.Error, field: int, reason: str) -> None:
        self.code, self.field = code, field
        super().__init__(reason)


def check_word(word: int, config: ChipConfig) -> tuple[isa.Op, dict[str, int]]:
    """Op and fields of a word that is legal by itself.

    Raises
    ------
    WordError
        Naming the first bad field, its value and what is allowed.
    """
    code = word & ((1 << isa.OPCODE_BITS) - 1)
    try:
        op = isa.Op(code)
    except ValueError:
        raise WordError(isa.Error.ILLEGAL_OPCODE, 0, f"opcode {code} is not implemented") from None
    if not isa.OPS[op].on(config):
        reason = f"{op.name} is not an op of chips of {config.dtype}"
        raise WordError(isa.Error.ILLEGAL_OPCODE, 0, reason)
    used = isa.OPCODE_BITS + sum(f.width for f in isa.OPS[op].fields)
    _, fields = isa.decode(word & ((1 << used) - 1))
    for number, f in enumerate(isa.OPS[op].fields, 1):
        lo, hi = isa.field_range(f, config)
        if op is isa.Op.ADDR and f.name.startswith("stride") and fields["ring"]:
            lo, hi = 0, fields["ring"]  # a ring steps forwards, and over its end once at most
        if not lo <= fields[f.name] <= hi:
            reason = f"{op.name} {f.name} must be {lo} to {hi}, not {fields[f.name]}"
            raise WordError(isa.Error.ILLEGAL_FIELD, number, reason)
    if word >> used:
        raise WordError(
            isa.Error.RESERVED_BITS,
            len(isa.OPS[op].fields) + 1,
            f"{op.name} has reserved bits set: {word >> used:#x} from bit {used}",
        )
    return op, fields
