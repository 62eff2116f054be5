"""Microcode: the encodings that the sequencer's decoder and the assembler both use.

A microcode word has 256 bits: the opcode in bits 0..5, then the op's fields in the order of its table, least
significant
first; all bits above are reserved and must be zero. The tables here are the only description: :func:`word_layout` makes
the ``lib.data`` layout that the decoder uses, :func:`encode` and :func:`decode` serve software, and
:func:`field_range` gives the legal range of a field for a configuration, which the assembler and the chip both enforce.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from amaranth.hdl import signed, unsigned
from amaranth.lib import data

from .config import ChipConfig
from .functions import Function
from .vector_ops import AluOp, Reduction

__all__ = [
    "ADDRESS_REGISTERS",
    "LOOP_LEVELS",
    "OPS",
    "PARAM_REGISTERS",
    "STRIDE_BITS",
    "UNIT_CAUSES",
    "WORD_BITS",
    "AccMode",
    "Cause",
    "Error",
    "Field",
    "Format",
    "Op",
    "OpSpec",
    "Operand",
    "Reduce",
    "Requant",
    "Residual",
    "Source",
    "Stream",
    "Unit",
    "decode",
    "encode",
    "field_index",
    "field_range",
    "ops_of",
    "word_layout",
]

WORD_BITS = 256
WORD_BYTES = WORD_BITS // 8
OPCODE_BITS = 6
LOOP_LEVELS = 6
ADDRESS_REGISTERS = 16
PARAM_REGISTERS = 8
STRIDE_BITS = 26


class Unit(enum.IntEnum):
    """Units that have a queue and exchange tokens."""

    LD = 0
    ST = 1
    MXU = 2
    VPU = 3


class Op(enum.IntEnum):
    """Opcodes. 0 is illegal, so that cleared memory stops the chip; numbers not listed are not built and illegal
    too."""

    HALT = 1
    SYNC = 2
    LOOP = 3
    END = 4
    ADDR = 5
    DMA_SHAPE = 8
    HBM_READ_SLICE = 9
    HBM_WRITE_SLICE = 10
    FEED_SHAPE = 16
    FEED_SEGMENT = 17
    LOAD_WEIGHTS = 18
    PULSE_ARRAY = 19
    VECTOR_SHAPE = 24
    VECTOR_MODE = 25
    VECTOR_RESIDUAL = 26
    LOAD_PARAMS = 27
    VECTOR = 28
    PASS_SHAPE = 32
    PASS_MODE = 33
    PASS_STREAM = 34
    VECTOR_PASS = 35
    TRANSPOSE = 36


class AccMode(enum.IntEnum):
    """What PULSE_ARRAY does to the accumulator rows it reaches."""

    OVERWRITE = 0
    ACCUMULATE = 1
    #: Overwrite when every loop level of ``acc_first`` is in its first iteration, accumulate otherwise.
    FIRST = 2


class Source(enum.IntEnum):
    """Where VECTOR takes its rows from."""

    ACC = 0
    VMEM = 1


class Reduce(enum.IntEnum):
    """What VECTOR does with the n0 x n1 rows of a window."""

    NONE = 0
    SUM = 1
    MAX = 2


class Requant(enum.IntEnum):
    """How VECTOR narrows int32 to int8 (design: two dialects)."""

    BYPASS = 0
    FIXED = 1
    FIXED_AWAY = 2
    FLOAT = 3


class Residual(enum.IntEnum):
    """Residual add of VECTOR."""

    NONE = 0
    FIXED = 1
    FLOAT = 2


class Stream(enum.IntEnum):
    """What a VECTOR_PASS reads and writes, each set by a PASS_STREAM of its own."""

    SOURCE = 0
    #: Rows that go along with the source's, for operands b and c of the ALUs.
    X = 1
    Y = 2
    RESULT = 3
    #: A value per row, for all lanes: packed, ``cols`` of them to an accumulator row.
    COLUMN = 4
    #: What the reduction gives, packed likewise.
    REDUCED = 5


class Format(enum.IntEnum):
    """How a lane's 32 bits lie in VMEM."""

    #: All four bytes: fp32 or int32.
    WORD = 0
    #: The upper two bytes; the lower two are zero.
    BF16 = 1
    #: The lowest byte, sign-extended.
    INT8 = 2

    @property
    def size(self) -> int:
        """Bytes of a lane in VMEM."""
        return {Format.WORD: 4, Format.BF16: 2, Format.INT8: 1}[self]


class Operand(enum.IntEnum):
    """Where operand b or c of an ALU of VECTOR_PASS comes from."""

    K0 = 0
    K1 = 1
    X = 2
    Y = 3
    COLUMN = 4


class Error(enum.IntEnum):
    """Error codes of the ERROR CSR."""

    NONE = 0
    ILLEGAL_OPCODE = 1
    ILLEGAL_FIELD = 2
    RESERVED_BITS = 3
    LOOP_NESTING = 4
    FETCH_RANGE = 5
    VMEM_RANGE = 6
    ACC_RANGE = 7
    HBM_RANGE = 8
    HBM_ERROR = 9
    WATCHDOG = 10
    TOKEN_OVERFLOW = 11


class Cause(enum.IntEnum):
    """State of a unit in a cycle; every unit is in exactly one, so that the counts of a unit sum to the total."""

    BUSY = 0
    IDLE = 1
    TOKEN_LD = 2
    TOKEN_ST = 3
    TOKEN_MXU = 4
    TOKEN_VPU = 5
    WEIGHTS = 6
    VMEM = 7
    ACC = 8
    HBM = 9
    QUEUE = 10
    OUTPUT = 11


#: Which causes a unit can be in, and so which counters exist. ``seq`` and ``hbm`` have counters but no token queue.
UNIT_CAUSES: dict[str, tuple[Cause, ...]] = {
    "seq": (Cause.BUSY, Cause.IDLE, Cause.QUEUE),
    "ld": (Cause.BUSY, Cause.IDLE, Cause.TOKEN_ST, Cause.TOKEN_MXU, Cause.TOKEN_VPU, Cause.VMEM, Cause.HBM),
    "st": (Cause.BUSY, Cause.IDLE, Cause.TOKEN_LD, Cause.TOKEN_MXU, Cause.TOKEN_VPU, Cause.VMEM, Cause.HBM),
    "mxu": (Cause.BUSY, Cause.IDLE, Cause.TOKEN_LD, Cause.TOKEN_ST, Cause.TOKEN_VPU, Cause.WEIGHTS, Cause.VMEM),
    "vpu": (
        Cause.BUSY, Cause.IDLE, Cause.TOKEN_LD, Cause.TOKEN_ST, Cause.TOKEN_MXU, Cause.VMEM, Cause.ACC, Cause.OUTPUT,
    ),
    "hbm": (Cause.BUSY, Cause.IDLE, Cause.HBM),
}


@dataclass(frozen=True)
class Field:
    """One field of a microcode word. ``lo``/``hi`` bound its legal values (inclusive) for a configuration."""

    name: str
    width: int
    signed: bool = False
    lo: int | Callable[[ChipConfig], int] | None = None
    hi: int | Callable[[ChipConfig], int] | None = None
    doc: str = ""


@dataclass(frozen=True)
class OpSpec:
    """Description of one op: its unit (None: the sequencer itself), fields and meaning."""

    op: Op
    unit: Unit | None | str
    fields: tuple[Field, ...]
    doc: str
    dispatched: bool = True
    #: Which chips have it, by :attr:`ChipConfig.is_float` (None: all).
    float_lanes: bool | None = None

    def on(self, config: ChipConfig) -> bool:
        """Whether a chip has it."""
        return self.float_lanes in (None, config.is_float)


def _enum(name: str, width: int, kind: type[enum.IntEnum], doc: str) -> Field:
    return Field(name, width, hi=max(kind), doc=doc + " " + ", ".join(f"{k.value} {k.name.lower()}" for k in kind))


def _tokens() -> tuple[Field, ...]:
    """Header of the ops that do work: tokens to wait for before they start, and to signal when they have ended.

    Setup words (shapes and modes) carry none: they take effect in queue order, for the ops behind them.
    """
    out = []
    for u in Unit:
        n = u.name.lower()
        out.append(Field(f"wait_{n}", 1, doc=f"take one token from {u.name} before starting"))
        out.append(Field(f"wait_{n}_first", LOOP_LEVELS, doc="... only when all loop levels of this mask are "
                                                             "in their first iteration"))
    for u in Unit:
        n = u.name.lower()
        out.append(Field(f"signal_{n}", 1, doc=f"give one token to {u.name} when done"))
        out.append(Field(f"signal_{n}_last", LOOP_LEVELS, doc="... only when all loop levels of this mask are "
                                                              "in their last iteration"))
    return tuple(out)


def _areg(name: str, doc: str) -> Field:
    return Field(name, 4, doc=f"address register: {doc}")


def _stride(name: str, doc: str) -> Field:
    return Field(name, STRIDE_BITS, signed=True, doc=doc)


def _alu(name: str) -> tuple[Field, ...]:
    return (
        Field(f"use_{name}", 1, doc=f"1: {'begin with' if name == 'first' else 'then'} an ALU operation"),
        Field(f"{name}_op", 5, hi=max(AluOp), doc="which"),
        _enum(f"{name}_b", 3, Operand, "operand b:"), _enum(f"{name}_c", 3, Operand, "operand c:"),
    )  # fmt: skip


def _int8(doc: str) -> Field:
    return Field("int8", 1, hi=lambda c: int(c.both), doc=f"{doc} (chips of int8+bf16; 0: bf16)")


_LEVEL = Field("level", 3, hi=LOOP_LEVELS - 1, doc="loop level, outermost first")

OPS: dict[Op, OpSpec] = {
    s.op: s
    for s in (
        OpSpec(Op.HALT, None, (Field("code", 8, doc="user code, readable in a CSR"),),
               "Wait until every unit is idle, then end the program and raise the interrupt.", dispatched=False),
        OpSpec(Op.SYNC, "field", (*_tokens(), Field("unit", 2, hi=max(Unit), doc="unit whose queue it goes to")),
               "Do nothing but wait for and give tokens, in the queue of `unit`."),
        OpSpec(Op.LOOP, None,
               (_LEVEL, Field("count", 24, doc="iterations; 0 skips to the word after `end`"),
                Field("from_param", 1, doc="take the count from parameter register `param`"),
                Field("param", 3, doc="parameter register"),
                Field("end", 16, hi=lambda c: c.microcode_words - 1, doc="address of the matching END")),
               "Open a hardware loop. Levels must be opened in rising order.", dispatched=False),
        OpSpec(Op.END, None, (_LEVEL,),
               "Close an iteration of the innermost open loop: step the address registers, go back or go on.",
               dispatched=False),
        OpSpec(Op.ADDR, None,
               (_areg("reg", "the one to set"), Field("base", 32, doc="start value"),
                Field("add_param", 1, doc="add parameter register `param` to the base"),
                Field("param", 3, doc="parameter register"),
                *(_stride(f"stride{i}", f"step at the END of loop level {i}") for i in range(LOOP_LEVELS)),
                Field("ring", STRIDE_BITS, doc="0: affine; else wrap at base + ring and keep the value when "
                                               "loops end")),
               "Set an address register: VMEM bytes, HBM slices or accumulator rows, as its user reads it.",
               dispatched=False),
        OpSpec(Op.DMA_SHAPE, "field",
               (Field("unit", 2, hi=Unit.ST, doc="0 LD, 1 ST"),
                Field("row_bytes", 24, lo=1, hi=lambda c: c.vmem_bytes, doc="contiguous bytes of a row in VMEM"),
                Field("rows", 20, lo=1, doc="rows, packed one after the other in the slices"),
                Field("pitch", STRIDE_BITS, signed=True, doc="VMEM bytes from row to row"),
                Field("pad", 8, doc="byte that fills the rest of the last slice (ST)")),
               "Shape of the transfers that follow in LD or ST."),
        OpSpec(Op.HBM_READ_SLICE, Unit.LD,
               (*_tokens(), _areg("hbm", "first slice"), _areg("vmem", "first byte"),
                Field("count", 16, lo=1, doc="slices of the train")),
               "Move a train of slices from HBM to VMEM rows; bytes beyond rows x row_bytes are dropped."),
        OpSpec(Op.HBM_WRITE_SLICE, Unit.ST,
               (*_tokens(), _areg("hbm", "first slice"), _areg("vmem", "first byte"),
                Field("count", 16, lo=1, doc="slices of the train")),
               "Move VMEM rows to a train of slices; bytes beyond rows x row_bytes are `pad`."),
        OpSpec(Op.FEED_SHAPE, Unit.MXU,
               (Field("n0", 16, lo=1, doc="rows, innermost (output x)"),
                Field("n1", 16, lo=1, doc="... middle (output y)"), Field("n2", 16, lo=1, doc="... outermost (image)"),
                _stride("s0", "VMEM bytes per step of n0"), _stride("s1", "... n1"), _stride("s2", "... n2"),
                Field("segments", 5, lo=1, hi=lambda c: c.feed_ports, doc="segments packed into a row"),
                Field("pad", 1, doc="1: bytes outside the image read as `zero_point`"),
                Field("zero_point", 8, signed=True, doc="padding value"),
                Field("x_step", 20, doc="bytes along the line per step of n0"),
                Field("y_step", 8, doc="lines per step of n1"),
                Field("line_bytes", 20, doc="bytes of an image line"), Field("height", 16, doc="lines of an image")),
               "Row walk of the PULSE_ARRAYs that follow."),
        OpSpec(Op.FEED_SEGMENT, Unit.MXU,
               (Field("index", 4, hi=lambda c: c.feed_ports - 1, doc="segment number"),
                Field("lo", 11, hi=lambda c: c.row_bytes - 1,
                      doc="first byte it fills of a row of activations (int8: array row)"),
                Field("hi", 11, lo=1, hi=lambda c: c.row_bytes, doc="one past the last byte it fills"),
                _stride("offset", "VMEM bytes from the row's address to the byte of `lo`"),
                Field("x", 20, signed=True, doc="position along the line of the byte of `lo`, at n0 = 0"),
                Field("y", 12, signed=True, doc="line number at n1 = 0")),
               "One run of bytes that the feeder packs into the array row."),
        OpSpec(Op.LOAD_WEIGHTS, Unit.MXU,
               (*_tokens(), _areg("vmem", "first byte of row 0"), _stride("pitch", "VMEM bytes from row to row"),
                Field("k", 11, lo=1, hi=lambda c: c.rows, doc="rows read; the rest of the array rows hold zero"),
                Field("n", 11, lo=1, hi=lambda c: c.col_bytes,
                      doc="bytes read of a row (int8: columns); the rest hold zero"),
                Field("transpose", 1, hi=lambda c: int(c.is_float),
                      doc="the tile lies transposed in VMEM: rows of `k` elements, `pitch` apart, one for each column "
                          "(n an even number of bytes; chips of bf16)"),
                _int8("weights are int8, `n` at most the columns")),
               "Load a weight tile into the second weight registers of the array."),
        OpSpec(Op.PULSE_ARRAY, Unit.MXU,
               (*_tokens(), _areg("vmem", "address of the first row"), _areg("acc", "first accumulator row"),
                Field("swap", 1, doc="switch to the newly loaded weights with the first row"),
                Field("swap_first", LOOP_LEVELS, doc="... only when all loop levels of this mask are in their "
                                                     "first iteration"),
                _enum("acc_mode", 2, AccMode, "accumulator write:"),
                Field("acc_first", LOOP_LEVELS, doc="loop levels that acc_mode `first` looks at"),
                _int8("operands are int8, `lo` and `hi` of the segments at most the rows")),
               "Open the activation valve: stream n0 x n1 x n2 rows through the array into accumulator rows."),
        OpSpec(Op.VECTOR_SHAPE, Unit.VPU,
               (Field("n0", 10, lo=1, doc="window, innermost"), Field("n1", 10, lo=1, doc="window, outer"),
                Field("n2", 16, lo=1, doc="output rows, inner"), Field("n3", 16, lo=1, doc="output rows, outer"),
                _stride("s0", "source step of n0: accumulator rows or VMEM bytes"), _stride("s1", "... n1"),
                _stride("s2", "... n2"), _stride("s3", "... n3"),
                _stride("d2", "VMEM bytes of the result per step of n2")),
               "Walk of the VECTORs that follow, except d3 and the residual's (VECTOR_MODE, VECTOR_RESIDUAL).",
               float_lanes=False),
        OpSpec(Op.VECTOR_MODE, Unit.VPU,
               (_stride("d3", "VMEM bytes of the result per step of n3"),
                _enum("source", 1, Source, "rows come from"), _enum("reduce", 2, Reduce, "window reduction:"),
                Field("bias", 1, doc="add the bias of LOAD_PARAMS"), _enum("requant", 2, Requant, "narrowing:"),
                Field("per_channel", 1, doc="multiplier and shift come from LOAD_PARAMS, else from this word"),
                Field("multiplier", 32, doc="int32 multiplier, or fp32 scale for `float`"),
                Field("shift", 6, hi=62, doc="right shift n of the fixed formulas"),
                Field("source_zero_point", 8, signed=True, doc="subtracted from every VMEM source byte"),
                Field("zero_point", 8, signed=True, doc="added after narrowing"),
                Field("lo", 8, signed=True, doc="lower clamp of the int8 result"),
                Field("hi", 8, signed=True, doc="upper clamp"),
                Field("wide", 1, doc="1: write int32 rows (after bias and reduction), 0: int8 rows"),
                Field("relu", 1, doc="int32 rows: clamp below at 0"),
                Field("cols", 11, lo=1, hi=lambda c: c.cols, doc="columns written"),
                _enum("residual", 2, Residual, "residual add:")),
               "Arithmetic of the VECTORs that follow.", float_lanes=False),
        OpSpec(Op.VECTOR_RESIDUAL, Unit.VPU,
               (_stride("r2", "residual VMEM bytes per step of n2"), _stride("r3", "... n3"),
                Field("m1", 32, doc="multiplier of the main operand (fixed), or its fp32 ratio (float)"),
                Field("m2", 32, doc="... of the residual"), Field("mo", 32, doc="... of the sum (fixed)"),
                Field("shift1", 6, hi=62, doc="right shift of m1"), Field("shift2", 6, hi=62, doc="... of m2"),
                Field("shifto", 6, hi=62, doc="... of mo"),
                Field("zero_point2", 8, signed=True, doc="zero point of the residual"),
                Field("zero_point_out", 8, signed=True, doc="zero point of the sum")),
               "Residual operand of the VECTORs that follow; the main operand's zero point is VECTOR_MODE's.",
               float_lanes=False),
        OpSpec(Op.LOAD_PARAMS, Unit.VPU,
               (*_tokens(), _areg("vmem", "bias int32 x C, multiplier 32 bits x C, shift uint8 x C, packed")),
               "Load per-channel parameters into the second parameter registers; the next VECTOR takes them over.",
               float_lanes=False),
        OpSpec(Op.VECTOR, Unit.VPU,
               (*_tokens(), _areg("src", "first source row"), _areg("res", "first residual row"),
                _areg("dst", "first result byte")),
               "Stream rows through the vector unit into VMEM.", float_lanes=False),
        OpSpec(Op.PASS_SHAPE, Unit.VPU,
               (Field("rows", 16, lo=1, doc="rows"),
                Field("blocks", 10, lo=1, doc="blocks of a row, `cols` of the chip each but the last"),
                Field("tail", 11, lo=1, hi=lambda c: c.cols, doc="lanes of the last block"),
                Field("masked", 1, doc="1: only the first lanes of a row count, the others enter a reduction as its "
                                       "identity and are stored as +0"),
                Field("mask_base", 24, signed=True, doc="lanes that count in row 0, over all blocks"),
                Field("mask_step", 17, signed=True, doc="lanes more from row to row")),
               "Rows of the VECTOR_PASSes that follow.", float_lanes=True),
        OpSpec(Op.PASS_MODE, Unit.VPU,
               (*_alu("first"), Field("use_function", 1, doc="1: then the function"),
                Field("function", 4, hi=max(Function),
                      doc=", ".join(f"{f.value} {f.name.lower()}" for f in Function)),
                *_alu("second"),
                Field("use_reduce", 1, doc="1: reduce each row, into the stream `reduced`"),
                _enum("reduction", 2, Reduction, "which:"),
                Field("store", 1, doc="1: store each row, in the stream `result`"),
                Field("round", 1, doc="1: round what is stored to bf16 (format `bf16` does so always)"),
                Field("k0", 32, doc="constant operand, 32 bits"), Field("k1", 32, doc="another")),
               "Arithmetic of the VECTOR_PASSes that follow: first ALU, function, second ALU, store and reduction; "
               "operations are numbered as in `vector.md`. A stage's operand a is what the stage before gave. Each of "
               "the streams x, y and column serves one of the ALUs.", float_lanes=True),
        OpSpec(Op.PASS_STREAM, Unit.VPU,
               (_enum("stream", 3, Stream, "the one to set:"), _areg("addr", "first row's first block"),
                _enum("memory", 1, Source, "accumulator rows or VMEM bytes (column, reduced: always acc);"),
                _enum("format", 2, Format, "in VMEM;"),
                _stride("row_step", "accumulator rows or VMEM bytes from row to row; 0: a vector that all rows share"),
                _stride("block_step", "... from block to block of a row")),
               "Where a stream of the VECTOR_PASSes that follow lies. Column and reduced hold one value per row, "
               "`cols` of the chip in an accumulator row, one row after the other; steps and format mean nothing "
               "there.", float_lanes=True),
        OpSpec(Op.VECTOR_PASS, Unit.VPU, _tokens(),
               "Stream rows through the floating-point lanes: a block of a row per cycle, rows by groups of eight, in "
               "a group block by block.", float_lanes=True),
        OpSpec(Op.TRANSPOSE, Unit.VPU,
               (*_tokens(), _areg("src", "first byte of the block"), _areg("dst", "first byte of the result"),
                _stride("src_pitch", "VMEM bytes from row to row"), _stride("dst_pitch", "... of the result"),
                Field("k", 11, lo=1, hi=lambda c: max(c.rows, c.cols), doc="rows of the block"),
                Field("n", 11, lo=1, hi=lambda c: max(c.rows, c.cols), doc="elements of 16 bits of a row")),
               "Transpose a block of bf16 in VMEM: n rows of k elements come out.", float_lanes=True),
    )
}


def ops_of(config: ChipConfig) -> dict[Op, OpSpec]:
    """The ops that a chip has: its vector unit is the integer epilogue or floating-point lanes, by its ``dtype``."""
    return {op: spec for op, spec in OPS.items() if spec.on(config)}


def field_index(op: Op, name: str) -> int:
    """Number by which the ERROR CSR names a field: its position in the op's table, from 1 (0 is the opcode)."""
    for i, f in enumerate(OPS[op].fields):
        if f.name == name:
            return i + 1
    raise KeyError(f"{op.name} has no field {name!r}")


def field_range(field: Field, config: ChipConfig) -> tuple[int, int]:
    """Legal values of a field, inclusive, for a configuration."""
    lo = -(1 << (field.width - 1)) if field.signed else 0
    hi = (1 << (field.width - 1)) - 1 if field.signed else (1 << field.width) - 1
    if field.lo is not None:
        lo = max(lo, field.lo(config) if callable(field.lo) else int(field.lo))
    if field.hi is not None:
        hi = min(hi, field.hi(config) if callable(field.hi) else int(field.hi))
    return lo, hi


def word_layout(op: Op) -> data.StructLayout:
    """Layout of the word of ``op``: ``opcode``, its fields, ``reserved`` (must be zero)."""
    members: dict[str, object] = {"opcode": unsigned(OPCODE_BITS)}
    used = OPCODE_BITS
    for f in OPS[op].fields:
        members[f.name] = signed(f.width) if f.signed else unsigned(f.width)
        used += f.width
    if used < WORD_BITS:
        members["reserved"] = unsigned(WORD_BITS - used)
    return data.StructLayout(members)  # type: ignore[arg-type]


def encode(op: Op, config: ChipConfig, fields: Mapping[str, int]) -> int:
    """The word of ``op``; fields not given are 0 (or their lowest legal value where 0 is not legal).

    Raises
    ------
    ValueError
        For an op that the chip does not have, an unknown field or a value out of range, naming it and what is allowed.
    """
    spec = OPS[op]
    if not spec.on(config):
        raise ValueError(f"{op.name} is not an op of chips of {config.dtype}")
    known = {f.name for f in spec.fields}
    for name in fields:
        if name not in known:
            raise ValueError(f"{op.name} has no field {name!r}; its fields: {', '.join(f.name for f in spec.fields)}")
    word, at = int(op), OPCODE_BITS
    for f in spec.fields:
        lo, hi = field_range(f, config)
        value = int(fields.get(f.name, min(max(0, lo), hi)))
        if not lo <= value <= hi:
            raise ValueError(f"{op.name} {f.name} must be {lo} to {hi}, not {value}")
        word |= (value & ((1 << f.width) - 1)) << at
        at += f.width
    return word


def decode(word: int) -> tuple[Op, dict[str, int]]:
    """Op and field values of a word. Raises ``ValueError`` for an unknown opcode or reserved bits that are not zero."""
    code = word & ((1 << OPCODE_BITS) - 1)
    try:
        op = Op(code)
    except ValueError:
        raise ValueError(f"opcode {code} is not implemented") from None
    at, out = OPCODE_BITS, {}
    for f in OPS[op].fields:
        value = word >> at & ((1 << f.width) - 1)
        if f.signed and value >> (f.width - 1):
            value -= 1 << f.width
        out[f.name] = value
        at += f.width
    if word >> at:
        raise ValueError(f"{op.name} has reserved bits set: {word >> at:#x} from bit {at}")
    return op, out


def _check_widths() -> None:
    for op, spec in OPS.items():
        used = OPCODE_BITS + sum(f.width for f in spec.fields)
        if used > WORD_BITS:
            raise AssertionError(f"{op.name} needs {used} bits, a word has {WORD_BITS}")


_check_widths()
