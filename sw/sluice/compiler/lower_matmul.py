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

from collections.abc import Iterator
from dataclasses import dataclass

from sluice_hw.isa import AccMode, Op

from .emit import Emitter
from .errors import CompileError
from .place import VmemMap
from .plan_matmul import MatmulPlan
from .tiles import ceil_div
from .vector_mode import OutputPath

__all__ = ["MatmulAddresses", "emit_matmul"]

MB, NT, KAB, KA, KB, KT = range(6)


@dataclass(frozen=True)
class MatmulAddresses:
    """First slices in HBM of the operands, the parameters and the result."""

    activations: int
    weights: int
    parameters: int
    results: int


def emit_matmul(e: Emitter, plan: MatmulPlan, path: OutputPath, at: MatmulAddresses, where: str) -> VmemMap:
    """Write the program of a plan (all but HALT) and return its memory map."""
    memory = plan.vmem()
    _Matmul(e, plan, path, at, memory, where).run()
    return memory


@dataclass(frozen=True)
class _Part:
    """K tiles of a group that run in one hardware loop nest.

    ``load`` is the loop level of its transfers (None: none of its own), ``times`` the iterations of that level,
    ``tiles``
    whole tiles per iteration, ``rest`` rows of a smaller tile behind them.
    """

    load: int | None
    times: int
    tiles: int
    rest: int
    waits_a: bool = False
    waits_b: bool = False
    tail: bool = False


@dataclass(frozen=True)
class _Group:
    """What the groups of a run of strips have in common."""

    rows: int
    cols: int
    parts: tuple[_Part, ...]
    prefetch: tuple[int, bool] = (0, False)
    """Main pieces, and whether the tail piece, of the next block's activations that are loaded before the tiles."""
    frees_slot: bool = False
    """The prefetch begins by waiting for the slot."""
    ready: bool = False
    """The prefetch ends the block and gives its token."""
    takes_block: bool = False
    """The first PULSE_ARRAY waits for the block."""
    frees_block: bool = False
    params_first: bool = False


class _Matmul:
    def __init__(
        self, e: Emitter, plan: MatmulPlan, path: OutputPath, at: MatmulAddresses, memory: VmemMap, where: str
    ) -> None:
        self.e, self.plan, self.path, self.at, self.memory, self.where = e, plan, path, at, memory, where
        self.config = plan.config

    # -- whole program -------------------------------------------------------------------------------------------
    def run(self) -> None:
        e, plan = self.e, self.plan
        e.note(plan.describe())
        early = plan.mode != "blocked"
        self._load_pointers(("b", "a"))
        if early:
            # The first piece before anything else, so that its latency hides the rest of the set-up.
            with e.loop(KAB, 1):
                self._read("b", main=plan.main_pieces > 0, signal="mxu")
                self._read("a", main=plan.main_pieces > 0, signal="mxu")
        self._pointers()
        for _ in range(2):
            e.sync("vpu", signal="mxu")
        for _ in range(plan.out_slots):
            e.sync("st", signal="vpu")
        if plan.mode == "streamed":
            for _ in range(plan.ring - 1):  # the first piece is under way
                e.sync("mxu", signal="ld")
        if plan.mode == "blocked":
            for _ in range(plan.ring):
                e.sync("mxu", signal="ld")
            if plan.params:
                for _ in range(2):
                    e.sync("vpu", signal="ld")
        e.setup(Op.FEED_SEGMENT, index=0, lo=0, hi=self.config.rows)
        for times, groups in self._blocks():
            with e.loop(MB, times):
                for strips, group in groups:
                    self._setup_group(group)
                    with e.loop(NT, strips):
                        self._group(group)
                if plan.mode == "resident" and plan.blocks.count > 1 and groups[0][1].parts[0].waits_b:
                    # All that the first block loaded is there: the token that later blocks get from their transfers.
                    e.sync("ld", signal="mxu")

    def _load_pointers(self, which: tuple[str, ...]) -> None:
        """LD's pointers into HBM and VMEM."""
        plan, at, where = self.plan, self.at, self.where
        pieces, strips, blocked = plan.pieces.count, plan.strips.count, plan.mode == "blocked"
        if "b" in which:
            step = plan.weights.piece_slices
            size = plan.piece * plan.tile_bytes
            both = dict.fromkeys((KAB, KB), step)
            total = strips * pieces * step
            self.e.pointer("b_hbm", at.weights, both, ring=total, where=where)
            both = dict.fromkeys((KAB, KB), size)
            self.e.pointer(
                "b_vmem", self.memory["weights"].address, both, ring=self.memory["weights"].size, where=where
            )
        if "a" in which:
            layout = plan.activations((plan.m, plan.k))
            step = layout.piece_slices
            size = plan.piece * plan.panel_bytes
            steps = dict.fromkeys((KAB, KA), step)
            if blocked:
                steps |= {NT: -pieces * step, MB: pieces * step}
            self.e.pointer("a_hbm", at.activations, steps, ring=layout.slices, where=where)
            buffer = self.memory["activations"]
            self.e.pointer("a_vmem", buffer.address, dict.fromkeys((KAB, KA), size), ring=buffer.size, where=where)

    def _pointers(self) -> None:
        e, plan, memory, where = self.e, self.plan, self.memory, self.where
        a, b, out = memory["activations"], memory["weights"], memory["results"]
        e.pointer("lw", b.address, {KT: plan.tile_bytes}, ring=b.size, where=where)
        steps = {KT: plan.panel_bytes}
        if plan.mode != "blocked":
            steps |= {NT: -plan.steps * plan.panel_bytes, MB: plan.steps * plan.panel_bytes}
        e.pointer("pulse", a.address, steps, ring=a.size, where=where)
        region = self.config.acc_region_rows
        e.pointer("acc", 0, {NT: region}, ring=2 * region, where=where)
        e.pointer("result", out.address, {NT: out.slot}, ring=out.size, where=where)
        e.pointer("store", self.at.results, {NT: plan.results.panel_slices}, ring=plan.results.slices + 1, where=where)
        if plan.params:
            block = memory["parameters"]
            step = block.slot if plan.mode == "blocked" else self.config.param_bytes
            e.pointer("params", block.address, {NT: step}, ring=block.size, where=where)
            total = plan.param_slices
            if plan.mode == "blocked":
                ring = total * plan.strips.count
                e.pointer("params_hbm", self.at.parameters, {NT: total}, ring=ring, where=where)
            else:
                e.pointer("params_hbm", self.at.parameters, where=where)

    # -- which groups there are ----------------------------------------------------------------------------------
    def _blocks(self) -> Iterator[tuple[int, list[tuple[int, _Group]]]]:
        """(iterations of MB, [(iterations of NT, group)])."""
        plan = self.plan
        if plan.mode == "blocked":
            for times, rows in plan.blocks.runs():
                yield times, self._strips(rows, [self._parts(KAB, a=True, b=True)] * plan.strips.count, [(0, False)])
            return
        count = plan.blocks.count
        sizes = [plan.blocks.size(i) for i in (0, count - 1)]
        yield 1, self._first_block(sizes[0])
        if count > 2:
            yield count - 2, self._later_block(plan.block, prefetch=True)
        if count > 1:
            yield 1, self._later_block(sizes[1], prefetch=False)

    def _first_block(self, rows: int) -> list[tuple[int, _Group]]:
        plan = self.plan
        strips = plan.strips.count
        main = plan.main_pieces
        parts: list[_Part] = []
        # The first piece has been asked for already.
        whole, rest = plan.tail_tiles
        if main:
            parts.append(_Part(None, 1, plan.piece, 0, True, True))
            if main > 1:
                parts.append(_Part(KAB, main - 1, plan.piece, 0, True, True))
            if plan.has_tail:
                parts.append(_Part(KAB, 1, whole, rest, True, True, tail=True))
        else:
            parts.append(_Part(None, 1, whole, rest, True, True, tail=True))
        others = self._parts(KB, a=False, b=True)
        share = self._share(strips - 1 or 1) if plan.blocks.count > 1 else []
        if strips > 1:
            share = [(0, False), *share]
        return self._strips(rows, [tuple(parts), *[others] * (strips - 1)], share, first=True)

    def _later_block(self, rows: int, prefetch: bool) -> list[tuple[int, _Group]]:
        strips = self.plan.strips.count
        resident = self.plan.mode == "resident"
        parts = self._parts(None, a=False, b=False) if resident else self._parts(KB, a=False, b=True)
        return self._strips(rows, [parts] * strips, self._share(strips) if prefetch else [], later=True)

    def _share(self, groups: int) -> list[tuple[int, bool]]:
        """Pieces of the next block that each of ``groups`` groups loads: (main pieces, whether the tail)."""
        plan = self.plan
        left, tail = plan.main_pieces, plan.has_tail
        each = ceil_div(plan.pieces.count, groups)
        out = []
        while left or tail:
            now = min(each, left)
            left -= now
            last = tail and not left and now < each
            tail = tail and not last
            out.append((now, last))
        return out

    def _parts(self, load: int | None, *, a: bool, b: bool) -> tuple[_Part, ...]:
        plan = self.plan
        whole, rest = plan.tail_tiles
        if load is None:
            return (_Part(None, 1, plan.k_tiles.full, plan.k_tiles.rest),)
        parts = []
        if plan.main_pieces:
            parts.append(_Part(load, plan.main_pieces, plan.piece, 0, a, b))
        if plan.has_tail:
            parts.append(_Part(load, 1, whole, rest, a, b, tail=True))
        return tuple(parts)

    def _strips(
        self,
        rows: int,
        parts: list[tuple[_Part, ...]],
        share: list[tuple[int, bool]],
        first: bool = False,
        later: bool = False,
    ) -> list[tuple[int, _Group]]:
        """Runs of equal groups."""
        plan = self.plan
        count = plan.strips.count
        share = share + [(0, False)] * (count - len(share))
        resident = plan.mode == "resident"
        ends = max((i for i, s in enumerate(share) if s[0] or s[1]), default=-1)
        groups = [
            _Group(
                rows, plan.strips.size(i), parts[i], share[i],
                frees_slot=later and i == 0 and ends >= 0,
                ready=later and resident and i == ends,
                takes_block=later and resident and i == 0,
                frees_block=plan.mode != "blocked" and plan.blocks.count > 2 and i == count - 1,
                params_first=first and i == 0,
            )
            for i in range(count)
        ]  # fmt: skip
        runs: list[tuple[int, _Group]] = []
        for group in groups:
            if runs and runs[-1][1] == group:
                runs[-1] = (runs[-1][0] + 1, group)
            else:
                runs.append((1, group))
        return runs

    # -- one group -----------------------------------------------------------------------------------------------
    def _setup_group(self, group: _Group) -> None:
        e, plan, mode = self.e, self.plan, self.path.mode
        cols, size = group.cols, group.cols * plan.out_bytes
        e.setup(Op.FEED_SHAPE, n0=group.rows, n1=1, n2=1, s0=self.config.rows, segments=1)
        e.setup(Op.VECTOR_SHAPE, n0=1, n1=1, n2=group.rows, n3=1, s2=1, d2=size)
        e.setup(Op.VECTOR_MODE, cols=cols, **mode)
        e.setup(Op.DMA_SHAPE, unit=1, row_bytes=group.rows * size, rows=1)

    def _read(self, what: str, *, main: bool, **tokens: object) -> None:
        """Load one piece of activations or weights."""
        plan, e = self.plan, self.e
        tiles = plan.piece if main else plan.tail_count
        size = tiles * (plan.panel_bytes if what == "a" else plan.tile_bytes)
        e.setup(Op.DMA_SHAPE, unit=0, row_bytes=size, rows=1)
        count = ceil_div(size, self.config.slice_bytes)
        if count >= 1 << 16:
            raise CompileError(f"{self.where}: a transfer of {count} slices; a train has at most 65535")
        e.op(Op.HBM_READ_SLICE, hbm=e[f"{what}_hbm"], vmem=e[f"{what}_vmem"], count=count, **tokens)

    def _group(self, group: _Group) -> None:
        e, plan = self.e, self.plan
        self._prefetch(group)
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
        if group.params_first and plan.blocks.count > 1 and plan.strips.count == 1:
            self._prefetch(group, late=True)
        if group.params_first and plan.params:
            size = plan.strips.count * self.config.param_bytes
            e.setup(Op.DMA_SHAPE, unit=0, row_bytes=size, rows=1)
            e.op(Op.HBM_READ_SLICE, hbm=e["params_hbm"], vmem=e["params"], count=plan.param_slices, signal="vpu")
        skip = plan.steps - plan.k_tiles.count
        if skip:
            with e.loop(KT, skip):
                pass
        if plan.params:
            if plan.mode == "blocked":
                e.op(Op.LOAD_PARAMS, vmem=e["params"], wait="ld", signal="ld")
            else:
                e.op(Op.LOAD_PARAMS, vmem=e["params"], wait="ld" if group.params_first else "")
        signal = ["mxu", "st"] + (["ld"] if group.frees_block else [])
        e.op(Op.VECTOR, src=e["acc"], dst=e["result"], wait=["mxu", "st"], signal=signal)
        count = ceil_div(group.rows * group.cols * plan.out_bytes, self.config.slice_bytes)
        e.op(Op.HBM_WRITE_SLICE, hbm=e["store"], vmem=e["result"], count=count, wait="vpu", signal="vpu")

    def _prefetch(self, group: _Group, late: bool = False) -> None:
        """Load the group's share of the next block."""
        e = self.e
        main, tail = group.prefetch
        alone = group.params_first and self.plan.strips.count == 1
        if alone != late:
            return
        waits = group.frees_slot
        ready = group.ready
        if main:
            with e.loop(KA, main):
                wait = {"vpu": (KA,)} if waits else {}
                self._read("a", main=True, wait=wait, signal={"mxu": (KA,)} if ready and not tail else {})
        if tail:
            with e.loop(KA, 1):
                wait = "vpu" if waits and not main else ""
                self._read("a", main=False, wait=wait, signal="mxu" if ready else "")

    def _part(self, group: _Group, part: _Part, *, first: bool, last: bool) -> None:
        e = self.e
        if part.load is None:
            self._tiles(group, part, (), first=first, last=last)
            return
        with e.loop(part.load, part.times):
            if part.waits_b:
                wait = "" if self.plan.mode == "resident" else "mxu"
                self._read("b", main=not part.tail, signal="mxu", wait=wait)
            if part.waits_a:
                self._read("a", main=not part.tail, signal="mxu")
            self._tiles(group, part, (part.load,), first=first, last=last)

    def _tiles(self, group: _Group, part: _Part, outer: tuple[int, ...], *, first: bool, last: bool) -> None:
        """The loop over K tiles: whole ones, then the smaller one."""
        e, plan = self.e, self.plan
        runs = [(n, k) for n, k in ((part.tiles, self.config.rows), (1, part.rest)) if n and k]
        for index, (times, k) in enumerate(runs):
            opens, closes = index == 0, index == len(runs) - 1
            begins = first and opens  # the group's first tiles, in the first iterations of ``levels``
            levels = (*outer, KT)
            with e.loop(KT, times):
                # A piece's tokens are taken with its first tile, and given with its last.
                piece_wait = {"ld": (KT,)} if opens else {}
                frees_b = plan.mode == "streamed" and closes
                e.op(
                    Op.LOAD_WEIGHTS, vmem=e["lw"], pitch=self.config.cols, k=k, n=group.cols,
                    wait=piece_wait if part.waits_b else {}, signal={"ld": (KT,)} if frees_b else {},
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
                    signal["ld"] = (KT,)
                e.op(
                    Op.PULSE_ARRAY, vmem=e["pulse"], acc=e["acc"], swap=1,
                    acc_mode=AccMode.FIRST if begins else AccMode.ACCUMULATE,
                    acc_first=e.levels(*levels) if begins else 0,
                    wait=wait, signal=signal,
                )  # fmt: skip
