"""Tokens for a tree: every two ops of different units that touch one place in turn get one between them.

The k-th token that a unit gives another is the k-th that this takes, so for every pair of units the tokens must be
given in the order in which they are taken. Within a block that holds because a later taker never gets an earlier giver,
and around a loop because its body takes what it gives; where that would not hold, the giver is a SYNC just before the
taker.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from sluice_hw.isa import Op, Unit

from .footprint import Footprint, of_item
from .tree import Block, Link, Loop, Node, Tokens, op_nodes

__all__ = ["add_tokens"]


def add_tokens(block: Block, known: dict[Node, Footprint], rng: random.Random, *, simple: bool) -> list[Link]:
    """Add tokens to a tree, in place.

    Parameters
    ----------
    known
        What each op touches.
    simple
        Only SYNC pairs just before the taker and at the end of loop bodies. Otherwise tokens are ops' own where they
        can be, of the first or last iteration of a loop, and loops begin with a token in hand.

    Returns
    -------
    list
        The tokens.
    """
    links: list[Link] = []
    for node in op_nodes(block):
        node.tokens = Tokens()
    _Block(block, known, rng, simple, links).run()
    return links


def _sync(unit: Unit) -> Node:
    return Node(Op.SYNC, {"unit": int(unit)})


@dataclass
class _Block:
    block: Block
    known: dict[Node, Footprint]
    rng: random.Random
    simple: bool
    links: list[Link]
    #: SYNCs to insert before the item at an index.
    before: dict[int, Block] = field(default_factory=lambda: defaultdict(list))

    def run(self) -> None:
        self._inside()
        self._insert()

    def _inside(self) -> dict[tuple, int]:
        """Loops of the block, then the block itself; returns what :meth:`_order` does."""
        in_hand = {
            at: _Block(item.body, self.known, self.rng, self.simple, self.links).body(item)
            for at, item in enumerate(self.block) if isinstance(item, Loop)
        }  # fmt: skip
        covered = self._order()
        for at, links in in_hand.items():
            for link in links:  # behind what else stands before the loop, and before what else stands behind it
                give, take = self._pair(link)
                self.before[at].append(give)
                self.before[at + 1].insert(0, take)
        return covered

    def body(self, loop: Loop) -> list[Link]:
        """Tokens inside of a loop, and from one iteration to the next; returns those that it begins and ends with."""
        covered = self._inside()
        in_hand = []
        for giver in Unit:
            for taker in Unit:
                if loop.count < 2 or giver is taker or not self._carried(giver, taker, covered):
                    continue
                link = self._link(giver, taker)
                give, take = self._pair(link)
                self.before[len(self.block)].append(give)
                if not self.simple and self.rng.random() < 0.6:
                    self.before[0].insert(0, take)
                    in_hand.append(link)
                else:
                    self.before[len(self.block)].append(take)
        self._insert()
        return in_hand

    def _carried(self, giver: Unit, taker: Unit, covered: dict[tuple, int]) -> bool:
        for at, first in enumerate(self._prints):
            if giver not in first:
                continue
            kind = getattr(self.block[at], "op", None)
            if covered.get((giver, taker, kind), -1) >= at:
                continue
            if any(taker in later and first[giver].meets(later[taker]) for later in self._prints):
                return True
        return False

    # -- within a block ------------------------------------------------------------------------------------------
    def _order(self) -> dict[tuple, int]:
        """Order later items behind earlier ones; up to which item each unit has waited for each kind of op of each."""
        self._prints = [of_item(item, self.known) for item in self.block]
        covered: dict[tuple, int] = {}
        last: dict[tuple[Unit, Unit], float] = {}  # where the last token of a pair is given
        for at, item in enumerate(self.block):
            for taker, mine in self._prints[at].items():
                for giver in Unit:
                    if giver is not taker:
                        self._after(at, item, giver, taker, mine, covered, last)
        return covered

    def _after(
        self, at: int, item: Node | Loop, giver: Unit, taker: Unit, mine: Footprint,
        covered: dict[tuple, int], last: dict[tuple[Unit, Unit], float],
    ) -> None:  # fmt: skip
        def kind(index: int) -> Op | None:
            return getattr(self.block[index], "op", None)

        needed = [
            i for i in range(at)
            if giver in self._prints[i] and covered.get((giver, taker, kind(i)), -1) < i
            and self._prints[i][giver].meets(mine)
        ]  # fmt: skip
        if not needed:
            return
        source = self.block[needed[-1]]
        link = self._link(giver, taker)
        own = (
            not self.simple and isinstance(source, Node) and taker not in source.tokens.signals
            and needed[-1] > last.get((giver, taker), -1)
            and len({kind(i) for i in needed}) == 1
            and not any(isinstance(self.block[i], Loop) for i in range(needed[-1], at))
            and self.rng.random() < 0.85
        )  # fmt: skip
        if own:
            assert isinstance(source, Node)
            source.tokens.signals[taker] = (link, 0)
            covered[giver, taker, source.op] = needed[-1]
            last[giver, taker] = needed[-1]
        else:
            give = self._last_of(source, giver, taker, needed, at, last)
            if give is not None:
                node, mask = give
                node.tokens.signals[taker] = (link, mask)
                covered[giver, taker, None] = needed[-1]
                last[giver, taker] = needed[-1] + 0.5
            else:
                node = _sync(giver)
                node.tokens.signals[taker] = (link, 0)
                self.before[at].append(node)
                for op in (None, *Op):
                    covered[giver, taker, op] = at - 1
                last[giver, taker] = at - 0.5
        self._take(at, item, giver, taker, link)

    def _last_of(
        self, source: Node | Loop, giver: Unit, taker: Unit, needed: list[int], at: int,
        last: dict[tuple[Unit, Unit], float],
    ) -> tuple[Node, int] | None:  # fmt: skip
        """The last op of the giver in a loop, if its token in the last iteration says that all before it has ended."""
        if self.simple or not isinstance(source, Loop) or not source.count or len(needed) > 1:
            return None
        if last.get((giver, taker), -1) >= needed[-1]:
            return None
        if any(isinstance(self.block[i], Loop) for i in range(needed[-1] + 1, at)):
            return None
        mine = [i for i in source.body if giver in of_item(i, self.known)]
        if not mine or not isinstance(mine[-1], Node) or taker in mine[-1].tokens.signals:
            return None
        if giver in (Unit.MXU, Unit.VPU) and len({n.op for n in op_nodes(source.body) if n.unit is giver}) > 1:
            return None
        return mine[-1], 1 << source.level

    def _take(self, at: int, item: Node | Loop, giver: Unit, taker: Unit, link: Link) -> None:
        if not self.simple and isinstance(item, Node) and giver not in item.tokens.waits and self.rng.random() < 0.85:
            item.tokens.waits[giver] = (link, 0)
            return
        if not self.simple and isinstance(item, Loop) and item.count and self.rng.random() < 0.5:
            mine = [i for i in item.body if taker in of_item(i, self.known)]
            if isinstance(mine[0], Node) and giver not in mine[0].tokens.waits:
                mine[0].tokens.waits[giver] = (link, 1 << item.level)
                return
        node = _sync(taker)
        node.tokens.waits[giver] = (link, 0)
        self.before[at].append(node)

    # -- helpers -------------------------------------------------------------------------------------------------
    def _link(self, giver: Unit, taker: Unit) -> Link:
        link = Link(giver, taker)
        self.links.append(link)
        return link

    def _pair(self, link: Link) -> Block:
        give, take = _sync(link.giver), _sync(link.taker)
        give.tokens.signals[link.taker] = (link, 0)
        take.tokens.waits[link.giver] = (link, 0)
        return [give, take]

    def _insert(self) -> None:
        out: Block = []
        for at in range(len(self.block) + 1):
            out += self.before.get(at, [])
            out += self.block[at : at + 1]
        self.block[:] = out
