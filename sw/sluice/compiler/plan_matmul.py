"""How to run a matmul of any size: plans, what each needs of VMEM and time, and the choice between them.

What the three kinds of plan mean stands in ``lower_matmul``, which emits them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from sluice_hw.config import ChipConfig

from .cost import Costs
from .errors import DoesNotFit
from .layout import ActivationPanels, ResultPanels, WeightTiles
from .place import Buffer, VmemMap
from .tiles import Cut, ceil_div, round_up

__all__ = ["MODES", "MatmulMemory", "MatmulPlan", "Walk", "plan_matmul"]

MODES = ("resident", "streamed", "blocked")
#: Groups whose sums may stand in the accumulators, and result panels in VMEM.
GROUPS, PANELS = 4, 3
#: Plans that a better model is asked about: so many, whose estimates are so near to the best one, of so few tiles
#: (times blocks) that the answer comes at once.
_JUDGED, _NEAR, _JUDGED_TILES = 8, 1.25, 512
#: What it has to promise for another plan than the one with the best estimate: more than it may be wrong by.
_WORTH = 1.02


@dataclass(frozen=True)
class Walk:
    """A pointer's way over tiles (or slots) in VMEM.

    Attributes
    ----------
    first
        Address of the first.
    step
        From one to the next, modulo ``ring``.
    piece
        From one transfer to the next.
    pitch
        From tile to tile inside a transfer; 0 where they are contiguous.
    """

    first: int
    step: int
    piece: int
    ring: int
    pitch: int = 0


@dataclass(frozen=True)
class MatmulMemory:
    """Where everything lies in VMEM; ``whole_a``: all blocks of activations have their own place."""

    map: VmemMap
    activations: Walk
    weights: Walk
    results: Walk
    parameters: Walk
    whole_a: bool


@dataclass(frozen=True)
class MatmulPlan:
    """Sizes of one matmul on one chip.

    Attributes
    ----------
    m, k, n
        x[m, k] times w[k, n].
    sizes
        Rows of the blocks. All but the first and the last are of one size.
    piece
        K tiles of a transfer.
    mode
        ``"resident"``, ``"streamed"`` or ``"blocked"``.
    ring
        Pieces in the rings of ``streamed`` and ``blocked``.
    """

    config: ChipConfig
    m: int
    k: int
    n: int
    wide: bool
    params: bool
    sizes: tuple[int, ...]
    piece: int
    mode: str
    ring: int

    @property
    def out_bytes(self) -> int:
        return 4 if self.wide else 1

    @property
    def block(self) -> int:
        """Rows of the largest block."""
        return max(self.sizes)

    @property
    def blocks(self) -> int:
        return len(self.sizes)

    @property
    def strips(self) -> Cut:
        return Cut(self.n, self.config.cols)

    @property
    def k_tiles(self) -> Cut:
        return Cut(self.k, self.config.rows)

    @property
    def pieces(self) -> Cut:
        """K tiles cut into pieces; a last tile of fewer rows is never in the middle of one."""
        return Cut(self.k_tiles.count, self.piece)

    @property
    def main_pieces(self) -> int:
        """Pieces that have only whole tiles and all of them."""
        return self.k_tiles.full // self.piece

    @property
    def tail_tiles(self) -> tuple[int, int]:
        """Whole tiles behind the main pieces, and rows of the last, smaller tile (0: there is none)."""
        return self.k_tiles.full % self.piece, self.k_tiles.rest

    @property
    def has_tail(self) -> bool:
        return any(self.tail_tiles)

    @property
    def tail_count(self) -> int:
        whole, rest = self.tail_tiles
        return whole + (rest > 0)

    @property
    def steps(self) -> int:
        """How often each group passes the END of KT."""
        return self.pieces.count * self.piece

    @property
    def panel_bytes(self) -> int:
        """Activations of one K tile."""
        return self.block * self.config.rows

    @property
    def tile_bytes(self) -> int:
        return self.config.rows * self.config.cols

    @property
    def result_bytes(self) -> int:
        return self.block * self.config.cols * self.out_bytes

    @property
    def groups(self) -> int:
        """Groups whose sums may wait in the accumulators.

        They lie in turn in both regions, one place further each time around. With h places in a region, modulo
        ``2 * region - block`` a place comes again after 2h - 1 groups at the earliest.
        """
        places = self.config.acc_region_rows // self.block
        return min(GROUPS, 2 * places - 1) if places > 1 else 2

    @property
    def panels(self) -> int:
        """Result panels in VMEM."""
        return min(PANELS, self.blocks * self.strips.count)

    # -- layouts in HBM ------------------------------------------------------------------------------------------
    def activations(self, shape: tuple[int, ...]) -> ActivationPanels:
        c = self.config
        return ActivationPanels(shape, self.sizes, self.filled, c.rows, self.piece, c.slice_bytes)

    @property
    def filled(self) -> tuple[int, ...]:
        """Rows that the transfers of each block bring. Blocks that are loaded ahead have transfers of one size."""
        if self.mode == "blocked":
            return self.sizes
        return self.sizes[:1] + (max(self.sizes[1:], default=0),) * (self.blocks - 1)

    @property
    def weights(self) -> WeightTiles:
        c = self.config
        return WeightTiles((self.k, self.n), (c.rows, c.cols), self.piece, c.slice_bytes)

    @property
    def results(self) -> ResultPanels:
        c = self.config
        return ResultPanels((self.m, self.n), "int32" if self.wide else "int8", self.sizes, c.cols, c.slice_bytes)

    @property
    def param_slices(self) -> int:
        """Slices of the parameters: of all strips together, or of each strip when ``blocked``."""
        size = self.config.param_bytes * (1 if self.mode == "blocked" else self.strips.count)
        return ceil_div(size, self.config.slice_bytes)

    # -- VMEM ----------------------------------------------------------------------------------------------------
    @cached_property
    def memory(self) -> MatmulMemory:
        """Place the buffers: spread over regions where that helps and fits, else more and more tightly.

        A region that the array reads from in every cycle leaves no cycle to loads. So where tiles are loaded while
        their neighbours are used, neighbours lie in different regions.

        Raises
        ------
        DoesNotFit
            When this plan needs more than there is.
        """
        reason: DoesNotFit | None = None
        for spread_a, spread_b, spread_out in ((2, 3, 3), (2, 2, 2), (1, 3, 2), (1, 2, 2), (1, 1, 2), (1, 1, 1)):
            try:
                return self._place(spread_a, spread_b, spread_out)
            except DoesNotFit as error:
                reason = error
        assert reason is not None
        raise reason

    def _place(self, spread_a: int, spread_b: int, spread_out: int) -> MatmulMemory:
        memory = VmemMap(self.config)
        everything = frozenset({"activations", "weights", "results", "parameters"})
        # Weights first, at address 0: the first load need not wait for a register to be set.
        if self.mode == "resident" and spread_b > 1 and self.strips.count * self.steps > 1:
            b = self._spread(
                memory, "weights", self.strips.count * self.steps, self.tile_bytes, spread_b, everything
            )
        else:
            count = self.strips.count * self.pieces.count if self.mode == "resident" else self.ring
            size = count * self.piece * self.tile_bytes
            slots = 1 if self.mode == "resident" else count
            at = memory.place(Buffer("weights", size, slots, apart=everything)).address
            b = Walk(at, self.tile_bytes, self.piece * self.tile_bytes, size)
        whole = self.mode != "blocked" and self.blocks * self.steps > 1 and spread_a > 1
        if whole:
            a = self._spread(memory, "activations", self.blocks * self.steps, self.panel_bytes, spread_a, everything)
        else:
            slots, slot = min(2, self.blocks), self.steps * self.panel_bytes
            if self.mode == "blocked":
                slots, slot = self.ring, self.piece * self.panel_bytes
            at = memory.place(Buffer("activations", slots * slot, slots, apart=everything)).address
            a = Walk(at, self.panel_bytes, self.piece * self.panel_bytes, slots * slot)
        panel = round_up(self.result_bytes, memory.align)
        if spread_out > 1 and panel <= self.config.vmem_region_bytes:
            spread = min(self.panels, spread_out)
            step = self.config.vmem_region_bytes
            at = memory.place(Buffer("results", panel, 1, spread, apart=everything)).address
            out = Walk(at, step, step, spread * step)
        else:
            at = memory.place(Buffer("results", 2 * panel, 2, apart=everything)).address
            out = Walk(at, panel, panel, 2 * panel)
        p = Walk(0, 0, 0, 1)
        if self.params:
            size, count = self.config.param_bytes, self.strips.count
            if self.mode == "blocked":
                size, count = round_up(size, memory.align), 2
            apart = frozenset({"weights", "results"})
            at = memory.place(Buffer("parameters", count * size, 1, apart=apart)).address
            p = Walk(at, size, size, count * size)
        return MatmulMemory(memory, a, b, out, p, whole)

    def _spread(
        self, memory: VmemMap, name: str, count: int, size: int, spread: int, apart: frozenset[str]
    ) -> Walk:
        """Tiles in turn in several regions.

        Tile i lies at ``i * region`` modulo ``spread * region - size``: in region ``i % spread``, one place further
        each time around. A transfer of several tiles has to reach each region once, to be a constant step itself.
        """
        step = self.config.vmem_region_bytes
        if self.piece > 1:
            spread = self.piece
        part = ceil_div(count, spread) * size
        if part >= step or size % memory.align and self.piece > 1:
            raise DoesNotFit(name, needed=spread * part, free=spread * step, largest=step)
        at = memory.place(Buffer(name, part, 1, spread, apart=apart)).address
        return Walk(at, step, step if self.piece == 1 else size, spread * step - size, 0 if self.piece == 1 else step)

    # -- time ----------------------------------------------------------------------------------------------------
    @cached_property
    def cycles(self) -> int:
        """Estimated cycles from start to interrupt."""
        c, cost = self.config, Costs(self.config)
        kt, nt = self.k_tiles.count, self.strips.count
        size = c.slice_bytes
        piece_a = size * self.activations((self.m, self.k)).piece_slices
        piece_b = size * self.weights.piece_slices
        pieces = self.pieces.count

        def group(rows: int, loads: float) -> float:
            """Time from one group to the next, in the long run."""
            compute = kt * cost.tile(rows)
            drain = cost.vector(rows, wide=self.wide) + 4
            # A group's accumulators are free again when its VECTOR has ended.
            turn = (kt - 1) * cost.tile(rows) + cost.pulse(rows) + drain
            store = cost.beats(rows * c.cols * self.out_bytes)
            # Loads wait while the array reads operands from the banks they go to.
            blocked = 1 + c.rows / cost.tile(rows)
            return max(compute, drain, turn / self.groups, blocked * loads / c.hbm_bytes_per_cycle + store)

        # The first tile goes into the array while its activations arrive.
        ready = cost.start + c.hbm_read_latency + cost.beats(piece_b)
        total = float(max(ready + 4 + cost.weights, ready + cost.beats(piece_a) + 2 + cost.feed))
        # In the first group the block's own activations come in as well.
        total += max(0.0, cost.beats((piece_a + piece_b) * pieces) - kt * cost.tile(self.sizes[0]))
        a, b = piece_a * pieces, piece_b * pieces
        for index, rows in enumerate(self.sizes[:1] + self.sizes[-1:] if self.blocks > 1 else self.sizes):
            # Behind the last block there is none whose activations it would load.
            ahead = a if self.mode == "blocked" or index == 0 else 0
            total += self._block(group, rows, index == 0, ahead, b) * nt
        if self.blocks > 2:
            total += self._block(group, self.sizes[1], False, a, b) * nt * (self.blocks - 2)
        last = self.sizes[-1]
        store = cost.store_fill + cost.beats(size * ceil_div(last * c.cols * self.out_bytes, size))
        return int(total) + c.rows + c.cols + cost.vector(last, wide=self.wide) + store

    def _block(self, group, rows: int, first: bool, a: int, b: int) -> float:  # noqa: ANN001
        """Time per group of a block, ``a`` and ``b`` being the bytes of a block's and a strip's operands."""
        if self.mode == "blocked":
            return group(rows, a + b)
        if self.mode == "streamed" or first:
            return group(rows, b + a / self.strips.count)
        return group(rows, a / self.strips.count)

    def describe(self) -> str:
        strips, tiles = self.strips, self.k_tiles
        rows = ", ".join(f"{len(list(run))} x {size}" for size, run in groupby(self.sizes))
        lines = [
            f"matmul [{self.m}, {self.k}] x [{self.k}, {self.n}] -> {'int32' if self.wide else 'int8'}, "
            f"{self.mode} plan",
            f"  blocks of rows: {rows}; {strips.count} strips of {strips.step} columns (last "
            f"{strips.size(strips.count - 1)}), {tiles.count} K tiles of {tiles.step} "
            f"(last {tiles.size(tiles.count - 1)})",
            f"  transfers of {self.piece} tiles; estimated {self.cycles} cycles for {self.m * self.k * self.n} MACs",
        ]
        return "\n".join(lines)


def _cuts(config: ChipConfig, m: int) -> list[tuple[int, ...]]:
    """Ways to cut M: evenly, or with a first and a last block of few rows."""
    most = min(m, config.acc_region_rows)
    fewest = ceil_div(m, most)
    counts = {*range(fewest, fewest + 9)}
    step = 1
    while step < 2 * most:
        counts.add(ceil_div(m, step))
        step *= 2
    cuts = set()
    half = round_up(ceil_div(m, 2), config.rows)
    for last in (config.rows, 2 * config.rows):
        if half <= most and m - half > last:
            cuts.add((half, m - half - last, last))
    for count in counts:
        if count < 1 or ceil_div(m, count) > most:
            continue
        size = ceil_div(m, count)
        cut = Cut(m, size)
        cuts.add((size,) * cut.full + ((cut.rest,) if cut.rest else ()))
        # A first block of few rows is loaded soon; behind a last one of few rows little is left to do.
        for first in (0, config.rows, 2 * config.rows):
            for last in (config.rows, 2 * config.rows):
                middle, parts = m - first - last, count - 1 - (first > 0)
                if parts < 1 or middle < parts or last > size or first > size:
                    continue
                body = Cut(middle, ceil_div(middle, parts))
                if body.step > most or (first and body.rest):
                    continue
                start = (first or body.rest,) if first or body.rest else ()
                cuts.add(start + (body.step,) * body.full + (last,))
    for last in (config.rows, 2 * config.rows):
        cuts.update((m - n * last,) + (last,) * n for n in (1, 2, 3) if last <= m - n * last <= most)
    return sorted(cuts, key=lambda sizes: (len(sizes), sizes))


def _pieces_to_try(config: ChipConfig, block: int, k_tiles: int) -> list[int]:
    """K tiles of a transfer: one, and enough to fill a slice with weights or with activations."""
    tile, panel = config.rows * config.cols, block * config.rows
    fill = [ceil_div(config.slice_bytes, size) for size in (tile, panel)]
    return sorted({min(max(1, p), k_tiles, 8) for p in (1, *fill)})


def plan_matmul(
    config: ChipConfig, m: int, k: int, n: int, *, wide: bool, params: bool, where: str = "matmul",
    mode: str | None = None, block: int | None = None, judge: Callable[[MatmulPlan], int] | None = None,
) -> MatmulPlan:  # fmt: skip
    """The plan with the fewest estimated cycles among those that fit.

    Parameters
    ----------
    wide
        int32 results.
    params
        Whether strips have parameters.
    mode, block
        Only plans of this mode, of blocks of this size.
    judge
        A better model of a plan's cycles, which decides between those that are nearly the best by their own estimates.

    Raises
    ------
    DoesNotFit
        When none fits.
    """
    cuts = _cuts(config, m)
    if block:
        cut = Cut(m, block)
        cuts = [(block,) * cut.full + ((cut.rest,) if cut.rest else ())]
    k_tiles = ceil_div(k, config.rows)
    plans = [
        MatmulPlan(config, m, k, n, wide, params, sizes, piece, how, ring)
        for sizes in cuts
        for piece in _pieces_to_try(config, max(sizes), k_tiles)
        for how in ([mode] if mode else MODES)
        for ring in ((2,) if how == "resident" else (2, 4, 8))
    ]
    reason: DoesNotFit | None = None
    best: dict[tuple, MatmulPlan] = {}
    # Rings that are deeper cost nothing but memory.
    for plan in sorted(plans, key=lambda p: (p.cycles, MODES.index(p.mode), -p.ring)):
        if best and (len(best) == _JUDGED or plan.cycles > _NEAR * next(iter(best.values())).cycles):
            break
        try:
            _ = plan.memory
        except DoesNotFit as error:
            if reason is None or error.needed - error.free < reason.needed - reason.free:
                reason = error
            continue
        best.setdefault((plan.sizes, plan.piece, plan.mode), plan)
        if judge is None or plan.blocks * plan.strips.count * plan.k_tiles.count > _JUDGED_TILES:
            break
    if best:
        first = next(iter(best.values()))
        if judge is None or len(best) == 1:
            return first
        cycles = {key: judge(plan) for key, plan in best.items()}
        fewest = min(cycles, key=lambda key: cycles[key])
        return best[fewest] if _WORTH * cycles[fewest] < next(iter(cycles.values())) else first
    assert reason is not None
    raise reason.within(where)
