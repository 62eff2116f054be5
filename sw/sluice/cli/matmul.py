"""``sluice matmul``: a random matrix product of any shape, checked."""

from __future__ import annotations

import argparse

from . import common

__all__ = ["add_commands"]


def add_commands(commands) -> None:
    matmul = commands.add_parser("matmul", help="multiply random int8 matrices and compare with golden")
    for name, text in (("m", "rows of the activations"), ("k", "length of a sum"), ("n", "columns of the weights")):
        matmul.add_argument(f"--{name}", type=int, required=True, help=text)
    common.add_config(matmul)
    matmul.add_argument("--seed", type=int, default=1, help="of the operands (default 1)")
    matmul.add_argument("--out", choices=("int8", "int32"), default="int8",
                        help="requantised results, or accumulators (default int8)")  # fmt: skip
    matmul.add_argument("--relu", action="store_true", help="negative results become 0")
    common.add_backend(matmul)
    common.add_json(matmul)
    matmul.set_defaults(call=_matmul)


def _matmul(args: argparse.Namespace) -> int:
    from sluice.runtime import load_config
    from sluice.runtime.matmul import check_shape, run_matmul

    check_shape(args.m, args.k, args.n)
    config = load_config(args.config)
    progress = common.Progress()
    with common.open_device(config, args.backend, progress, waves=common.waves_of(args),
                            name=f"matmul-{args.m}x{args.k}x{args.n}") as device, \
            common.running(device, f"{args.m}x{args.k}x{args.n}", args):  # fmt: skip
        done = run_matmul(config, args.m, args.k, args.n, seed=args.seed, out=args.out, relu=args.relu, device=device,
                          progress=progress)  # fmt: skip
    check = done.verification
    if args.json:
        common.emit_json({"seed": args.seed, "relu": args.relu, **done.to_json()})
    else:
        print(f"[{args.m}, {args.k}] x [{args.k}, {args.n}] -> {args.out}{', ReLU' if args.relu else ''}, "
              f"seed {args.seed}: {check.mismatches} of {check.values} values differ from golden")  # fmt: skip
        if check.first:
            print(f"  first: {check.first}")
        print(done.report)
    return 1 if check.mismatches else 0
