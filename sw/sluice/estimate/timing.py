"""Latencies of the hardware, each counted in registers of the module that has them; sizes of queues beside them.

This is the one home of every time constant that software knows: the cost model (:mod:`sluice.estimate`) and the
compiler's planner (:mod:`sluice.compiler.cost`) both read it. What the modules name, is taken from them; the rest is
counted here, stage by stage, and checked against the chip by ``verif/system/test_estimate.py``.
"""

from __future__ import annotations

from sluice_hw.accumulator import PASSES
from sluice_hw.config import ChipConfig
from sluice_hw.dma.load import trains_in_flight
from sluice_hw.dma.store import CHUNKS, UNFINISHED
from sluice_hw.feeder import FEED_LATENCY, ROWS_AHEAD, SLOTS
from sluice_hw.interfaces import VMEM_LATENCY
from sluice_hw.vpu.lane import EpilogueLane
from sluice_hw.vpu.params import PARAM_READS
from sluice_hw.vpu.unit import NARROW_ROWS, RESIDUAL_ROWS, WIDE_ROWS
from sluice_hw.weights import LOAD_LATENCY, TILES
from sluice_hw.weights import ROWS_AHEAD as WEIGHT_ROWS_AHEAD

__all__ = ["Timing"]


class Timing:
    """Times of one configuration, in cycles. "From x to y" is the difference of the cycles in which they happen."""

    #: A fifo with a register at its output (queues of units, row words, results): from a write to the word's showing.
    BUFFERED = 2
    #: A fifo without.
    PLAIN = 1

    # -- sequencer -----------------------------------------------------------------------------------------------
    #: From the first cycle of a program, and from a jump: fetch, check, execute.
    FETCH = 2
    #: A jump (the END of a loop that goes on, a LOOP of no iterations) to the word executed next: jump and refill.
    JUMP = 1 + FETCH
    #: Product of an address register's stride and iteration, for ADDR inside loops: begin, 32 bits, end.
    ADDRESS_PRODUCT = 34
    #: HALT looks twice.
    HALT = 2
    #: A token given can be taken in the next cycle.
    TOKEN = 1

    # -- DMA -----------------------------------------------------------------------------------------------------
    #: From a train's showing at the head of its queue to its start: the check.
    TRAIN_CHECK = 1
    #: From a DMA_SHAPE to the start of the train behind it: registers, products, check.
    SHAPE_TO_TRAIN = 3
    #: Request register of both engines: from start to the request.
    REQUEST = 1
    #: From a beat on the memory's port to its write into VMEM: held beat, turned line.
    BEAT_TO_VMEM = 2
    #: From a beat's leaving the memory to its write into VMEM; as many beats are on their way when a write is refused.
    BUS_TO_VMEM = 1 + BEAT_TO_VMEM
    #: Load: from the start of a SYNC with nothing before it to its end: queue of trains, mark.
    LOAD_SYNC = 2
    #: Store: from the grant of a read to its beat's offer: VMEM, queue of chunks, packer.
    READ_TO_BEAT = VMEM_LATENCY + PLAIN + 1
    #: Store: from the last beat's transfer to the answer.
    ANSWER = 1
    #: Store: unfinished ops, reads not packed.
    UNFINISHED, CHUNKS = UNFINISHED, CHUNKS

    # -- matrix unit -----------------------------------------------------------------------------------------------
    #: From a FEED_SHAPE to the first PULSE_ARRAY that may start: the product of its counts.
    SHAPE_TO_PULSE = 3
    #: From a PULSE_ARRAY's start to the first row word: walk, place, clip, check.
    START_TO_WORD = 4
    #: From a row word to the choice of its access, from there to the issue of the row: request, grant.
    WORD_TO_ACCESS, ACCESS_TO_ISSUE = PLAIN, 2
    #: From a PULSE_ARRAY's start to its first row's issue.
    FIRST_ROW = START_TO_WORD + WORD_TO_ACCESS + ACCESS_TO_ISSUE
    #: From the issue of a row to its entry into the array.
    FEED = FEED_LATENCY
    #: Rows between the walk and the issue, with one access each: words that find accesses' queues open, and stages.
    ROWS_WALKED = 8
    #: Windows of a segment asked for ahead of the row issued last.
    WINDOWS_AHEAD = SLOTS - 1
    #: Row words ahead of the issue.
    ROWS_AHEAD = ROWS_AHEAD
    #: From a row of sums' leaving the array to its pass's report and token: added, counted, reported.
    SUMS_TO_TOKEN = 3
    #: Passes under way.
    PASSES = PASSES
    #: From a LOAD_WEIGHTS' start to its reading: it waits a cycle as the tile that follows.
    LOAD_TO_READ = 1
    #: From the reading of a row to its request; from its grant to its leaving the queue of rows.
    ROW_TO_REQUEST, GRANT_TO_ROW = 1, VMEM_LATENCY + BUFFERED
    #: From a row's leaving the queue to the request that its place is for.
    ROOM_TO_REQUEST = 1 + ROW_TO_REQUEST
    #: From a LOAD_WEIGHTS' start to its first row's leaving the queue of rows.
    FIRST_WEIGHTS = LOAD_TO_READ + 1 + ROW_TO_REQUEST + GRANT_TO_ROW
    #: Rows of weights ahead of the array, tiles under way.
    WEIGHT_ROWS_AHEAD, TILES = WEIGHT_ROWS_AHEAD, TILES
    #: From a tile's last row's leaving the queue to its token: to the array, counted, reported.
    TILE_TO_TOKEN = LOAD_LATENCY + 2
    #: From the start of a SYNC to its token.
    MXU_SYNC = 2

    # -- vector unit -----------------------------------------------------------------------------------------------
    #: From the grant of a window's last row to its result's offer to VMEM: source, lanes, queue of results.
    NARROW = VMEM_LATENCY + EpilogueLane.NARROW_LATENCY + BUFFERED
    RESIDUAL = VMEM_LATENCY + EpilogueLane.RESIDUAL_LATENCY + BUFFERED
    WIDE = VMEM_LATENCY + EpilogueLane.WIDE_LATENCY + BUFFERED
    #: Rows under way, and residual rows read ahead.
    NARROW_ROWS, WIDE_ROWS, RESIDUAL_ROWS = NARROW_ROWS, WIDE_ROWS, RESIDUAL_ROWS
    #: Reads of LOAD_PARAMS, and from the last one's grant to its token.
    PARAM_READS, PARAM_TO_TOKEN = PARAM_READS, VMEM_LATENCY + 1

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        #: From a load's start to its first line's write into VMEM.
        self.load_fill = self.REQUEST + config.hbm_read_latency + self.BEAT_TO_VMEM
        if config.ecc == "sideband":
            self.ANSWER += 1  # the encoder
        if config.memory == "axi4":
            self.ANSWER += 1  # bursts are counted
        #: Trains that a load engine has started and not begun to write.
        self.trains = trains_in_flight(config)
        #: From a row's issue to the cycle its sums leave the array.
        self.array = self.FEED + config.rows * config.pe_latency + config.cols - 1
