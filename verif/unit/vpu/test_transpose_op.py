"""Blocks transposed in VMEM against golden: any addresses and pitches, refused grants, ops right behind each other."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.golden.vector_ops import transpose
from sluice_hw.config import preset
from sluice_hw.interfaces import VMEM_LATENCY, vmem_write_layout
from sluice_hw.vpu.transpose_op import OPS, TransposeOp, transpose_layout
from verif.models.trace import Traced

CONFIG = preset("tiny").replace(name="test", dtype="bf16", rows=3, cols=5, acc_bytes=40 * 16)
SIZE = 5
WORD = CONFIG.word_bytes
VMEM = CONFIG.vmem_bytes


def field(layout, name: str, value: int) -> int:
    return (int(value) & (1 << layout[name].width) - 1) << layout[name].offset


class Bench:
    """The engine and a VMEM, a cycle at a time."""

    def __init__(self, dut: Traced) -> None:
        self.dut = dut
        self.memory = np.zeros(VMEM, np.uint8)
        self.faults: list[tuple[int, int]] = []

    def run(self, ops: list[dict[str, int]], rng: np.random.Generator, refuse: float = 0.0, pause: float = 0.0) -> int:
        """Run ``ops``; cycles from the first one's start to the last one's end."""
        start, write = transpose_layout(), vmem_write_layout(WORD)
        size = -(-start.size // 8)
        # Data by the number of cycles until they are due: the last entry is what stands on the port.
        pipe: list[np.ndarray | None] = [None] * VMEM_LATENCY
        todo = list(ops)
        done, cycles, held, offered = 0, 0, {}, False
        while done < len(ops):
            offered = bool(todo) and (offered or rng.random() >= pause)
            grants = {name: bool(rng.random() >= refuse) for name in ("source", "result")}
            word = sum(field(start, name, value) for name, value in todo[0].items()) if offered else 0
            answer = pipe.pop()
            data = rng.integers(0, 256, WORD).astype(np.uint8) if answer is None else answer
            out = self.dut.run({
                "start__valid": np.array([offered]),
                "start__payload": np.frombuffer(word.to_bytes(size, "little"), np.uint8)[None, :],
                "source__req__ready": np.array([grants["source"]]), "result__req__ready": np.array([grants["result"]]),
                "source__rsp_valid": np.array([answer is not None]), "source__rsp_data": data[None, :],
            })  # fmt: skip
            bit = {name: bool(out[name][0]) for name in (
                "start__ready", "source__req__valid", "result__req__valid", "done", "busy", "moves", "waiting",
                "fault_valid")}  # fmt: skip
            asks = {name: bit[f"{name}__req__valid"] for name in grants}
            assert bit["moves"] == any(asks[name] and grants[name] for name in grants)
            assert bit["waiting"] == any(asks[name] and not grants[name] for name in grants)
            assert bit["busy"] == (0 < len(ops) - len(todo) - done)
            payloads = {name: out[f"{name}__req__payload"][0] for name in grants}
            payloads["source"] = int(payloads["source"])
            payloads["result"] = int.from_bytes(payloads["result"].tobytes(), "little") & (1 << write.size) - 1
            for name, payload in payloads.items():
                assert name not in held or (asks[name] and held[name] == payload), f"{name}: changed before its grant"
                held.pop(name, None)
                if asks[name] and not grants[name]:
                    held[name] = payload
            pipe.insert(0, None)
            if asks["source"] and grants["source"]:
                addr = payloads["source"]
                assert addr < VMEM
                pipe[0] = np.zeros(WORD, np.uint8)
                pipe[0][: VMEM - addr] = self.memory[addr : addr + WORD]
            if asks["result"] and grants["result"]:
                part = {name: payloads["result"] >> write[name].offset & (1 << write[name].width) - 1
                        for name in ("addr", "data", "mask")}  # fmt: skip
                for i, byte in enumerate(part["data"].to_bytes(WORD, "little")):
                    if part["mask"] >> i & 1:
                        self.memory[part["addr"] + i] = byte
            if bit["fault_valid"]:
                fault = int(out["fault"][0])
                self.faults.append((fault & 0xFFFFFFFF, fault >> 32))
            if offered and bit["start__ready"]:
                todo.pop(0)
                offered = False
            assert len(ops) - len(todo) - done <= OPS
            done += bit["done"]
            cycles += 1
            assert cycles < 200 + 100 * SIZE * len(ops), f"{done} of {len(ops)} ops have ended"
        return cycles


def in_golden(memory: np.ndarray, op: dict[str, int]) -> None:
    """``op`` on ``memory``: a row that is not all inside reads as zeros, and is not written."""

    def inside(addr: int, elements: int) -> bool:
        return 0 <= addr <= VMEM - 2 * elements

    block = np.zeros((op["k"], op["n"]), "<u2")
    for i in range(op["k"]):
        addr = op["src"] + i * op["src_pitch"]
        if inside(addr, op["n"]):
            block[i] = memory[addr : addr + 2 * op["n"]].view("<u2")
    for j, row in enumerate(transpose(block, SIZE)[:, : op["k"]]):
        addr = op["dst"] + j * op["dst_pitch"]
        if inside(addr, op["k"]):
            memory[addr : addr + 2 * op["k"]] = np.ascontiguousarray(row.astype("<u2")).view(np.uint8)


@pytest.fixture(scope="module")
def dut():
    with Traced(TransposeOp(CONFIG, emission="loop"), name="transpose-op", opt="-O0") as traced:
        yield traced


@pytest.fixture
def bench(dut, seed):
    made = Bench(dut)
    made.memory[:] = np.random.default_rng(seed).integers(0, 256, VMEM)
    return made


def same(bench: Bench, ops: list[dict[str, int]], rng: np.random.Generator, **how: float) -> int:
    wanted = bench.memory.copy()
    for op in ops:
        in_golden(wanted, op)
    cycles = bench.run(ops, rng, **how)
    assert np.array_equal(bench.memory, wanted)
    return cycles


@pytest.mark.parametrize(("refuse", "pause"), [(0, 0), (0.3, 0), (0, 0.9), (0.8, 0.5)])
def test_blocks(bench, refuse, pause, seed):
    """Sources below, results above, so that ops which overlap do not see each other."""
    rng = np.random.default_rng([seed, int(10 * refuse), int(10 * pause)])
    half, ops = VMEM // 2, []
    for number in range(60):
        k, n = rng.integers(1, SIZE + 1, 2)
        pitch = int(rng.integers(2 * k, 100)) * int(rng.choice([-1, 1]))
        ops.append({"src": rng.integers(1000, half - 1000), "src_pitch": rng.integers(-90, 90), "k": k, "n": n,
                    "dst": half + 500 * (number + 1) + rng.integers(9), "dst_pitch": pitch})  # fmt: skip
    same(bench, ops, rng, refuse=refuse, pause=pause)
    assert not bench.faults


def test_in_place_and_one_after_the_other(bench, seed):
    """Each op reads what the one before wrote, which its end makes visible."""
    rng = np.random.default_rng(seed)
    for k in range(1, SIZE + 1):
        same(bench, [{"src": 77, "dst": 77, "src_pitch": 2 * k, "dst_pitch": 2 * k, "k": k, "n": k}], rng, refuse=0.3)


def test_a_row_every_cycle(bench, seed):
    rng = np.random.default_rng(seed)
    count = 20
    ops = [{"src": 100 * i, "src_pitch": 10, "k": SIZE, "n": SIZE, "dst": 40000 + 100 * i, "dst_pitch": 10}
           for i in range(count)]  # fmt: skip
    first = same(bench, ops[:1], rng)
    assert same(bench, ops, rng) == first + (count - 1) * SIZE


def test_the_ends_of_vmem(bench, seed):
    """Rows up to the last byte are legal; one byte further is a fault with the row's address."""
    rng = np.random.default_rng(seed)
    op = {"src": 0, "src_pitch": 20, "k": 3, "n": 4, "dst": 1000, "dst_pitch": 20, "pc": 9}
    same(bench, [{**op, "src": VMEM - 8, "src_pitch": -20}, {**op, "dst": VMEM - 6, "dst_pitch": -30}], rng)
    assert not bench.faults
    same(bench, [{**op, "src": VMEM - 27, "k": 2, "pc": 3}], rng)
    same(bench, [{**op, "src": -8, "pc": 4}], rng)
    same(bench, [{**op, "dst": VMEM - 45, "n": 3, "pc": 5}], rng, refuse=0.5)
    assert bench.faults == [(VMEM - 7, 3), (2**32 - 8, 4), (VMEM - 5, 5)]


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_parameters():
    with pytest.raises(TypeError, match="config must be a ChipConfig, not None"):
        TransposeOp(None)
