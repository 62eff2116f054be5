"""The generator of random programs itself, on golden: its programs have one meaning, and a planted fault is found."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sluice.asm import assemble, check
from sluice.golden import GoldenMachine
from sluice.golden.mxu import MatrixUnit
from sluice.runtime.golden import SteppedMachine
from sluice_hw import isa
from sluice_hw.functions import Function
from sluice_hw.vector_ops import AluOp, Reduction
from verif.random_programs.chips import open_bench
from verif.random_programs.generate import draft
from verif.random_programs.illegal import BREAKS, break_case, illegal_words, kinds_of
from verif.random_programs.legal import make_case
from verif.random_programs.replay import from_text, run_seeds, text_of
from verif.random_programs.tree import op_nodes
from verif.system.configs import FLOAT_CONFIGS, RANDOM_CONFIGS
from verif.unit.compiler.races import find_races

CONFIGS = {**RANDOM_CONFIGS, **FLOAT_CONFIGS}


@pytest.mark.parametrize("name", CONFIGS)
def test_programs_have_one_meaning(name: str, seed: int) -> None:
    """Under any schedule and with other queues, memories and work are the same; the assembler knows the programs."""
    config = CONFIGS[name]
    other = config.replace(ld_queue=7, st_queue=2, mxu_queue=3, vpu_queue=9)
    for number in range(seed, seed + (2 if config.is_float else 4)):
        case = make_case(config, number)
        start, end = (edge * config.slice_bytes for edge in (case.draft.arena.hbm.start, case.draft.arena.hbm.end))
        for chip, schedule in ((config, 1), (other, 2)):
            machine = GoldenMachine(chip)
            machine.write_hbm(start, case.image)
            result = machine.run(case.lowered.program, params=case.draft.params, entry=case.draft.entry,
                                 schedule_seed=schedule)  # fmt: skip
            assert (result.error, result.halt_code) == (None, case.draft.code), f"seed {number}"
            assert (result.counters, result.tokens_left) == (case.result.counters, case.result.tokens_left)
            assert np.array_equal(machine.hbm.data[start:end], case.want), f"seed {number} schedule {schedule}"
        again = from_text(text_of(case), config)
        assert again.lowered.program.words == case.lowered.program.words
        assert np.array_equal(again.image, case.image) and np.array_equal(again.want, case.want)
        if not case.draft.entry:
            check(case.lowered.program, config)


def test_what_programs_contain() -> None:
    """All ops and, among few programs, what makes them interesting."""
    seen: Counter = Counter()
    for number in range(18):
        case = make_case(RANDOM_CONFIGS["odd"], number)
        open_levels = 0
        for word in case.lowered.program.words[case.draft.entry :]:
            op, f = isa.decode(word)
            seen[op] += 1
            open_levels += (op is isa.Op.LOOP) - (op is isa.Op.END)
            seen["nested"] += open_levels > 1
            for name in ("ring", "add_param", "from_param", "pad", "swap_first", "bias", "per_channel", "wide", "relu"):
                seen[name] += bool(f.get(name))
            for name in ("requant", "residual", "reduce", "source", "acc_mode"):
                if name in f:
                    seen[name, f[name]] += 1
            seen["first"] += any(v for k, v in f.items() if k.startswith("wait_") and k.endswith("_first"))
            seen["last"] += any(v for k, v in f.items() if k.startswith("signal_") and k.endswith("_last"))
            seen["segments"] += f.get("segments", 0) > 1
    kinds = {"requant": isa.Requant, "residual": isa.Residual, "reduce": isa.Reduce, "source": isa.Source,
             "acc_mode": isa.AccMode}  # fmt: skip
    values = [(name, int(value)) for name, kind in kinds.items() for value in kind]
    wanted = [*isa.ops_of(RANDOM_CONFIGS["odd"]), *values, "nested", "ring", "add_param", "from_param", "pad",
              "swap_first", "bias", "per_channel", "wide", "relu", "first", "last", "segments"]  # fmt: skip
    assert not [what for what in wanted if not seen[what]]


def test_what_programs_of_bf16_contain() -> None:
    """All that the floating-point vector unit does, and numbers in what comes out."""
    seen: Counter = Counter()
    config = FLOAT_CONFIGS["odd-bf16"]
    for node in (node for number in range(60) for node in op_nodes(draft(config, number).block)):
        for op, f in (*node.setups, (node.op, node.fields)):
            seen[op] += 1
            if op is isa.Op.PASS_MODE:
                for name in ("store", "round", "use_reduce", "use_function"):
                    seen[name, f.get(name, 0)] += 1
                if f.get("use_reduce"):
                    seen["reduction", f["reduction"]] += 1
                if f.get("use_function"):
                    seen["function", f["function"]] += 1
                for name in ("first", "second"):
                    if f.get(f"use_{name}"):
                        seen[name, "op", f[f"{name}_op"]] += 1
                        seen[name, f[f"{name}_b"], "b"] += 1
                        seen[name, f[f"{name}_c"], "c"] += 1
            elif op is isa.Op.PASS_STREAM:
                seen[f["stream"], f.get("memory", 0), f.get("format", 0) if f.get("memory") else 0] += 1
            elif op is isa.Op.PASS_SHAPE:
                seen["masked"] += f.get("masked", 0)
                seen["blocks"] += f["blocks"] > 1
            seen["transpose"] += f.get("transpose", 0)
    alus = ("first", "second")
    wanted = [*(op for op, spec in isa.ops_of(config).items() if op >= isa.Op.PASS_SHAPE), "masked", "blocks",
              "transpose", *(("reduction", r) for r in Reduction), *(("function", f) for f in Function),
              *((name, n) for name in ("store", "round", "use_reduce", "use_function") for n in (0, 1)),
              *((name, "op", op) for name in alus for op in AluOp),
              *((name, operand, which) for name in alus for operand in isa.Operand for which in "bc"),
              *((s, m, f) for s in (0, 1, 2, 3) for m, f in ((0, 0), (1, 0), (1, 1), (1, 2)))]  # fmt: skip
    assert not [what for what in wanted if not seen[what]]
    whole = numbers = 0
    for number in range(4):
        case = make_case(config, number)
        dump, size = case.draft.arena.dump, config.slice_bytes
        at = (dump.start - case.draft.arena.hbm.start) * size
        out = case.want[at : at + dump.size * size].view("<u2") & 0x7FFF
        whole, numbers = whole + out.size, numbers + int(((out > 0x3000) & (out < 0x4C00)).sum())
    assert numbers > whole / 4, f"{numbers} of {whole} halves are the upper halves of numbers of ordinary size"


def test_tokens_may_overtake() -> None:
    """Weights may be in the array before the pass in front of them has left it: their token says nothing of it."""
    text = """
        addr r0 base=0
        addr r1 base=512
        dma_shape unit=ld row_bytes=256 rows=1
        hbm_read_slice hbm=r0 vmem=r0 count=1 signal=mxu
        feed_shape n0=24 s0=6 segments=1
        feed_segment index=0 lo=0 hi=6
        load_weights vmem=r0 pitch=5 k=6 n=5 wait=ld
        pulse_array vmem=r0 acc=r0 swap signal=vpu
        load_weights vmem=r0 pitch=5 k=6 n=5 {}
        vector_shape n2=24 s2=1 d2=5
        vector_mode source=acc lo=-128 hi=127 cols=5
        vector src=r0 dst=r1 wait=mxu
        halt
    """
    config = RANDOM_CONFIGS["odd"]
    assert not find_races(assemble(text.format(""), config), config)
    (race,) = find_races(assemble(text.format("signal=vpu"), config), config)
    assert race.memory == "tokens MXU to VPU" and "LOAD_WEIGHTS" in race.second


def test_a_planted_fault_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A chip that adds 1 when an accumulation has three rows."""
    accumulate = MatrixUnit._accumulate

    def faulty(unit: MatrixUnit, active: object) -> None:
        if isinstance(unit.machine, SteppedMachine) and active.uop.accumulate and len(active.data["sums"]) == 3:
            active.data["sums"][1, 2] += 1
        accumulate(unit, active)

    monkeypatch.setattr(MatrixUnit, "_accumulate", faulty)
    bench = open_bench(RANDOM_CONFIGS["odd"], "golden")
    (text,) = run_seeds(bench, [122], tmp_path, tries=40)
    assert "python -m verif.random_programs --config odd --seed 122 --shrink" in text
    whole, small = (tmp_path / name for name in ("odd-122.s", "odd-122.small.s"))
    assert len(small.read_text().splitlines()) < len(whole.read_text().splitlines()) * 0.8
    assert "pulse_array" in small.read_text() and (tmp_path / "odd-122.log").read_text() == text + "\n"


@pytest.mark.parametrize("name", ["odd", "odd-bf16", "tiny-int8-bf16"])
def test_broken_programs_cover_the_tables(name: str) -> None:
    """Every field that can be out of range is, and golden stops at broken programs where they are broken."""
    config = CONFIGS[name]
    words = illegal_words(config, random.Random(1))
    named = {(w.word & 63, w.field) for w in words if w.code == isa.Error.ILLEGAL_FIELD}
    for op, spec in isa.ops_of(config).items():
        for number, field in enumerate(spec.fields, 1):
            lo, hi = isa.field_range(field, config)
            if hi - lo + 1 < 1 << field.width:
                assert (int(op), number) in named, f"{op.name} {field.name}"
    for kind in kinds_of(config):
        if kind == "nesting":  # not every program has loops
            continue
        broken = break_case(make_case(config, 7), random.Random(7), kind)
        assert broken is not None and broken.fault.code in BREAKS[kind][1], kind
