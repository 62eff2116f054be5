"""Words before they are microcode: ops with the setup they need, addresses by loop, tokens; and loops around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sluice_hw.isa import Op, Unit

__all__ = ["Address", "Loop", "Node", "Setup", "Word", "words_of"]


@dataclass(eq=False)
class Loop:
    """A hardware loop."""

    count: int
    body: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Address:
    """An address that grows by a step in every iteration of loops around it.

    Attributes
    ----------
    param
        Whether parameter register 0 is added.
    """

    base: int
    steps: tuple[tuple[Loop, int], ...] = ()
    param: bool = False

    def stepping(self, loop: Loop, step: int) -> Address:
        return Address(self.base, (*self.steps, (loop, step)), self.param) if step else self


@dataclass(frozen=True)
class Setup:
    """A setup word. ``slot`` tells those apart that stay beside each other."""

    slot: tuple[object, ...]
    op: Op
    fields: tuple[tuple[str, int], ...]
    addresses: tuple[tuple[str, Address], ...] = ()


@dataclass(eq=False)
class Word:
    """An op.

    Attributes
    ----------
    waits, signals
        Units to exchange a token with, and the loops that must be in their first (last) iteration for that.
    """

    op: Op
    unit: Unit
    fields: dict[str, int]
    addresses: dict[str, Address] = field(default_factory=dict)
    setup: tuple[Setup, ...] = ()
    waits: dict[Unit, frozenset[Loop]] = field(default_factory=dict)
    signals: dict[Unit, frozenset[Loop]] = field(default_factory=dict)
    #: Loops of ``acc_first``.
    acc_first: tuple[Loop, ...] = ()
    note: str = ""

    def all_addresses(self) -> list[Address]:
        """Its own, then those of its setup."""
        return [*self.addresses.values(), *[a for setup in self.setup for _, a in setup.addresses]]


Node = Word | Loop


def words_of(nodes: list[Node]) -> Iterator[Word]:
    """All words, in order, each once."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from words_of(node.body)
        else:
            yield node
