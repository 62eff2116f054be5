"""The mutations: what is changed, and the test of the default regression that catches it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTATIONS", "Mutation"]


@dataclass(frozen=True)
class Mutation:
    """One change.

    Attributes
    ----------
    name
        What goes wrong.
    file
        Under ``hw/sluice_hw``.
    old, new
        Text that stands there exactly once, and what replaces it.
    catcher
        pytest id, under ``verif``, of a test that fails then.
    """

    name: str
    file: str
    old: str
    new: str
    catcher: str


_PE = "unit/test_pe.py::test_pe[8-1-int8]"
_PE_DEEP = "unit/test_pe.py::test_pe[5-3-int8]"
_WEIGHTS = "unit/test_weights.py::test_loader[2-1]"
_WEIGHTS_BF16 = "unit/test_weights.py::test_loader_of_bf16[5-3-loop]"
_TRANSPOSE = "unit/vpu/test_transpose_op.py::test_blocks[0-0]"
_SQUARE = "unit/test_transpose.py::test_blocks[4-structural-0-0]"
_MXU_BOTH = "unit/test_mxu.py::test_both_types[4-5-loop-2]"
_ACC = "unit/test_accumulator.py::test_accumulator[2-1-10]"
_FEEDER = "unit/test_feeder.py::test_feeder[5-1]"
_FEEDER_MANY = "unit/test_feeder.py::test_feeder[8-4]"
_MXU = "unit/test_mxu.py::test_programs[2-1-loop]"
_MXU_BF16 = "unit/test_mxu.py::test_programs_of_bf16[8-8-loop-4]"
_ADD = "unit/arith/test_add.py::test_sums"
_MUL = "unit/arith/test_bf16.py::test_every_pair_of_exponents"
_TOKENS = "unit/test_tokens.py::test_tokens[5]"
_LOOPS = "unit/test_loops.py::test_loops"
_SEQUENCER = "unit/test_sequencer.py::test_sequencer"
_ADDRGEN = "unit/test_addrgen.py::test_addrgen"
_LOAD = "unit/dma/test_load.py::test_dma_load[narrow_beat]"
_STORE = "unit/dma/test_store.py::test_dma_store[narrow_beat]"
_SRAM = "unit/hbm/test_sram.py::test_slice_memory[odd]"
_DRAM = "unit/hbm/test_dram_controller.py::test_random_trains[per-bank]"
_DRAM_SLOW = "unit/hbm/test_dram_controller.py::test_whoever_is_slow_is_waited_for"
_DRAM_RESET = "unit/hbm/test_dram_controller.py::test_a_reset_in_the_middle_of_trains"
_DRAM_ONE_SET = "unit/hbm/test_dram_controller.py::test_one_set_of_banks_is_refreshed_in_time[False]"
_DRAM_WINDOW = "unit/hbm/test_dram_controller.py::test_trains_outside_their_window_are_refused"
_DRAM_SILENT = "unit/hbm/test_dram_controller.py::test_channels_that_bring_nothing"
_ARBITER = "unit/hbm/test_arbiter.py::test_slice_arbiter[odd-3]"
_HOST = "unit/test_host.py::test_host[narrow]"
_FIXED = "unit/arith/test_fixed.py::test_requant_fixed"
_CLAMP = "unit/arith/test_clamp.py::test_zero_point_clamp"
_VPU = "unit/vpu/test_vpu.py::test_vpu[odd-loop]"
_FLOAT_UNIT = "unit/vpu/test_float_unit.py::test_random_works"
_FLOAT_COLUMN = "unit/vpu/test_float_unit.py::test_column_of_many_rows[first]"
_FLOAT_PORT = "unit/vpu/test_float_unit.py::test_a_port_that_hardly_gives"
_FLOAT_GROUP = "unit/vpu/test_float_unit.py::test_short_groups_with_a_reduction"
_FLOAT_FAULT = "unit/vpu/test_float_unit.py::test_faults"
_ACC_WRITE = "unit/test_accumulator_writes.py::test_writes"
_COUNTERS = "unit/test_counters.py::test_counters"
_GUARD = "unit/hbm/test_guard.py::test_guard[sideband-equal_beat]"
_INBAND = "unit/hbm/test_guard.py::test_guard[inband-narrow_beat]"
_AXI4 = "unit/hbm/test_axi4.py::test_axi4_memory"

MUTATIONS: tuple[Mutation, ...] = (
    # -- array
    Mutation(
        "product subtracted",
        "pe.py",
        "total.eq(up.psum + left.data * weight)",
        "total.eq(up.psum - left.data * weight)",
        _PE,
    ),
    Mutation(
        "activation unsigned",
        "pe.py",
        "total.eq(up.psum + left.data * weight)",
        "total.eq(up.psum + left.data.as_unsigned() * weight)",
        _PE,
    ),
    Mutation("new weight one row late", "pe.py", "Mux(left.swap, shadow, active)", "active", _PE),
    Mutation("swapped weight not kept", "pe.py", "m.d.sync += active.eq(shadow)", "m.d.sync += active.eq(active)", _PE),
    Mutation("every weight taken", "pe.py", "ours.eq(up.w_valid & up.w_start)", "ours.eq(up.w_valid)", _PE),
    Mutation(
        "weight chain one stage short",
        "pe.py",
        'w_valid, w_data = pipe("w", passes, up.w_data)',
        "w_valid, w_data = passes, up.w_data",
        _PE_DEEP,
    ),
    Mutation(
        "array's sums one bit short",
        "arith/multiply_add.py",
        "return 16 + ",
        "return 15 + ",
        "unit/test_pe.py::test_psum_width_holds_the_largest_sum",
    ),
    # -- weights
    Mutation(
        "rows beyond k not zeroed",
        "weights.py",
        "columns.eq(bytes_below(n, row_bytes))",
        "columns.eq(-1)",
        _WEIGHTS,
    ),
    Mutation(
        "tile ready one row early",
        "weights.py",
        "completes.eq(feed & (row == config.rows - 1))",
        "completes.eq(feed & (row == config.rows - 2))",
        _WEIGHTS,
    ),
    Mutation("next tile before the swap", "weights.py", "feed.eq(there & ~full)", "feed.eq(there)", _WEIGHTS),
    Mutation(
        "weights' end of memory off by one",
        "weights.py",
        "beyond.eq(tile.vmem + tile.n > config.vmem_bytes)",
        "beyond.eq(tile.vmem + tile.n >= config.vmem_bytes)",
        _WEIGHTS,
    ),
    # -- transposed weights, and blocks
    Mutation(
        "rows and columns of a transposed tile swapped",
        "weights.py",
        '"rows": tile.k, "cols": tile.n >> 1',
        '"rows": tile.n >> 1, "cols": tile.k',
        _WEIGHTS_BF16,
    ),
    Mutation(
        "direct tile overtakes a transposed one",
        "turner.py",
        "direct & self.output.ready",
        "self.output.ready",
        _WEIGHTS_BF16,
    ),
    Mutation(
        "square emptied while a block enters",
        "transpose.py",
        "(~entry & (at + 1 == out_cols))",
        "(at + 1 == out_cols)",
        _SQUARE,
    ),
    Mutation(
        "transposed rows written whole",
        "vpu/transpose_op.py",
        "Cat(lane.replicate(2) for lane in lanes)",
        "Cat(lane.replicate(2) for lane in lanes) | -1",
        _TRANSPOSE,
    ),
    Mutation("transpose loses a row", "vpu/transpose_op.py", "walk & (left == 1)", "walk & (left == 2)", _TRANSPOSE),
    # -- both types
    Mutation("int32 sums begin at -0", "accumulator.py", "nothing = Mux(int8, 0, nothing)", "pass", _MXU_BOTH),
    Mutation("type of the row before", "feeder.py", "bf16.eq(~row.int8)", "bf16.eq(~taken.int8)", _MXU_BOTH),
    Mutation(
        "weights of int8 not spread", "weights.py", "Mux(marks.int8, spread(read, self._config.cols), read)", "read",
        _MXU_BOTH,
    ),
    # -- accumulator
    Mutation(
        "sum of the cycle before not forwarded", "accumulator.py", "Mux(add_forward, kept, ", "Mux(0, kept, ", _ACC
    ),
    Mutation(
        "accumulate stuck",
        "accumulator.py",
        "reads.eq(self.p_valid & current.accumulate)",
        "reads.eq(self.p_valid)",
        _ACC,
    ),
    Mutation(
        "drain reads the other region",
        "accumulator.py",
        "Value.cast(self.acc.rsp_data).eq(Mux(answers_upper, regions[1].rdata, regions[0].rdata))",
        "Value.cast(self.acc.rsp_data).eq(Mux(answers_upper, regions[0].rdata, regions[1].rdata))",
        _ACC,
    ),
    Mutation(
        "drain not held while the array reads",
        "accumulator.py",
        "self.acc.req.ready.eq(~(reads & (upper == wanted_upper)))",
        "self.acc.req.ready.eq(1)",
        _ACC,
    ),
    Mutation("fp32 overwriting adds +0", "accumulator.py", "Const(1 << 31, 32)", "Const(0, 32)", _MXU_BF16),
    Mutation(
        "fp32 rows written early",
        "accumulator.py",
        "return valid, upper, local,",
        "return adds, upper, local,",
        _MXU_BF16,
    ),
    Mutation("short passes not kept apart", "mxu.py", "op.accumulate & (short | ", "op.accumulate & (", _MXU_BF16),
    Mutation("pass one row long", "accumulator.py", "(done + 1 == current.rows)", "(done == current.rows)", _ACC),
    # -- feeder
    Mutation(
        "padding with zero",
        "feeder.py",
        "reduce(or_, pads) & row.zero_point.as_unsigned().replicate(lanes)",
        "reduce(or_, pads) & 0",
        _FEEDER,
    ),
    Mutation("left edge not clipped", "feeder.py", "cut_left = placed.pad & port.x[-1]", "cut_left = 0", _FEEDER),
    Mutation("window reused after the op", "feeder.py", "usable = live & ~row.first", "usable = live", _FEEDER),
    Mutation(
        "window one byte too long",
        "feeder.py",
        "ahead[:offset_bits] + length <= width",
        "ahead[:offset_bits] + length < width + 2",
        _FEEDER_MANY,
    ),
    Mutation("line step dropped", "feeder.py", "y.eq(y + shape.y_step)", "y.eq(y)", _FEEDER),
    Mutation(
        "access counted before its grant",
        "feeder.py",
        "credits[p] + (granted & (which.port == p))",
        "credits[p] + (request.valid & (which.port == p))",
        _FEEDER_MANY,
    ),
    # -- matrix unit
    Mutation(
        "load does not wait for the swap",
        "mxu.py",
        "running_load.w_rdy & ~tile_free",
        "running_load.w_rdy",
        "system/test_faults.py::test_weights_never_used",
    ),
    Mutation(
        "MACs counted with the tile before",
        "mxu.py",
        "now.eq(Mux(feeder.issue_swap, loader.tile_macs, macs))",
        "now.eq(macs)",
        _MXU,
    ),
    Mutation("SYNC ends at once", "mxu.py", "sync_valid & (sync_loads == 0) & (sync_passes == 0)", "sync_valid", _MXU),
    # -- tokens, loops, sequencer, addresses
    Mutation("token dropped", "tokens.py", "m.d.sync += count.eq(count + 1)", "m.d.sync += count.eq(count)", _TOKENS),
    Mutation(
        "token taken twice", "tokens.py", "m.d.sync += count.eq(count - 1)", "m.d.sync += count.eq(count)", _TOKENS
    ),
    Mutation(
        "token overflow one late",
        "tokens.py",
        "with m.If(count == self.token_max):",
        "with m.If(count == self.token_max + 1):",
        _TOKENS,
    ),
    Mutation(
        "loop one round long",
        "loops.py",
        "self.last[i].eq(self.done[i] + 2 == self.total[i])",
        "self.last[i].eq(self.done[i] + 1 == self.total[i])",
        _LOOPS,
    ),
    Mutation("nesting check off by one", "loops.py", "(self.level <= inner)", "(self.level < inner)", _LOOPS),
    Mutation(
        "loop of zero rounds runs",
        "sequencer.py",
        "with m.Elif(loops.count == 0):",
        "with m.Elif(loops.count == 1):",
        _SEQUENCER,
    ),
    Mutation(
        "end before the queues are empty",
        "sequencer.py",
        "quiet.eq(halting & self.queue_empty.all() & self.unit_idle.all())",
        "quiet.eq(halting & self.unit_idle.all())",
        _SEQUENCER,
    ),
    Mutation(
        "predicate of the last round ignored",
        "sequencer.py",
        'all_in(view[f"signal_{u}_last"], loops.last)',
        'all_in(view[f"signal_{u}_last"], loops.first)',
        _SEQUENCER,
    ),
    Mutation("watchdog never", "sequencer.py", "hung.eq(hung + 1)", "hung.eq(hung)", _SEQUENCER),
    Mutation(
        "address not taken back", "addrgen.py", "self.cur.eq(self.cur - so_far)", "self.cur.eq(self.cur)", _ADDRGEN
    ),
    Mutation(
        "ring one byte late",
        "addrgen.py",
        "wraps = stride.as_unsigned() >= left",
        "wraps = stride.as_unsigned() > left",
        _ADDRGEN,
    ),
    # -- memory path
    Mutation(
        "load's beat rotated the other way",
        "dma/load.py",
        "turn.eq(at - walk.offset)",
        "turn.eq(walk.offset - at)",
        _LOAD,
    ),
    Mutation(
        "upper bound of HBM one late",
        "dma/front.py",
        "(op.a + word.count > self.hbm_hi)",
        "(op.a + word.count > self.hbm_hi + 1)",
        _LOAD,
    ),
    Mutation(
        "row count short",
        "dma/walk.py",
        "self.last.eq(fits & (rows_left == 1))",
        "self.last.eq(fits & (rows_left <= 2))",
        _LOAD,
    ),
    Mutation("store pads with zero", "dma/store.py", "(train.pad.replicate(beat_bytes) & ~filled)", "0", _STORE),
    Mutation("store overruns its buffer", "dma/store.py", "self.credit.eq(places.w_rdy)", "self.credit.eq(1)", _STORE),
    Mutation(
        "write answer lost",
        "hbm/sram.py",
        "dones.w_en.eq(write_ends)",
        "dones.w_en.eq(write_ends & ~write.refused)",
        _SRAM,
    ),
    Mutation(
        "read one cycle early",
        "hbm/sram.py",
        "delay = Signal(config.hbm_latency - 2)",
        "delay = Signal(config.hbm_latency - 3)",
        _SRAM,
    ),
    Mutation(
        "memory's end off by one",
        "hbm/sram.py",
        "request.slice + request.count > config.hbm_slices",
        "request.slice + request.count > config.hbm_slices + 1",
        _SRAM,
    ),
    Mutation(
        "request changes hands while offered", "hbm/arbiter.py", "locked.eq(~out.ready)", "locked.eq(0)", _ARBITER
    ),
    Mutation("burst straddles the memory's end", "host/axi.py", 'last.eq(word + sig("len"))', "last.eq(word)", _HOST),
    Mutation(
        "partial strobes written",
        "host/axi.py",
        "with m.Elif(~self.s_axi_wstrb.all()):",
        "with m.Elif(~self.s_axi_wstrb.any()):",
        _HOST,
    ),
    Mutation(
        "dirty slice forgotten", "host/slice_buffer.py", "m.d.sync += dirty.eq(1)", "m.d.sync += dirty.eq(0)", _HOST
    ),
    # -- DRAM
    Mutation(
        "slice granted while its banks are refreshed",
        "hbm/controller.py",
        " & ~blocked.bit_select(head.set, 1)",
        "",
        _DRAM_ONE_SET,
    ),
    Mutation(
        "direction turned without a gap", "hbm/controller.py", "Array(follows)[pick]", "(age >= schedule.unit)", _DRAM
    ),
    Mutation(
        "read granted without room", "hbm/trains.py", "self.room.eq(free >= beats)", "self.room.eq(1)", _DRAM_SLOW
    ),
    Mutation("slices share half a row", "hbm/dram.py", "Mux(unit.part[0], config", "Mux(0, config", _DRAM),
    Mutation("set refreshed twice in a round", "hbm/refresh.py", "with m.If(after.all()):", "with m.If(1):", _DRAM),
    Mutation("train one too long is served", "hbm/trains.py", "(end > self.hi)", "(end > self.hi + 1)", _DRAM_WINDOW),
    Mutation("banks left open by a reset", "hbm/controller.py", "engine.special.eq(RowOp.PREA)", "[]", _DRAM_RESET),
    Mutation(
        "refresh never forced",
        "hbm/controller.py",
        "forced.eq(account.urgent & ~account.free)",
        "forced.eq(0)",
        _DRAM_ONE_SET,
    ),
    Mutation(
        "missing beat believed", "hbm/controller.py", "answers.error.eq(silent)", "answers.error.eq(0)", _DRAM_SILENT
    ),
    # -- arithmetic, vector unit, counters
    Mutation("fp32 ties go up", "arith/add.py", "(normal[:3].any() | normal[4])", "1", _ADD),
    Mutation("fp32 underflow stays", "arith/add.py", "lost = underflow | ~normal[-1]", "lost = ~normal[-1]", _ADD),
    Mutation("sticky bit lost", "arith/shift.py", "(value >> amount) | lost.any()", "(value >> amount)", _ADD),
    Mutation("bf16 product one too small", "arith/bf16.py", "(exp <= fmt.bias)", "(exp < fmt.bias)", _MUL),
    Mutation("rounds down", "arith/fixed.py", "rounded.eq((twice + 1) >> 1)", "rounded.eq(twice >> 1)", _FIXED),
    Mutation(
        "result does not saturate",
        "arith/fixed.py",
        "with m.If(value > limit):",
        "with m.If(value > limit + 2):",
        _FIXED,
    ),
    Mutation("AWAY as HALF_UP", "arith/fixed.py", "(self.rounding == Rounding.AWAY) & (self.acc < 0)", "0", _FIXED),
    Mutation(
        "clamp's lower bound off",
        "arith/clamp.py",
        "Mux(total < lo, lo, total)",
        "Mux(total <= lo, lo + 1, total)",
        _CLAMP,
    ),
    Mutation(
        "zero point subtracted",
        "arith/clamp.py",
        "total.eq(cut + self.zero_point)",
        "total.eq(cut - self.zero_point)",
        _CLAMP,
    ),
    Mutation("maximum takes the smaller", "vpu/lane.py", "Mux(x > total, x, total)", "Mux(x > total, total, x)", _VPU),
    Mutation("bias always added", "vpu/lane.py", "Mux(self.all.bias_en, self.col.bias, 0)", "self.col.bias", _VPU),
    Mutation(
        "residual's scale swapped",
        "vpu/lane.py",
        '("b", b, self.all.m2, self.all.shift2)',
        '("b", b, self.all.m1, self.all.shift2)',
        _VPU,
    ),
    Mutation(
        "int32 row loses its last piece",
        "vpu/unit.py",
        "row_ends.eq(write_go & (~mode.wide | (left <= cols)))",
        "row_ends.eq(write_go & (~mode.wide | (left <= 2 * cols)))",
        _VPU,
    ),
    Mutation(
        "starvation counted before the first row",
        "counters.py",
        "with m.Elif(begun), m.Switch(self.mxu):",
        "with m.Elif(1), m.Switch(self.mxu):",
        _COUNTERS,
    ),
    # -- vector unit of bf16
    Mutation("block promised a cycle early", "vpu/fetch.py", "pushed.eq(blocks.w_en)", "pushed.eq(asked)", _FLOAT_UNIT),
    Mutation(
        "second access of a block at the first one's place",
        "vpu/fetch.py",
        "vmem.req.payload.addr.eq(walk.at + Mux(second, width, 0))",
        "vmem.req.payload.addr.eq(walk.at)",
        _FLOAT_UNIT,
    ),
    Mutation(
        "shared vector taken for each row",
        "vpu/float_unit.py",
        "fetch.call.eq(issue & used[s] & (~shared | walk.last_row))",
        "fetch.call.eq(issue & used[s])",
        _FLOAT_UNIT,
    ),
    Mutation(
        "rows in blocks not kept apart",
        "vpu/float_unit.py",
        "apart.eq(~(mode.use_reduce & Cat(recent).any()))",
        "apart.eq(1)",
        f"{_FLOAT_GROUP}[3]",
    ),
    Mutation(
        "rows stored without room",
        "vpu/float_unit.py",
        "(~mode.store | (blocks_out != RESULT_BLOCKS))",
        "1",
        f"{_FLOAT_PORT}[result]",
    ),
    Mutation(
        "values reduced without room",
        "vpu/float_unit.py",
        "(~(mode.use_reduce & walk.last_block) | (values_out != values))",
        "1",
        f"{_FLOAT_PORT}[acc_write]",
    ),
    Mutation(
        "column's values dropped with the first block",
        "vpu/float_unit.py",
        "issue & walk.last_row & walk.last_block,",
        "issue & walk.last_row,",
        _FLOAT_COLUMN,
    ),
    Mutation(
        "values of the row before in a packed row",
        "vpu/results.py",
        "m.d.sync += row.eq(0)",
        "pass",
        _FLOAT_UNIT,
    ),
    Mutation(
        "byte behind VMEM written",
        "vpu/stream.py",
        "beyond.eq(Mux(self.in_vmem, end > config.vmem_bytes,",
        "beyond.eq(Mux(self.in_vmem, end > config.vmem_bytes + 1,",
        f"{_FLOAT_FAULT}[result, vmem]",
    ),
    Mutation(
        "vector unit's row lost to the array's",
        "accumulator.py",
        "self.write.req.ready.eq(~(written & (write_upper == stored_upper)))",
        "self.write.req.ready.eq(1)",
        _ACC_WRITE,
    ),
    # -- ECC, AXI4, reset of memory
    Mutation("two errors of a word not told", "hbm/ecc.py", "double.eq((wrong != 0) & ~known)", "double.eq(0)", _GUARD),
    Mutation(
        "scrubber writes back what it cannot correct", "hbm/scrub.py", "with m.If(wrong & ~bad):", "with m.If(wrong):",
        _GUARD,
    ),
    Mutation(
        "check bits of the block before", "hbm/inband.py", "(tagged & (tag == block))", "tagged", _INBAND
    ),
    Mutation(
        "write over check bits that could not be read",
        "hbm/inband.py",
        "memory.write_done.payload.error | bad_checks)",
        "memory.write_done.payload.error)",
        _INBAND,
    ),
    Mutation(
        "unreadable check bits kept", "hbm/inband.py", "tagged.eq(~bad_checks)", "tagged.eq(1)", _INBAND
    ),
    Mutation(
        "burst over 4 KiB",
        "hbm/axi4.py",
        "to_edge.eq(BURST_BEATS - at[: ceil_log2(BURST_BEATS)])",
        "to_edge.eq(BURST_BEATS)",
        _AXI4,
    ),
    Mutation(
        "failure of a train that is not the oldest forgotten",
        "hbm/axi4.py",
        "with m.If(came & self.m_axi_bresp[1]):",
        "with m.If(came & self.m_axi_bresp[1] & (oldest == i)):",
        _AXI4,
    ),
    Mutation(
        "memory reset before its last answer",
        "hbm/drain.py",
        "with m.Elif(draining & none & (owed == 0)):",
        "with m.Elif(draining & (owed == 0)):",
        "formal/test_drain.py::test_drain",
    ),
    # -- torus
    Mutation(
        "virtual channel free between flits of a packet",
        "ici/router.py",
        "busy.eq(Mux(flit.tail, busy & ~taken, busy | taken))",
        "busy.eq(busy & ~taken)",
        "unit/ici/test_torus_router.py::test_overload[9]",
    ),
    Mutation(
        "far end's news believed beyond what was sent",
        "ici/replay.py",
        "(ack_step <= ack_limit) & (heard_step <= heard_limit)",
        "(ack_step <= ack_limit)",
        "formal/test_link.py::test_numbers[4-2]",
    ),
    Mutation(
        "link's window one too large",
        "ici/replay.py",
        "(unsent != accepted) & (flying < c.window)",
        "(unsent != accepted) & (flying <= c.window)",
        "formal/test_link.py::test_numbers[4-2]",
    ),
    # -- decoder, VMEM, events, lanes
    Mutation(
        "field one above its range", "decoder.py", "above = value > hi", "above = value > hi + 1",
        "unit/test_decoder.py::test_decoder[odd]",
    ),
    Mutation(
        "word behind the end written",
        "vmem.py",
        "| (masks[1].any() & ~a.next_inside)",
        "",
        "unit/test_vmem.py::test_vmem[odd]",
    ),
    Mutation(
        "event taken up at once counted as lost",
        "debug.py",
        "lost[i].eq(come & waiting[i] & ~chosen[i])",
        "lost[i].eq(come & waiting[i])",
        "unit/test_debug.py::test_ring",
    ),
    Mutation(
        "zeros compared by sign",
        "vpu/alu.py",
        "AluOp.EQ: (same | zeros) & ~nan",
        "AluOp.EQ: same & ~nan",
        "unit/vpu/test_alu.py::test_operation[16]",
    ),
    Mutation(
        "masked lanes have an index",
        "vpu/reduce.py",
        "new[1].eq(Mux(keep, self.all.base + self.col.lane, NO_INDEX))",
        "new[1].eq(self.all.base + self.col.lane)",
        "unit/vpu/test_reduce.py::test_rows[2-structural]",
    ),
)
