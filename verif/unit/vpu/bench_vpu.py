"""Bench of the vector unit: random VECTORs against golden's arithmetic, with memories that refuse at random."""

import random
from collections import deque

import cocotb
import numpy as np
from cocotb.triggers import ReadOnly, RisingEdge

from sluice.golden import vector
from sluice_hw import isa
from sluice_hw.interfaces import ACC_LATENCY, VMEM_LATENCY, op_layout
from sluice_hw.isa import Error, Op, Reduce, Requant, Residual, Source, Unit
from verif.transactors import StreamDriver, parameter, seeded, start_up
from verif.unit.vpu.configs import CONFIGS

CONFIG = CONFIGS[parameter("CONFIG")]
W, C, SIZE = CONFIG.word_bytes, CONFIG.cols, CONFIG.vmem_bytes


class Bench:
    """Plays VMEM, accumulators and tokens, and feeds ops."""

    def __init__(self, dut, rng: random.Random, *, refuse: float) -> None:
        self.dut, self.rng, self.refuse = dut, rng, refuse
        noise = np.random.default_rng(rng.getrandbits(32))
        self.vmem = noise.integers(0, 256, SIZE, np.uint8)
        self.acc = noise.integers(-(1 << 31), 1 << 31, (CONFIG.acc_rows, C)).astype(np.int32)
        self.acc[::2] >>= 16
        self.given: list[int] = []
        self.finished: list[int] = []
        self.faults: list[tuple[int, int, int]] = []
        self.states: list[int] = []
        self.rows = 0
        self.ops = StreamDriver(dut, "unit__op", shape=op_layout())
        self.pc = 0
        cocotb.start_soon(self._memories())

    async def op(self, op: Op, fields: dict[str, int], a=0, b=0, c=0, signal=0, wait=0) -> None:
        self.pc += 1
        await self.ops.send({
            "word": isa.encode(op, CONFIG, fields), "a": a, "b": b, "c": c, "wait": wait, "signal": signal,
            "accumulate": 0, "swap": 0, "pc": self.pc,
        })

    async def _memories(self) -> None:
        dut = self.dut
        ports = {
            "source": (VMEM_LATENCY, "addr"), "residual": (VMEM_LATENCY, "addr"), "params": (VMEM_LATENCY, "addr"),
            "acc": (ACC_LATENCY, "row"),
        }
        pipes = {name: deque([None] * (latency - 1)) for name, (latency, _) in ports.items()}
        while True:
            for name in (*ports, "result"):
                getattr(dut, f"{name}__req__ready").value = int(self.rng.random() >= self.refuse)
            dut.unit__take__ready.value = int(self.rng.random() >= self.refuse)
            missing = self.rng.choice([isa.Unit.LD, isa.Unit.ST, isa.Unit.MXU])
            dut.unit__missing.value = 1 << missing
            await ReadOnly()
            state = isa.Cause(int(dut.unit__state.value))
            assert not state.name.startswith("TOKEN_") or state.name == f"TOKEN_{missing.name}", (state, missing)
            responses = {}
            for name in ports:
                req = None
                if int(getattr(dut, f"{name}__req__valid").value) and int(getattr(dut, f"{name}__req__ready").value):
                    req = int(getattr(dut, f"{name}__req__payload").value)
                pipes[name].append(req)
                responses[name] = pipes[name].popleft()
            write = None
            if int(dut.result__req__valid.value) and int(dut.result__req__ready.value):
                write = int(dut.result__req__payload.value)
            if int(dut.unit__give.value):
                self.given.append(int(dut.unit__give.value))
            if int(dut.unit__finished.value):
                self.finished.append(int(dut.unit__finished_pc.value))
            if int(dut.unit__fault_valid.value):
                fault = int(dut.unit__fault.value)
                self.faults.append((fault & 0xF, fault >> 4 & 0xFFFF, fault >> 20))
            self.states.append(int(dut.unit__state.value))
            self.rows += int(dut.vector_rows.value)
            await RisingEdge(dut.clk)
            for name, req in responses.items():
                getattr(dut, f"{name}__rsp_valid").value = int(req is not None)
                if req is None:
                    continue
                if name == "acc":
                    assert req < CONFIG.acc_rows, f"accumulator row {req}"
                    data = self.acc[req].tobytes()
                else:
                    assert req < SIZE, f"{name} address {req}"
                    data = self.vmem[req:req + W].tobytes().ljust(W, b"\0")
                getattr(dut, f"{name}__rsp_data").value = int.from_bytes(data, "little")
            if write is not None:
                addr, mask = write & 0xFFFFFFFF, write >> (32 + 8 * W)
                for i in range(W):
                    if mask >> i & 1:
                        self.vmem[addr + i] = write >> (32 + 8 * i) & 0xFF


def encode_fields(op: Op, values: dict[str, int]) -> dict[str, int]:
    return {f.name: values[f.name] for f in isa.OPS[op].fields if f.name in values}


async def start(dut, *, refuse: float, stream: str) -> Bench:
    rng = seeded(stream)
    await start_up(dut)
    return Bench(dut, rng, refuse=refuse)


def random_case(rng: random.Random) -> dict[str, int]:
    """Fields of the three setup words, and the addresses of a VECTOR, all inside the memories."""
    v: dict[str, int] = {}
    v["source"] = rng.choice([Source.ACC, Source.VMEM])
    v["reduce"] = rng.choice([Reduce.NONE, Reduce.NONE, Reduce.SUM, Reduce.MAX])
    v["cols"] = rng.randint(1, C)
    v["wide"] = int(rng.random() < 0.3)
    v["n0"], v["n1"] = (1, 1) if v["reduce"] == Reduce.NONE else (rng.randint(1, 3), rng.randint(1, 3))
    v["n2"], v["n3"] = rng.randint(1, 5), rng.randint(1, 3)
    v["bias"], v["per_channel"] = int(rng.random() < 0.5), int(rng.random() < 0.5)
    v["relu"] = int(rng.random() < 0.5)
    v["requant"] = rng.choice(list(Requant))
    scale = np.float32(2.0 ** rng.uniform(-24, -2) * rng.choice([1, 1, 1, -1]))
    v["multiplier"] = int(scale.view(np.uint32)) if v["requant"] == Requant.FLOAT else rng.getrandbits(32)
    v["shift"] = rng.randint(1, 62)
    for name in ("source_zero_point", "zero_point", "zero_point2", "zero_point_out"):
        v[name] = rng.randint(-128, 127)
    v["lo"] = rng.randint(-128, 127)
    v["hi"] = rng.randint(v["lo"], 127)
    v["residual"] = rng.choice(list(Residual))  # without meaning for int32 rows, and without harm
    for name in ("m1", "m2", "mo"):
        if v["residual"] == Residual.FLOAT:
            v[name] = int(np.float32(rng.uniform(-2, 2)).view(np.uint32))
        else:
            v[name] = rng.getrandbits(31) | 1 << 30
    v["shift1"], v["shift2"], v["shifto"] = rng.randint(30, 40), rng.randint(30, 40), rng.randint(45, 55)
    return v


def walk(counts, steps):
    """Offsets of a nested walk, innermost first in the arguments."""
    grid = np.zeros(tuple(reversed(counts)), np.int64)
    for axis, (n, s) in enumerate(zip(reversed(counts), reversed(steps), strict=True)):
        shape = [1] * len(counts)
        shape[axis] = n
        grid = grid + (np.arange(n) * s).reshape(shape)
    return grid


def expect(bench: Bench, v: dict[str, int], params, src: int, res: int, dst: int) -> np.ndarray:
    """VMEM after the VECTOR."""
    out = bench.vmem.copy()
    cols = v["cols"]
    at = src + walk([v["n0"], v["n1"], v["n2"], v["n3"]], [v["s0"], v["s1"], v["s2"], v["s3"]])
    if v["source"] == Source.ACC:
        rows = bench.acc[at][..., :cols].astype(np.int64)
    else:
        rows = bench.vmem.view(np.int8)[at[..., None] + np.arange(cols)].astype(np.int64) - v["source_zero_point"]
    rows = rows.reshape(v["n3"], v["n2"], v["n1"], v["n0"], cols)
    x = vector.widen(vector.reduce_windows(rows, Reduce(v["reduce"])), v, params)
    to = dst + walk([v["n2"], v["n3"]], [v["d2"], v["d3"]])
    if v["wide"]:
        data = x.astype("<i4").view(np.uint8).reshape(v["n3"], v["n2"], 4 * cols)
    else:
        q2 = None
        if v["residual"] != Residual.NONE:
            r = res + walk([v["n2"], v["n3"]], [v["r2"], v["r3"]])
            q2 = bench.vmem.view(np.int8)[r[..., None] + np.arange(cols)]
        data = vector.narrow(x, v, params, q2, v).astype(np.int8).view(np.uint8)
    out[to[..., None] + np.arange(data.shape[-1])] = data
    return out


def place(rng: random.Random, v: dict[str, int]) -> tuple[int, int, int]:
    """Addresses and steps: sources in the lower half, results packed in the upper half of VMEM."""
    half = SIZE // 2
    limit = CONFIG.acc_rows if v["source"] == Source.ACC else half - C
    counts = [v["n0"], v["n1"], v["n2"], v["n3"]]
    top = 9
    while True:
        steps = [rng.randint(-top // 3, top) for _ in counts]
        at = walk(counts, steps)
        if at.max() - at.min() < limit:
            break
        top = max(1, top - 1)
    src = rng.randint(-int(at.min()), limit - 1 - int(at.max()))
    v.update(s0=steps[0], s1=steps[1], s2=steps[2], s3=steps[3])
    row = v["cols"] * (4 if v["wide"] else 1)
    pitch = row + rng.randint(0, 2)
    if pitch * v["n2"] * v["n3"] > half:
        pitch = row
    assert pitch * v["n2"] * v["n3"] <= half, "case too large for the memory"
    v.update(d2=pitch, d3=pitch * v["n2"])
    dst = half + rng.randint(0, half - pitch * v["n2"] * v["n3"])
    v.update(r2=rng.randint(0, 5), r3=rng.randint(0, 9))
    res = rng.randint(0, half - C - 5 * v["n2"] - 9 * v["n3"])
    return src, res, dst


async def run_case(bench: Bench, v: dict[str, int], load_params: bool, params):
    rng = bench.rng
    src, res, dst = place(rng, v)
    if load_params:
        where = rng.randint(0, SIZE // 2 - CONFIG.param_bytes)
        block = bench.vmem[where:where + CONFIG.param_bytes].copy()
        params = vector.Params.from_bytes(block)
        params.shift[params.shift == 0] = 5
        params.shift[params.shift == 63] = 62
        if v["requant"] == Requant.FLOAT:
            params.multiplier[:] = np.array(
                [np.float32(2.0 ** rng.uniform(-20, -3)) for _ in range(C)], np.float32).view(np.uint32)
        bench.vmem[where:where + CONFIG.param_bytes] = np.frombuffer(
            params.bias.astype("<i4").tobytes() + params.multiplier.astype("<u4").tobytes()
            + params.shift.astype(np.uint8).tobytes(), np.uint8)
        await bench.op(Op.LOAD_PARAMS, {}, a=where, signal=1 << Unit.ST)
    want = expect(bench, v, params, src, res, dst)
    for op in (Op.VECTOR_SHAPE, Op.VECTOR_MODE, Op.VECTOR_RESIDUAL):
        await bench.op(op, encode_fields(op, v))
    await bench.op(Op.VECTOR, {}, a=src, b=res, c=dst, signal=1 << Unit.MXU)
    pc = bench.pc
    for _ in range(5000):
        await RisingEdge(bench.dut.clk)
        if pc in bench.finished:
            break
    else:
        raise AssertionError(f"VECTOR did not finish: {v}, faults {bench.faults}")
    await RisingEdge(bench.dut.clk)
    bad = np.flatnonzero(bench.vmem != want)
    assert not bad.size, (
        f"{bad.size} bytes differ, first at {bad[0]}: {bench.vmem[bad[0]]} instead of {want[bad[0]]}; "
        f"src {src} res {res} dst {dst} {v}")
    return params


async def random_cases(dut, refuse: float, count: int, stream: str) -> None:
    bench = await start(dut, refuse=refuse, stream=stream)
    params, vectors, loads = None, 0, 0
    for _ in range(count):
        v = random_case(bench.rng)
        load = params is None or v["per_channel"] or bench.rng.random() < 0.3
        # Per-channel multipliers are of the dialect they were loaded for, so load anew for each such case.
        params = await run_case(bench, v, load, params)
        vectors, loads = vectors + 1, loads + load
        await RisingEdge(dut.clk)
    assert bench.given.count(1 << Unit.MXU) == vectors
    assert bench.given.count(1 << Unit.ST) == loads
    assert not bench.faults


@cocotb.test()
async def random_without_refusals(dut) -> None:
    await random_cases(dut, 0.0, 120, "free")


@cocotb.test()
async def random_with_refusals(dut) -> None:
    await random_cases(dut, 0.4, 80, "refusals")


def plain(**changes: int) -> dict[str, int]:
    v = {
        "source": Source.ACC, "reduce": Reduce.NONE, "n0": 1, "n1": 1, "n2": 32, "n3": 1, "s0": 0, "s1": 0, "s2": 0,
        "s3": 0, "d2": 0, "d3": 0, "cols": C, "requant": Requant.FIXED, "multiplier": 1 << 30, "shift": 40, "lo": -128,
        "hi": 127,
    }
    return v | changes


@cocotb.test()
async def one_row_a_cycle(dut) -> None:
    """32 rows differ from 16 by 16 cycles, in each kind of pass that can reach a row a cycle."""
    bench = await start(dut, refuse=0.0, stream="rate")
    for kind in (
        {}, {"source": Source.VMEM}, {"residual": Residual.FIXED, "m1": 1 << 30, "m2": 1 << 30, "mo": 1 << 30},
        {"residual": Residual.FLOAT},
    ):
        cycles = []
        for n2 in (16, 32):
            v = plain(n2=n2, **kind)
            for op in (Op.VECTOR_SHAPE, Op.VECTOR_MODE, Op.VECTOR_RESIDUAL):
                await bench.op(op, encode_fields(op, v))
            begin = len(bench.states)
            await bench.op(Op.VECTOR, {})
            while bench.pc not in bench.finished:
                await RisingEdge(dut.clk)
                assert len(bench.states) - begin < 500, f"VECTOR did not finish: {kind}, {bench.states[-5:]}"
            cycles.append(len(bench.states) - begin)
        assert cycles[1] - cycles[0] == 16, f"{kind}: {cycles}"


@cocotb.test()
async def parameters_are_complete_as_a_pass_ends(dut) -> None:
    """In the cycles around the end, the same one too: both ops finish and give their tokens, once."""
    bench = await start(dut, refuse=0.0, stream="ends")
    v = plain(n2=24)
    for op in (Op.VECTOR_SHAPE, Op.VECTOR_MODE):
        await bench.op(op, encode_fields(op, v))

    async def ends(*ops: tuple[Op, int], delay: int = 0) -> dict[int, int]:
        """Cycle in which each op finishes, from when the first is offered; the second follows after a while."""
        begin, first = len(bench.states), bench.pc + 1
        bench.finished.clear()
        bench.given.clear()
        at: dict[int, int] = {}
        for number, (op, signal) in enumerate(ops):
            while number and len(bench.states) - begin < delay:
                await RisingEdge(dut.clk)
            await bench.op(op, {}, signal=signal)
        while len(bench.states) - begin < 200:
            await RisingEdge(dut.clk)
            for pc in bench.finished:
                at.setdefault(pc, len(bench.states) - begin)
        assert bench.finished == sorted(at, key=at.get) and set(at) == set(range(first, first + len(ops)))
        assert sorted(bench.given) == sorted(signal for _, signal in ops)
        return at

    vector, load = (Op.VECTOR, 1 << Unit.MXU), (Op.LOAD_PARAMS, 1 << Unit.ST)
    alone = [list((await ends(op)).values())[0] for op in (vector, load)]
    apart = []
    for delay in range(alone[0] - alone[1] - 3, alone[0] - alone[1] + 5):
        _, (one, two) = zip(*sorted((await ends(vector, load, delay=delay)).items()), strict=True)
        apart.append(two - one)
    # The tokens of the one that came second wait for the next cycle.
    assert -1 in apart and 0 not in apart and apart.count(1) == 2, apart


@cocotb.test()
async def sync_gives_its_tokens(dut) -> None:
    bench = await start(dut, refuse=0.5, stream="sync")
    for _ in range(8):
        await bench.op(Op.SYNC, {"unit": Unit.VPU}, wait=1 << Unit.ST, signal=1 << Unit.LD)
    for _ in range(40):
        await RisingEdge(dut.clk)
    assert bench.given == [1 << Unit.LD] * 8 and bench.finished == list(range(1, 9)) and not bench.faults


@cocotb.test()
async def faults_name_the_place(dut) -> None:
    """Sources, results and parameters beyond the end: the unit says so, writes nothing, and is idle again."""
    bench = await start(dut, refuse=0.2, stream="faults")
    before = bench.vmem.copy()
    await bench.op(Op.VECTOR, {})
    for _ in range(30):
        await RisingEdge(dut.clk)
    assert bench.faults == [(Error.ILLEGAL_FIELD, bench.pc, 0)], f"no shape was set: {bench.faults}"
    cases = [
        (Error.ACC_RANGE, plain(n2=1), CONFIG.acc_rows, 0, CONFIG.acc_rows),
        (Error.VMEM_RANGE, plain(n2=1, source=Source.VMEM), SIZE - C + 1, 0, SIZE - C + 1),
        (Error.VMEM_RANGE, plain(n2=1), 0, SIZE - C + 1, SIZE - C + 1),
        (Error.VMEM_RANGE, plain(n2=1, wide=1), 0, SIZE - 4 * C + 1, SIZE - 4 * C + 1),
        (Error.VMEM_RANGE, plain(n2=1, source=Source.VMEM), (1 << 32) - 1, 0, (1 << 32) - 1),
    ]
    for code, v, src, dst, info in cases:
        bench.faults.clear()
        for op in (Op.VECTOR_SHAPE, Op.VECTOR_MODE):
            await bench.op(op, encode_fields(op, v))
        await bench.op(Op.VECTOR, {}, a=src, c=dst)
        for _ in range(60):
            await RisingEdge(dut.clk)
        assert bench.faults == [(code, bench.pc, info)], f"{bench.faults} instead of {(code, bench.pc, info)}"
        assert int(dut.unit__idle.value)
        assert (bench.vmem == before).all()
    bench.faults.clear()
    await bench.op(Op.LOAD_PARAMS, {}, a=SIZE - CONFIG.param_bytes + 1)
    for _ in range(30):
        await RisingEdge(dut.clk)
    assert bench.faults == [(Error.VMEM_RANGE, bench.pc, SIZE - CONFIG.param_bytes + 1)]
