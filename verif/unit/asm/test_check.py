"""Programs whose words are legal one by one but not together; and the builder that checks the same."""

from __future__ import annotations

import pytest

from sluice.asm import AsmError, Builder, Program, ProgramError, assemble, check, disassemble
from sluice_hw import isa
from sluice_hw.config import preset
from sluice_hw.isa import Op, Unit

TINY = preset("tiny")
BF16 = TINY.replace(name="bf16", dtype="bf16")
FEED = "feed_shape n0=4 s0=8 segments=2\nfeed_segment index=0 lo=0 hi=4\n"


@pytest.mark.parametrize("text, line, message", [
    ("sync unit=ld", 1, "the program runs past its last word: no HALT outside of the loops"),
    ("loop count=2 {\nhalt\n}", 3, "no HALT outside of the loops"),
    ("loop 0 end=2\nhalt\nend 1", 1, "LOOP end must be the address of a later END of level 0, not 2"),
    ("loop 0 end=0\nhalt", 1, "LOOP end must be the address of a later END of level 0, not 0"),
    ("loop 0 end=9\nhalt", 1, "LOOP end must be the address of a later END of level 0, not 9"),
    ("end 0\nhalt", 1, "END without an open LOOP"),
    ("loop 1 end=3\nloop 1 end=2\nend 1\nend 1\nhalt", 2, "LOOP level 1 inside level 1: levels must rise inwards"),
    ("loop 0 end=2\nloop 1 end=3\nend 0\nend 1\nhalt", 2, "LOOP end 3 lies outside of the loop around it"),
    ("hbm_read_slice\nhalt", 1, "HBM_READ_SLICE needs DMA_SHAPE unit=ld before it"),
    ("dma_shape unit=ld\nhbm_write_slice\nhalt", 2, "HBM_WRITE_SLICE needs DMA_SHAPE unit=st before it"),
    ("load_weights\npulse_array\nhalt", 2, "PULSE_ARRAY needs FEED_SHAPE before it"),
    (FEED + "load_weights\npulse_array\nhalt", 4, "PULSE_ARRAY needs FEED_SEGMENT index=1 before it: segments=2"),
    (FEED + "feed_segment index=1 lo=3 hi=5\nload_weights\npulse_array\nhalt", 5,
     "PULSE_ARRAY has segments 0 and 1 that overlap in array row 3"),
    ("feed_segment lo=4 hi=4\nhalt", 1, "FEED_SEGMENT hi must be above lo = 4, not 4"),
    ("feed_shape\nfeed_segment hi=8\npulse_array\nhalt", 3, "PULSE_ARRAY needs LOAD_WEIGHTS before it"),
    ("vector_mode\nvector\nhalt", 2, "VECTOR needs VECTOR_SHAPE before it"),
    ("vector_shape\nvector\nhalt", 2, "VECTOR needs VECTOR_MODE before it"),
    ("vector_shape\nvector_mode bias\nvector\nhalt", 3, "VECTOR needs LOAD_PARAMS before it"),
    ("vector_shape\nvector_mode residual=fixed\nvector\nhalt", 3, "VECTOR needs VECTOR_RESIDUAL before it"),
    ("vector_mode lo=5 hi=4\nhalt", 1, "VECTOR_MODE hi must be at least lo = 5, not 4"),
    ("sync unit=mxu wait=mxu\nhalt", 1, "SYNC exchanges tokens with its own unit MXU"),
])
def test_problems(text, line, message):
    with pytest.raises(AsmError) as error:
        assemble(text, TINY)
    assert (error.value.line, message in str(error.value)) == (line, True), error.value
    program = assemble(text, TINY, check=False)
    with pytest.raises(ProgramError) as problems:
        check(program, TINY)
    assert any(message in text for _, text in problems.value.problems)


PASS = "pass_shape rows=2\npass_stream stream=source addr=r1\npass_stream stream=result addr=r2\n"


@pytest.mark.parametrize("text, line, message", [
    ("pass_mode store\nvector_pass\nhalt", 2, "VECTOR_PASS needs PASS_SHAPE before it"),
    (PASS + "vector_pass\nhalt", 4, "VECTOR_PASS needs PASS_MODE before it"),
    (PASS + "pass_mode\nvector_pass\nhalt", 5, "VECTOR_PASS needs store or use_reduce in its PASS_MODE"),
    ("pass_shape\npass_mode store\npass_stream stream=result\nvector_pass\nhalt", 4,
     "VECTOR_PASS needs PASS_STREAM stream=source before it"),
    (PASS + "pass_mode use_reduce\nvector_pass\nhalt", 5, "VECTOR_PASS needs PASS_STREAM stream=reduced before it"),
    (PASS + "pass_mode store use_first first_c=x\nvector_pass\nhalt", 5,
     "VECTOR_PASS needs PASS_STREAM stream=x before it"),
    (PASS + "pass_mode store use_second second_b=column\nvector_pass\nhalt", 5,
     "VECTOR_PASS needs PASS_STREAM stream=column before it"),
    (PASS + "pass_stream stream=y\npass_mode store use_first first_b=y use_second second_c=y\nvector_pass\nhalt", 6,
     "VECTOR_PASS uses the stream y in both ALUs; each stream serves one"),
    ("load_weights n=5 transpose\nhalt", 1, "LOAD_WEIGHTS n must be even with transpose, not 5"),
])
def test_problems_of_passes(text, line, message):
    with pytest.raises(AsmError) as error:
        assemble(text, BF16)
    assert (error.value.line, message in str(error.value)) == (line, True), error.value


def test_passes():
    """Operands of an ALU that is not used need no stream, and one ALU may use a stream twice."""
    text = """pass_shape rows=300 blocks=3 tail=5 masked mask_base=-4 mask_step=1
pass_mode use_first first_op=mul_add first_b=x first_c=x use_function function=gelu second_b=x second_c=y store k1=0.5
pass_stream stream=source addr=r1
pass_stream stream=x addr=r3 memory=vmem format=bf16 row_step=256 block_step=-16
pass_stream stream=result addr=r2 row_step=1 block_step=300
vector_pass wait=mxu signal=st
transpose src=r1 dst=r2 src_pitch=16 dst_pitch=-16 k=3 n=8
load_weights vmem=r4 pitch=16 k=4 n=6 transpose
halt
"""
    program = assemble(text, BF16)
    assert disassemble(program, BF16) == ".config bf16\n" + text


def test_all_problems_are_listed():
    program = assemble("end 0\nhbm_read_slice", TINY, check=False)
    with pytest.raises(ProgramError) as error:
        check(program, TINY)
    assert [pc for pc, _ in error.value.problems] == [0, 1, 1]


def test_store_and_empty_programs():
    with pytest.raises(ProgramError, match="the program is empty"):
        check(Program(), TINY)
    small = TINY.replace(microcode_words=16)
    words = assemble("halt", TINY).words * 17
    with pytest.raises(ProgramError, match="17 words do not fit in the microcode store of 16"):
        check(Program(words), small)


def test_builder_writes_what_the_text_says():
    b = Builder(TINY)
    b.note("weights\nper block")
    b.addr(1, 0x40, strides={0: 8})
    b.addr(2, 0x10, param=3, strides={1: 16}, ring=32)
    with b.loop(0, 5):
        with b.loop(1, param=2):
            b.op(Op.LOAD_WEIGHTS, vmem=1, pitch=8, k=8, n=8, wait={Unit.LD: (0, 1), "vpu": ()}, signal="ld@last(1)")
        b.sync("st", signal=Unit.MXU)
        b.sync(Unit.LD, wait=["st", Unit.VPU])
    b.op(Op.SYNC, unit=Unit.VPU, **b.wait("ld@first(2)"))
    b.op(Op.VECTOR_MODE, requant=isa.Requant.FLOAT, multiplier=b.scale(0.5), cols=8)
    b.halt(7)
    program = b.program()
    text = """.config tiny
# weights
# per block
addr r1 base=0x40 stride0=8
addr r2 base=p3+0x10 stride1=16 ring=0x20
loop 0 count=5 {
  loop 1 count=p2 {
    load_weights vmem=r1 pitch=8 k=8 n=8 wait=ld@first(0,1),vpu signal=ld@last(1)
  }
  sync unit=st signal=mxu
  sync unit=ld wait=st,vpu
}
sync unit=vpu wait=ld@first(2)
vector_mode scale=0.5 requant=float cols=8
halt code=7
"""
    assert disassemble(program, TINY) == text
    assert assemble(text, TINY).words == program.words


def test_builder_refuses():
    b = Builder(TINY)
    with pytest.raises(ValueError, match="LOAD_WEIGHTS k must be 1 to 8, not 9"):
        b.op(Op.LOAD_WEIGHTS, k=9)
    with pytest.raises(ValueError, match="HALT has no field 'wait_ld'"):
        b.op(Op.HALT, wait="ld")
    with pytest.raises(ValueError, match="unit must be ld, st, mxu, vpu, not 'dma'"):
        b.sync("dma")
    with pytest.raises(ValueError, match="stride0 must be 0 to 8, not 9"):
        b.addr(0, ring=8, strides={0: 9})
    with pytest.raises(ValueError, match="no field 'stride6'"):
        b.addr(0, strides={6: 1})
    assert len(b) == 0
    with b.loop(1, 2), pytest.raises(ValueError, match="LOOP level must be above 1"), b.loop(1, 2):
        pass
    with pytest.raises(ProgramError, match="no HALT"):
        b.program()
    assert len(b.program(check=False)) == 2
    with pytest.raises(ValueError, match="loop level 0 is still open"), b.loop(0, 1):
        b.program()
