"""The floating-point vector unit in a whole chip of preset `v2`, simulated: passes, programs of passes, encoder layers.

``rows_per_cycle``: blocks (rows of 128 lanes) per cycle of a pass in steady state, by its operation and by where its
streams lie: two programs that differ in the number of rows only, so that what begins and ends a pass is not in it.

``programs``: an operation from HBM to HBM, bits compared with golden. ``ideal_cycles`` is what the binding resource
needs alone: the lanes (a block in a cycle, in two where 32-bit values lie in VMEM or it takes two accumulator rows),
the array (a row a cycle), its weight port (``rows`` cycles a tile), or HBM.

``transformer_layer``: an encoder layer of hidden 384 with 12 heads; with the weights of a MiniLM where that package is
installed, else random ones, which take the same cycles. ``ideal_cycles``: useful MACs on all PEs. ``shape_limited``:
the array's time with tiles as the shapes give them, each at least ``rows`` cycles. The lanes' and HBM's time stand
beside.

``simulation``: CPU time of a simulated cycle when all units wait and when a pass runs that uses all stages; what it
takes more is the lanes' share, in a pass and, by the share of cycles in which they work, in a layer.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sluice.asm import Builder, Program
from sluice.golden import transformer
from sluice.golden.vector_program import Part, Step
from sluice.runtime import Device, RunReport
from sluice.vector.layer import random_weights, rows_of, to_bf16
from sluice_hw.config import ChipConfig, preset
from sluice_hw.functions import Function
from sluice_hw.isa import Format, Op, Operand, Source, Stream
from sluice_hw.vector_ops import AluOp, Reduction
from verif.models.minilm import PACKAGE, MiniLm
from verif.models.vector_cases import Case, encoder_case, golden_results

__all__ = ["LAYERS", "bounds", "layer_rows", "pass_rows", "program_rows", "run", "simulation"]

CONFIG = preset("v2")
LAYERS = (1, 17, 32, 128)
#: Rows of the two programs whose difference is a pass's steady state.
_FEW, _MANY = 128, 640
#: One operation of each kind; the others of a kind take the same way through a lane.
_KINDS = (AluOp.PASS, AluOp.SELECT, AluOp.AND, AluOp.ADD, AluOp.MUL, AluOp.MUL_ADD, AluOp.MAX, AluOp.ABS, AluOp.LT,
          AluOp.TO_BF16, AluOp.TO_INT32, AluOp.IADD, AluOp.IMUL, AluOp.IMAX, AluOp.I_TO_FP32,
          AluOp.I_TO_INT8)  # fmt: skip


def run() -> dict[str, Any]:
    """Measure; the chip's part of ``sim_build/bench/vector.json``."""
    with Device(CONFIG, "rtl", progress=lambda line: print(f"  {line}", flush=True)) as device:
        out = {"rows_per_cycle": pass_rows(device), "programs": program_rows(device),
               "transformer_layer": layer_rows(device)}  # fmt: skip
        out["simulation"] = simulation(device, out["transformer_layer"])
    return out


# -- passes ----------------------------------------------------------------------------------------------------------
def _pass_program(config: ChipConfig, rows: int, *, times: int = 1, source: str = "acc", result: str = "acc",
                  x: str = "", **mode: int) -> Program:  # fmt: skip
    """A pass over ``rows`` rows of one block, ``times`` over; streams by where they lie and their format."""
    build = Builder(config)
    places = {Stream.SOURCE: (source, 0, 0), Stream.X: (x, config.acc_region_rows, 1),
              Stream.RESULT: (result, config.acc_region_rows + 2 * _MANY, 2)}  # fmt: skip
    build.addr(3, base=config.acc_rows - 256)
    build.op(Op.PASS_SHAPE, rows=rows, blocks=1, tail=config.cols)
    for stream, (place, acc, region) in places.items():
        if not place:
            continue
        inside = place == "acc"
        form = Format.WORD if inside else Format[place.upper()]
        size = config.cols * form.size
        build.addr(int(stream), base=acc if inside else region * config.vmem_region_bytes)
        build.op(Op.PASS_STREAM, stream=stream, addr=int(stream), memory=Source.ACC if inside else Source.VMEM,
                 format=form, row_step=1 if inside else size, block_step=rows if inside else size)  # fmt: skip
    build.op(Op.PASS_STREAM, stream=Stream.REDUCED, addr=3, memory=Source.ACC)
    build.op(Op.PASS_STREAM, stream=Stream.COLUMN, addr=3, memory=Source.ACC)
    build.op(Op.PASS_MODE, **({"store": int(bool(result))} | mode))
    with build.loop(0, times):
        build.op(Op.VECTOR_PASS)
    build.halt()
    return build.program()


def _passes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and arguments of :func:`_pass_program`."""
    for op in _KINDS:
        yield op.name.lower(), {"use_first": 1, "first_op": op, "first_b": Operand.K0, "first_c": Operand.K1}
    for function in Function:
        yield f"function {function.name.lower()}", {"use_function": 1, "function": function}
    for reduction in Reduction:
        yield f"reduce {reduction.name.lower()}", {"use_reduce": 1, "reduction": reduction, "result": ""}
    chain = {"use_first": 1, "first_op": AluOp.SUB, "first_b": Operand.COLUMN, "use_function": 1,
             "function": Function.EXP, "use_second": 1, "second_op": AluOp.MUL, "use_reduce": 1}  # fmt: skip
    yield "alu, function, alu, store and sum", chain
    for place in ("acc", "bf16", "int8", "word"):
        yield f"store to {place}", {"result": place}
        yield f"load from {place}", {"source": place}
        yield f"second operand from {place}", {"x": place, "use_first": 1, "first_op": AluOp.ADD, "first_b": Operand.X}


def pass_rows(device: Device) -> list[dict[str, Any]]:
    """Blocks per cycle by operation."""
    out = []
    for name, arguments in _passes():
        spent = {}
        for rows in (_FEW, _MANY):
            report = device.run(_pass_program(device.config, rows, **arguments))
            spent[rows] = report.cycles
            assert report.work["vector_rows"] == rows
        rate = (_MANY - _FEW) / (spent[_MANY] - spent[_FEW])
        out.append({"operation": name, "rows_per_cycle": round(rate, 4)})
    full = sum(row["rows_per_cycle"] == 1 for row in out)
    print(f"  passes: {full} of {len(out)} with a row in every cycle", flush=True)
    return out


# -- programs --------------------------------------------------------------------------------------------------------
def bounds(report: RunReport, lane_cycles: int) -> dict[str, int]:
    """Cycles that each resource needs by itself, by name, from the work that was counted."""
    config, work = report.config, report.work
    return {
        "lanes": lane_cycles, "array": work["array_rows"], "weights": work["weight_tiles"] * config.rows,
        "HBM": -(-report.hbm_bytes // config.hbm_bytes_per_cycle),
    }  # fmt: skip


def _programs() -> Iterator[Case]:
    rng = np.random.default_rng(1)
    half = ("x",)

    def by_rows(build: Callable[..., list[Step]], rows: int, cols: int, at_once: int, **more: Any) -> list[Step]:
        return transformer.by_rows(lambda part, dst: build(Part("x", 0, cols, rows=part), dst, bf16=True, **more), "y",
                                   rows=rows, cols=cols, at_once=at_once)  # fmt: skip

    steps = by_rows(transformer.softmax, 1536, 128, 384)
    yield Case("softmax", steps, {"x": to_bf16(rows_of(rng, 1536, 128))}, half)
    gamma, beta = rows_of(rng, 2, 384)
    given = {"x": to_bf16(rows_of(rng, 512, 384)), "g": gamma, "b": beta}
    steps = by_rows(transformer.layer_norm, 512, 384, 128, size=384, gamma="g", beta="b")
    yield Case("LayerNorm", steps, given, half)
    yield Case("RMSNorm", by_rows(transformer.rms_norm, 512, 384, 128, size=384, gamma="g"), given, half)
    yield Case("GELU", by_rows(transformer.gelu, 512, 384, 64, bias="b"), given, half)
    angles = {"cos": rows_of(rng, 512, 192), "sin": rows_of(rng, 512, 192), "y": np.zeros((512, 384), np.float32)}
    steps = transformer.rotary("x", "y", size=384, cos="cos", sin="sin", bf16=True)
    yield Case("rotary", steps, given | angles, ("x", "y"))
    q, k, v = (to_bf16(rows_of(rng, n, 64, 1.0)) for n in (512, 512, 512))
    for causal in (False, True):
        steps = transformer.attention("q", "k", "v", "y", size=64, causal=causal, queries=512, at_once=128)
        yield Case("causal attention" if causal else "attention", steps, {"q": q, "k": k, "v": v}, ("q", "k", "v"))


def program_rows(device: Device) -> list[dict[str, Any]]:
    """Operations by themselves."""
    out = []
    for case in _programs():
        need, report, mismatches = _compared(device, case)
        bound = max(need, key=lambda name: need[name])
        shapes = ", ".join("x".join(map(str, t.shape)) for n, t in case.inputs.items() if n in "xqk")
        out.append({
            "program": case.name, "shape": shapes, "cycles": report.cycles, "ideal_cycles": need[bound],
            "bound": bound, "of_bound": round(need[bound] / report.cycles, 4), "mismatches": mismatches,
            "lanes_wait": _waits(report, "vpu"),
        })  # fmt: skip
        print(f"  {case.name}: {report.cycles} cycles, {bound} {need[bound]}", flush=True)
    return out


def _compared(device: Device, case: Case) -> tuple[dict[str, int], RunReport, int]:
    """What the resources need, what a run took, and how many values differ from golden's."""
    program = case.compile(device.config)
    got, report = program.run(device, case.inputs)
    wanted = golden_results(case, device.config)
    wrong = sum(int((got[name].view(np.uint32) != bits).sum()) for name, bits in wanted.items())
    return bounds(report, program.lane_cycles), report, wrong


def _waits(report: RunReport, unit: str) -> str:
    return ", ".join(f"{cause} {n}" for cause, n in report.stalls[unit].items() if cause != "busy" and n)


# -- layers ----------------------------------------------------------------------------------------------------------
def _layer_case(sequence: int) -> Case:
    rng = np.random.default_rng(sequence)
    if importlib.util.find_spec(PACKAGE) is None:
        return encoder_case(rows_of(rng, sequence, 384, 1.0), random_weights(rng, 384), 12, lanes=CONFIG.cols)
    model = MiniLm()
    return encoder_case(model.random_rows(rng, sequence), model.layer(0), model.HEADS, lanes=CONFIG.cols)


def layer_rows(device: Device) -> list[dict[str, Any]]:
    """Encoder layers, by the length of the sequence."""
    out = []
    for sequence in LAYERS:
        (need, report, mismatches), config = _compared(device, _layer_case(sequence)), device.config
        shaped = max(need["array"], need["weights"])
        out.append({
            "seq": sequence, "cycles": report.cycles, "ideal_cycles": -(-report.macs // config.macs_per_cycle),
            "shape_limited": shaped, "lanes": need["lanes"], "HBM": need["HBM"],
            "mxu_utilisation": round(report.mxu_utilisation, 4), "of_shape_limited": round(shaped / report.cycles, 4),
            "mismatches": mismatches,
            "weights": "MiniLM" if importlib.util.find_spec(PACKAGE) else "random",
            "array_waits": _waits(report, "mxu"),
        })  # fmt: skip
        print(f"  layer of sequence {sequence}: {report.cycles} cycles, array {shaped}", flush=True)
    return out


# -- simulation ------------------------------------------------------------------------------------------------------
def simulation(device: Device, layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Seconds of CPU a cycle, by what works, and the lanes' share: while a pass runs, and in the longest layer."""
    config = device.config
    build = Builder(config)
    with build.loop(0, 2_000):
        build.sync("ld")
    build.halt()
    chain = dict(_passes())["alu, function, alu, store and sum"]
    programs = {"waiting": build.program(), "lanes": _pass_program(config, _MANY, times=10, **chain)}
    # By turns, and the least of each: other work on the machine only adds.
    spent = {name: min(times) for name, times in zip(
        programs, zip(*[[_seconds_per_cycle(device, p) for p in programs.values()] for _ in range(4)], strict=True),
        strict=True)}  # fmt: skip
    share = max(0.0, 1 - spent["waiting"] / spent["lanes"])
    busy = layers[-1]["lanes"] / layers[-1]["cycles"]
    return {
        "us_per_cycle_waiting": round(1e6 * spent["waiting"], 1), "us_per_cycle_lanes": round(1e6 * spent["lanes"], 1),
        "lanes_share_in_a_pass": round(share, 4), "lanes_busy_in_a_layer": round(busy, 4),
        "lanes_share_in_a_layer": round(share * busy, 4),
    }  # fmt: skip


def _seconds_per_cycle(device: Device, program: Program) -> float:
    device.load_program(program)
    began, cycle = time.process_time(), device.transport.sim_time().cycles
    device.run()
    return (time.process_time() - began) / (device.transport.sim_time().cycles - cycle)
