"""Matmuls of every kind of shape on the golden machine, against NumPy and the integer executor, and free of races."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.asm import Program
from sluice.compiler import CompileError, DoesNotFit, GraphError, compile, matmul_graph
from sluice.compiler import driver as compiler_driver
from sluice.compiler.plan_matmul import MODES, plan_matmul
from sluice_hw import isa
from sluice_hw.config import ChipConfig

from .races import find_races
from .run_golden import CONFIGS, SMALL, TINY, check, execute

SHAPES = [
    (1, 1, 1), (8, 8, 8), (16, 16, 16), (37, 70, 19), (17, 13, 17), (31, 32, 31), (1, 200, 1), (200, 1, 1), (1, 1, 200),
    (9, 8, 65), (65, 9, 8), (2, 3, 4),
]  # fmt: skip


#: HBM narrower and wider than a word, a single column, few rows.
ODD = (
    TINY.replace(name="thin", rows=3, cols=1, acc_bytes=8 * 50, vmem_bytes=32 * 8 * 16),
    TINY.replace(
        name="narrow", cols=16, hbm_bytes_per_cycle=8, slice_bytes=64, vmem_banks=16, vmem_bytes=16 * 16 * 64
    ),
    TINY.replace(name="broad", hbm_bytes_per_cycle=128, vmem_banks=64, vmem_bytes=64 * 8 * 64),
)


def make(config: ChipConfig, m: int, k: int, n: int, seed: int, **options: object):  # noqa: ANN201
    """Compiled matmul of random operands, and its input."""
    rng = np.random.default_rng([seed, m, k, n])
    bias = rng.integers(-20000, 20000, n, dtype=np.int32) if options.pop("bias", False) else None
    scale = rng.uniform(0.2, 1, n) * 40 / (74**2 * k**0.5) if options.pop("per_channel", False) else None
    graph = matmul_graph(m, k, n, bias=bias, scale=scale, seed=seed, **options)
    return compile(graph, config), rng.integers(-128, 128, (m, k), dtype=np.int8)


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch):  # noqa: ANN201
    """Make the compiler use one kind of plan."""

    def use(**options: object) -> None:
        monkeypatch.setattr(compiler_driver, "plan_matmul", lambda *a, **kw: plan_matmul(*a, **{**kw, **options}))

    return use


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("out", ["int8", "int32"])
def test_shapes(config: ChipConfig, out: str, seed: int) -> None:
    for index, (m, k, n) in enumerate(SHAPES):
        options = {"relu": index % 2 == 0, "bias": index % 3 == 0, "per_channel": index % 4 < 2}
        compiled, a = make(config, m, k, n, seed, out=out, **options)
        result = check(compiled, {"a": a}, (None, seed))
        assert result.counters.macs == compiled.macs == m * k * n
        if out == "int32":
            node = compiled.graph["matmul"]
            w, b = (compiled.graph[i].value.astype(np.int64) for i in node.inputs[1:])
            want = a.astype(np.int64) @ w + b
            got, _ = execute(compiled, {"a": a})
            assert np.array_equal(got["c"], np.maximum(want, 0) if options["relu"] else want)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_plans(config: ChipConfig, mode: str, seed: int, force) -> None:  # noqa: ANN001
    """Every plan, with one block, two and many, with and without what is left over."""
    for m, k, n, block in [
        (9, 9, 9, 9),
        (37, 70, 19, 16),
        (40, 100, 26, 8),
        (9, 100, 1, 2),
        (12, 9, 50, 4),
        (3, 1, 1, 1),
    ]:
        force(mode=mode, block=block)
        compiled, a = make(config, m, k, n, seed, bias=True, per_channel=True)
        check(compiled, {"a": a}, (None, seed, seed + 1))
        assert not find_races(compiled.program, config)


def test_judge() -> None:
    """A better model decides between plans, but not for a gain that is hardly one, and not where it would take long."""
    def plan(judge, m: int = 40):  # noqa: ANN001, ANN202
        return plan_matmul(TINY, m, 100, 26, wide=False, params=False, judge=judge)

    first, asked = plan(None), []
    assert plan(lambda p: asked.append(p) or 1000 - (p != first)) == first
    assert len({(p.sizes, p.piece, p.mode) for p in asked}) == len(asked) > 1
    assert plan(lambda p: 1000 - 100 * (p == asked[-1])) == asked[-1]
    asked.clear()
    plan(lambda p: asked.append(p) or 0, m=4000)
    assert not asked


def test_few_accumulators(seed: int, force) -> None:  # noqa: ANN001
    """Regions that hold few blocks, and not a whole number of them: sums must not meet those of groups before."""
    for rows, block in [(8, 4), (12, 4), (10, 4), (13, 4), (17, 4), (7, 4), (4, 4), (9, 1), (2, 1)]:
        config = TINY.replace(name="few-sums", acc_bytes=2 * rows * 32)
        force(mode="resident", block=block)
        compiled, a = make(config, 17, 9, 50, seed, out="int32")
        check(compiled, {"a": a}, (None, seed))
        assert not find_races(compiled.program, config), (rows, block)


def test_random(seed: int) -> None:
    rng = np.random.default_rng(seed)
    configs = [*CONFIGS.values(), *ODD]
    for case in range(3 * len(configs)):
        config = configs[case % len(configs)]
        m, k, n = (int(2 ** rng.uniform(0, top)) for top in (8, 8, 7))
        out, bias, per_channel = ("int8", "int32")[case % 2], bool(rng.integers(2)), bool(rng.integers(2))
        compiled, a = make(config, m, k, n, seed, out=out, bias=bias, per_channel=per_channel)
        check(compiled, {"a": a}, (None, seed + case))
        assert not find_races(compiled.program, config), (config.name, m, k, n)


def test_larger_than_vmem(seed: int) -> None:
    """K that no block of rows fits with, N whose parameters do not fit, M beyond the accumulators."""
    config = TINY.replace(name="little", vmem_bytes=32 * 8 * 8, acc_bytes=1024, hbm_bytes=1 << 22)
    for m, k, n, mode in [(3, 3000, 20, "blocked"), (4, 10, 2000, "blocked"), (700, 40, 9, None), (50, 90, 30, None)]:
        compiled, a = make(config, m, k, n, seed, per_channel=True)
        if mode:
            assert f"{mode} plan" in compiled.describe()
        check(compiled, {"a": a}, (None, seed))
        assert not find_races(compiled.program, config)


def test_extremes() -> None:
    """-128 x -128 all along K, where an accumulator that is too narrow would show."""
    k = 1 << 13
    for config in (TINY, SMALL):
        compiled = compile(matmul_graph(9, k, 5, out="int32", weights=np.full((k, 5), -128, np.int8)), config)
        got, _ = execute(compiled, {"a": np.full((9, k), -128, np.int8)})
        assert (got["c"] == 128 * 128 * k).all()


@pytest.mark.parametrize("dialect", ["fixed", "float"])
def test_dialects(dialect: str, seed: int) -> None:
    for per_channel in (False, True):
        compiled, a = make(TINY, 30, 20, 21, seed, dialect=dialect, per_channel=per_channel, relu=per_channel)
        check(compiled, {"a": a})


def test_without_parameters_none_are_loaded() -> None:
    """One scale for all columns and no bias needs no parameter block: nothing to wait for at the start."""
    plain, _ = make(TINY, 8, 8, 8, 1)
    biased, _ = make(TINY, 8, 8, 8, 1, bias=True)
    ops = [isa.decode(w)[0] for w in plain.program.words]
    assert isa.Op.LOAD_PARAMS not in ops
    assert isa.Op.LOAD_PARAMS in [isa.decode(w)[0] for w in biased.program.words]


@pytest.mark.parametrize("mode", MODES)
def test_every_token_is_needed(mode: str, seed: int, force) -> None:  # noqa: ANN001
    """Without the tokens of a pair of units there is a race, or a deadlock: the check can fail."""
    config = TINY.replace(name="few-sums", acc_bytes=1 << 10)
    force(mode=mode, block=8)
    compiled, _ = make(config, 40, 100, 26, seed, bias=True)
    words = [isa.decode(w) for w in compiled.program.words]
    found = 0
    for source in isa.Unit:
        for to in isa.Unit:
            broken = [dict(f) for _, f in words]
            used = False
            for (op, _), f in zip(words, broken, strict=True):
                unit = f["unit"] if op is isa.Op.SYNC else isa.OPS[op].unit
                for name, mine, other in (("signal", source, to), ("wait", to, source)):
                    key = f"{name}_{other.name.lower()}"
                    if unit == mine and f.get(key):
                        f[key], used = 0, True
            if used:
                program = Program([isa.encode(op, config, f) for (op, _), f in zip(words, broken, strict=True)])
                assert find_races(program, config), f"tokens from {source.name} to {to.name} are not needed"
                found += 1
    assert found >= 6


def test_errors() -> None:
    for bad in ({"m": 0}, {"k": -1}, {"n": 1.5}):
        with pytest.raises(GraphError, match="allowed: an integer >= 1"):
            matmul_graph(**{"m": 1, "k": 1, "n": 1, **bad})
    with pytest.raises(GraphError, match="allowed: int8, int32"):
        matmul_graph(1, 1, 1, out="int16")
    with pytest.raises(GraphError, match=r"int8\[2, 2\]; allowed: int8\[1, 1\]"):
        matmul_graph(1, 1, 1, weights=np.zeros((2, 2), np.int8))
    compiled, _ = make(TINY, 4, 5, 6, 1)
    for wrong in (np.zeros((4, 6), np.int8), np.zeros((4, 5), np.int32)):
        with pytest.raises(GraphError, match=r"tensor 'a' is .*allowed: int8\[4, 5\]"):
            compiled.inputs["a"].pack(wrong)
    small_hbm = TINY.replace(name="no-hbm", hbm_bytes=1 << 13)
    with pytest.raises(DoesNotFit, match="in HBM: needs .* KiB, .* KiB free, largest hole") as info:
        compile(matmul_graph(100, 100, 100), small_hbm)
    assert info.value.needed > info.value.free and isinstance(info.value, CompileError)
    with pytest.raises(CompileError, match="microcode words; the store has 16"):
        compile(matmul_graph(8, 8, 8), TINY.replace(name="short", microcode_words=16))
