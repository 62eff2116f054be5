"""``sluice layer``: a transformer's encoder layer of random weights, checked."""

from __future__ import annotations

import argparse

from . import common

__all__ = ["add_commands"]


def add_commands(commands) -> None:
    layer = commands.add_parser("layer", help="run a transformer's encoder layer and compare with golden (bf16 chips)")
    for name, value, text in (("sequence", 32, "rows of the input"), ("hidden", 384, "values of a row"),
                              ("heads", 12, "heads of the attention")):  # fmt: skip
        layer.add_argument(f"--{name}", type=int, default=value, help=f"{text} (default {value})")
    layer.add_argument("--causal", action="store_true", help="a row sees itself and the rows before it")
    layer.add_argument("--seed", type=int, default=1, help="of input and weights (default 1)")
    common.add_config(layer, "v2")
    common.add_backend(layer)
    common.add_json(layer)
    layer.set_defaults(call=_layer)


def _layer(args: argparse.Namespace) -> int:
    import numpy as np

    from sluice.runtime import load_config
    from sluice.vector.layer import RandomLayer

    config = load_config(args.config)
    progress = common.Progress()
    shape = f"{args.sequence}x{args.hidden}, {args.heads} heads"
    with progress.during(f"compiling a layer of {shape} for {config.name}"):
        layer = RandomLayer.make(config, sequence=args.sequence, hidden=args.hidden, heads=args.heads,
                                 causal=args.causal, seed=args.seed)  # fmt: skip
        wanted = layer.golden()
    with common.open_device(config, args.backend, progress, waves=common.waves_of(args),
                            name=f"layer-{args.sequence}x{args.hidden}") as device, \
            common.running(device, shape, args):  # fmt: skip
        results, report = layer.program.run(device, layer.inputs)
    bad = int(np.count_nonzero(results["y"].view(np.uint32) != wanted.view(np.uint32)))
    if args.json:
        common.emit_json({"sequence": args.sequence, "hidden": args.hidden, "heads": args.heads,
                          "causal": args.causal, "seed": args.seed, "values": wanted.size, "mismatches": bad,
                          **report.to_json()})  # fmt: skip
    else:
        print(f"encoder layer of {shape}{', causal' if args.causal else ''}, seed {args.seed}: {bad} of {wanted.size} "
              f"values differ from golden")  # fmt: skip
        print(report)
    return 1 if bad else 0
