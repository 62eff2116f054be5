"""``python -m verif.random_programs``: replay seeds on a chip."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from sluice.build import sim_build_dir
from sluice.errors import SluiceError

from .chips import CHIPS, open_bench
from .compare import Mismatch
from .illegal import BREAKS
from .legal import make_case
from .replay import from_text, run_seeds, text_of
from .sweep import break_seed


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m verif.random_programs", description="Random programs on a chip, compared with golden."
    )
    parser.add_argument("--config", choices=CHIPS, default="tiny", help="the chip")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="seeds, run one after the other on one chip")
    parser.add_argument("--count", type=int, default=1, help="how many seeds from the last one on")
    parser.add_argument("--program", type=Path, help="a file that a failure has left, instead of seeds")
    parser.add_argument("--backend", default="rtl", help="how the chip is simulated (default: rtl)")
    parser.add_argument("--shrink", action="store_true", help="make a failing program small")
    parser.add_argument("--break", choices=BREAKS, dest="broken", help="break the programs in this way")
    parser.add_argument("--tries", type=int, default=2000, help="smaller programs to try (default: 2000)")
    parser.add_argument("--print", action="store_true", dest="show", help="print the program and do not run it")
    args = parser.parse_args()
    if args.count < 1:
        parser.error(f"--count must be at least 1, not {args.count}")
    seeds = [*args.seed, *range(args.seed[-1] + 1, args.seed[-1] + args.count)]
    config = CHIPS[args.config]
    if args.show:
        for seed in seeds:
            print(text_of(make_case(config, seed)), end="")
        return 0
    if args.program is not None:
        try:
            text = args.program.read_text()
        except (OSError, UnicodeDecodeError) as error:
            parser.error(f"--program {str(args.program)!r} cannot be read: {error}")
        name = next((line.split()[1] for line in text.splitlines() if line.startswith(".config ")), args.config)
        if name not in CHIPS:
            parser.error(f"--program {str(args.program)!r} is for config {name!r}, not one of {', '.join(CHIPS)}")
        try:
            case = from_text(text, CHIPS[name])
        except (KeyError, ValueError) as error:
            parser.error(f"--program {str(args.program)!r} is none that a failure has left: {error!r}")
        bench = open_bench(CHIPS[name], args.backend)
        with bench.device:
            bench.run(case)
        print(f"{args.program} is as on golden")
        return 0
    bench = open_bench(config, args.backend)
    if args.broken:
        with bench.device:
            done = sum(break_seed(bench, seed, args.broken) for seed in seeds)
        print(f"{done} of {len(seeds)} programs broken ({args.broken}): stopped as on golden, then right when whole")
        return 0
    began = time.monotonic()
    with bench.device:
        failed = run_seeds(bench, seeds, sim_build_dir() / "report" / "random_programs",
                           tries=args.tries if args.shrink else 0)  # fmt: skip
    print(f"{len(seeds)} programs on {config.name}, {len(failed)} failed, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Mismatch, SluiceError) as found:
        sys.exit(str(found))
