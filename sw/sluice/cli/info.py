"""``sluice config``, ``sluice memory`` and ``sluice bench``."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
import textwrap

from sluice.errors import UsageError
from sluice.sizes import size_text

from . import common

__all__ = ["add_commands"]


def add_commands(commands) -> None:
    config = commands.add_parser("config", help="list the presets, or show one configuration")
    config.add_argument("action", choices=("list", "show"))
    config.add_argument("name", nargs="?", help="for show: preset or file")
    common.add_json(config)
    config.set_defaults(call=_config)
    memory = commands.add_parser("memory", help="show the memories of a chip, and where a network lies in them")
    common.add_config(memory)
    memory.add_argument("--net", choices=("mlp", "cnn"), help="a network of examples/digits")
    memory.add_argument("--batch", type=int, default=360, help="images of the network's input (default 360)")
    what = "controller: the slice controller, or one that leaves rows open (default slices)"
    memory.add_argument("--banks", choices=("slices", "open-rows"), default="slices", help=what)
    memory.set_defaults(call=_memory)
    bench = commands.add_parser("bench", help="measure speed and cycles")
    bench.add_argument("names", nargs="*", help="what to measure; default: everything")
    bench.set_defaults(call=_bench)


def _config(args: argparse.Namespace) -> int:
    from sluice.presets import NOTES, gigabytes_per_second, peak_tops
    from sluice.runtime import load_config
    from sluice_hw.config import PRESETS
    from sluice_hw.csr import config_hash

    if args.action == "list":
        if args.name:
            raise UsageError(f"config list takes no name, not {args.name!r}; use config show")
        if args.json:
            common.emit_json({name: dataclasses.asdict(c) for name, c in PRESETS.items()})
            return 0
        print(f"{'name':<10}{'array':>9}{'clock':>10}{'TOPS':>8}{'VMEM':>11}{'acc.':>10}{'HBM':>11}{'bytes/cycle':>13}"
              f"{'slice':>8}  for")  # fmt: skip
        for c in PRESETS.values():
            print(f"{c.name:<10}{f'{c.rows}x{c.cols}':>9}{c.clock_mhz:>6} MHz{peak_tops(c):>8.2f}"
                  f"{size_text(c.vmem_bytes):>11}{size_text(c.acc_bytes):>10}{size_text(c.hbm_bytes):>11}"
                  f"{c.hbm_bytes_per_cycle:>13}{c.slice_bytes:>8}  {NOTES[c.name].purpose}")  # fmt: skip
        return 0
    if not args.name:
        raise UsageError("config show needs a preset or a file")
    config = load_config(args.name)
    if args.json:
        common.emit_json({**dataclasses.asdict(config), "config_hash": config_hash(config)})
        return 0
    for name, value in dataclasses.asdict(config).items():
        print(f"{name:<20} {value}")
    print(f"{'hbm_beat_bytes':<20} {config.hbm_beat_bytes}")
    print(f"{'config_hash':<20} {config_hash(config):#010x}")
    print(f"{'peak':<20} {peak_tops(config):.2f} TOPS, HBM {gigabytes_per_second(config):.1f} GB/s")
    if PRESETS.get(config.name) == config:
        note = NOTES[config.name]
        for name, text in (("for", note.purpose), ("follows", note.follows), ("differs", note.differs)):
            print(textwrap.fill(text, 100, initial_indent=f"{name:<21}", subsequent_indent=" " * 21))
    return 0


def _memory(args: argparse.Namespace) -> int:
    from sluice.presets import memory_text
    from sluice.runtime import BankMap, compiled_memory, load_config

    c = load_config(args.config)
    if args.batch < 1:
        raise UsageError(f"--batch must be at least 1, not {args.batch}")
    beats = "" if c.hbm_beat_bytes == c.hbm_bytes_per_cycle else f" in beats of {c.hbm_beat_bytes}"
    print(f"memory        {memory_text(c)}")
    print(f"HBM           {c.hbm_slices} slices of {c.slice_bytes} bytes = {size_text(c.hbm_bytes)}, "
          f"{c.hbm_bytes_per_cycle} bytes a cycle{beats}")  # fmt: skip
    print(f"VMEM          {size_text(c.vmem_bytes)}: {c.vmem_regions} regions of {size_text(c.vmem_region_bytes)}, "
          f"{c.vmem_interleave} banks each, words of {c.word_bytes} bytes")  # fmt: skip
    sums = "fp32" if c.is_float else "int32"
    print(f"accumulators  {c.acc_rows} rows of {c.cols} {sums} = {size_text(c.acc_bytes)}, two regions")
    print(f"microcode     {c.microcode_words} words of 32 bytes")
    if args.net:
        from sluice.compiler import compile as compile_graph

        from .digits import quantised

        compiled = compile_graph(quantised(args.net, args.batch), c)
        print(f"\n{compiled.describe()}\n\nmemory map")
        print(compiled_memory(compiled, BankMap.of(c, args.banks)))
    return 0


def _bench(args: argparse.Namespace) -> int:
    root = str(common.project_root())
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        module = importlib.import_module("verif.bench")
    except ModuleNotFoundError as error:
        if error.name not in ("verif", "verif.bench"):
            raise
        raise UsageError("there are no benchmarks in this copy of the project (verif/bench)") from None
    return int(module.main(args.names) or 0)
