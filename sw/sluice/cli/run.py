"""``sluice run``: a program and a memory image, on golden or on the chip."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np

from sluice.errors import UsageError

from . import common
from .asm import load_source

__all__ = ["add_commands", "parse_param"]


def add_commands(commands) -> None:
    run = commands.add_parser("run", help="run a program on a memory image")
    run.add_argument("file", help="assembler text, or .bin or .hex")
    run.add_argument("--mem", metavar="NPZ", help="arrays NAME@SLICE to write; out:NAME@SLICE to read back, "
                     "expect:NAME@SLICE to compare with, param:I parameter registers")  # fmt: skip
    run.add_argument("--read", metavar="NAME@SLICE:DTYPE[SHAPE]", action="append", default=[],
                     help="read back a result, for example out@3:int8[16,8]; may be repeated")  # fmt: skip
    run.add_argument("--param", metavar="I=VALUE", action="append", default=[], help="parameter register")
    run.add_argument("--out", metavar="NPZ", help="write results there, by name")
    run.add_argument("--timeout", metavar="CYCLES", type=int, help="cycles that it may take")
    run.add_argument("--no-check", action="store_true", help="load words that the assembler would refuse (.bin, .hex)")
    common.add_config(run, None)
    common.add_backend(run)
    common.add_json(run)
    run.set_defaults(call=_run)


def _run(args: argparse.Namespace) -> int:
    from sluice.runtime import Image, load_image
    from sluice.runtime.image import parse_read

    program, config = load_source(args.file, args.config)
    image = load_image(args.mem) if args.mem else Image()
    for text in args.read:
        name, place = parse_read(text)
        if name in image.reads:
            raise UsageError(f"result {name!r} is asked for twice")
        image.reads[name] = place
    for text in args.param:
        image.params.update(parse_param(text))
    if args.timeout is not None and args.timeout < 1:
        raise UsageError(f"--timeout must be at least 1 cycle, not {args.timeout}")
    progress = common.Progress()
    with common.open_device(
        config, args.backend, progress, waves=common.waves_of(args), name=Path(args.file).stem
    ) as device:
        image.write(device)
        progress(f"running {args.file}")
        with common.running(device, Path(args.file).stem, args):
            report = device.run(program, params=image.param_list, timeout_cycles=args.timeout,
                                verify=not args.no_check)  # fmt: skip
        results = image.read(device)
    report = report.with_estimate(program, image.param_list)
    if args.out:
        file = io.BytesIO()
        np.savez(file, **results)
        common.write_file(args.out, file.getvalue())
    wrong = {name: int((results[name] != want).sum()) for name, want in image.expected.items()}
    if args.json:
        common.emit_json({**report.to_json(), "halt_code": report.halt_code, "mismatches": wrong,
                          "results": {name: value.tolist() for name, value in results.items()}})  # fmt: skip
    else:
        print(report)
        for name, value in results.items():
            verdict = f", {wrong[name]} of {value.size} values differ" if name in wrong else ""
            print(f"{name} {value.dtype}{list(value.shape)}{verdict}")
            print(np.array2string(value, threshold=256, max_line_width=118))
    return 1 if any(wrong.values()) else 0


def parse_param(text: str) -> dict[int, int]:
    """``I=VALUE`` of ``--param``."""
    from sluice_hw import isa

    index, equals, value = text.partition("=")
    try:
        number, register = int(value, 0), int(index.removeprefix("p"))
    except ValueError:
        number = register = -1
    if not equals or not 0 <= register < isa.PARAM_REGISTERS or not 0 <= number < 1 << 32:
        raise UsageError(f"--param must be I=VALUE, I 0 to {isa.PARAM_REGISTERS - 1}, VALUE 32 bits, not {text!r}")
    return {register: number}
