"""How to run a matmul of any size: plans, what each needs of VMEM and time, and the choice between them.

What the three kinds of plan mean stands in ``lower_matmul``, which emits them.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice_hw.config import ChipConfig

from .cost import Costs
from .errors import DoesNotFit
from .layout import ActivationPanels, ResultPanels, WeightTiles
from .place import Buffer, VmemMap
from .tiles import Cut, ceil_div, round_up

__all__ = ["MODES", "MatmulPlan", "plan_matmul"]

MODES = ("resident", "streamed", "blocked")


@dataclass(frozen=True)
class MatmulPlan:
    """Sizes of one matmul on one chip.

    Attributes
    ----------
    m, k, n
        x[m, k] times w[k, n].
    block
        Rows of a block.
    piece
        K tiles of a transfer.
    mode
        ``"resident"``, ``"streamed"`` or ``"blocked"``.
    ring
        Pieces in the rings of ``streamed`` and ``blocked``.
    out_slots
        Result panels in VMEM.
    """

    config: ChipConfig
    m: int
    k: int
    n: int
    wide: bool
    params: bool
    block: int
    piece: int
    mode: str
    ring: int
    out_slots: int = 2

    @property
    def out_bytes(self) -> int:
        return 4 if self.wide else 1

    @property
    def blocks(self) -> Cut:
        return Cut(self.m, self.block)

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

    # -- layouts in HBM ------------------------------------------------------------------------------------------
    def activations(self, shape: tuple[int, ...]) -> ActivationPanels:
        return ActivationPanels(shape, self.block, self.config.rows, self.piece, self.config.slice_bytes)

    @property
    def weights(self) -> WeightTiles:
        c = self.config
        return WeightTiles((self.k, self.n), (c.rows, c.cols), self.piece, c.slice_bytes)

    @property
    def results(self) -> ResultPanels:
        c = self.config
        return ResultPanels((self.m, self.n), "int32" if self.wide else "int8", self.block, c.cols, c.slice_bytes)

    @property
    def param_slices(self) -> int:
        """Slices of the parameters: of all strips together, or of each strip when ``blocked``."""
        size = self.config.param_bytes * (1 if self.mode == "blocked" else self.strips.count)
        return ceil_div(size, self.config.slice_bytes)

    # -- VMEM ----------------------------------------------------------------------------------------------------
    def vmem(self) -> VmemMap:
        """Place the buffers.

        Raises
        ------
        DoesNotFit
            When this plan needs more than there is.
        """
        memory, align = VmemMap(self.config), self._align
        a_slots = self.ring if self.mode == "blocked" else min(2, self.blocks.count)
        a_slot = (self.piece if self.mode == "blocked" else self.steps) * self.panel_bytes
        b_slots = 1 if self.mode == "resident" else self.ring
        b_slot = (
            self.piece * self.tile_bytes * (self.strips.count * self.pieces.count if self.mode == "resident" else 1)
        )
        o_slots = self.out_slots
        everything = frozenset({"activations", "weights", "results", "parameters"})
        memory.place(Buffer("activations", a_slots * a_slot, a_slots, apart=everything))
        memory.place(Buffer("weights", b_slots * b_slot, b_slots, apart=everything))
        memory.place(Buffer("results", o_slots * round_up(self.result_bytes, align), o_slots, apart=everything))
        if self.params:
            blocked = self.mode == "blocked"
            size = (
                2 * round_up(self.config.param_bytes, align) if blocked else self.strips.count * self.config.param_bytes
            )
            memory.place(Buffer("parameters", size, 2 if blocked else 1, apart=frozenset({"weights", "results"})))
        return memory

    @property
    def _align(self) -> int:
        return max(self.config.hbm_bytes_per_cycle, self.config.word_bytes)

    # -- time ----------------------------------------------------------------------------------------------------
    def cycles(self) -> int:
        """Estimated cycles from start to interrupt."""
        c, cost = self.config, Costs(self.config)
        kt, nt = self.k_tiles.count, self.strips.count
        last_rows = self.blocks.rest or self.block
        piece_a = self.weights.slice_bytes * self.activations((self.m, self.k)).piece_slices
        piece_b = self.weights.slice_bytes * self.weights.piece_slices
        store = cost.beats(self.results.panel_slices * c.slice_bytes)
        pieces = self.pieces.count

        def group(rows: int, loads: int) -> int:
            compute = kt * cost.tile(rows)
            drain = cost.vector(rows, wide=self.wide) + 4
            return max(compute, drain, cost.beats(loads) + store)

        start = cost.start + cost.load(piece_a + piece_b) + c.rows
        total = start
        for index, rows, count in ((0, self.block, self.blocks.full), (1, last_rows, 1 if self.blocks.rest else 0)):
            if not count:
                continue
            a_share = piece_a * pieces / nt
            if self.mode == "blocked":
                per = group(rows, pieces * (piece_a + piece_b)) * nt * count
            elif self.mode == "streamed":
                per = group(rows, pieces * piece_b + a_share) * nt * count
            else:
                first = group(rows, pieces * piece_b + a_share) * nt if index == 0 or not self.blocks.full else 0
                per = first + group(rows, a_share) * nt * (count - (first > 0))
            total += per
        tail = cost.array_latency + cost.vector(last_rows, wide=self.wide)
        tail += cost.store_fill + cost.beats(last_rows * c.cols * self.out_bytes) + 4
        return int(total + tail)

    def describe(self) -> str:
        rows, strips, tiles = self.blocks, self.strips, self.k_tiles
        lines = [
            f"matmul [{self.m}, {self.k}] x [{self.k}, {self.n}] -> {'int32' if self.wide else 'int8'}, "
            f"{self.mode} plan",
            f"  {rows.count} blocks of {rows.step} rows (last {rows.size(rows.count - 1)}), {strips.count} strips of "
            f"{strips.step} columns (last {strips.size(strips.count - 1)}), {tiles.count} K tiles of {tiles.step} "
            f"(last {tiles.size(tiles.count - 1)})",
            f"  transfers of {self.piece} tiles; estimated {self.cycles()} cycles for {self.m * self.k * self.n} MACs",
        ]
        return "\n".join(lines)


def _blocks_to_try(config: ChipConfig, m: int) -> list[int]:
    most = min(m, config.acc_region_rows)
    fewest = ceil_div(m, most)
    sizes = {ceil_div(m, count) for count in range(fewest, fewest + 9)}
    step = 1
    while step < 2 * most:
        # Even cuts near every power of two, and sizes whose transfers fill whole slices.
        sizes.add(ceil_div(m, ceil_div(m, step)))
        sizes.add(step)
        step *= 2
    return sorted(s for s in sizes if 1 <= s <= most)


def _pieces_to_try(config: ChipConfig, block: int, k_tiles: int) -> list[int]:
    """K tiles of a transfer: one, and enough to fill a slice with weights or with activations."""
    tile, panel = config.rows * config.cols, block * config.rows
    fill = [ceil_div(config.slice_bytes, size) for size in (tile, panel)]
    return sorted({min(max(1, p), k_tiles, 8) for p in (1, *fill)})


def plan_matmul(
    config: ChipConfig,
    m: int,
    k: int,
    n: int,
    *,
    wide: bool,
    params: bool,
    where: str = "matmul",
    mode: str | None = None,
    block: int | None = None,
) -> MatmulPlan:
    """The plan with the fewest estimated cycles among those that fit.

    Parameters
    ----------
    wide
        int32 results.
    params
        Whether strips have parameters.
    mode, block
        Only plans of this mode, of blocks of this size.

    Raises
    ------
    DoesNotFit
        When none fits.
    """
    best: MatmulPlan | None = None
    best_score, reason = (0, 0, 0), None
    k_tiles = ceil_div(k, config.rows)
    for rows in [block] if block else _blocks_to_try(config, m):
        for piece in _pieces_to_try(config, rows, k_tiles):
            for how in [mode] if mode else MODES:
                for ring in (2,) if how == "resident" else (2, 4, 8):
                    plan = MatmulPlan(config, m, k, n, wide, params, rows, piece, how, ring)
                    # Rings that are deeper cost nothing but memory.
                    score = (plan.cycles(), MODES.index(how), -ring)
                    if best is not None and score >= best_score:
                        continue
                    try:
                        plan.vmem()
                    except DoesNotFit as error:
                        if reason is None or error.needed - error.free < reason.needed - reason.free:
                            reason = error
                        continue
                    best, best_score = plan, score
    if best is None:
        assert reason is not None
        raise reason.within(where)
    return best
