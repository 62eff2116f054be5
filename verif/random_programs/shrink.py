"""A failing program made small: parts and sizes taken away as long as it is legal and still fails."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

from sluice_hw.isa import Op

from .generate import Draft
from .legal import Case, build
from .tree import Block, Loop, Node, op_nodes

__all__ = ["shrink"]

#: Fields of setup words and ops that say how much is done, with their least value.
_SIZES = ("row_bytes", "rows", "n0", "n1", "n2", "n3", "cols", "k", "n", "segments", "count", "blocks",
          "tail")  # fmt: skip
#: Fields whose value 0 says less than any other.
_FLAGS = ("pad", "zero_point", "source_zero_point", "bias", "per_channel", "residual", "requant", "relu", "reduce",
          "acc_first", "swap_first", "acc_mode", "x_step", "y_step", "masked", "use_first", "use_function",
          "use_second", "use_reduce", "store", "round", "transpose", "memory", "format", "k0", "k1")  # fmt: skip


def shrink(
    case: Case, fails: Callable[[Case], bool], *, tries: int = 400, say: Callable[[str], None] = lambda line: None
) -> Case:
    """The smallest case that is found.

    Parameters
    ----------
    fails
        Whether a case still shows the fault.
    tries
        Smaller drafts that are looked at.
    """
    tried: set[bytes] = set()
    best, better = case, True
    while better:
        better, at = False, 0
        base = _clone(best.draft)
        while (change := next(itertools.islice(_changes(base), at, None), None)) is not None:
            if not tries:
                return best
            tries -= 1
            made = _clone(base)
            change(made)
            smaller = build(made)
            image = smaller.lowered.program.to_bytes() if smaller is not None else b""
            if smaller is None or image in tried or _size(smaller) >= _size(best) or not fails(smaller):
                tried.add(image)
                at += 1
                continue
            best, better = smaller, True  # and go on at the same place of what is left
            base = _clone(best.draft)
            say(f"{len(best.lowered.program)} words, {best.result.counters.ops} ops")
    return best


def _size(case: Case) -> tuple[int, ...]:
    """Smaller is simpler: words first, then ops done, then what they move, then bits."""
    counters = case.result.counters
    moved = counters.ld_slices + counters.st_slices + counters.array_rows + counters.vector_rows
    bits = sum(word.bit_count() for word in case.lowered.program.words)
    return len(case.lowered.program), counters.ops, moved, bits


def _clone(made: Draft) -> Draft:
    """A copy whose tree can be changed, without the SYNCs that were added for tokens."""
    out = dataclasses.replace(made, block=copy.deepcopy(made.block), params=list(made.params))
    _strip(out.block)
    return out


def _strip(block: Block) -> None:
    block[:] = [i for i in block if isinstance(i, Loop) or i.op is not Op.SYNC or not (i.tokens.waits or
                                                                                     i.tokens.signals)]  # fmt: skip
    for item in block:
        if isinstance(item, Loop):
            _strip(item.body)


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for item in block:
        if isinstance(item, Loop):
            yield from _blocks(item.body)


#: A change of a copy of the draft, in place.
_Change = Callable[[Draft], None]


def _changes(base: Draft) -> Iterator[_Change]:
    """Ways to make a draft smaller, the ones that take most away first."""
    for number, block in enumerate(_blocks(base.block)):
        step = len(block)
        while step >= 1:
            for at in range(0, len(block), step):
                yield functools.partial(_delete, number, at, step)
            step //= 2
    for number, block in enumerate(_blocks(base.block)):
        for at, item in enumerate(block):
            if isinstance(item, Loop):
                yield from _loop_changes(number, at, item)
    for number, node in enumerate(op_nodes(base.block)):
        yield from _op_changes(number, node)
    if base.entry:
        yield lambda made: setattr(made, "entry", 0)


def _delete(number: int, at: int, size: int, made: Draft) -> None:
    del list(_blocks(made.block))[number][at : at + size]


def _loop_changes(number: int, at: int, loop: Loop) -> Iterator[_Change]:
    def body_alone(made: Draft) -> None:
        block = list(_blocks(made.block))[number]
        block[at : at + 1] = block[at].body  # type: ignore[union-attr]

    def counted(count: int, made: Draft) -> None:
        inner = list(_blocks(made.block))[number][at]
        inner.count, inner.param = count, None  # type: ignore[union-attr]

    yield body_alone
    for count in (1, 2, loop.count // 2, loop.count - 1):
        if 0 < count < loop.count:
            yield functools.partial(counted, count)
    if loop.param is not None:
        yield functools.partial(counted, loop.count)


def _op_changes(number: int, node: Node) -> Iterator[_Change]:
    def put(place: int | None, name: str, value: int, made: Draft) -> None:
        inner = list(op_nodes(made.block))[number]
        (inner.fields if place is None else inner.setups[place][1])[name] = value

    def plain(name: str, made: Draft) -> None:
        address = list(op_nodes(made.block))[number].addresses[name]
        address.ring, address.strides, address.param, address.home = 0, {}, None, 0

    def not_again(made: Draft) -> None:
        list(op_nodes(made.block))[number].again = False

    places = [(None, node.fields), *((i, fields) for i, (_, fields) in enumerate(node.setups))]
    for place, fields in places:
        for name, value in fields.items():
            if name in _SIZES:
                for target in (1, value // 2, value - 1):
                    if 1 <= target < value:
                        yield functools.partial(put, place, name, target)
            elif name in _FLAGS and value:
                yield functools.partial(put, place, name, 0)
    if node.again:
        yield not_again
    for name, address in node.addresses.items():
        if address.ring or address.strides or address.param is not None or address.home:
            yield functools.partial(plain, name)
