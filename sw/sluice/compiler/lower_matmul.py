"""A matmul of any size, with its operands streamed through VMEM.

The result is cut into blocks of rows and strips of C columns; a *group* is one block times one strip, accumulated over
all K tiles in one accumulator region and drained by one VECTOR while the next group fills the other region::

    for block (MB): for strip (NT): [for piece of K tiles (KAB | KA | KB):] for tile (KT): LOAD_WEIGHTS, PULSE_ARRAY
                                    LOAD_PARAMS, VECTOR, HBM_WRITE_SLICE

Three plans differ in what is loaded where:

- ``resident``: all weights stay in VMEM; they are loaded during the first block, piece by piece, each just before its
  tiles. A block of activations is loaded while the one before is used.
- ``streamed``: weights go through a ring of pieces, again for every block.
- ``blocked``: activations go through a ring of pieces as well, again for every strip; also the parameters. Needs the
  least VMEM and has no limit in any dimension.

Program order is a valid sequential order, so in-order dispatch cannot deadlock; tokens only order the units where they
share memory. Pointers step at ENDs alone (see ``emit``): every group passes KT ``pieces * piece`` times, by an empty
loop at its end if need be.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from sluice_hw.isa import AccMode, Op

from .emit import Emitter
from .errors import CompileError
from .plan_matmul import MatmulPlan
from .schedule_matmul import KA, KAB, KB, KT, MB, NT, Group, MatmulSchedule, Part
from .tiles import ceil_div
from .vector_mode import OutputPath

__all__ = ["MatmulAddresses", "emit_matmul"]


#: What is set up inside the loops over strips, pieces and tiles.
_LOADS = ((Op.DMA_SHAPE, 0),)


@dataclass(frozen=True)
class MatmulAddresses:
    """First slices in HBM of the operands, the parameters and the result."""

    activations: int
    weights: int
    parameters: int
    results: int


def emit_matmul(e: Emitter, plan: MatmulPlan, path: OutputPath, at: MatmulAddresses, where: str) -> None:
    """Write the program of a plan (all but HALT)."""
    _Matmul(e, plan, path, at, where).run()


class _Matmul:
    def __init__(self, e: Emitter, plan: MatmulPlan, path: OutputPath, at: MatmulAddresses, where: str) -> None:
        self.e, self.plan, self.path, self.at, self.where = e, plan, path, at, where
        self.config, self.memory = plan.config, plan.memory
        self.schedule = MatmulSchedule(plan)

    # -- whole program -------------------------------------------------------------------------------------------
    def run(self) -> None:
        e, plan = self.e, self.plan
        e.note(plan.describe())
        if plan.mode == "blocked":
            self._weight_loads()
            self._activation_loads()
        else:
            self._first_loads()
        self._pointers()
        for _ in range(plan.groups):
            e.sync("vpu", signal="mxu")
        for _ in range(self.memory.results.ring // self.memory.results.step):
            e.sync("st", signal="vpu")
        if plan.mode == "streamed":
            for _ in range(plan.ring - self.schedule.lead):  # the first pieces are under way
                e.sync("mxu", signal="ld")
        if plan.mode == "blocked":
            for _ in range(plan.ring):
                e.sync("mxu", signal="ld")
            if plan.params:
                for _ in range(2):
                    e.sync("vpu", signal="ld")
        e.setup(Op.FEED_SEGMENT, index=0, lo=0, hi=self.config.rows)
        for times, groups in self.schedule.blocks():
            with e.loop(MB, times):
                for strips, group in groups:
                    self._setup_group(group)
                    with e.loop(NT, strips, sets=_LOADS):
                        self._group(group)
                if plan.mode == "resident" and plan.blocks > 1 and groups[0][1].first:
                    # All that the first block loaded is there: the token that later blocks get from their transfers.
                    e.sync("ld", signal="mxu")

    def _first_loads(self) -> None:
        """The first pieces before anything else, so that their latency hides the rest of the set-up.

        A program starts with all address registers 0. Where that is the address, it need not be set before the very
        first load, whose arrival everything waits for.
        """
        e, main = self.e, self.plan.main_pieces > 0
        self._weight_loads(only_if_nonzero=True)
        self._read("b", main=main, signal="mxu")
        self._weight_loads()
        self._activation_loads()
        with e.loop(KAB, 1):
            self._read("a", main=main, rows=self.plan.filled[0], signal="mxu")
        for main, run in groupby(self.schedule.is_main(i) for i in range(1, self.schedule.lead)):
            with e.loop(KAB, len(list(run)), sets=_LOADS):
                self._read("b", main=main, signal="mxu")
                self._read("a", main=main, rows=self.plan.filled[0], signal="mxu")

    def _weight_loads(self, only_if_nonzero: bool = False) -> None:
        """LD's pointers to weights in HBM and VMEM."""
        plan, walk, where = self.plan, self.memory.weights, self.where
        slices = plan.weights.piece_slices
        total = plan.strips.count * plan.pieces.count * slices
        for name, first, step, ring in (
            ("b_hbm", self.at.weights, slices, total), ("b_vmem", walk.first, walk.piece, walk.ring)
        ):  # fmt: skip
            if only_if_nonzero and not first:
                self.e.reserve(name)
            else:
                self.e.pointer(name, first, dict.fromkeys((KAB, KB), step), ring=ring, where=where)

    def _activation_loads(self) -> None:
        """LD's pointers to activations."""
        plan, walk, where = self.plan, self.memory.activations, self.where
        layout = plan.activations((plan.m, plan.k))
        slices = layout.piece_slices
        steps = dict.fromkeys((KAB, KA), slices)
        if plan.mode == "blocked":
            steps |= {NT: -plan.pieces.count * slices, MB: plan.pieces.count * slices}
        self.e.pointer("a_hbm", self.at.activations, steps, ring=layout.slices, where=where)
        self.e.pointer("a_vmem", walk.first, dict.fromkeys((KAB, KA), walk.piece), ring=walk.ring, where=where)

    def _pointers(self) -> None:
        e, plan, memory, where = self.e, self.plan, self.memory, self.where
        a, b, out = memory.activations, memory.weights, memory.results
        back = {MB: -plan.strips.count * plan.steps * b.step} if plan.mode == "resident" else {}
        e.pointer("lw", b.first, {KT: b.step} | back, ring=b.ring, where=where)
        steps = {KT: a.step}
        if plan.mode != "blocked":
            steps |= {NT: -plan.steps * a.step, MB: plan.steps * a.step}
        e.pointer("pulse", a.first, steps, ring=a.ring, where=where)
        region = self.config.acc_region_rows
        # Region by region; with more groups one place further each time around.
        ring = 2 * region - (plan.block if plan.groups > 2 else 0)
        e.pointer("acc", 0, {NT: region}, ring=ring, where=where)
        e.pointer("result", out.first, {NT: out.step}, ring=out.ring, where=where)
        e.pointer("store", self.at.results, {NT: plan.results.panel_slices}, ring=plan.results.slices + 1, where=where)
        if plan.params:
            p, total = memory.parameters, plan.param_slices
            e.pointer("params", p.first, {NT: p.step}, ring=p.ring, where=where)
            if plan.mode == "blocked":
                ring = total * plan.strips.count
                e.pointer("params_hbm", self.at.parameters, {NT: total}, ring=ring, where=where)
            else:
                e.pointer("params_hbm", self.at.parameters, where=where)

    # -- one group -----------------------------------------------------------------------------------------------
    def _setup_group(self, group: Group) -> None:
        e, plan, mode = self.e, self.plan, self.path.mode
        cols, size = group.cols, group.cols * plan.out_bytes
        e.setup(Op.FEED_SHAPE, n0=group.rows, n1=1, n2=1, s0=self.config.rows, segments=1)
        e.setup(Op.VECTOR_SHAPE, n0=1, n1=1, n2=group.rows, n3=1, s2=1, d2=size)
        e.setup(Op.VECTOR_MODE, cols=cols, **mode)
        e.setup(Op.DMA_SHAPE, unit=1, row_bytes=group.rows * size, rows=1)

    def _read(self, what: str, *, main: bool, rows: int = 0, **tokens: object) -> None:
        """Load one piece of activations (of a block whose transfers bring ``rows``) or weights."""
        plan, e = self.plan, self.e
        tiles = plan.piece if main else plan.tail_count
        tile, walk, pitch = plan.tile_bytes, self.memory.weights, plan.tile_bytes
        if what == "a":
            tile, walk, pitch = rows * self.config.rows, self.memory.activations, plan.panel_bytes
        pitch = walk.pitch or pitch
        if pitch == tile:
            e.setup(Op.DMA_SHAPE, unit=0, row_bytes=tiles * tile, rows=1)
        else:
            e.setup(Op.DMA_SHAPE, unit=0, row_bytes=tile, rows=tiles, pitch=pitch)
        count = ceil_div(tiles * tile, self.config.slice_bytes)
        if count >= 1 << 16:
            raise CompileError(f"{self.where}: a transfer of {count} slices; a train has at most 65535")
        e.op(Op.HBM_READ_SLICE, hbm=e[f"{what}_hbm"], vmem=e[f"{what}_vmem"], count=count, **tokens)

    def _group(self, group: Group) -> None:
        e, plan = self.e, self.plan
        if plan.mode == "blocked" and plan.params:
            size = self.config.param_bytes
            e.setup(Op.DMA_SHAPE, unit=0, row_bytes=size, rows=1)
            e.op(
                Op.HBM_READ_SLICE,
                hbm=e["params_hbm"],
                vmem=e["params"],
                count=plan.param_slices,
                wait="vpu",
                signal="vpu",
            )
        for index, part in enumerate(group.parts):
            self._part(group, part, first=index == 0, last=index == len(group.parts) - 1)
        if group.first and plan.params:
            size = plan.strips.count * self.config.param_bytes
            e.setup(Op.DMA_SHAPE, unit=0, row_bytes=size, rows=1)
            e.op(Op.HBM_READ_SLICE, hbm=e["params_hbm"], vmem=e["params"], count=plan.param_slices, signal="vpu")
        self._late_loads(group)
        skip = plan.steps - plan.k_tiles.count
        if skip:
            with e.loop(KT, skip, sets=()):
                pass
        if plan.params:
            if plan.mode == "blocked":
                e.op(Op.LOAD_PARAMS, vmem=e["params"], wait="ld", signal="ld")
            else:
                e.op(Op.LOAD_PARAMS, vmem=e["params"], wait="ld" if group.first else "")
        signal = ["mxu", "st"] + (["ld"] if group.frees_slot else [])
        e.op(Op.VECTOR, src=e["acc"], dst=e["result"], wait=["mxu", "st"], signal=signal)
        count = ceil_div(group.rows * group.cols * plan.out_bytes, self.config.slice_bytes)
        e.op(Op.HBM_WRITE_SLICE, hbm=e["store"], vmem=e["result"], count=count, wait="vpu", signal="vpu")

    def _late_loads(self, group: Group) -> None:
        """Load the next block behind the tiles, where there was no room between them."""
        rows = self.plan.filled[-1]
        for main, times in ((True, group.late[0]), (False, int(group.late[1]))):
            if times:
                with self.e.loop(KA, times, sets=_LOADS):
                    self._read("a", main=main, rows=rows)

    def _part(self, group: Group, part: Part, *, first: bool, last: bool) -> None:
        if part.level is None:
            self._tiles(group, part, (), first=first, last=last)
            return
        ahead = [p for p in group.parts if p.prefetches]
        with self.e.loop(part.level, part.times, sets=_LOADS):
            for what, main in part.loads:
                if what == "n":
                    wait = {"vpu": (part.level,)} if group.takes_slot and part is ahead[0] else {}
                    signal = {"mxu": (part.level,)} if group.ready and part is ahead[-1] else {}
                    self._read("a", main=main, rows=self.plan.filled[-1], wait=wait, signal=signal)
                else:
                    wait = {} if what == "a" or self.plan.mode == "resident" else {"mxu": ()}
                    self._read(what, main=main, rows=group.rows, wait=wait, signal="mxu")
            self._tiles(group, part, (part.level,), first=first, last=last)

    def _tiles(self, group: Group, part: Part, outer: tuple[int, ...], *, first: bool, last: bool) -> None:
        """The loop over K tiles: whole ones, then the smaller one."""
        e, plan = self.e, self.plan
        runs = [(n, k) for n, k in ((part.tiles, self.config.rows), (1, part.rest)) if n and k]
        for index, (times, k) in enumerate(runs):
            opens, closes = index == 0, index == len(runs) - 1
            begins = first and opens  # the group's first tiles, in the first iterations of ``levels``
            levels = (*outer, KT)
            with e.loop(KT, times, sets=()):
                # A piece's tokens are taken with its first tile, and given with its last; here each may be a piece.
                each = () if self.plan.piece == 1 else (KT,)
                piece_wait = {"ld": each} if opens else {}
                frees_b = plan.mode == "streamed" and closes
                e.op(
                    Op.LOAD_WEIGHTS, vmem=e["lw"], pitch=self.config.cols, k=k, n=group.cols,
                    wait=piece_wait if part.waits_b else {}, signal={"ld": each} if frees_b else {},
                )  # fmt: skip
                wait: dict[str, tuple[int, ...]] = {}
                signal: dict[str, tuple[int, ...]] = {}
                if part.waits_a:
                    wait |= piece_wait
                elif begins and group.takes_block:
                    wait["ld"] = levels
                if begins:
                    wait["vpu"] = levels
                if last and closes:
                    signal["vpu"] = levels
                if plan.mode == "blocked" and closes:
                    signal["ld"] = each
                e.op(
                    Op.PULSE_ARRAY, vmem=e["pulse"], acc=e["acc"], swap=1,
                    acc_mode=AccMode.FIRST if begins else AccMode.ACCUMULATE,
                    acc_first=e.levels(*levels) if begins else 0,
                    wait=wait, signal=signal,
                )  # fmt: skip
