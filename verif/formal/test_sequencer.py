"""The sequencer executes the words of a program in the order of its loops, each as often as they say.

Beside it runs an interpreter: which word comes next, which loops are open, and how many of their iterations are done.
Whatever the host (halts, steps, breakpoints, reads of the microcode store), the queues and the units do in time:

- the word in execution is the one the interpreter expects, and has the contents of the store; it goes to its queue
  once, and is held there until the queue takes it, unless an error stops the program;
- the predicates *_first and *_last hold exactly when the open loops that they name are in iteration 0 and count - 1;
- a word in the body of a loop executes `count` times between LOOP and the end of the loop, loops before and behind it
  inside the body or not (for any such word and any loop; proven in the soak run).

The decoder's verdicts and the address registers are any (their own tests and ``test_addrgen.py``); loop counters are
proven in ``test_loops.py``, with all their 32 bits. Bound: a store of 16 words, all levels, counts of 4 bits. Unbounded
in time, by induction.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Assume, Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib import data, wiring

from sluice_hw import isa
from sluice_hw.addrgen import AddressRegisters
from sluice_hw.config import ChipConfig
from sluice_hw.decoder import Decoder
from sluice_hw.loops import LoopLevels
from sluice_hw.sequencer import Sequencer
from verif.formal.claims import Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal

WORDS = 16
COUNT = 4
CONFIG = ChipConfig(microcode_words=WORDS)
LEVELS = range(isa.LOOP_LEVELS)


class Store(Elaboratable):
    """``memory.Memory`` for the program: one word is followed, reads of another give anything."""

    made: list = []

    def __init__(self, *, shape, depth: int, init) -> None:
        width = len(Signal(shape))
        self.read = SimpleNamespace(addr=Signal(range(depth)), data=Signal(width), en=Signal())
        self.write = SimpleNamespace(addr=Signal(range(depth)), data=Signal(width), en=Signal(4))
        self.last, self.used = Signal(range(depth)), Signal()
        self.watched, self.word, self.any = Signal(range(depth)), Signal(width), Signal(width)
        self.made.append(self)

    def read_port(self):
        return self.read

    def write_port(self, *, granularity: int):
        return self.write

    def elaborate(self, platform) -> Module:
        m = Module()
        with m.If(self.read.en):
            m.d.sync += [
                self.last.eq(self.read.addr), self.used.eq(1),
                self.read.data.eq(Mux(self.read.addr == self.watched, self.word, self.any)),
            ]
        return m


class AnyVerdict(wiring.Component):
    """In place of the decoder: any verdict."""

    made: list = []

    def __init__(self, *, config: ChipConfig) -> None:
        super().__init__(Decoder(config=config).signature)
        self.made.append(self)

    def elaborate(self, platform) -> Module:
        return Module()


class AnyAddresses(wiring.Component):
    """In place of the address registers: any addresses; an ADDR may keep them busy for any time."""

    made: list = []

    def __init__(self) -> None:
        super().__init__(AddressRegisters().signature)
        self.stays = Signal()
        self.made.append(self)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.sync += self.busy.eq((self.set | self.busy) & self.stays)
        return m


class SequencerCheck(Check):
    """The sequencer beside an interpreter."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(
            Sequencer, *bugs, memory=SimpleNamespace(Memory=Store), Decoder=AnyVerdict, AddressRegisters=AnyAddresses,
            COUNT_BITS=COUNT, LoopLevels=altered(LoopLevels, COUNT_BITS=COUNT))

    def describe(self, m: Module) -> None:
        for stub in (Store, AnyVerdict, AnyAddresses):
            stub.made.clear()
        dut = self.unit(config=CONFIG)
        m.submodules.dut, inside = open_up(dut)
        (store,), (decoder,), (addresses,) = Store.made, AnyVerdict.made, AnyAddresses.made
        self.free_inputs(m, dut)
        verdict = decoder.verdict.as_value()
        m.d.comb += [verdict.eq(self.free(len(verdict), "verdict")), addresses.stays.eq(self.free(1, "busy"))]
        x, text = self.constant(m, range(WORDS), "x"), self.constant(m, isa.WORD_BITS, "text")
        m.d.comb += [store.watched.eq(x), store.word.eq(text), store.any.eq(self.free(isa.WORD_BITS, "other"))]
        # The program does not change while it runs.
        m.d.comb += Assume(~(store.write.en.any() & (store.write.addr == x)))

        valid, pc, word = inside["exec_valid"], inside["exec_pc"], inside["exec_word"]
        loop = data.View(isa.word_layout(isa.Op.LOOP), word)
        loops, complete, opcode = inside["loops"], inside["complete"], loop.opcode
        is_loop, is_end = opcode == isa.Op.LOOP, opcode == isa.Op.END
        # What the decoder lets pass.
        m.d.comb += Assume(~(is_loop | is_end) | ((loop.level < isa.LOOP_LEVELS) & (is_end | (loop.end < WORDS)))
                           | (inside["exec_verdict"].code != isa.Error.NONE))

        # -- interpreter ------------------------------------------------------------------------------------------
        expect = Signal(17)
        is_open = [Signal(name=f"open{i}") for i in LEVELS]
        begin = [Signal(17, name=f"begin{i}") for i in LEVELS]
        end = [Signal(16, name=f"end{i}") for i in LEVELS]
        count = [Signal(COUNT, name=f"count{i}") for i in LEVELS]
        done = [Signal(COUNT, name=f"done{i}") for i in LEVELS]
        asked = Signal(COUNT)
        m.d.comb += asked.eq(loops.count)
        again, leaves = Signal(17), Signal()
        for i in LEVELS:
            with m.If(loop.level == i):
                m.d.comb += [again.eq(begin[i]), leaves.eq(done[i] == count[i] - 1)]
                with m.If(complete & is_loop & (asked != 0)):
                    m.d.sync += [is_open[i].eq(1), begin[i].eq(pc + 1), end[i].eq(loop.end), count[i].eq(asked),
                                 done[i].eq(0)]
                with m.Elif(complete & is_end):
                    m.d.sync += [done[i].eq(done[i] + 1), is_open[i].eq(done[i] != count[i] - 1)]
        with m.If(complete):
            m.d.sync += expect.eq(Mux(is_loop & (asked == 0), loop.end + 1, Mux(is_end & ~leaves, again, expect + 1)))
        with m.If(dut.clear):
            m.d.sync += [expect.eq(dut.entry), *(flag.eq(0) for flag in is_open)]

        # -- claims -------------------------------------------------------------------------------------------------
        with m.If(valid & dut.running):
            self.claim(m, pc == expect)
            self.claim(m, inside["exec_range"] == (pc >= WORDS))
            self.claim(m, (pc != x) | (word == text))
        if not self.mutant:
            self.connect(m, dut, inside, store, expect, is_open, begin, end, count, done)
        self.more(m, SimpleNamespace(
            dut=dut, valid=valid, x=x, pc=pc, loop=loop, opcode=opcode, asked=asked, complete=complete, is_loop=is_loop,
            is_end=is_end, expect=expect, is_open=is_open, begin=begin, end=end, count=count, done=done))

    def more(self, m: Module, run: SimpleNamespace) -> None:
        """Further claims about the sequencer and the interpreter."""

    def connect(self, m: Module, dut, inside, store, expect, is_open, begin, end, count, done) -> None:
        """For the induction: the registers of the pipeline and of the loops."""
        loops = inside["loops"]
        (part,) = [part for part in inside["parts"] if "begin" in part]
        for i in LEVELS:
            self.invariant(m, loops.open[i] == is_open[i])
            with m.If(is_open[i]):
                self.invariant(m, (loops.ends[i] == end[i]) & (part["begin"][i] == begin[i]))
                self.invariant(m, (loops.total[i] == count[i]) & (loops.done[i] == done[i]) & (done[i] < count[i]))
                self.invariant(m, loops.first[i] == (done[i] == 0))
                self.invariant(m, loops.last[i] == (done[i] == count[i] - 1))
        exec_valid, check_valid, fetch_on = inside["exec_valid"], inside["check_valid"], inside["fetch_on"]
        check_pc, fetch_pc = inside["check_pc"], inside["fetch_pc"]
        behind = expect + exec_valid
        with m.If(dut.running):
            self.invariant(m, ~check_valid | (check_pc == behind))
            self.invariant(m, ~check_valid | (inside["check_range"] == (check_pc >= WORDS)))
            self.invariant(m, ~check_valid | (check_pc >= WORDS) | (store.used & (store.last == check_pc)))
            self.invariant(m, ~fetch_on | (fetch_pc == behind + check_valid))
        with m.Else():
            self.invariant(m, ~exec_valid & ~check_valid & ~fetch_on)
        self.invariant(m, ~store.used | (store.last != store.watched) | (store.read.data == store.word))


class OfferCheck(SequencerCheck):
    """What is offered to the queues, given what :class:`SequencerCheck` proves."""

    def describe(self, m: Module) -> None:
        self.given = not self.mutant
        super().describe(m)

    def more(self, m: Module, run: SimpleNamespace) -> None:
        """Transfers and predicates."""
        self.given = False
        dut, opcode, complete, is_open, count, done = (
            run.dut, run.opcode, run.complete, run.is_open, run.count, run.done)
        ports = [getattr(dut, name) for name in ("ld", "st", "mxu", "vpu")]
        moves = Cat(port.valid & port.ready for port in ports)
        inner = (run.is_loop | run.is_end | (opcode == isa.Op.ADDR) | (opcode == isa.Op.HALT))
        self.claim(m, (complete & ~inner) == moves.any())
        self.claim(m, ~complete | run.valid)
        for name, port in zip(("ld", "st", "mxu", "vpu"), ports, strict=True):
            self.claim_held(m, port, name, unless=~dut.running)
        for port in ports:
            sync = data.View(isa.word_layout(isa.Op.SYNC), port.payload.word)
            pulse = data.View(isa.word_layout(isa.Op.PULSE_ARRAY), port.payload.word)

            def first(mask):
                return ~Cat(mask[i] & is_open[i] & (done[i] != 0) for i in LEVELS).any()

            def last(mask):
                return ~Cat(mask[i] & is_open[i] & (done[i] != count[i] - 1) for i in LEVELS).any()

            with m.If(port.valid & (opcode == isa.Op.SYNC)):
                for i, unit in enumerate(("ld", "st", "mxu", "vpu")):
                    self.claim(m, port.payload.wait[i] == (sync[f"wait_{unit}"] & first(sync[f"wait_{unit}_first"])))
                    self.claim(
                        m, port.payload.signal[i] == (sync[f"signal_{unit}"] & last(sync[f"signal_{unit}_last"])))
            with m.If(port.valid & (opcode == isa.Op.PULSE_ARRAY)):
                self.claim(m, port.payload.swap == (pulse.swap & first(pulse.swap_first)))
                self.claim(m, port.payload.accumulate == (
                    (pulse.acc_mode == isa.AccMode.ACCUMULATE)
                    | ((pulse.acc_mode == isa.AccMode.FIRST) & ~first(pulse.acc_first))))


class NestCheck(SequencerCheck):
    """Loops nest, and what is executed lies in all that are open; given what :class:`SequencerCheck` proves."""

    def describe(self, m: Module) -> None:
        self.given = not self.mutant
        super().describe(m)

    def more(self, m: Module, run: SimpleNamespace) -> None:
        self.given = False
        self.nest(m, run)

    def nest(self, m: Module, run: SimpleNamespace) -> None:
        """The claims."""
        expect, is_open, begin, end = run.expect, run.is_open, run.begin, run.end
        for i in LEVELS:
            self.claim(m, ~is_open[i] | ((begin[i] <= end[i]) & (end[i] < WORDS)))
            self.claim(m, ~is_open[i] | ((expect >= begin[i]) & (expect <= end[i])))
            for j in LEVELS:
                if j > i:
                    self.claim(
                        m, ~(is_open[i] & is_open[j]) | ((end[j] < end[i]) & (begin[j] > begin[i])))


class CountCheck(NestCheck):
    """How often a word is executed, given what the others prove. With ``flaw``, a wrong number."""

    def __init__(self, *, flaw: int = 0) -> None:
        super().__init__()
        self.flaw = flaw

    def more(self, m: Module, run: SimpleNamespace) -> None:
        """Word x in a loop from `head` to `tail` of any level: executed `count` times when the loop ends."""
        if self.given:
            self.nest(m, run)
        self.given = False
        x, pc, loop, complete, is_loop, is_end = run.x, run.pc, run.loop, run.complete, run.is_loop, run.is_end
        expect, is_open, begin, end, count, done = run.expect, run.is_open, run.begin, run.end, run.count, run.done
        head, tail = self.constant(m, range(WORDS), "head"), self.constant(m, range(WORDS), "tail")
        level = self.constant(m, range(isa.LOOP_LEVELS), "loop_level")
        m.d.comb += Assume((head < x) & (x < tail) & (level < isa.LOOP_LEVELS))
        with m.If(complete):
            m.d.comb += [
                Assume((pc != head) | (is_loop & (loop.level == level) & (loop.end == tail))),
                Assume((pc != tail) | (is_end & (loop.level == level))),
                Assume((pc != x) | ~(is_loop | is_end)),
                # x lies in no loop within, and no loop outside ends within.
                Assume(~is_loop | (pc <= head) | (pc >= tail) | (loop.end < x) | (pc > x)),
                Assume(~is_loop | (pc == head) | ((pc > head) & (pc < tail)) | (loop.end < head) | (loop.end > tail)),
            ]
        times = Signal(COUNT)
        with m.If(complete & (pc == x)):
            m.d.sync += times.eq(times + 1)
        with m.If(complete & (pc == head) & (run.asked != 0)):
            m.d.sync += times.eq(0)
        for i in LEVELS:
            with m.If((level == i) & is_open[i] & (begin[i] == head + 1)):
                with m.If(complete & is_end & (loop.level == i) & (done[i] == count[i] - 1)):
                    self.claim(m, times == (count[i] + self.flaw)[:COUNT])
                self.invariant(m, (end[i] == tail) & (expect > head) & (expect <= tail))
                self.invariant(m, times == (done[i] + (expect > x))[:COUNT])
                for j in LEVELS:
                    if j > i:
                        self.invariant(m, ~is_open[j] | (end[j] < x) | (begin[j] > x))
                        self.invariant(m, ~is_open[j] | ((begin[j] > head) & (end[j] < tail)))


def test_order():
    prove_checks("sequencer", {"order": SequencerCheck()}, depth=1)


def test_offers():
    prove_checks("sequencer_offers", {"offers": OfferCheck()}, depth=1)


@pytest.mark.soak
def test_nesting():
    prove_checks("sequencer_nesting", {"nesting": NestCheck()}, depth=1)


@pytest.mark.soak
def test_counts():
    prove_checks("sequencer_counts", {"counts": CountCheck()}, depth=1)


BUGS = {
    "pushed twice": (OfferCheck, ("complete.eq(ready)]", "complete.eq(ready & offered)]")),
    "jumps too far": (SequencerCheck, ("target.eq(loops.again)", "target.eq(loops.again + 1)")),
    "a word that the host reads is executed": (
        SequencerCheck, ("with m.Elif(host_read & check_valid):", "with m.Elif(0):")),
    "a taken END fetches on": (SequencerCheck, ("with m.Elif(jump):", "with m.Elif(jump & ~check_valid):")),
    "an empty loop runs": (SequencerCheck, ("with m.Elif(loops.count == 0):", "with m.Elif(0):")),
    "first is last": (OfferCheck, ("all_in(view.swap_first, loops.first)", "all_in(view.swap_first, loops.last)")),
    "predicates ask closed loops": (OfferCheck, ("mask & loops.open & ~flags", "mask & ~flags")),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    check, change = bug
    prove_bites("sequencer_bites", check(change), depth=12)


def test_a_wrong_count_is_found():
    """The end of a loop around a word is reached: with the number off by one the claim is broken."""
    prove_bites("sequencer_counts_bites", CountCheck(flaw=1), depth=9)
