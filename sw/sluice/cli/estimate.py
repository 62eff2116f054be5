"""``sluice estimate``: cycles of a program from the cost model, without a simulator."""

from __future__ import annotations

import argparse

from sluice.errors import UsageError

from . import common

__all__ = ["add_commands"]


def add_commands(commands) -> None:
    command = commands.add_parser("estimate", help="estimate cycles, and say where they go, without a simulator")
    command.add_argument("file", nargs="?", help="a program: assembler text, .bin or .hex")
    for name, text in (("m", "rows of the activations"), ("k", "length of a sum"), ("n", "columns of the weights")):
        command.add_argument(f"--{name}", type=int, help=f"a matrix product: {text}")
    command.add_argument("--out", choices=("int8", "int32"), default="int8", help="its results (default int8)")
    command.add_argument("--relu", action="store_true", help="its negative results become 0")
    command.add_argument("--net", choices=("mlp", "cnn"), help="a network of examples/digits")
    command.add_argument("--images", type=int, default=360, help="images of the network's input (default 360)")
    command.add_argument("--param", metavar="I=VALUE", action="append", default=[],
                         help="parameter register of a program")  # fmt: skip
    common.add_config(command, None)
    common.add_json(command)
    command.set_defaults(call=_estimate)


def _estimate(args: argparse.Namespace) -> int:
    from sluice.estimate import estimate

    program, config, title = _program(args)
    params: dict[int, int] = {}
    for text in args.param:
        from .run import parse_param

        params.update(parse_param(text))
    result = estimate(program, config, params=[params.get(i, 0) for i in range(max(params, default=-1) + 1)])
    if args.json:
        common.emit_json({"name": title, **result.to_json()})
    else:
        print(title)
        print(result)
    return 0


def _program(args: argparse.Namespace):
    """Program, chip and what it is in words."""
    from sluice.compiler import compile as compile_graph
    from sluice.compiler import matmul_graph
    from sluice.runtime import load_config
    from sluice.runtime.matmul import check_operands, check_shape

    sizes = {name: getattr(args, name) for name in "mkn"}
    given = [name for name, size in sizes.items() if size is not None]
    kinds = [bool(args.file), bool(given), bool(args.net)]
    if sum(kinds) != 1:
        raise UsageError("give one of: a program's file; --m, --k and --n; --net")
    if args.file:
        from .asm import load_source

        program, config = load_source(args.file, args.config)
        return program, config, args.file
    config = load_config(args.config or "tiny")
    if given:
        if len(given) < 3:
            raise UsageError(f"a matrix product needs --m, --k and --n; given: --{', --'.join(given)}")
        m, k, n = sizes.values()
        check_shape(m, k, n)
        check_operands(config, m, k, n, args.out)
        graph = matmul_graph(m, k, n, out=args.out, relu=args.relu)
        title = f"[{m}, {k}] x [{k}, {n}] -> {args.out}{', ReLU' if args.relu else ''}"
    else:
        from .digits import quantised

        if args.images < 1:
            raise UsageError(f"--images must be at least 1, not {args.images}")
        graph, title = quantised(args.net, args.images), f"{args.net}, {args.images} images"
    return compile_graph(graph, config).program, config, title
