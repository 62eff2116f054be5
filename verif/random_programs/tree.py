"""A program as a tree: ops with all that they need, and loops around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sluice_hw import isa
from sluice_hw.isa import Op, Unit

__all__ = ["Address", "Block", "Link", "Loop", "Node", "Setup", "Tokens", "op_nodes", "stream_key"]

#: The address of a PASS_STREAM is in its op's ``addresses`` (:func:`stream_key`).
Setup = tuple[Op, dict[str, int]]


def stream_key(fields: dict[str, int]) -> str:
    """Name of a PASS_STREAM's address among those of the op that needs it."""
    return f"stream {fields['stream']}"


@dataclass(eq=False)
class Address:
    """What an address register holds for an op.

    Attributes
    ----------
    base
        Before anything moves it.
    strides
        By loop level.
    home
        How many of the loops around the op have been opened when the register is set; strides of those do nothing.
    param
        Parameter register that the base is relative to.
    """

    base: int
    strides: dict[int, int] = field(default_factory=dict)
    ring: int = 0
    home: int = 0
    param: int | None = None

    @property
    def fixed(self) -> bool:
        """Whether it is the same number whenever and wherever it is used."""
        return not self.strides and not self.ring


@dataclass(eq=False)
class Link:
    """A token from one unit to another: who gives it and who takes it are marked with it, so that both can go."""

    giver: Unit
    taker: Unit
    dropped: bool = False


@dataclass(eq=False)
class Tokens:
    """Tokens of an op: link and mask of loop levels, by the other unit."""

    waits: dict[Unit, tuple[Link, int]] = field(default_factory=dict)
    signals: dict[Unit, tuple[Link, int]] = field(default_factory=dict)


@dataclass(eq=False)
class Node:
    """An op, the setup words that it needs, and its addresses by field."""

    op: Op
    fields: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, Address] = field(default_factory=dict)
    setups: list[Setup] = field(default_factory=list)
    #: Write setup words again that hold already.
    again: bool = False
    tokens: Tokens = field(default_factory=Tokens)

    @property
    def unit(self) -> Unit:
        unit = isa.OPS[self.op].unit
        return Unit(self.fields["unit"]) if unit == "field" else Unit(unit)  # type: ignore[arg-type]


@dataclass(eq=False)
class Loop:
    """A hardware loop; ``param`` is the parameter register that holds its count."""

    level: int
    count: int
    body: Block
    param: int | None = None


Block = list[Node | Loop]


def op_nodes(block: Block) -> Iterator[Node]:
    """Ops in program order, those of loops once."""
    for item in block:
        if isinstance(item, Loop):
            yield from op_nodes(item.body)
        else:
            yield item
