"""``sluice sim``: the held-out digits through the simulated chip, every value compared with golden."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from sluice.build import sim_build_dir
from sluice.errors import UsageError
from sluice.runtime.report import RunReport, percent

from . import common

__all__ = ["add_commands"]

#: Keys of a network's report, in order.
KEYS = (
    "images", "mismatches", "accuracy_float", "accuracy_rtl", "cycles", "macs", "mxu_utilisation", "mxu_starvation",
    "hbm_utilisation", "sim_cycles_per_second", "stalls",
)  # fmt: skip

#: Images of the run with waveforms of all cycles.
_TRACED = 20


def add_commands(commands) -> None:
    sim = commands.add_parser("sim", help="classify real digits on the simulated chip and check every value")
    common.add_config(sim)
    sim.add_argument("--net", choices=("mlp", "cnn"), action="append", help="only this network; may be repeated")
    sim.add_argument("--images", type=int, help="only the first of the held-out images")
    common.add_backend(sim)
    common.add_json(sim)
    sim.set_defaults(call=_sim)


def _sim(args: argparse.Namespace) -> int:
    from sluice.runtime import load_config

    from .digits import networks

    config = load_config(args.config)
    progress = common.Progress()
    data = networks().load_data()
    total = len(data.test_images)
    count = total if args.images is None else args.images
    if not 1 <= count <= total:
        raise UsageError(f"--images must be 1 to {total}, not {args.images}")
    names = args.net or list(networks().NETWORKS)
    waves = common.waves_of(args)
    # A window is of the whole job; all cycles of it would fill hundreds of megabytes that nobody looks at.
    traced = 0 if waves is None else min(count, _TRACED) if waves.whole else count
    if traced < count:
        entries, reports, wrong = _job(names, count, config, args, progress)
    if traced:
        if traced < count:
            progress(f"once more, the first {traced} images, with waveforms")
        replay = _job(names, traced, config, args, progress, waves=waves)
        if traced < count:
            wrong = wrong or replay[2]
        else:
            entries, reports, wrong = replay
    path = sim_build_dir() / "report" / ("digits-golden.json" if args.backend == "golden" else "digits.json")
    common.write_file(path, (json.dumps(entries, indent=1) + "\n").encode())
    if args.json:
        common.emit_json(entries)
    else:
        _table(entries, reports, path)
    if wrong:
        progress(f"first difference: {wrong}")
    return 1 if wrong else 0


def _job(names: list[str], count: int, config, args: argparse.Namespace, progress: common.Progress, *, waves=None):
    """Report entries and run reports by network, and the first difference from golden in words ("" for none)."""
    entries: dict[str, Any] = {}
    reports: dict[str, RunReport] = {}
    first_wrong = ""
    with common.open_device(config, args.backend, progress, waves=waves, name="digits") as device:
        for name in names:
            entries[name], reports[name], wrong = _network(name, count, config, device, args, progress)
            first_wrong = first_wrong or wrong
    return entries, reports, first_wrong


def _network(name: str, count: int, config, device, args: argparse.Namespace, progress: common.Progress):
    """Report entry of one network, its run report, and its first difference from golden."""
    from sluice.compiler import compile as compile_graph
    from sluice.compiler import quantise_array, run_float
    from sluice.runtime import CompiledModel

    from .digits import networks, quantised

    net = networks()
    data = net.load_data()
    images, labels = net.preprocess(data.test_images[:count]), data.test_labels[:count]
    progress(f"{name}: quantising and compiling for {count} images")
    graph = quantised(name, count)
    (source,) = graph.inputs.values()
    compiled = compile_graph(graph, config)
    real = run_float(net.NETWORKS[name](batch=count), images)["logits"]
    progress(f"{name}: running {count} images, about {compiled.cycles} cycles")
    with CompiledModel(compiled, device) as model, common.running(device, name, args, compiled.cycles):
        outcome = model.run(quantise_array(images, source.type.quant), verify=True)
    logits = outcome.outputs["logits"]
    assert outcome.verification is not None
    check = outcome.verification
    entry = {
        "images": count,
        "mismatches": check.mismatches,
        "accuracy_float": float((real.argmax(1) == labels).mean()),
        "accuracy_rtl": float((logits.argmax(1) == labels).mean()),
        **outcome.report.figures(),
    }
    progress(f"{name}: {check.mismatches} of {check.values} values differ from golden")
    return {key: entry[key] for key in KEYS}, outcome.report, check.first and f"{name} {check.first}"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _table(result: dict[str, Any], reports: dict[str, RunReport], path: Path) -> None:
    rows = [
        ("images", lambda e: str(e["images"])),
        ("values unlike golden", lambda e: str(e["mismatches"])),
        ("accuracy, float", lambda e: f"{e['accuracy_float']:.4f}"),
        ("accuracy, chip", lambda e: f"{e['accuracy_rtl']:.4f}"),
        ("cycles", lambda e: _number(e["cycles"])),
        ("cycles per image", lambda e: "-" if e["cycles"] is None else f"{e['cycles'] / e['images']:.1f}"),
        ("MACs", lambda e: str(e["macs"])),
        ("MXU utilisation", lambda e: percent(e["mxu_utilisation"])),
        ("MXU starvation", lambda e: percent(e["mxu_starvation"])),
        ("HBM utilisation", lambda e: percent(e["hbm_utilisation"])),
        ("simulated cycles/s", lambda e: _number(e["sim_cycles_per_second"])),
    ]
    chip = next(iter(reports.values()))
    print(f"digits on the {chip.config.name} chip ({chip.config.rows}x{chip.config.cols}), backend {chip.backend}")
    print(f"{'':<22}" + "".join(f"{name:>12}" for name in result))
    for label, text in rows:
        print(f"{label:<22}" + "".join(f"{text(entry):>12}" for entry in result.values()))
    for name, report in reports.items():
        if report.cycles is None:
            continue
        print(f"where the cycles of {name} went:")
        for unit, causes in report.stalls.items():
            parts = [f"{cause} {percent(n / report.cycles)}" for cause, n in causes.items() if n]
            print(f"  {unit:<4} {', '.join(parts)}")
    print(f"report: {path}")
