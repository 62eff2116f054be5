"""``sluice verilog`` and ``sluice lint``: the chip as Verilog."""

from __future__ import annotations

import argparse

from . import common

__all__ = ["add_commands"]


def add_commands(commands) -> None:
    verilog = commands.add_parser("verilog", help="write the chip as one Verilog file")
    common.add_config(verilog)
    verilog.add_argument("--emit", choices=("structural", "loop"), default="structural",
                         help="form of the array: for synthesis (default), or for fast simulation")  # fmt: skip
    verilog.add_argument("--out", metavar="FILE", help="default: sim_build/verilog/sluice_CONFIG_EMIT.v; - for stdout")
    verilog.set_defaults(call=_verilog)
    lint = commands.add_parser("lint", help="check the chip's Verilog with Verilator")
    common.add_config(lint)
    lint.add_argument("--emit", choices=("structural", "loop"), default="structural", help="form of the array")
    lint.set_defaults(call=_lint)


def _verilog(args: argparse.Namespace) -> int:
    from sluice.build import sim_build_dir
    from sluice.runtime import load_config
    from sluice.runtime.chip_model import chip_source

    config = load_config(args.config)
    progress = common.Progress()
    with progress.during(f"writing the {config.name} chip as Verilog"):
        text = chip_source(config, args.emit)
    path = args.out or sim_build_dir() / "verilog" / f"sluice_{config.name}_{args.emit}.v"
    common.write_file(path, text.encode())
    if path != "-":
        print(f"{path}: {text.count(chr(10))} lines")
    return 0


def _lint(args: argparse.Namespace) -> int:
    from pathlib import Path

    import sluice_hw.emit
    from sluice.build import lint
    from sluice.runtime import load_config
    from sluice.runtime.chip_model import TOP, chip_source

    config = load_config(args.config)
    progress = common.Progress()
    with progress.during(f"checking the {config.name} chip with Verilator"):
        lint(chip_source(config, args.emit), TOP, Path(sluice_hw.emit.__file__).parent / "waivers.vlt")
    print(f"{config.name} {args.emit}: no warnings but those waived")
    return 0
