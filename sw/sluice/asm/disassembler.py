"""Program to text that assembles to the same words."""

from __future__ import annotations

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Op

from . import fields as text_fields
from .program import Program
from .words import WordError, check_word

__all__ = ["disassemble", "format_op"]


def disassemble(program: Program | bytes, config: ChipConfig) -> str:
    """Text form of a program, exact for every sequence of words.

    Loops that nest properly are written with braces, other LOOP and END words plainly. Words that are not legal become
    ``.word`` lines with the reason as a comment; :func:`assemble` takes those with ``check=False`` only.
    """
    if not isinstance(program, Program):
        program = Program.from_bytes(program)
    decoded: list[tuple[Op, dict[str, int]] | WordError] = []
    for word in program.words:
        try:
            decoded.append(check_word(word, config))
        except WordError as error:
            decoded.append(error)
    structured = _structured(decoded)
    lines = [f".config {config.name}"] if config.name != "custom" else []
    depth = 0
    for pc, item in enumerate(decoded):
        if pc in program.notes:
            lines.extend("  " * depth + f"# {text}" for text in program.notes[pc].splitlines())
        if isinstance(item, WordError):
            lines.append("  " * depth + f".word {program.words[pc]:#x}  # {item}")
            continue
        op, fields = item
        if op is Op.END and pc in structured:
            depth -= 1
            lines.append("  " * depth + "}")
            continue
        text = format_op(op, fields, config, structured=pc in structured)
        lines.append("  " * depth + text)
        if op is Op.LOOP and pc in structured:
            depth += 1
    return "\n".join(lines) + "\n"


def _structured(decoded: list[tuple[Op, dict[str, int]] | WordError]) -> set[int]:
    """Addresses of the LOOP and END words that pair up as braces can say it."""
    pairs: set[int] = set()
    stack: list[tuple[int, int, int]] = []  # pc, level, end of the loops that surely are open here
    for pc, item in enumerate(decoded):
        if isinstance(item, WordError):
            continue
        op, fields = item
        if op is Op.LOOP:
            level, end = fields["level"], fields["end"]
            closes = pc < end < len(decoded) and not isinstance(decoded[end], WordError)
            closes = closes and decoded[end] == (Op.END, {"level": level})
            nests = not stack or (level > stack[-1][1] and end < stack[-1][2])
            if closes and nests:
                stack.append((pc, level, end))
                pairs |= {pc, end}
        elif op is Op.END and stack and stack[-1][2] == pc:
            stack.pop()
    return pairs


def format_op(op: Op, fields: dict[str, int], config: ChipConfig, *, structured: bool = False) -> str:
    """One line for one op; fields at their default are left out, except those that name its object.

    Parameters
    ----------
    structured
        Write LOOP with an opening brace and without ``end``.
    """
    spec = {f.name: f for f in isa.OPS[op].fields}
    left = {n: v for n, v in fields.items() if v != text_fields.default_of(spec[n], config)}
    parts: list[str] = []

    def put(text: str, *names: str) -> None:
        parts.append(text)
        for name in names:
            left.pop(name, None)

    if "unit" in fields:
        put(f"unit={text_fields.format_value('unit', fields['unit'])}", "unit")  # which queue: never left out
    elif op is Op.PASS_STREAM:
        put(f"stream={text_fields.format_value('stream', fields['stream'])}", "stream")
    elif op is Op.ADDR:
        put(f"r{fields['reg']}", "reg")
        if fields["add_param"]:
            base = f"+{fields['base']:#x}" if fields["base"] else ""
            put(f"base=p{fields['param']}{base}", "base", "add_param", "param")
    elif op is Op.LOOP:
        put(str(fields["level"]), "level")
        if fields["from_param"] and not fields["count"]:
            put(f"count=p{fields['param']}", "from_param", "param")
        if structured:
            left.pop("end", None)
    elif op is Op.END:
        put(str(fields["level"]), "level")
    elif op is Op.PULSE_ARRAY:
        if fields["swap"]:
            mask = fields["swap_first"]
            put(f"swap@first({text_fields.format_levels(mask)})" if mask else "swap", "swap", "swap_first")
        if fields["acc_mode"] == isa.AccMode.FIRST and fields["acc_first"]:
            put(f"acc_mode=first({text_fields.format_levels(fields['acc_first'])})", "acc_mode", "acc_first")
    elif op is Op.VECTOR_MODE and fields["requant"] == isa.Requant.FLOAT and fields["multiplier"]:
        scale = text_fields.format_float(fields["multiplier"])
        if scale is not None:
            put(f"scale={scale}", "multiplier")
    tail = []
    for kind in ("wait", "signal"):
        if f"{kind}_ld" in spec:
            text, covered = text_fields.format_tokens(kind, fields)
            if text:
                tail.append(f"{kind}={text}")
                for name in covered:
                    left.pop(name, None)
    for f in isa.OPS[op].fields:
        if f.name not in left:
            continue
        flag = f.width == 1 and left[f.name] == 1 and f.name not in text_fields.ENUM_FIELDS
        parts.append(f.name if flag else f"{f.name}={text_fields.format_value(f.name, left[f.name])}")
    return " ".join([op.name.lower(), *parts, *tail, *(["{"] if structured else [])])
