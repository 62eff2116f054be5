"""A program: microcode words, and what a reader wants to know about them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluice_hw.isa import WORD_BITS, WORD_BYTES

__all__ = ["Program"]


@dataclass
class Program:
    """Microcode words as they stand in the microcode store, from address 0.

    Attributes
    ----------
    words
        256-bit words.
    config_name
        Name of the configuration it was made for ("" when unknown); it is not part of the binary form.
    lines
        Word address -> source line, for messages.
    notes
        Word address -> comment that the disassembler prints.
    """

    words: list[int] = field(default_factory=list)
    config_name: str = ""
    lines: dict[int, int] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pc, word in enumerate(self.words):
            if not isinstance(word, int) or not 0 <= word < 1 << WORD_BITS:
                raise ValueError(f"word {pc} must be an unsigned {WORD_BITS}-bit integer, not {word!r}")

    def __len__(self) -> int:
        return len(self.words)

    def to_bytes(self) -> bytes:
        """The image for the microcode store: 32 bytes a word, least significant byte first."""
        return b"".join(word.to_bytes(WORD_BYTES, "little") for word in self.words)

    @classmethod
    def from_bytes(cls, image: bytes, config_name: str = "") -> Program:
        """The inverse of :meth:`to_bytes`.

        Raises
        ------
        ValueError
            For an empty image, or one that does not end at a word boundary; the message names its length.
        """
        if not image or len(image) % WORD_BYTES:
            raise ValueError(
                f"program of {len(image)} bytes is truncated: its length must be a positive multiple of {WORD_BYTES}"
            )
        words = [int.from_bytes(image[i : i + WORD_BYTES], "little") for i in range(0, len(image), WORD_BYTES)]
        return cls(words, config_name)
