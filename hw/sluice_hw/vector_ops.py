"""Operations of the vector lanes on three 32-bit operands a, b, c: their numbers and what they mean.

Golden (``sluice.golden.vector_ops``) and :mod:`.vpu.alu` both go by these numbers.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["MEANING", "AluOp", "Reduction"]


class AluOp(IntEnum):
    """An operation of a lane. Names that begin with I work on int32, the others on fp32 or on bits."""

    PASS = 0
    SELECT = 1
    AND = 2
    OR = 3
    XOR = 4
    ADD = 5
    SUB = 6
    MUL = 7
    MUL_ADD = 8
    MUL_SUB = 9
    MIN = 10
    MAX = 11
    ABS = 12
    NEG = 13
    LT = 14
    LE = 15
    EQ = 16
    CLEAN = 17
    TO_BF16 = 18
    TO_INT32 = 19
    IADD = 20
    ISUB = 21
    IMUL = 22
    IMIN = 23
    IMAX = 24
    IABS = 25
    ILT = 26
    ILE = 27
    IEQ = 28
    I_TO_FP32 = 29
    I_TO_INT8 = 30
    INT8_TO_I = 31


#: What each gives. fp32 operands are read as the contract says; fp32 results are rounded and flushed, with one NaN.
MEANING: dict[AluOp, str] = {
    AluOp.PASS: "a, unchanged",
    AluOp.SELECT: "a where c is not 0, else b, unchanged",
    AluOp.AND: "a & b",
    AluOp.OR: "a | b",
    AluOp.XOR: "a ^ b",
    AluOp.ADD: "a + b",
    AluOp.SUB: "a - b",
    AluOp.MUL: "a b",
    AluOp.MUL_ADD: "a b + c, the product rounded and flushed too",
    AluOp.MUL_SUB: "a b - c, the product rounded and flushed too",
    AluOp.MIN: "the smaller; -0 is below +0; NaN if either is",
    AluOp.MAX: "the larger; -0 is below +0; NaN if either is",
    AluOp.ABS: "magnitude of a",
    AluOp.NEG: "-a",
    AluOp.LT: "1 where a < b, else 0 (also for NaN); zeros are equal",
    AluOp.LE: "1 where a <= b, else 0 (also for NaN); zeros are equal",
    AluOp.EQ: "1 where a = b, else 0 (also for NaN); zeros are equal",
    AluOp.CLEAN: "a, read and written: subnormals become zero, NaN the one; from bf16 to fp32 by the upper half",
    AluOp.TO_BF16: "a rounded to bf16, in the upper half",
    AluOp.TO_INT32: "a to the nearest integer, ties to even, saturating; NaN becomes 0",
    AluOp.IADD: "a + b, wrapping",
    AluOp.ISUB: "a - b, wrapping",
    AluOp.IMUL: "low 32 bits of a b",
    AluOp.IMIN: "the smaller",
    AluOp.IMAX: "the larger",
    AluOp.IABS: "magnitude of a; that of the least int32 wraps to itself",
    AluOp.ILT: "1 where a < b, else 0",
    AluOp.ILE: "1 where a <= b, else 0",
    AluOp.IEQ: "1 where a = b, else 0",
    AluOp.I_TO_FP32: "a as fp32, nearest even",
    AluOp.I_TO_INT8: "a saturated to -128 to 127",
    AluOp.INT8_TO_I: "low byte of a, sign-extended",
}


class Reduction(IntEnum):
    """What becomes of a row: one value, fp32, or for ARGMAX the index of one."""

    SUM = 0
    SUM_OF_SQUARES = 1
    MAX = 2
    ARGMAX = 3
