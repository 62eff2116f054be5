"""Cutting a graph's steps into segments that talk through HBM, and choosing the chunk of the batch they work on."""

from __future__ import annotations

from sluice_hw.config import ChipConfig

from .errors import CompileError, DoesNotFit
from .segment import SegmentPlan, plan_segment
from .steps import ArrayStep, Lowered, Step
from .tiles import ceil_div

__all__ = ["choose_partition", "partition"]


def _border(lowered: Lowered, steps: list[Step], first: int, end: int) -> tuple[list[str], list[str]]:
    """Tensors that steps ``first`` to ``end`` take from HBM and leave there."""
    inside = steps[first:end]
    made = [s.out for s in inside]
    taken = dict.fromkeys(t for s in inside for t in s.reads if t not in made)
    wanted = {t for s in steps[end:] for t in s.reads} | {t for t, _, _ in lowered.outputs.values()}
    return list(taken), [t for t in dict.fromkeys(made) if t in wanted]


def partition(config: ChipConfig, lowered: Lowered, chunk: int, slots: int) -> list[SegmentPlan]:
    """As few segments as possible, each taking as many steps as VMEM holds.

    Raises
    ------
    DoesNotFit
        When one step alone does not fit; the message names it.
    """
    steps, plans, first = lowered.steps, [], 0
    while first < len(steps):
        best, reason = None, None
        for end in range(first + 1, len(steps) + 1):
            try:
                best = _plan(config, lowered, first, end, chunk, slots)
            except DoesNotFit as error:
                reason = error
                break
        if best is None:
            assert reason is not None
            raise reason.within(f"step '{steps[first].name}' with {chunk} of {lowered.units} units at a time")
        plans.append(best)
        first += len(best.steps)
    return plans


def _plan(config: ChipConfig, lowered: Lowered, first: int, end: int, chunk: int, slots: int) -> SegmentPlan:
    """The segment of steps ``first`` to ``end``. Where the weights of the first do not fit, they are streamed."""
    steps = lowered.steps[first:end]
    taken, given = _border(lowered, lowered.steps, first, end)
    reason: DoesNotFit | None = None
    alone = isinstance(steps[0], ArrayStep)
    for ring in (0, 2, 1) if alone else (0,):
        streamed = frozenset({steps[0].name}) if ring else frozenset()
        try:
            return plan_segment(config, lowered, steps, taken, given, chunk, slots, streamed, ring)
        except DoesNotFit as error:
            reason = reason or error
    assert reason is not None
    raise reason


def choose_partition(config: ChipConfig, lowered: Lowered, slots: int) -> list[SegmentPlan]:
    """The partition with the fewest estimated cycles, over sizes of the chunk.

    Raises
    ------
    DoesNotFit
        When not even single units fit.
    """
    units = lowered.units
    sizes = {ceil_div(units, count) for count in range(1, min(units, 24) + 1)}
    step = 1
    while step < units:
        sizes.add(ceil_div(units, ceil_div(units, step)))
        step *= 2
    best: list[SegmentPlan] | None = None
    best_score = (0, 0)
    reason: CompileError | None = None
    for chunk in sorted(sizes):
        try:
            plans = partition(config, lowered, chunk, slots)
        except DoesNotFit as error:
            reason = reason or error
            if best is not None:
                break  # larger chunks need more
            continue
        score = (sum(p.cycles() for p in plans), len(plans))
        if best is None or score < best_score:
            best, best_score = plans, score
    if best is None:
        assert reason is not None
        raise reason
    return best
