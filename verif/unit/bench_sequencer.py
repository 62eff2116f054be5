"""The bench plays host, queues and units."""

import cocotb
from cocotb.triggers import RisingEdge, Timer

from sluice_hw import csr, isa
from sluice_hw.interfaces import fault_layout, op_layout
from sluice_hw.isa import Error, Op
from sluice_hw.sequencer import address_fields, error_layout, state_layout, ucode_request_layout
from verif.transactors import StreamDriver, StreamMonitor, StreamSink, bursts, random_pauses, seeded, start_up
from verif.unit.microcode import CONFIG, DISPATCHED, random_fields, random_program, run, unpack

UNITS = [u.name.lower() for u in isa.Unit]
LAST = CONFIG.microcode_words - 1


def encode(op, **fields):
    return isa.encode(op, CONFIG, fields)


HALT = encode(Op.HALT, code=7)


def raw(op, **fields):
    """A word with fields that the assembler would refuse; signed ones as their bits."""
    word, at = int(op), isa.OPCODE_BITS
    for f in isa.OPS[op].fields:
        lo, hi = isa.field_range(f, CONFIG)
        value = fields.pop(f.name, min(max(0, lo), hi))
        word |= (value & ((1 << f.width) - 1)) << at
        at += f.width
    return word | fields.pop("reserved", 0) << at


class Bench:
    def __init__(self, dut):
        self.dut = dut
        self.cycle = 0
        self.ends = 0

    @classmethod
    async def create(cls, dut, *, sinks=True, check=True):
        self = cls(dut)
        await start_up(dut, queue_empty=15, unit_idle=15, progress=0, watchdog=0, start=0, halt=0, step=0, resume=0,
                       entry=0, breakpoint=0, unit_fault_valid=0, token_fault_valid=0)
        self.store = StreamDriver(dut, "ucode__req", shape=ucode_request_layout(CONFIG))
        self.sinks = [StreamSink(dut, u, shape=op_layout(), check=check) for u in UNITS] if sinks else []
        cocotb.start_soon(self._count())
        return self

    async def _count(self):
        while True:
            await RisingEdge(self.dut.clk)
            self.cycle += 1
            self.ends += int(self.dut.ended.value)

    async def load(self, words, at=0):
        for i, word in enumerate(words):
            for lane in range(4):
                part = word >> 64 * lane & (1 << 64) - 1
                await self.store.send({"write": 1, "addr": at + i, "lane": lane, "data": part})

    async def read_word(self, addr):
        word = 0
        for lane in range(4):
            await self.store.send({"write": 0, "addr": addr, "lane": lane, "data": 0})
            await RisingEdge(self.dut.clk)  # the request went at the edge before
            assert self.dut.ucode__rsp_valid.value == 1
            word |= int(self.dut.ucode__rsp_data.value) << 64 * lane
        return word

    async def pulse(self, name):
        signal = getattr(self.dut, name)
        signal.value = 1
        await RisingEdge(self.dut.clk)
        signal.value = 0

    async def start(self, entry=0):
        self.dut.entry.value = entry
        self.ends = 0
        await self.pulse("start")
        await Timer(1, "ns")

    async def cycles(self, n):
        for _ in range(n):
            await RisingEdge(self.dut.clk)
        await Timer(1, "ns")

    async def finish(self, limit=20_000):
        """Wait for the end of the program; True for HALT, False for an error."""
        for _ in range(limit):
            if int(self.dut.running.value) == 0:
                break
            await RisingEdge(self.dut.clk)
            await Timer(1, "ns")
        else:
            raise AssertionError(f"no end after {limit} cycles; state {self.state()}")
        assert int(self.dut.run.value) == 0
        await self.cycles(2)
        assert self.ends == 1, "one pulse for the end of a program"
        assert int(self.dut.done.value) != int(self.dut.error.value)
        return bool(self.dut.done.value)

    async def wait_halted(self):
        for _ in range(200):
            if int(self.dut.halted.value):
                return self.state()["pc"]
            await self.cycles(1)
        raise AssertionError("not halted")

    def fault(self):
        return unpack(error_layout(), int(self.dut.fault.value))

    def state(self):
        return unpack(state_layout(), int(self.dut.state.value))

    async def reset(self):
        self.dut.rst.value = 1
        await self.cycles(1)
        self.dut.rst.value = 0

    def taken(self):
        """Ops that arrived at each queue since the last call."""
        out = [s.items[:] for s in self.sinks]
        for s in self.sinks:
            s.items.clear()
            s.cycles.clear()
            s._taken = 0
        return out


def visible(item):
    """The parts of a micro-op that mean something for its word."""
    op, _ = isa.decode(item["word"])
    keep = dict(item)
    for letter in "abc"[len(address_fields(op)):]:
        keep.pop(letter)
    return keep


@cocotb.test
async def random_programs(dut):
    """Ops, addresses and predicates equal the model's, under every kind of backpressure, the host reading along."""
    bench = await Bench.create(dut)
    rng = seeded("programs")
    for n in range(60):
        words, entry, params = random_program(rng)
        expected = run(words, entry, params)
        for i, value in enumerate(params):
            getattr(dut, f"params__{i}").value = value
        await bench.load(words)
        for sink in bench.sinks:
            sink.set_pause_generator([None, random_pauses(0.5, rng), bursts(rng)][n % 3])
        await bench.start(entry)
        if n % 4 == 3:  # the host reads the store in the meantime
            for _ in range(20):
                addr = rng.randrange(len(words))
                assert await bench.read_word(addr) == words[addr]
        assert await bench.finish(), (n, bench.fault())
        assert int(dut.halt_code.value) == expected.halt_code
        for unit, items in enumerate(bench.taken()):
            assert [visible(i) for i in items] == [visible(i) for i in expected.ops[unit]], (n, unit)
    assert sum(len(s.items) for s in bench.sinks) == 0


@cocotb.test
async def addresses_set_in_loops_of_all_levels(dut):
    """Each body sets a register that it and the bodies inside change: its way back is that of all levels outside."""
    bench = await Bench.create(dut)
    rng = seeded("all levels")
    for first in (0, 1, 3):  # the outermost level
        levels = range(first, isa.LOOP_LEVELS)
        words = []
        for level in levels:
            end = 4 * isa.LOOP_LEVELS - 1 - level - 3 * first
            words.append(encode(Op.LOOP, level=level, count=2, end=end))
            fields = random_fields(Op.ADDR, rng) | {"reg": level % isa.ADDRESS_REGISTERS, "add_param": 0}
            words += [encode(Op.ADDR, **fields), encode(Op.LOAD_WEIGHTS, vmem=fields["reg"])]
        words += [encode(Op.END, level=level) for level in reversed(levels)] + [HALT]
        await bench.load(words)
        await bench.start()
        assert await bench.finish(), bench.fault()
        expected = run(words, 0, [0] * isa.PARAM_REGISTERS)
        for unit, items in enumerate(bench.taken()):
            assert [visible(i) for i in items] == [visible(i) for i in expected.ops[unit]], (first, unit)


@cocotb.test
async def nothing_before_start(dut):
    bench = await Bench.create(dut)
    await bench.load([encode(Op.SYNC, unit=0), HALT])
    await bench.pulse("halt")
    await bench.pulse("step")
    await bench.pulse("resume")
    await bench.cycles(10)
    assert not any(bench.taken())
    assert int(dut.running.value) == 0 and int(dut.halted.value) == 0 and int(dut.startable.value) == 1
    await bench.start()
    assert await bench.finish()
    assert [len(t) for t in bench.taken()] == [1, 0, 0, 0]


@cocotb.test
async def speed(dut):
    """A word a cycle in a straight line, the first op 6 cycles at most after the start, 3 more for a taken END."""
    bench = await Bench.create(dut)
    words = [encode(Op.SYNC, unit=2) for _ in range(20)]
    await bench.load([*words, HALT])
    sink = bench.sinks[2]
    began = len(sink.cycles)
    assert began == 0
    first = bench.cycle
    start_edge = StreamMonitor(dut, "mxu")
    await bench.start()
    assert await bench.finish()
    cycles = start_edge.cycles
    assert [b - a for a, b in zip(cycles, cycles[1:], strict=False)] == [1] * 19
    assert cycles[0] <= 5, cycles  # and one more until the queue holds it
    assert bench.cycle - first < 40
    bench.taken()

    body = [encode(Op.SYNC, unit=2)] * 3
    await bench.load([encode(Op.LOOP, level=0, count=5, end=4), *body, encode(Op.END, level=0), HALT])
    monitor = StreamMonitor(dut, "mxu")
    await bench.start()
    assert await bench.finish()
    gaps = [b - a for a, b in zip(monitor.cycles, monitor.cycles[1:], strict=False)]
    assert len(gaps) == 14
    assert all(g == 1 for i, g in enumerate(gaps) if i % 3 != 2)
    assert all(g <= 1 + 1 + 3 for i, g in enumerate(gaps) if i % 3 == 2), gaps  # END itself, and at most 3 more


async def expect_error(bench, words, code, pc, field, *, at=0, entry=None, unit=csr.SEQUENCER):
    await bench.load(words, at)
    await bench.start(at if entry is None else entry)
    assert not await bench.finish(), f"accepted {[hex(w) for w in words]}"
    fault = bench.fault()
    seen = (Error(fault["code"]).name, fault["pc"], fault["field"], fault["unit"])
    assert seen == (code.name, pc, field, unit), (seen, (code.name, pc, field, unit), [hex(w) for w in words])
    await bench.cycles(4)
    assert int(bench.dut.startable.value) == 0
    taken = bench.taken()
    assert not any(taken), "the bad word had an effect"
    await bench.reset()
    return fault


@cocotb.test
async def illegal_fields(dut):
    """Every value just outside, and the farthest outside, of every field; its limits are accepted."""
    bench = await Bench.create(dut)
    rng = seeded("illegal")
    count = 0
    for op, spec in isa.ops_of(CONFIG).items():
        used = isa.OPCODE_BITS + sum(f.width for f in spec.fields)
        for number, f in enumerate(spec.fields, 1):
            assert isa.field_index(op, f.name) == number
            lo, hi = isa.field_range(f, CONFIG)
            bottom, top = (-(1 << f.width - 1), (1 << f.width - 1) - 1) if f.signed else (0, (1 << f.width) - 1)
            for value in sorted({lo - 1, bottom, hi + 1, top, rng.randint(bottom, top)}):
                if bottom <= value < lo or hi < value <= top:
                    at = rng.randrange(LAST)
                    word = raw(op, **{f.name: value})
                    fault = await expect_error(bench, [word], Error.ILLEGAL_FIELD, at, number, at=at)
                    assert fault["info"] == word & 0xFFFFFFFF
                    # Of several bad things the first in the table counts, whatever stands behind it.
                    later = {g.name: rng.getrandbits(g.width) for g in spec.fields[number:]}
                    reserved = rng.getrandbits(isa.WORD_BITS - used) if used < isa.WORD_BITS else 0
                    if op is not Op.ADDR:
                        word = raw(op, **{f.name: value}, **later, reserved=reserved)
                        await expect_error(bench, [word], Error.ILLEGAL_FIELD, at, number, at=at)
                    count += 1
        for bit in {used, isa.WORD_BITS - 1, rng.randint(used, isa.WORD_BITS - 1)} if used < isa.WORD_BITS else ():
            await expect_error(bench, [raw(op) | 1 << bit], Error.RESERVED_BITS, 3, len(spec.fields) + 1, at=3)
    assert count >= 30, count


@cocotb.test
async def illegal_opcodes(dut):
    bench = await Bench.create(dut)
    for code in range(1 << isa.OPCODE_BITS):
        if code not in list(isa.ops_of(CONFIG)):
            await expect_error(bench, [code | 0xFFFF << 20], Error.ILLEGAL_OPCODE, 5, 0, at=5)


@cocotb.test
async def legal_limits(dut):
    """Both limits of every field pass."""
    bench = await Bench.create(dut)
    for op in DISPATCHED:
        for pick in (0, 1):
            fields = {f.name: isa.field_range(f, CONFIG)[pick] for f in isa.OPS[op].fields}
            await bench.load([encode(op, **fields), HALT])
            await bench.start()
            assert await bench.finish(), (op, pick, bench.fault())
            assert sum(map(len, bench.taken())) == 1


@cocotb.test
async def ring_strides(dut):
    """A ring register wants strides from 0 to ring, for every level."""
    bench = await Bench.create(dut)
    for level in range(isa.LOOP_LEVELS):
        number = isa.field_index(Op.ADDR, f"stride{level}")
        for stride in (-1, 101, -(1 << 25), (1 << 25) - 1):
            word = encode(Op.ADDR, ring=100, **{f"stride{level}": stride})
            await expect_error(bench, [word], Error.ILLEGAL_FIELD, 0, number)
        await bench.load([encode(Op.ADDR, ring=100, **{f"stride{level}": 100}), HALT])
        await bench.start()
        assert await bench.finish()


@cocotb.test
async def nesting(dut):
    bench = await Bench.create(dut)
    level, end = isa.field_index(Op.LOOP, "level"), isa.field_index(Op.LOOP, "end")

    def loop(level, end, count=2):
        return encode(Op.LOOP, level=level, end=end, count=count)

    def close(level):
        return encode(Op.END, level=level)

    nest = Error.LOOP_NESTING
    await expect_error(bench, [loop(2, 9), loop(2, 5)], nest, 1, level)
    await expect_error(bench, [loop(2, 9), loop(1, 5)], nest, 1, level)
    await expect_error(bench, [loop(0, 9), loop(3, 8), loop(1, 5)], nest, 2, level)
    await expect_error(bench, [loop(0, 0)], nest, 0, end)
    await expect_error(bench, [loop(0, 4, 0), loop(0, 3)], Error.ILLEGAL_OPCODE, 5, 0)  # skipped to word 5
    await expect_error(bench, [HALT, loop(0, 0)], nest, 1, end, entry=1)
    await expect_error(bench, [loop(0, 4), loop(1, 4)], nest, 1, end)
    await expect_error(bench, [loop(0, 4), loop(1, 7)], nest, 1, end)
    await expect_error(bench, [loop(0, 4), loop(1, 7, 0)], nest, 1, end)  # also when it would be skipped
    await expect_error(bench, [close(0)], nest, 0, 1)
    await expect_error(bench, [loop(0, 1), close(1)], nest, 1, 1)
    await expect_error(bench, [loop(0, 3), close(0)], nest, 1, 1)
    await expect_error(bench, [loop(0, 9), loop(1, 2), close(0)], nest, 2, 1)
    await expect_error(bench, [loop(0, 1), HALT], nest, 1, 0)
    await expect_error(bench, [loop(0, 1), encode(Op.SYNC)], nest, 1, 0)
    # A loop left open by HALT is gone at the next start.
    await bench.load([loop(3, 5), HALT, close(3), HALT])
    await bench.start()
    assert await bench.finish()
    await bench.load([loop(1, 1 + 1), encode(Op.SYNC), close(1), HALT])
    await bench.start()
    assert await bench.finish()
    assert len(bench.taken()[0]) == 2


@cocotb.test
async def fetch_range(dut):
    bench = await Bench.create(dut)
    for entry in (LAST + 1, LAST + 2, 0xFFFF):
        await expect_error(bench, [], Error.FETCH_RANGE, entry, 0, entry=entry)
    # Running off the end: the words before still act.
    await bench.load([encode(Op.SYNC, unit=1)], LAST)
    await bench.start(LAST)
    assert not await bench.finish()
    assert bench.fault()["code"] == Error.FETCH_RANGE and bench.fault()["pc"] == LAST + 1
    assert len(bench.taken()[1]) == 1
    await bench.reset()
    # A HALT or a taken END in the last word is no reason to complain, although the word behind it is fetched.
    await bench.load([HALT], LAST)
    await bench.start(LAST)
    assert await bench.finish()
    await bench.load([HALT])
    await bench.load([encode(Op.LOOP, level=0, count=3, end=LAST), encode(Op.SYNC), encode(Op.END, level=0)], LAST - 2)
    await bench.start(LAST - 2)
    assert not await bench.finish()
    assert bench.fault()["pc"] == LAST + 1
    assert len(bench.taken()[0]) == 3


@cocotb.test
async def halt_waits_for_units(dut):
    bench = await Bench.create(dut)
    await bench.load([encode(Op.SYNC), HALT])
    for bit in range(4):
        for port in (dut.queue_empty, dut.unit_idle):
            port.value = 15 ^ 1 << bit
            await bench.start()
            await bench.cycles(30)
            assert int(dut.running.value) == 1 and bench.state()["cause"] == isa.Cause.IDLE
            port.value = 15
            await bench.cycles(1)
            assert int(dut.running.value) == 1, "one cycle of quiet is not enough"
            await bench.cycles(1)
            assert await bench.finish(2)
            assert int(dut.halt_code.value) == 7
    bench.taken()


@cocotb.test
async def queue_full(dut):
    """A full queue holds the sequencer, which says so."""
    bench = await Bench.create(dut)
    await bench.load([encode(Op.SYNC, unit=3), encode(Op.SYNC, unit=0), HALT])
    bench.sinks[3].set_pause_generator(iter(lambda: True, None))
    await bench.cycles(1)
    await bench.start()
    await bench.cycles(20)
    assert bench.state()["cause"] == isa.Cause.QUEUE and bench.state()["pc"] == 0
    assert not any(bench.taken())
    bench.sinks[3].set_pause_generator(None)
    assert await bench.finish()
    assert [len(t) for t in bench.taken()] == [1, 0, 0, 1]


@cocotb.test
async def stepping(dut):
    """Halt, single steps through a loop, resume: same ops as without."""
    bench = await Bench.create(dut)
    words = [encode(Op.LOOP, level=1, count=2, end=3), encode(Op.SYNC, unit=0), encode(Op.SYNC, unit=1),
             encode(Op.END, level=1), encode(Op.SYNC, unit=2), HALT]
    await bench.load(words)
    dut.breakpoint.value = 1 << 16 | 0
    await bench.start()
    assert await bench.wait_halted() == 0
    path = []
    for expected in (1, 2, 3, 1, 2, 3, 4, 5):
        await bench.pulse("step")
        await bench.cycles(8)
        assert int(dut.halted.value) == 1
        path.append(bench.state()["pc"])
        assert path[-1] == expected, path
        if expected == 3:
            assert bench.state()["open"] == 2
    assert [len(t) for t in bench.taken()] == [2, 2, 1, 0]
    await bench.cycles(50)
    assert int(dut.running.value) == 1
    await bench.pulse("step")  # over HALT
    assert await bench.finish()
    assert int(dut.halted.value) == 0

    # Breakpoint inside a loop: met in each iteration, and resume leaves it.
    dut.breakpoint.value = 1 << 16 | 2
    await bench.start()
    for iteration in range(2):
        assert await bench.wait_halted() == 2
        assert bench.state()["iterations"][1] == iteration
        assert len(bench.sinks[0].items) == iteration + 1 and len(bench.sinks[1].items) == iteration
        await bench.pulse("resume")
        await bench.cycles(2)
    assert await bench.finish()
    bench.taken()
    dut.breakpoint.value = 2  # not enabled
    await bench.start()
    assert await bench.finish()
    bench.taken()

    # Halt at any moment of a run, then go on: nothing lost, nothing twice.
    rng = seeded("halt")
    for wait in range(20):
        await bench.start()
        await bench.cycles(wait)
        await bench.pulse("halt")
        await bench.cycles(12)
        if int(dut.running.value):
            assert int(dut.halted.value) == 1
            before = [len(s.items) for s in bench.sinks]
            await bench.cycles(rng.randint(1, 20))
            assert [len(s.items) for s in bench.sinks] == before
            await bench.pulse("resume")
        await bench.cycles(40)
        assert int(dut.done.value) == 1 and int(dut.running.value) == 0
        assert [len(t) for t in bench.taken()] == [2, 2, 1, 0]


@cocotb.test
async def halt_keeps_the_offer(dut):
    """A halt while a queue is full lets the offered word go first: a stream does not withdraw."""
    bench = await Bench.create(dut)
    await bench.load([encode(Op.SYNC, unit=3), encode(Op.SYNC, unit=0), HALT])
    bench.sinks[3].set_pause_generator(iter(lambda: True, None))
    await bench.cycles(1)
    await bench.start()
    await bench.cycles(8)
    await bench.pulse("halt")
    await bench.cycles(8)
    assert int(dut.halted.value) == 0
    bench.sinks[3].set_pause_generator(None)
    assert await bench.wait_halted() == 1
    assert [len(t) for t in bench.taken()] == [0, 0, 0, 1]
    await bench.pulse("resume")
    await bench.cycles(10)
    assert int(dut.done.value) == 1


@cocotb.test
async def watchdog(dut):
    bench = await Bench.create(dut, check=False)
    await bench.load([encode(Op.SYNC, unit=2), HALT])
    dut.unit_idle.value = 0
    dut.unit_pc__2.value = 0x123
    states = dict(zip([*UNITS, "hbm"], (isa.Cause.BUSY, isa.Cause.IDLE, isa.Cause.TOKEN_LD, isa.Cause.TOKEN_MXU,
                                        isa.Cause.HBM), strict=True))
    for i, state in enumerate(states.values()):
        getattr(dut, f"unit_state__{i}").value = int(state)
    for limit in (64, 100):
        dut.watchdog.value = limit
        dut.progress.value = 1
        await bench.start()
        await bench.cycles(3 * limit)
        assert int(dut.running.value) == 1
        dut.progress.value = 0
        for gap in (limit - 1, 1):  # one cycle short of the limit, progress, and again
            await bench.cycles(gap)
            assert int(dut.running.value) == 1
            dut.progress.value = 1
            await bench.cycles(1)
            dut.progress.value = 0
        await bench.cycles(limit - 1)
        assert int(dut.running.value) == 1
        await bench.cycles(1)
        assert int(dut.running.value) == 0 and int(dut.error.value) == 1
        fault = bench.fault()
        assert fault["code"] == Error.WATCHDOG and fault["unit"] == isa.Unit.MXU and fault["pc"] == 0x123
        info = unpack(csr.watchdog_info_layout(), fault["info"])
        expected = {"unit": 2, "cause": isa.Cause.TOKEN_LD, "seq": isa.Cause.IDLE, **states}
        assert info == {k: int(v) for k, v in expected.items()}, info
        await bench.reset()
    # It names the first unit that waits for a token, whichever that is; without one, the first that does not idle.
    for unit in range(4):
        for i in range(4):
            getattr(dut, f"unit_state__{i}").value = int(isa.Cause.TOKEN_LD if i >= unit else isa.Cause.IDLE)
        dut.watchdog.value = 64
        await bench.start()
        await bench.cycles(100)
        assert int(dut.error.value) == 1 and bench.fault()["unit"] == unit
        await bench.reset()
    for i, state in enumerate(states.values()):
        getattr(dut, f"unit_state__{i}").value = int(state)
    # 0 switches it off; a halted program is not hung.
    dut.watchdog.value = 0
    await bench.start()
    await bench.cycles(400)
    assert int(dut.running.value) == 1
    await bench.pulse("halt")
    assert await bench.wait_halted() == 1
    dut.watchdog.value = 64
    await bench.cycles(400)
    assert int(dut.running.value) == 1 and int(dut.halted.value) == 1
    await bench.pulse("resume")
    await bench.cycles(80)
    assert int(dut.error.value) == 1
    await bench.reset()
    # Only the sequencer waits: it names itself.
    bench.taken()
    for i in range(5):
        getattr(dut, f"unit_state__{i}").value = int(isa.Cause.IDLE)
    bench.sinks[2].set_pause_generator(iter(lambda: True, None))
    await bench.cycles(1)
    await bench.start()
    assert not await bench.finish()
    fault = bench.fault()
    info = unpack(csr.watchdog_info_layout(), fault["info"])
    assert (fault["unit"], fault["pc"], info["unit"], info["cause"]) == (4, 0, 4, isa.Cause.QUEUE)


@cocotb.test
async def unit_faults(dut):
    """A fault of any unit stops the program at once; the first counts, the lowest unit of several."""
    bench = await Bench.create(dut, check=False)
    await bench.load([encode(Op.LOOP, level=0, count=1000, end=2), encode(Op.SYNC), encode(Op.END, level=0), HALT])

    def fault_value(code, pc, info):
        return fault_layout().const({"code": code, "pc": pc, "info": info}).as_value().value

    for unit in range(4):
        for code, info, field in ((Error.VMEM_RANGE, 0x12345678, 0), (Error.ILLEGAL_FIELD, 11, 11)):
            await bench.start()
            await bench.cycles(10)
            getattr(dut, f"unit_fault__{unit}").value = fault_value(code, 0x40 + unit, info)
            getattr(dut, f"unit_fault__{3}").value = fault_value(code, 0x40 + unit, info)
            dut.unit_fault_valid.value = 1 << unit | 8
            await bench.cycles(1)
            dut.unit_fault_valid.value = 0
            assert int(dut.run.value) == 0 and int(dut.error.value) == 1
            expected = {"code": code, "pc": 0x40 + unit, "field": field, "info": info, "unit": unit}
            assert bench.fault() == expected, (bench.fault(), expected)
            bench.taken()
            dut.unit_fault_valid.value = 15  # later ones change nothing
            await bench.cycles(5)
            dut.unit_fault_valid.value = 0
            assert bench.fault() == expected
            assert not any(bench.taken())
            await bench.pulse("start")
            await bench.cycles(5)
            assert int(dut.running.value) == 0, "only a reset leaves the error"
            await bench.reset()
    await bench.start()
    await bench.cycles(5)
    dut.token_fault.value = fault_value(Error.TOKEN_OVERFLOW, 9, 1)
    dut.token_fault_unit.value = 3
    await bench.pulse("token_fault_valid")
    await bench.cycles(1)
    assert bench.fault() == {"code": Error.TOKEN_OVERFLOW, "pc": 9, "field": 0, "info": 1, "unit": 3}
    await bench.reset()
    # Without a program a fault is nobody's.
    await bench.pulse("token_fault_valid")
    await bench.cycles(2)
    assert int(dut.error.value) == 0


@cocotb.test
async def starts_clean(dut):
    """Loops and address registers of the program before are gone; so is its backlog after a reset in the middle."""
    bench = await Bench.create(dut, check=False)
    rng = seeded("clean")
    await bench.load([encode(Op.ADDR, reg=3, base=77, stride0=5), encode(Op.LOOP, level=0, count=9, end=9), HALT])
    await bench.start()
    assert await bench.finish()
    await bench.load([encode(Op.LOAD_PARAMS, vmem=3), HALT])
    await bench.start()
    assert await bench.finish()
    assert bench.taken()[3][0]["a"] == 0
    for _ in range(10):
        words, entry, params = random_program(rng)
        for i, value in enumerate(params):
            getattr(dut, f"params__{i}").value = value
        await bench.load(words)
        await bench.start(entry)
        await bench.cycles(rng.randint(1, 40))
        await bench.reset()
        bench.taken()
        await bench.start(entry)
        assert await bench.finish()
        expected = run(words, entry, params)
        assert [[visible(i) for i in t] for t in bench.taken()] == [
            [visible(i) for i in expected.ops[u]] for u in range(4)]


@cocotb.test
async def every_op_to_its_unit(dut):
    bench = await Bench.create(dut)
    rng = seeded("ops")
    for op in DISPATCHED:
        for _ in range(3):
            word = encode(op, **random_fields(op, rng))
            await bench.load([word, HALT])
            await bench.start()
            assert await bench.finish()
            expected = run([word, HALT], 0, [0] * 8)
            got = bench.taken()
            assert [len(t) for t in got] == [len(expected.ops[u]) for u in range(4)], op
