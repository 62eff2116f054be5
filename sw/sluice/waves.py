"""GTKWave save files for waveforms of the chip.

The file opens on clock and reset, sequencer, units, array edges, tokens and AXI ports, grouped and named. Which signals
there are is read from the FST file itself, so that the save file never names one that does not exist.
"""

from __future__ import annotations

import gzip
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from sluice.errors import UsageError
from sluice_hw import isa
from sluice_hw.config import ChipConfig

__all__ = ["Signal", "fst_signals", "fst_times", "save_text", "write_save_file"]

_HEADER = 0
_HIERARCHY_GZIP, _HIERARCHY_LZ4, _HIERARCHY_LZ4_TWICE, _WRAPPER = 4, 6, 7, 254
_SCOPE, _UPSCOPE, _ATTRIBUTE, _ATTRIBUTE_END = 254, 255, 252, 253

# GTKWave's display flags (analyzer.h).
_HEX, _RIGHT, _BLANK, _FILTERED, _GROUP, _GROUP_END = 0x2, 0x20, 0x200, 0x2000, 0x800000, 0x1000000
_BIT = 0x28


@dataclass(frozen=True)
class Signal:
    """A signal of a waveform: its path with dots, its width in bits, and its range as the file writes it."""

    path: str
    width: int
    range: str = ""

    @property
    def name(self) -> str:
        """As a save file names it."""
        return self.path + self.range


def fst_signals(path: str | Path) -> list[Signal]:
    """All signals of an FST file, in its order.

    Raises
    ------
    UsageError
        For a file that is no FST file, or that was not finished.
    """
    data = Path(path).read_bytes()
    for kind, at, size in _blocks(data):
        if kind == _WRAPPER:
            data = gzip.decompress(data[at + 8 : at + size])
    for kind, at, size in _blocks(data):
        if kind in (_HIERARCHY_GZIP, _HIERARCHY_LZ4, _HIERARCHY_LZ4_TWICE):
            return _parse(_unpack(kind, data[at : at + size]))
    raise UsageError(f"{path}: no FST file with a hierarchy; was the simulation ended before it was written?")


def fst_times(path: str | Path) -> tuple[int, int]:
    """First and last time of an FST file, in its unit (1 ns in those of the rtl backend).

    Raises
    ------
    UsageError
        For a file that is no FST file.
    """
    data = Path(path).read_bytes()
    for kind, at, size in _blocks(data):
        if kind == _WRAPPER:
            data = gzip.decompress(data[at + 8 : at + size])
    for kind, at, _ in _blocks(data):
        if kind == _HEADER:
            return struct.unpack_from(">QQ", data, at)
    raise UsageError(f"{path}: no FST file with a header")


def _blocks(data: bytes):
    """(type, start of content, size of content) of each block: a type byte, then a length that counts itself."""
    at = 0
    while at + 9 <= len(data):
        (length,) = struct.unpack_from(">Q", data, at + 1)
        if length < 8:
            return
        yield data[at], at + 9, length - 8
        at += 1 + length


def _unpack(kind: int, content: bytes) -> bytes:
    (size,) = struct.unpack_from(">Q", content)
    if kind == _HIERARCHY_GZIP:
        return gzip.decompress(content[8:])
    if kind == _HIERARCHY_LZ4:
        return lz4_block(content[8:], size)
    (once,) = struct.unpack_from(">Q", content, 8)
    return lz4_block(lz4_block(content[16:], once), size)


def lz4_block(data: bytes, size: int) -> bytes:
    """Decompress one LZ4 block (its format: sequences of literals and a match)."""
    out = bytearray()
    at = 0
    while at < len(data):
        token = data[at]
        at += 1

        def length(nibble: int) -> int:
            nonlocal at
            total = nibble
            while nibble == 15:
                more = data[at]
                at += 1
                total += more
                if more != 255:
                    break
            return total

        literals = length(token >> 4)
        out += data[at : at + literals]
        at += literals
        if at >= len(data):
            break
        offset = data[at] | data[at + 1] << 8
        at += 2
        count = length(token & 15) + 4
        start = len(out) - offset
        for i in range(count):
            out.append(out[start + i])
    if len(out) != size:
        raise UsageError(f"LZ4 block of {size} bytes holds {len(out)}")
    return bytes(out)


def _parse(data: bytes) -> list[Signal]:
    """Signals of a hierarchy: scopes, attributes and variables one after the other."""
    out, scopes, at = [], [], 0

    def text() -> str:
        nonlocal at
        end = data.index(0, at)
        value = data[at:end].decode(errors="replace")
        at = end + 1
        return value

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = data[at]
        at += 1
        if tag == _SCOPE:
            at += 1
            scopes.append(text())
            text()
        elif tag == _UPSCOPE:
            scopes.pop()
        elif tag == _ATTRIBUTE:
            at += 2
            text()
            number()
        elif tag != _ATTRIBUTE_END:
            at += 1
            name = text().replace(" ", "")
            width = number()
            number()
            bare = re.sub(r"\[-?\d+:-?\d+\]\Z", "", name)
            out.append(Signal(".".join([*filter(None, scopes), bare]), width, name[len(bare) :]))
    return out


@dataclass(frozen=True)
class Shown:
    """Signals to show.

    Attributes
    ----------
    pattern
        Regular expression of their paths inside the chip.
    label
        Name to show them by, ``\\1`` for the pattern's groups.
    words
        Table of words for their values; "" for numbers.
    """

    pattern: str
    label: str
    words: str = ""


_UNITS = tuple(u.name for u in isa.Unit)
# A part of the chip whose name is also a signal's gets a number behind it.
_N = r"(?:\$\d+)?"


def _unit(unit: str) -> tuple[Shown, ...]:
    low = unit.lower()
    return (
        Shown(rf"counters\.{low}", f"{unit} state", "causes"),
        Shown(rf"{low}_queue\.opcode", f"{unit} op", "opcodes"),
        Shown(rf"{low}_queue\.pc", f"{unit} op address"),
        Shown(rf"{low}_queue\.level", f"{unit} queue level"),
    )


def _tokens(giver: str, number: int) -> tuple[Shown, ...]:
    takers = [Shown(rf"tokens{_N}\.counts\[{number}\]\[{t}\]", f"tokens {giver} to {u}")
              for t, u in enumerate(_UNITS) if u != giver]  # fmt: skip
    asks = (Shown(rf"tokens{_N}\.take__{number}__(valid|ready|payload)", rf"{giver} takes: \1"),
            Shown(rf"tokens{_N}\.give__{number}", f"{giver} gives to"))  # fmt: skip
    return (*takers, *asks)


#: Groups of the display, in order.
GROUPS: dict[str, tuple[Shown, ...]] = {
    "Clock and reset": (
        Shown(r"clk", "clock"), Shown(r"rst", "reset"), Shown(r"irq", "interrupt"),
        Shown(r"sequencer\.clear", "program starts"), Shown(r"host\.core_reset", "soft reset"),
    ),
    "Sequencer": (
        Shown(r"counters\.seq", "sequencer state", "causes"), Shown(r"sequencer\.state\.pc", "word address"),
        Shown(r"sequencer\.(running|halted|done|error)", r"\1"), Shown(r"sequencer\.state\.open", "open loops"),
        Shown(r"sequencer\.(ld|st|mxu|vpu)__(valid|ready)", r"to \1 queue: \2"),
    ),
    "Units": tuple(shown for unit in _UNITS for shown in _unit(unit))
    + (Shown(r"counters\.hbm", "HBM state", "causes"),),
    "MXU edges": (
        Shown(rf"mxu{_N}\.array\.a_(valid|swap)", r"activations: \1"),
        Shown(rf"mxu{_N}\.array\.a_data", "activations: row"),
        Shown(rf"mxu{_N}\.array\.w_(valid|start)", r"weights: \1"),
        Shown(rf"mxu{_N}\.array\.w_data", "weights: row"),
        Shown(rf"mxu{_N}\.array\.p_valid", "sums: valid"), Shown(rf"mxu{_N}\.array\.p_data", "sums: row"),
    ),
    "Tokens": tuple(shown for number, unit in enumerate(_UNITS) for shown in _tokens(unit, number)),
    "AXI4-Lite": (Shown(r"s_axil_(\w+)", r"\1"),),
    "AXI4": (Shown(r"s_axi_(\w+)", r"\1"),),
}  # fmt: skip


def save_text(signals: list[Signal], fst: Path, tables: dict[str, Path], config: ChipConfig) -> str:
    """Text of a save file for the signals of a waveform."""
    top = _chip_scope(signals)
    inside = {s.path[len(top) :]: s for s in signals if s.path.startswith(top)}
    lines = [
        f"[*] {config.name} chip, {config.rows}x{config.cols} array", f'[dumpfile] "{fst}"', "[timestart] 0",
        "[size] 1600 1000", "[pos] -1 -1", "[sst_width] 240", "[signals_width] 360", "[sst_expanded] 1",
    ]  # fmt: skip
    for title, wanted in GROUPS.items():
        body: list[str] = []
        for shown in wanted:
            for rest, signal in inside.items():
                match = re.fullmatch(shown.pattern, rest)
                if not match:
                    continue
                flags = _HEX | _RIGHT if signal.width > 1 else _BIT
                if shown.words:
                    body += [f"@{flags | _FILTERED:x}", f"^1 {tables[shown.words]}"]
                else:
                    body.append(f"@{flags:x}")
                body.append(f"+{{{match.expand(shown.label)}}} {signal.name}")
        if body:
            lines += [f"@{_GROUP | _BLANK:x}", f"-{title}", *body, f"@{_GROUP_END | _BLANK:x}", f"-{title}"]
    return "\n".join(lines) + "\n"


def _chip_scope(signals: list[Signal]) -> str:
    """Path of the chip with its final dot: the outermost module that has the AXI ports, or, where a memory stands
    beside the chip in it, the chip there."""
    found = [s.path[: -len("s_axi_awvalid")] for s in signals if s.path.endswith(".s_axi_awvalid")]
    found = [f for f in found if f.endswith(".chip.")] or found
    # Verilator shows the ports once more in a scope of its own.
    return min((f for f in found if not f.startswith("$")), key=len, default="")


def write_save_file(fst: str | Path, config: ChipConfig) -> Path:
    """Write ``<fst>.gtkw`` and the tables that show states and opcodes as words; the save file's path."""
    fst = Path(fst).absolute()
    tables = {}
    for name, kind in (("causes", isa.Cause), ("opcodes", isa.Op)):
        tables[name] = fst.with_name(f"{name}.txt")
        tables[name].write_text("".join(f"{int(k):x} {k.name.lower()}\n" for k in kind))
    save = fst.with_suffix(".gtkw")
    save.write_text(save_text(fst_signals(fst), fst, tables, config))
    return save
