"""Happens-before check of a program: every two accesses to one place, of which one writes, must be ordered.

Random schedules of the golden machine find a missing token when it happens to matter; this finds it always. Counters
match the k-th token given with the k-th taken. Which op waits for which then does not depend on the schedule as long as
a token that may be given out of order says at least as much as the one it overtakes, which is checked as well.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sluice.asm import Program
from sluice.asm.pass_mode import needed_streams
from sluice.golden.memory import walk_addresses
from sluice.golden.sequencer import Sequencer
from sluice.golden.units import MicroOp
from sluice_hw.config import ChipConfig
from sluice_hw.isa import PARAM_REGISTERS, Format, Op, Source, Stream, Unit

__all__ = ["Race", "accesses", "find_races", "setup_key", "setup_value", "trace"]

#: Clocks: ops of each kind end in order. A PULSE_ARRAY has two, for its reads of VMEM and for its sums.
KINDS = ("read", "write_read", "write", "weights", "fed", "sums", "params", "vector")


@dataclass(frozen=True)
class Race:
    """Two accesses in no order."""

    memory: str
    address: int
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.memory}[{self.address:#x}]: {self.first} and {self.second}"


class _Queue:
    """Takes everything at once."""

    depth = 1 << 62
    idle = True

    def __init__(self, log: list[MicroOp]) -> None:
        self.queue = _Log(log)


class _Log:
    def __init__(self, log: list[MicroOp]) -> None:
        self.append = log.append

    def __len__(self) -> int:
        return 0


def trace(
    program: Program, config: ChipConfig, params: Sequence[int] = (), entry: int = 0
) -> list[tuple[Unit, MicroOp]]:
    """Micro-ops in program order."""
    out: list[tuple[Unit, MicroOp]] = []
    logs: dict[Unit, list[MicroOp]] = {u: [] for u in Unit}
    units = {u: _Queue(logs[u]) for u in Unit}
    registers = [*params, *[0] * (PARAM_REGISTERS - len(params))]
    sequencer = Sequencer(config, program.words, registers, units, entry)  # type: ignore[arg-type]
    counts = dict.fromkeys(Unit, 0)
    while sequencer.halt_code is None:
        assert sequencer.step()
        for u in Unit:
            if len(logs[u]) > counts[u]:
                out.append((u, logs[u][counts[u]]))
                counts[u] += 1
    return out


class _Places:
    """Who touched what last."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.writer = np.full(size, -1, np.int64)
        self.readers: dict[int, np.ndarray] = {}
        self.size = size


def find_races(
    program: Program, config: ChipConfig, limit: int = 5, params: Sequence[int] = (), entry: int = 0
) -> list[Race]:
    """Pairs of accesses that no token orders, at most ``limit``."""
    return _Checker(trace(program, config, params, entry), config, limit).run()


def setup_key(uop: MicroOp) -> tuple:
    """What a setup word sets."""
    return uop.op, uop.fields.get("unit"), uop.fields.get("index", uop.fields.get("stream"))


def setup_value(uop: MicroOp) -> Mapping[str, int]:
    """Its fields, with the address that it has taken for the register's number."""
    return {**uop.fields, **uop.address}


class _Checker:
    def __init__(self, ops: list[tuple[Unit, MicroOp]], config: ChipConfig, limit: int) -> None:
        self.config, self.limit, self.ops = config, limit, ops
        self.races: list[Race] = []
        self.memories = {
            "VMEM": _Places("VMEM", config.vmem_bytes),
            "ACC": _Places("ACC", config.acc_rows),
            "HBM": _Places("HBM", config.hbm_slices),
        }
        # Per access id: kind and number within it, and the op, for messages.
        self.kind_of: list[int] = []
        self.number_of: list[int] = []
        self.text_of: list[str] = []

    def run(self) -> list[Race]:
        starts = self._clocks()
        if self.races:
            return self.races[: self.limit]
        counts = dict.fromkeys(KINDS, 0)
        setup: dict[tuple, Mapping[str, int]] = {}
        for index, (unit, uop) in enumerate(self.ops):
            if "wait_ld" not in uop.fields:
                setup[setup_key(uop)] = setup_value(uop)
                continue
            for kind, memory, places, write in accesses(self.config, unit, uop, setup):
                self._access(memory, places, write, kind, counts[kind], starts[index], f"{uop.op.name} at {uop.pc}")
                if len(self.races) >= self.limit:
                    return self.races
            for kind in _kinds(uop.op):
                counts[kind] += 1
        return self.races

    # -- order ---------------------------------------------------------------------------------------------------
    def _clocks(self) -> list[np.ndarray]:
        """For every op, how many ops of each kind have surely ended when it starts."""
        queues: dict[Unit, deque[int]] = {u: deque() for u in Unit}
        for index, (unit, _) in enumerate(self.ops):
            queues[unit].append(index)
        starts: list[np.ndarray] = [np.zeros(len(KINDS), np.int64)] * len(self.ops)
        state = {u: np.zeros(len(KINDS), np.int64) for u in Unit}
        ended = {k: np.zeros(len(KINDS), np.int64) for k in KINDS}  # clock at the end of the last op of a kind
        counts = dict.fromkeys(KINDS, 0)
        tile = np.zeros(len(KINDS), np.int64)  # clock at the end of the LOAD_WEIGHTS whose tile is in use
        tokens: dict[tuple[Unit, Unit], deque[np.ndarray]] = defaultdict(deque)
        given: dict[tuple[Unit, Unit], tuple[np.ndarray, str]] = {}
        moved = True
        while moved:
            moved = False
            for unit in Unit:
                while queues[unit]:
                    index = queues[unit][0]
                    uop = self.ops[index][1]
                    if any(not tokens[u, unit] for u in uop.waits):
                        break
                    queues[unit].popleft()
                    moved = True
                    if "wait_ld" not in uop.fields:
                        continue
                    clock = state[unit].copy()
                    for u in uop.waits:
                        clock = np.maximum(clock, tokens[u, unit].popleft())
                    clock = self._implied(uop.op, clock, ended)
                    if uop.op is Op.PULSE_ARRAY:
                        if uop.swap:
                            tile = ended["weights"]
                        clock = np.maximum(clock, tile)
                    starts[index] = state[unit] = clock
                    end = clock
                    kinds = _kinds(uop.op)
                    if uop.op is Op.SYNC:
                        for kind in _unit_kinds(unit):
                            end = np.maximum(end, ended[kind])
                    for kind in kinds:
                        counts[kind] += 1
                        end = np.maximum(end, ended[kind])
                        end = end.copy()
                        end[KINDS.index(kind)] = counts[kind]
                        ended[kind] = end
                    for u in uop.signals:
                        before = given.get((unit, u))
                        if before is not None and (end < before[0]).any():
                            # A load of weights may end before a pass that began before it.
                            self.races.append(Race(f"tokens {unit.name} to {u.name}", 0, before[1],
                                                   f"{uop.op.name} at {uop.pc}, which may end first"))  # fmt: skip
                        given[unit, u] = end, f"{uop.op.name} at {uop.pc}"
                        tokens[unit, u].append(end)
        left = [self.ops[q[0]] for q in queues.values() if q]
        assert not left, f"deadlock: {[(u.name, o.op.name, o.pc) for u, o in left]}"
        return starts

    @staticmethod
    def _implied(op: Op, clock: np.ndarray, ended: dict[str, np.ndarray]) -> np.ndarray:
        """What the unit itself waits for before an op starts."""
        before = {
            Op.HBM_WRITE_SLICE: ("write_read",), Op.LOAD_WEIGHTS: ("weights",), Op.PULSE_ARRAY: ("fed",),
            Op.VECTOR: ("vector", "params"), Op.LOAD_PARAMS: ("params",), Op.VECTOR_PASS: ("vector",),
            Op.TRANSPOSE: ("vector",),
        }.get(op, ())  # fmt: skip
        for kind in before:
            clock = np.maximum(clock, ended[kind])
        return clock

    def _access(
        self, memory: str, places: np.ndarray, write: bool, kind: str, number: int, start: np.ndarray, text: str
    ) -> None:
        m = self.memories[memory]
        me = len(self.kind_of)
        self.kind_of.append(KINDS.index(kind))
        self.number_of.append(number)
        self.text_of.append(text)
        places = places[places < m.size]
        self._check(m, places, m.writer[places], start, kind, text)
        if write:
            for readers in m.readers.values():
                self._check(m, places, readers[places], start, kind, text)
            m.writer[places] = me
        else:
            readers = m.readers.setdefault(KINDS.index(kind), np.full(m.size, -1, np.int64))
            readers[places] = me

    def _check(
        self, m: _Places, places: np.ndarray, others: np.ndarray, start: np.ndarray, kind: str, text: str
    ) -> None:
        for other in np.unique(others[others >= 0]).tolist():
            before = self.kind_of[other]
            # Ops of a kind reach a memory in order; sums go through one pipeline.
            if KINDS[before] == kind or start[before] > self.number_of[other]:
                continue
            at = int(places[others == other][0])
            self.races.append(Race(m.name, at, self.text_of[other], text))


def accesses(
    config: ChipConfig, unit: Unit, uop: MicroOp, setup: Mapping[tuple, Mapping[str, int]]
) -> list[tuple[str, str, np.ndarray, bool]]:
    """What an op touches, given the setup words in force by :func:`setup_key`.

    Returns
    -------
    list
        Kind (:data:`KINDS`), memory, places (VMEM bytes, accumulator rows, HBM slices), whether it writes them.
    """
    f, a = uop.fields, uop.address
    if uop.op in (Op.HBM_READ_SLICE, Op.HBM_WRITE_SLICE):
        shape = setup[Op.DMA_SHAPE, int(unit), None]
        vmem = _bytes(a["vmem"], (shape["rows"],), (shape["pitch"],), shape["row_bytes"])
        hbm = np.arange(a["hbm"], a["hbm"] + f["count"])
        if unit is Unit.LD:
            return [("read", "HBM", hbm, False), ("read", "VMEM", vmem, True)]
        return [("write_read", "VMEM", vmem, False), ("write", "HBM", hbm, True)]
    if uop.op is Op.LOAD_WEIGHTS and f["transpose"]:
        return [("weights", "VMEM", _bytes(a["vmem"], (f["n"] // 2,), (f["pitch"],), 2 * f["k"]), False)]
    if uop.op is Op.LOAD_WEIGHTS:
        return [("weights", "VMEM", _bytes(a["vmem"], (f["k"],), (f["pitch"],), f["n"]), False)]
    if uop.op is Op.PULSE_ARRAY:
        shape = setup[Op.FEED_SHAPE, None, None]
        rows = shape["n0"] * shape["n1"] * shape["n2"]
        acc = np.arange(a["acc"], a["acc"] + rows)
        return [("fed", "VMEM", _fed(a["vmem"], shape, setup), False), ("sums", "ACC", acc, True)]
    if uop.op is Op.LOAD_PARAMS:
        return [("params", "VMEM", np.arange(a["vmem"], a["vmem"] + config.param_bytes), False)]
    if uop.op is Op.VECTOR:
        shape, mode = setup[Op.VECTOR_SHAPE, None, None], setup[Op.VECTOR_MODE, None, None]
        counts = tuple(shape[n] for n in ("n3", "n2", "n1", "n0"))
        strides = tuple(shape[s] for s in ("s3", "s2", "s1", "s0"))
        out = []
        if mode["source"] == Source.ACC:
            out.append(("vector", "ACC", np.unique(walk_addresses(a["src"], counts, strides)), False))
        else:
            out.append(("vector", "VMEM", _bytes(a["src"], counts, strides, mode["cols"]), False))
        if mode["residual"]:
            residual = setup[Op.VECTOR_RESIDUAL, None, None]
            steps = (residual["r3"], residual["r2"])
            out.append(("vector", "VMEM", _bytes(a["res"], counts[:2], steps, mode["cols"]), False))
        width = mode["cols"] * (4 if mode["wide"] else 1)
        out.append(("vector", "VMEM", _bytes(a["dst"], counts[:2], (mode["d3"], shape["d2"]), width), True))
        return out
    if uop.op is Op.VECTOR_PASS:
        return _passed(config, setup)
    if uop.op is Op.TRANSPOSE:
        return [
            ("vector", "VMEM", _bytes(a["src"], (f["k"],), (f["src_pitch"],), 2 * f["n"]), False),
            ("vector", "VMEM", _bytes(a["dst"], (f["n"],), (f["dst_pitch"],), 2 * f["k"]), True),
        ]
    return []


def _passed(
    config: ChipConfig, setup: Mapping[tuple, Mapping[str, int]]
) -> list[tuple[str, str, np.ndarray, bool]]:  # fmt: skip
    """What a VECTOR_PASS touches: reads before writes, because it may write in place."""
    shape, mode = setup[Op.PASS_SHAPE, None, None], setup[Op.PASS_MODE, None, None]
    rows, blocks, out = shape["rows"], shape["blocks"], []
    for stream in needed_streams(mode):
        s, write = setup[Op.PASS_STREAM, None, stream], stream in (Stream.RESULT, Stream.REDUCED)
        steps = (s["row_step"], s["block_step"])
        if stream in (Stream.COLUMN, Stream.REDUCED):
            places = np.arange(s["addr"], s["addr"] + -(-rows // config.cols))
        elif s["memory"] == Source.ACC:
            places = np.unique(walk_addresses(s["addr"], (rows, blocks), steps))
        else:
            size = Format(s["format"]).size
            last = s["addr"] + (blocks - 1) * s["block_step"]
            places = np.union1d(_bytes(s["addr"], (rows, blocks - 1), steps, size * config.cols),
                                _bytes(last, (rows,), steps[:1], size * shape["tail"]))  # fmt: skip
        values = stream in (Stream.COLUMN, Stream.REDUCED) or s["memory"] == Source.ACC
        out.append(("vector", "ACC" if values else "VMEM", places, write))
    return sorted(out, key=lambda access: access[3])


def _fed(base: int, shape: Mapping[str, int], setup: Mapping[tuple, Mapping[str, int]]) -> np.ndarray:
    counts = (shape["n2"], shape["n1"], shape["n0"])
    steps = (shape["s2"], shape["s1"], shape["s0"])
    out = []
    for index in range(shape["segments"]):
        s = setup[Op.FEED_SEGMENT, None, index]
        width = s["hi"] - s["lo"]
        at = walk_addresses(base + s["offset"], (*counts, width), (*steps, 1))
        if shape["pad"]:
            x = s["x"] + np.arange(counts[2])[:, None] * shape["x_step"] + np.arange(width)
            y = s["y"] + np.arange(counts[1]) * shape["y_step"]
            inside = ((y >= 0) & (y < shape["height"]))[:, None, None] & ((x >= 0) & (x < shape["line_bytes"]))
            at = at[np.broadcast_to(inside, at.shape)]
        out.append(at.reshape(-1))
    return np.unique(np.concatenate(out))


def _kinds(op: Op) -> tuple[str, ...]:
    return {
        Op.HBM_READ_SLICE: ("read",), Op.HBM_WRITE_SLICE: ("write_read", "write"), Op.LOAD_WEIGHTS: ("weights",),
        Op.PULSE_ARRAY: ("fed", "sums"), Op.LOAD_PARAMS: ("params",), Op.VECTOR: ("vector",),
        Op.VECTOR_PASS: ("vector",), Op.TRANSPOSE: ("vector",),
    }.get(op, ())  # fmt: skip


def _unit_kinds(unit: Unit) -> tuple[str, ...]:
    return {
        Unit.LD: ("read",), Unit.ST: ("write_read", "write"), Unit.MXU: ("weights", "fed", "sums"),
        Unit.VPU: ("params", "vector"),
    }[unit]  # fmt: skip


def _bytes(base: int, counts: tuple[int, ...], strides: tuple[int, ...], width: int) -> np.ndarray:
    return np.unique(walk_addresses(base, (*counts, width), (*strides, 1)))
