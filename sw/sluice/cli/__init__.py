"""The ``sluice`` command.

Exit status: 0 when all is well, 1 when results differ from what they must be, 2 when something could not be done; the
reason is then one line on standard error. 130 when the user interrupts; where a program ran, with the chip's state.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from sluice import __version__

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    """The argument parser with all subcommands."""
    from . import asm, estimate, info, layer, matmul, run, sim, verilog

    top = argparse.ArgumentParser(prog="sluice", description="An open TPU: assemble, compile, simulate, check.")
    top.add_argument("--version", action="version", version=f"sluice {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (sim, matmul, layer, run, estimate, asm, verilog, info):
        module.add_commands(commands)
    for command in set(commands.choices.values()):
        command.add_argument("--debug", action="store_true", help="show traceback and state of the chip")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status."""
    args = parser().parse_args(argv)
    from sluice.errors import expected_errors

    try:
        return args.call(args)
    except expected_errors() as error:
        dump = getattr(error, "dump", "")
        if args.debug:
            traceback.print_exc()
        hint = " (--debug shows the state of the chip)" if dump and not args.debug else ""
        print(f"sluice {args.command}: {error or type(error).__name__}{hint}", file=sys.stderr)
        if args.debug and dump:
            print(_indent(dump), file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        state = getattr(stop, "state", "")
        print(f"sluice {args.command}: interrupted{'; the chip:' if state else ''}", file=sys.stderr)
        if state:
            print(_indent(state), file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; keep Python's exit from complaining about it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (MemoryError, OSError) as error:
        what = "this needs more memory than the machine has" if isinstance(error, MemoryError) else str(error)
        print(f"sluice {args.command}: {what}", file=sys.stderr)
        return 2


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
