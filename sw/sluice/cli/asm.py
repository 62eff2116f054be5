"""``sluice asm`` and ``sluice disasm``: text form to microcode and back."""

from __future__ import annotations

import argparse
from pathlib import Path

from sluice.errors import UsageError

from . import common

__all__ = ["add_commands", "read_program"]

_HEX_DIGITS = 64


def add_commands(commands) -> None:
    asm = commands.add_parser("asm", help="assemble a program")
    asm.add_argument("file", help="source text, - for standard input")
    common.add_config(asm, None)
    asm.add_argument("-o", "--out", metavar="FILE", help=".bin or .hex; default: print addresses and words")
    asm.set_defaults(call=_asm)
    disasm = commands.add_parser("disasm", help="print a program as text that assembles to the same words")
    disasm.add_argument("file", help=".bin or .hex as asm writes them, - for standard input (hex)")
    common.add_config(disasm)
    disasm.add_argument("-o", "--out", metavar="FILE", default="-", help="default: standard output")
    disasm.set_defaults(call=_disasm)


def _asm(args: argparse.Namespace) -> int:
    from sluice.asm import assemble
    from sluice.runtime import load_config

    config = load_config(args.config) if args.config else None
    program = assemble(common.read_text(args.file), config, file="<stdin>" if args.file == "-" else args.file)
    words = [f"{word:0{_HEX_DIGITS}x}" for word in program.words]
    if args.out is None:
        for pc, word in enumerate(words):
            print(f"{pc:4}  {word}")
    elif args.out.endswith(".bin"):
        common.write_file(args.out, program.to_bytes())
    elif args.out.endswith(".hex"):
        common.write_file(args.out, "".join(f"{word}\n" for word in words).encode())
    else:
        raise UsageError(f"--out must end in .bin or .hex, not {args.out!r}")
    return 0


def _disasm(args: argparse.Namespace) -> int:
    from sluice.asm import disassemble
    from sluice.runtime import load_config

    config = load_config(args.config)
    common.write_file(args.out, disassemble(read_program(args.file, config.name), config).encode())
    return 0


def read_program(path: str, config_name: str):
    """A program from a ``.bin`` or hex file.

    Raises
    ------
    UsageError
        For a file that is truncated or holds anything else.
    """
    from sluice.asm import Program

    if path.endswith(".bin"):
        try:
            return Program.from_bytes(common.read_file(path), config_name)
        except ValueError as error:
            raise UsageError(f"{path}: {error}") from None
    words = []
    for number, line in enumerate(common.read_text(path).splitlines(), 1):
        # A listing as `asm` prints it has the address in front.
        parts = line.split("#", 1)[0].split()
        if not parts:
            continue
        digits = parts[-1]
        try:
            word = int(digits, 16) if len(digits) == _HEX_DIGITS and len(parts) <= 2 else None
        except ValueError:
            word = None
        if word is None:
            raise UsageError(f"{path}:{number}: a word is {_HEX_DIGITS} hexadecimal digits, not {digits!r}")
        words.append(word)
    if not words:
        raise UsageError(f"{path}: holds no words")
    return Program(words, config_name)


def load_source(path: str, config_name: str | None):
    """Program and configuration from assembler text (any other suffix), ``.bin`` or ``.hex``."""
    from sluice.asm import assemble
    from sluice.runtime import load_config

    if Path(path).suffix in (".bin", ".hex"):
        config = load_config(config_name or "tiny")
        return read_program(path, config.name), config
    text = common.read_text(path)
    config = load_config(config_name) if config_name else None
    program = assemble(text, config, file="<stdin>" if path == "-" else path)
    return program, config or load_config(program.config_name)
