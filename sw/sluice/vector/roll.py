"""Finding loops: runs of ops that differ in addresses by a constant step become one body."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sluice_hw.isa import LOOP_LEVELS

from .nodes import Address, Loop, Node, Setup, Word

__all__ = ["roll"]

#: Nodes of the longest body that is looked for, and address registers that one may need.
_PERIOD, _REGISTERS = 12, 13

Path = tuple[Loop, ...]
#: A loop, and for each word of its body how its addresses grow, and its waits and signals.
Plan = tuple[Loop, list[list[int]], list[tuple[dict, dict]]]


def _depth(nodes: Sequence[Node]) -> int:
    """Levels of loops."""
    return max((1 + _depth(node.body) for node in nodes if isinstance(node, Loop)), default=0)


def roll(nodes: list[Node]) -> list[Node]:
    """The same with loops where a run repeats at least three times."""
    out: list[Node] = []
    shapes = [_shape(node, ()) for node in nodes]
    at = 0
    while at < len(nodes):
        best, best_plan = (0, 0), None
        for period in range(1, min(_PERIOD, (len(nodes) - at) // 3) + 1):
            times = 1
            while shapes[at + times * period : at + (times + 1) * period] == shapes[at : at + period]:
                times += 1
            plan = None
            while times >= 3 and (plan := _plan(nodes[at : at + times * period], period)) is None:
                times -= 1
            if plan is not None and ((times - 1) * period, -period) > best:
                best, best_plan = ((times - 1) * period, -period), plan
        if best_plan is not None:
            period = -best[1]
            out.append(_body(nodes[at : at + period], best_plan))
            at += best_plan[0].count * period
        else:
            out.append(nodes[at])
            at += 1
    return out


def _shape(node: Node, path: Path) -> object:
    """What must be equal in all iterations: everything but base addresses, tokens and notes."""
    if isinstance(node, Loop):
        inner = (*path, node)
        return "loop", node.count, tuple(_shape(child, inner) for child in node.body)

    def address(a: Address) -> object:
        return tuple((path.index(loop), step) for loop, step in a.steps), a.param

    setup = tuple((s.slot, s.fields, tuple((name, address(a)) for name, a in s.addresses)) for s in node.setup)
    addresses = tuple((name, address(a)) for name, a in node.addresses.items())
    first = tuple(path.index(loop) for loop in node.acc_first)
    return node.op, node.unit, tuple(node.fields.items()), addresses, setup, first


def _paths(nodes: Sequence[Node], path: Path = ()) -> Iterator[tuple[Word, Path]]:
    for node in nodes:
        if isinstance(node, Loop):
            yield from _paths(node.body, (*path, node))
        else:
            yield node, path


def _plan(run: Sequence[Node], period: int) -> Plan | None:
    """The loop for a run of alike nodes; None where addresses or tokens do not follow a rule."""
    count = len(run) // period
    parts = [list(_paths(run[i * period : (i + 1) * period])) for i in range(count)]
    loop = Loop(count)
    tokens, steps, growing = [], [], set()
    for same in zip(*parts, strict=True):
        words = [word for word, _ in same]
        bases = [[a.base for a in word.all_addresses()] for word in words]
        delta = [b - a for a, b in zip(bases[0], bases[1], strict=True)]
        for one, two in zip(bases[1:], bases[2:], strict=False):
            if [b - a for a, b in zip(one, two, strict=True)] != delta:
                return None
        growing |= {(a, d) for a, d in zip(words[0].all_addresses(), delta, strict=True) if d or a.steps}
        steps.append(delta)
        found = _tokens(same, loop)
        if found is None:
            return None
        tokens.append(found)
    if len(growing) > _REGISTERS or _depth(run) + 1 > LOOP_LEVELS:
        return None
    return loop, steps, tokens


def _body(first: Sequence[Node], plan: Plan) -> Loop:
    """The loop of a plan, from the nodes of its first iteration."""
    loop, steps, tokens = plan
    words: list[Node] = []
    for (word, _), delta, (waits, signals) in zip(_paths(first), steps, tokens, strict=True):
        left = iter(delta)
        addresses = {name: a.stepping(loop, next(left)) for name, a in word.addresses.items()}
        setup = tuple(
            Setup(s.slot, s.op, s.fields, tuple((name, a.stepping(loop, next(left))) for name, a in s.addresses))
            for s in word.setup
        )
        words.append(Word(word.op, word.unit, word.fields, addresses, setup, waits, signals, word.acc_first, word.note))
    loop.body = _rebuilt(first, iter(words))
    return loop


def _rebuilt(nodes: Sequence[Node], words: Iterator[Node]) -> list[Node]:
    """The same tree with other words; its loops keep their identity."""
    out: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            node.body = _rebuilt(node.body, words)
            out.append(node)
        else:
            out.append(next(words))
    return out


def _tokens(same: Sequence[tuple[Word, Path]], loop: Loop) -> tuple[dict, dict] | None:
    """Tokens of one word of the body: those of every iteration, and those of the first or last one alone."""
    out = []
    for kind, edge in (("waits", 0), ("signals", -1)):
        found: dict = {}
        units = {unit for word, _ in same for unit in getattr(word, kind)}
        for unit in units:
            has = [unit in getattr(word, kind) for word, _ in same]
            masks = {tuple(sorted(path.index(x) for x in getattr(word, kind)[unit]))
                     for word, path in same if unit in getattr(word, kind)}  # fmt: skip
            if len(masks) != 1:
                return None
            mask = frozenset(same[0][1][index] for index in next(iter(masks)))
            if all(has):
                found[unit] = mask
            elif has[edge] and sum(has) == 1:
                found[unit] = mask | {loop}
            else:
                return None
        out.append(found)
    return out[0], out[1]
