"""The order of a matmul's groups, and which loads run with which of their K tiles.

Loads stand in program order just before what needs them, or ahead of it where they could be late: the first pieces of
the program, the weights of the first block, and a block's activations during the block before, spread over its tiles so
that neither LD nor the sequencer is held up by a burst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from .plan_matmul import MatmulPlan
from .tiles import ceil_div

__all__ = ["KA", "KAB", "KB", "KT", "MB", "NT", "Group", "MatmulSchedule", "Part"]

#: Loop levels: blocks, strips, pieces with loads of activations and weights, of activations, of weights; K tiles.
MB, NT, KAB, KA, KB, KT = range(6)


@dataclass(frozen=True)
class Part:
    """K tiles of a group that run in one hardware loop nest.

    Attributes
    ----------
    level
        Loop level of its transfers; None when it has none.
    times
        Iterations of that level.
    loads
        Transfers of an iteration: ``"b"`` weights, ``"a"`` activations of this block, ``"n"`` of the next one; and
        whether it is a main piece or the tail.
    tiles, rest
        Whole K tiles of an iteration, and rows of a smaller tile behind them.
    waits_a, waits_b
        Whether the tiles wait for tokens of their operands.
    """

    level: int | None
    times: int
    loads: tuple[tuple[str, bool], ...]
    tiles: int
    rest: int
    waits_a: bool
    waits_b: bool

    @property
    def prefetches(self) -> bool:
        return any(what == "n" for what, _ in self.loads)


@dataclass(frozen=True)
class Group:
    """What the groups of a run of strips have in common.

    Attributes
    ----------
    rows, cols
        Of the result.
    late
        Main pieces, and whether the tail, of the next block that are loaded behind the tiles.
    takes_slot
        The loads of the next block begin here, in a slot that has to be free.
    ready
        They end here, and give the block's token.
    takes_block
        The first PULSE_ARRAY waits for the block's token.
    frees_slot
        The VECTOR is the last user of the block's slot.
    first
        The first group of the program.
    """

    rows: int
    cols: int
    parts: tuple[Part, ...]
    late: tuple[int, bool] = (0, False)
    takes_slot: bool = False
    ready: bool = False
    takes_block: bool = False
    frees_slot: bool = False
    first: bool = False


Loads = tuple[tuple[str, bool], ...]


class MatmulSchedule:
    """Groups of a plan."""

    def __init__(self, plan: MatmulPlan) -> None:
        self.plan = plan
        self.resident = plan.mode == "resident"

    def is_main(self, piece: int) -> bool:
        """Whether a piece of K is a main one."""
        return piece < self.plan.main_pieces

    @property
    def lead(self) -> int:
        """Pieces that are loaded ahead of their use: as many as LD has in flight without holding up the sequencer."""
        plan = self.plan
        most = plan.pieces.count if self.resident else min(plan.pieces.count, plan.ring)
        return min(4 if plan.piece == 1 else 1, most)

    @property
    def reuses_slots(self) -> bool:
        """Whether a slot of activations is used more than once."""
        return self.plan.mode != "blocked" and self.plan.blocks > 2 and not self.plan.memory.whole_a

    def blocks(self) -> Iterator[tuple[int, list[tuple[int, Group]]]]:
        """(iterations of MB, [(iterations of NT, group)])."""
        plan = self.plan
        if plan.mode == "blocked":
            for rows, run in groupby(plan.sizes):
                yield len(list(run)), self._runs(self._blocked(rows))
            return
        yield 1, self._runs(self._first_block(plan.sizes[0]))
        if plan.blocks > 2:
            yield plan.blocks - 2, self._runs(self._later_block(plan.sizes[1], prefetch=True))
        if plan.blocks > 1:
            yield 1, self._runs(self._later_block(plan.sizes[-1], prefetch=False))

    @staticmethod
    def _runs(groups: list[Group]) -> list[tuple[int, Group]]:
        return [(len(list(run)), group) for group, run in groupby(groups)]

    # -- blocks --------------------------------------------------------------------------------------------------
    def _blocked(self, rows: int) -> list[Group]:
        loads: list[Loads] = [(("b", self.is_main(p)), ("a", self.is_main(p))) for p in range(self.plan.pieces.count)]
        parts = self._parts(loads, a=True, b=True)
        return [Group(rows, self.plan.strips.size(i), parts) for i in range(self.plan.strips.count)]

    def _first_block(self, rows: int) -> list[Group]:
        plan = self.plan
        strips = plan.strips.count
        share = [0] * strips
        late = (0, False)
        if plan.blocks > 1 and strips > 1:  # what the next block needs comes behind what the first group waits for
            share = [0, *self._share(strips - 1)]
        elif plan.blocks > 1:
            late = (plan.main_pieces, plan.has_tail)
        groups, done = [], 0
        for strip in range(strips):
            loads = self._first_loads(strip)
            self._add_prefetch(loads, done, share[strip])
            done += share[strip]
            parts = self._parts(loads, a=strip == 0, b=True)
            last = strip == strips - 1
            groups.append(
                Group(
                    rows, plan.strips.size(strip), parts, late, frees_slot=self.reuses_slots and last, first=strip == 0
                )
            )
        return groups

    def _first_loads(self, strip: int) -> list[Loads]:
        """Per piece of a strip, the loads of the first block: of what is used ``lead`` pieces later when weights stay,
        else of what is used next."""
        pieces, last = self.plan.pieces.count, strip == self.plan.strips.count - 1
        ahead = self.lead if self.resident else 0
        out: list[Loads] = []
        for piece in range(ahead, ahead + pieces):
            if piece >= pieces:
                out.append(() if last else (("b", self.is_main(piece - pieces)),))
            elif strip:
                out.append((("b", self.is_main(piece)),))
            elif piece >= self.lead:
                out.append((("b", self.is_main(piece)), ("a", self.is_main(piece))))
            else:
                out.append(())
        return out

    def _later_block(self, rows: int, prefetch: bool) -> list[Group]:
        plan = self.plan
        strips = plan.strips.count
        share = self._share(strips) if prefetch else [0] * strips
        ends = max((i for i, n in enumerate(share) if n), default=-1)
        groups, done = [], 0
        for strip in range(strips):
            loads: list[Loads] = [
                () if self.resident else (("b", self.is_main(p)),) for p in range(plan.pieces.count)
            ]  # fmt: skip
            self._add_prefetch(loads, done, share[strip])
            done += share[strip]
            groups.append(
                Group(
                    rows, plan.strips.size(strip), self._parts(loads, a=False, b=not self.resident),
                    takes_slot=prefetch and strip == 0 and self.reuses_slots,
                    ready=self.resident and strip == ends,
                    takes_block=self.resident and strip == 0,
                    frees_slot=self.reuses_slots and strip == strips - 1,
                )
            )  # fmt: skip
        return groups

    def _share(self, groups: int) -> list[int]:
        """Pieces of the next block that each of ``groups`` groups loads."""
        left = self.plan.pieces.count
        each = ceil_div(left, groups)
        return [max(0, min(each, left - each * i)) for i in range(groups)]

    def _add_prefetch(self, loads: list[Loads], done: int, count: int) -> None:
        """Load ``count`` pieces of the next block, of which ``done`` are loaded, with the first pieces of a group."""
        for i in range(count):
            loads[i] = (*loads[i], ("n", self.is_main(done + i)))

    # -- parts ---------------------------------------------------------------------------------------------------
    def _parts(self, loads: list[Loads], *, a: bool, b: bool) -> tuple[Part, ...]:
        """Loops over the pieces of a group that have the same loads."""
        plan, parts = self.plan, []
        for (now, main), run in groupby((now, self.is_main(piece)) for piece, now in enumerate(loads)):
            times = len(list(run))
            whole, rest = (plan.piece, 0) if main else plan.tail_tiles
            kinds = {what for what, _ in now}
            level = {(False, False): None, (False, True): KB, (True, False): KA, (True, True): KAB}[
                bool(kinds & {"a", "n"}), "b" in kinds
            ]
            if level is None and main:  # without loads, whose pointers step over pieces, pieces are nothing but tiles
                whole, times = whole * times, 1
            parts.append(Part(level, times, now, whole, rest, a, b))
        return tuple(parts)
