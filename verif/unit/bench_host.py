"""AXI accesses, good and bad, under random backpressure; commands, interrupts, resets."""

import cocotb
from cocotb.triggers import RisingEdge, with_timeout
from cocotbext.axi import AxiBurstType

from sluice_hw import csr, isa
from sluice_hw.csr import Access, HostMap, Irq
from sluice_hw.debug import event_layout
from sluice_hw.host import unit_status_layout
from sluice_hw.sequencer import error_layout, state_layout
from verif.transactors import seeded
from verif.unit.hostbench import World

OKAY, SLVERR = 0, 2
DONE, ERROR, HALTED, HOST_ERROR = (1 << i for i in Irq)


async def flush(world):
    """Have everything written back, by the start of a program that ends at once."""
    async def started():
        while not int(world.dut.start.value):
            await RisingEdge(world.dut.clk)

    start = cocotb.start_soon(started())
    assert await world.csr_write("CTRL", 1) == OKAY
    await with_timeout(start, 20, "us")
    await world.cycles(2)


@cocotb.test
async def registers_reset(dut):
    """Every register reads its reset value; identification and geometry are the configuration's."""
    world = await World.create(dut, seeded("reset"))
    for name, r in world.csrs.items():
        assert await world.csr_read(name) == r.reset, name
    c = world.config
    expected = {"ID": csr.CHIP_ID, "CONFIG_HASH": csr.config_hash(c), "ROWS": c.rows, "COLS": c.cols,
                "HBM_SLICES": c.hbm_slices, "SLICE_BYTES": c.slice_bytes, "MICROCODE_WORDS": c.microcode_words,
                "HBM_HI": c.hbm_slices, "HBM_LO": 0, "WATCHDOG": c.watchdog_cycles, "ACC_ROWS": c.acc_rows}
    for name, value in expected.items():
        assert await world.csr_read(name) == value, name


@cocotb.test
async def registers_random(dut):
    """Writes, good and bad, against a model, under backpressure."""
    world = await World.create(dut, seeded("csr"), pause=0.5)
    rng = world.rng
    model = {name: r.reset for name, r in world.csrs.items() if r.access is Access.RW}
    names = list(world.csrs)
    for _ in range(400):
        name = rng.choice(names if rng.random() < 0.4 else list(model))
        r = world.csrs[name]
        value = rng.getrandbits(32)
        if name == "CTRL":
            continue
        kind = rng.random()
        if kind < 0.5:
            assert await world.csr_write(name, value) == (SLVERR if r.access is Access.RO else OKAY), name
            if r.access is Access.RW:
                model[name] = value & ((1 << r.width) - 1)
        elif kind < 0.65:  # part of a word
            offset, size = rng.choice([(0, 1), (1, 1), (3, 1), (0, 2), (2, 2), (1, 3), (0, 3)])
            done = await world.axil.write(r.offset + offset, rng.randbytes(size))
            assert int(done.resp) == SLVERR
        elif name in model:
            assert await world.csr_read(name) == model[name], name
    for name, r in world.csrs.items():
        if r.access is Access.RO:
            assert await world.csr_write(name, rng.getrandbits(32)) == SLVERR, name
    for name, value in model.items():
        assert await world.csr_read(name) == value, name
    for port in ("entry", "watchdog", "hbm_lo", "hbm_hi"):
        assert int(getattr(dut, port).value) == model[port.upper()]
    assert int(dut.breakpoint.value) == model["BREAKPOINT"]
    assert [int(getattr(dut, f"params__{i}").value) for i in range(8)] == [model[f"PARAM{i}"] for i in range(8)]


@cocotb.test
async def registers_bad_addresses(dut):
    world = await World.create(dut, seeded("holes"))
    known = {r.offset for r in world.csrs.values()}
    holes = [a for a in range(0, 1 << csr.ADDRESS_BITS, 4) if a not in known]
    assert len(holes) > 100
    for address in [*holes[:20], *holes[-20:], *world.rng.sample(holes, 40)]:
        assert int((await world.axil.write(address, bytes(4))).resp) == SLVERR, hex(address)
        read = await world.axil.read(address, 4)
        assert int(read.resp) == SLVERR and read.data == bytes(4), hex(address)
    assert int((await world.axil.read(world.csrs["ID"].offset + 2, 2)).resp) in (OKAY, SLVERR)
    # An unaligned address as such, which the master above would align.
    dut.s_axil_araddr.value = 2
    assert await world.csr_read("ID") == csr.CHIP_ID


@cocotb.test
async def status_registers(dut):
    """What the chip shows at its ports is what the host reads in the fields of the table."""
    world = await World.create(dut, seeded("status"))
    rng = world.rng

    async def fields(name):
        r = world.csrs[name]
        return r.unpack(await world.csr_read(name))

    for _ in range(4):
        state = {"pc": rng.getrandbits(17), "open": rng.getrandbits(6), "first": rng.getrandbits(6),
                 "last": rng.getrandbits(6), "iterations": [rng.getrandbits(32) for _ in range(6)],
                 "addresses": [rng.getrandbits(32) for _ in range(16)], "cause": rng.choice(list(isa.Cause))}
        dut.state.value = state_layout().const(state).as_value().value & ((1 << state_layout().size) - 1)
        fault = {"code": rng.choice(list(isa.Error)), "pc": rng.getrandbits(17), "field": rng.getrandbits(8),
                 "info": rng.getrandbits(32), "unit": rng.randrange(5)}
        dut.fault.value = error_layout().const(fault).as_value().value
        event = {"time": rng.getrandbits(32), "pc": rng.getrandbits(16), "unit": rng.randrange(5),
                 "kind": rng.randrange(3)}
        dut.event.value = event_layout().const(event).as_value().value
        dut.event_head.value, dut.event_dropped.value = 0x12345678, 0x9ABC
        dut.halt_code.value = 0x5A
        units = []
        for i in range(4):
            widths = {"idle": 1, "head": 1, "opcode": 6, "level": 7, "wait": 4, "missing": 4, "pc": 16}
            unit = {f: rng.getrandbits(w) for f, w in widths.items()}
            unit["cause"] = rng.choice(list(isa.Cause))
            units.append(unit)
            getattr(dut, f"units__{i}").value = unit_status_layout().const(unit).as_value().value
        bits = world.config.token_max.bit_length()
        tokens = [[rng.getrandbits(bits) for _ in range(4)] for _ in range(4)]
        dut.tokens.value = sum(v << bits * (4 * i + j) for i, row in enumerate(tokens) for j, v in enumerate(row))
        await world.cycles(1)

        assert await world.csr_read("PC") == state["pc"]
        assert await fields("SEQ_STATE") == {k: state[k] for k in ("open", "first", "last", "cause")}
        for i in range(6):
            assert await world.csr_read(f"LOOP{i}") == state["iterations"][i]
        for i in range(16):
            assert await world.csr_read(f"ADDR{i}") == state["addresses"][i]
        for part, value in fault.items():
            assert await world.csr_read(f"ERROR_{part.upper()}") == value
        assert await world.csr_read("EVENT_TIME") == event["time"]
        assert await fields("EVENT_INFO") == {k: event[k] for k in ("pc", "unit", "kind")}
        assert await world.csr_read("EVENT_HEAD") == 0x12345678
        assert await world.csr_read("EVENT_DROPPED") == 0x9ABC
        assert await world.csr_read("HALT_CODE") == 0x5A
        for u in isa.Unit:
            pc = units[u].pop("pc")
            assert await world.csr_read(f"{u.name}_PC") == pc
            assert await fields(f"{u.name}_STATE") == units[u]
            assert list((await fields(f"TOKENS_{u.name}")).values()) == tokens[u]

    for bit, port in enumerate(("running", "done", "halted", "error")):
        getattr(dut, port).value = 1
        await world.cycles(1)
        assert await world.csr_read("STATUS") & 15 == 1 << bit
        getattr(dut, port).value = 0
    for code, expected in ((isa.Error.WATCHDOG, 1), (isa.Error.VMEM_RANGE, 0)):
        dut.fault.value = error_layout().const({"code": code}).as_value().value
        dut.error.value = 1
        await world.cycles(1)
        assert (await fields("STATUS"))["watchdog"] == expected
    dut.error.value = 0


@cocotb.test
async def counters_are_latched(dut):
    """Reading LO keeps HI of that moment; each register selects its counter."""
    world = await World.create(dut, seeded("counters"), pause=0.3)
    names = list(csr.counters())

    async def count():
        selected, n = 0, 0
        while True:
            await RisingEdge(dut.clk)
            n += 1
            # Every cycle another upper half, so that a late latch shows.
            dut.counter_value.value = n << 40 | n << 32 | n << 8 | selected
            selected = int(dut.counter_select.value)

    cocotb.start_soon(count())
    for i, name in enumerate(names):
        lo = await world.csr_read(f"{name.upper()}_LO")
        hi = await world.csr_read(f"{name.upper()}_HI")
        assert lo & 0xFF == i, name
        n = lo >> 8
        assert hi == (n | n << 8) & 0xFFFFFFFF


@cocotb.test
async def interrupts(dut):
    world = await World.create(dut, seeded("irq"))

    async def pulse(**signals):
        for name, value in signals.items():
            getattr(dut, name).value = value
        await world.cycles(1)
        for name in ("ended",):
            getattr(dut, name).value = 0
        await world.cycles(2)

    for cause, level in ((DONE, {"done": 1, "error": 0, "ended": 1}), (ERROR, {"done": 0, "error": 1, "ended": 1}),
                         (HALTED, {"halted": 1})):
        await world.csr_write("IRQ_ENABLE", 0)
        await pulse(**level)
        assert await world.csr_read("IRQ_STATUS") == cause
        assert int(dut.irq.value) == 0
        await world.csr_write("IRQ_ENABLE", 15 ^ cause)
        assert int(dut.irq.value) == 0
        await world.csr_write("IRQ_ENABLE", cause)
        assert int(dut.irq.value) == 1
        await world.csr_write("IRQ_STATUS", 15 ^ cause)
        assert int(dut.irq.value) == 1 and await world.csr_read("IRQ_STATUS") == cause
        await world.csr_write("IRQ_STATUS", cause)
        await world.cycles(2)
        assert int(dut.irq.value) == 0 and await world.csr_read("IRQ_STATUS") == 0
        dut.done.value = dut.error.value = dut.halted.value = 0
        await world.cycles(2)
        assert await world.csr_read("IRQ_STATUS") == 0


@cocotb.test
async def commands(dut):
    world = await World.create(dut, seeded("ctrl"))
    seen = {name: 0 for name in ("start", "halt", "step", "resume", "core_reset")}

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            for name in seen:
                seen[name] += int(getattr(dut, name).value)

    cocotb.start_soon(watch())
    for value, name in ((1, "start"), (2, "core_reset"), (4, "halt"), (8, "step"), (16, "resume")):
        assert await world.csr_write("CTRL", value) == OKAY
        await world.cycles(10)
        assert seen == {n: int(n == name) for n in seen}, (name, seen)
        seen.update(dict.fromkeys(seen, 0))
    # Two commands at once, none at all, unused bits.
    for value, answer in ((3, SLVERR), (12, SLVERR), (31, SLVERR), (0, OKAY), (1 << 31, OKAY)):
        assert await world.csr_write("CTRL", value) == answer
        await world.cycles(6)
    assert not any(seen.values()), seen
    dut.startable.value = 0
    assert await world.csr_write("CTRL", 1) == SLVERR
    await world.cycles(10)
    assert not any(seen.values())
    assert await world.csr_read("CTRL") == 0


@cocotb.test
async def memory_random(dut):
    """Any mix of bursts on HBM and the store equals plain bytes, under backpressure everywhere."""
    world = await World.create(dut, seeded("memory"), pause=0.3)
    rng, config = world.rng, world.config
    hbm = bytearray(world.hbm.bytes)
    store = bytearray(32 * config.microcode_words)
    for n in range(120):
        base, model = (0, hbm) if rng.random() < 0.7 else (HostMap.UCODE_BASE, store)
        words = len(model) // 8
        at = rng.randrange(words)
        if rng.random() < 0.3:
            at -= at % (config.slice_bytes // 8)
        longest = rng.choice([1, 2, config.slice_bytes // 8, 3 * config.slice_bytes // 8, 300])
        count = rng.randint(1, min(longest, words - at))
        if rng.random() < 0.5:
            value = rng.randbytes(8 * count)
            done = await world.axi.write(base + 8 * at, value)
            model[8 * at:8 * (at + count)] = value
        else:
            done = await world.axi.read(base + 8 * at, 8 * count)
            assert done.data == model[8 * at:8 * (at + count)], (n, hex(base), at, count)
        assert int(done.resp) == OKAY
    await flush(world)
    assert world.hbm.bytes == hbm
    assert b"".join(v.to_bytes(8, "little") for v in world.store.lanes) == store


@cocotb.test
async def concurrent(dut):
    """Reads and writes in flight together with ids of their own: nothing hangs, disjoint areas stay right."""
    world = await World.create(dut, seeded("concurrent"), pause=0.2)
    rng, half = world.rng, world.config.hbm_bytes // 2 // 64 * 64
    value = rng.randbytes(half)
    before = bytes(world.hbm.bytes[half:2 * half])
    writes = [world.axi.init_write(a, value[a:a + 64], awid=a // 64 % 16) for a in range(0, half, 64)]
    reads = [world.axi.init_read(half + a, 64, arid=a // 64 % 16) for a in range(0, half, 64)]
    for i, r in enumerate(reads):
        await r.wait()
        assert r.data.data == before[64 * i:64 * i + 64] and int(r.data.resp) == OKAY
    for w in writes:
        await w.wait()
        assert int(w.data.resp) == OKAY
    assert (await world.axi.read(0, half)).data == value


@cocotb.test
async def whole_slices_are_not_read(dut):
    """A burst over whole slices writes them without reading; a burst over part of one reads it first."""
    world = await World.create(dut, seeded("fresh"))
    size = world.config.slice_bytes
    value = world.rng.randbytes(4 * size)
    await world.axi.write(2 * size, value)
    await flush(world)
    assert world.hbm.log == [("write", i) for i in range(2, 6)]
    assert world.hbm.bytes[2 * size:6 * size] == value
    world.hbm.log.clear()
    await world.axi.write(2 * size + 8, bytes(8))
    await flush(world)
    assert world.hbm.log == [("read", 2), ("write", 2)]
    world.hbm.log.clear()
    assert (await world.axi.read(2 * size, 16)).data == value[:8] + bytes(8)
    await flush(world)
    await world.axi.read(2 * size, 8)
    assert world.hbm.log == [("read", 2), ("read", 2)], "a start must forget what was read"


@cocotb.test
async def bad_bursts(dut):
    """Wrong sizes, types, alignments and ranges answer SLVERR and move nothing; the port goes on."""
    world = await World.create(dut, seeded("bad"), pause=0.3)
    rng, config = world.rng, world.config
    hbm_end, ucode_end = config.hbm_bytes, HostMap.UCODE_BASE + 32 * config.microcode_words
    before = bytes(world.hbm.bytes)
    # The master cuts bursts at multiples of 4096, so the windows must not end there.
    assert hbm_end % 4096 and ucode_end % 4096
    places = [
        (hbm_end, 8), (hbm_end, 64), (hbm_end - 8, 16), (hbm_end - 64, 128), (HostMap.UCODE_BASE - 8, 8),
        (ucode_end, 8), (ucode_end - 8, 16), ((1 << 40) - 8, 8), (1 << 39, 256),
        ((1 << 40) - 8 * 4, 32),
    ]
    for address, size in places:
        done = await world.axi.write(address, rng.randbytes(size))
        assert int(done.resp) == SLVERR, hex(address)
        done = await world.axi.read(address, size)
        assert int(done.resp) == SLVERR and done.data == bytes(size), hex(address)
        good = rng.randrange(0, config.hbm_bytes, 8)
        assert (await world.axi.read(good, 8)).data == before[good:good + 8]
    for base in (0, HostMap.UCODE_BASE):
        for size in (0, 1, 2):
            done = await world.axi.write(base + 64, rng.randbytes(16), size=size)
            assert int(done.resp) == SLVERR
            done = await world.axi.read(base + 64, 16, size=size)
            assert int(done.resp) == SLVERR
        for kind in (AxiBurstType.FIXED, AxiBurstType.WRAP):
            done = await world.axi.write(base + 64, rng.randbytes(32), burst=kind)
            assert int(done.resp) == SLVERR
            done = await world.axi.read(base + 64, 32, burst=kind)
            assert int(done.resp) == SLVERR
        for offset, size in ((1, 7), (4, 4), (4, 12), (0, 3), (0, 12)):
            done = await world.axi.write(base + 64 + offset, rng.randbytes(size))
            if size == 12 and offset == 0:
                # Only the last beat is cut; the one before may have been written.
                assert int(done.resp) == SLVERR
                continue
            assert int(done.resp) == SLVERR, (offset, size)
    await flush(world)
    changed = [i for i in range(config.hbm_bytes) if world.hbm.bytes[i] != before[i]]
    assert all(64 <= i < 72 for i in changed), changed
    assert not any(v for i, v in enumerate(world.store.lanes) if i != 8)


@cocotb.test
async def cut_word_in_a_whole_slice(dut):
    """A slice that a burst was to fill, and did not, stays what it was in memory."""
    world = await World.create(dut, seeded("cut"))
    size = world.config.slice_bytes
    before = bytes(world.hbm.bytes)
    # The burst begins as one over a whole slice; its last word is cut.
    done = await world.axi.write(3 * size, world.rng.randbytes(size - 4))
    assert int(done.resp) == SLVERR
    await flush(world)
    assert world.hbm.bytes == before
    assert (await world.axi.read(3 * size, size)).data == before[3 * size:4 * size]


@cocotb.test
async def memory_errors(dut):
    """HBM refuses slices: SLVERR for reads, the interrupt for write-backs, and then on."""
    world = await World.create(dut, seeded("errors"), pause=0.2)
    size = world.config.slice_bytes
    before = bytes(world.hbm.bytes)
    world.hbm.bad_reads = {5}
    done = await world.axi.read(4 * size, 3 * size)
    assert int(done.resp) == SLVERR
    assert done.data[:size] == before[4 * size:5 * size] and done.data[size:] == bytes(2 * size)
    assert int((await world.axi.write(5 * size + 8, bytes(8))).resp) == SLVERR
    assert int((await world.axi.read(6 * size, 8)).resp) == OKAY
    assert await world.csr_read("IRQ_STATUS") == 0
    world.hbm.bad_writes = {7}
    assert int((await world.axi.write(7 * size, bytes(8))).resp) == OKAY
    await world.csr_write("IRQ_ENABLE", HOST_ERROR)
    await world.axi.read(0, 8)
    await world.cycles(2)
    assert int(dut.irq.value) == 1 and await world.csr_read("IRQ_STATUS") == HOST_ERROR
    await world.csr_write("IRQ_STATUS", HOST_ERROR)
    assert (await world.axi.read(7 * size, 8)).data == before[7 * size:7 * size + 8]
    await flush(world)
    assert world.hbm.bytes == before


@cocotb.test
async def doorbell(dut):
    """A program starts only when the host's data are in memory; afterwards nothing old is read."""
    world = await World.create(dut, seeded("doorbell"), pause=0.3)
    value = world.rng.randbytes(8)
    await world.axi.write(8, value)
    assert not world.hbm.log or world.hbm.log[-1][0] == "read"
    started = cocotb.start_soon(flush(world))
    while not int(dut.start.value):
        await RisingEdge(dut.clk)
    assert world.hbm.bytes[8:16] == value and world.hbm.log[-1] == ("write", 0)
    await started
    # While it runs, each burst goes through to memory, and reads see what the program wrote.
    dut.running.value, dut.startable.value = 1, 0
    for _ in range(3):
        fresh = world.rng.randbytes(8)
        world.hbm.bytes[16:24] = fresh
        assert (await world.axi.read(16, 8)).data == fresh
        value = world.rng.randbytes(8)
        await world.axi.write(32, value)
        assert (await world.axi.read(64, 8)).data == world.hbm.bytes[64:72]
        assert world.hbm.bytes[32:40] == value
    # What was read before the end is forgotten at the end.
    await world.axi.read(16, 8)
    dut.running.value, dut.startable.value = 0, 1
    world.hbm.bytes[16:24] = fresh
    await world.cycles(1)
    assert (await world.axi.read(16, 8)).data == fresh


@cocotb.test
async def doorbell_is_quick(dut):
    """With nothing to write back, 5 cycles at most from the register write to the start."""
    world = await World.create(dut, seeded("quick"))
    written = cocotb.start_soon(world.csr_write("CTRL", 1))
    cycles = 0
    while not (int(dut.s_axil_wvalid.value) and int(dut.s_axil_wready.value)):
        await RisingEdge(dut.clk)
    while not int(dut.start.value):
        await RisingEdge(dut.clk)
        cycles += 1
        assert cycles <= 6
    await written


@cocotb.test
async def soft_reset(dut):
    """It waits for a train under way, resets nothing of the host, and a burst in the middle goes on afterwards."""
    world = await World.create(dut, seeded("soft"), pause=0.3)
    rng = world.rng
    size = world.config.slice_bytes
    before = bytes(world.hbm.bytes)
    await world.csr_write("PARAM3", 77)
    resets = []

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            if int(dut.core_reset.value):
                reads, writes = len(world.hbm.reads.items), len(world.hbm.writes.items)
                resets.append((reads, writes))
                assert not world.hbm.pending, "in the middle of a train"
                assert world.hbm.read_data.sent == [] or world.hbm.read_data.sent[-1]["last"] == 1
                assert len(world.hbm.write_done.sent) == writes

    cocotb.start_soon(watch())
    model = bytearray(before)
    for _ in range(12):
        at = rng.randrange(0, len(model) - 4 * size, 8)
        value = rng.randbytes(2 * size)
        write = world.axi.init_write(at, value)
        read = world.axi.init_read(len(model) - size, size)
        await world.cycles(rng.randint(0, 60))
        count = len(resets)
        assert await world.csr_write("CTRL", 2) == OKAY
        while await world.csr_read("STATUS") >> 6 & 1:
            pass
        assert len(resets) == count + 1
        await write.wait()
        await read.wait()
        assert int(write.data.resp) == OKAY and int(read.data.resp) == OKAY
        model[at:at + 2 * size] = value
        assert read.data.data == before[len(model) - size:]
    assert await world.csr_read("PARAM3") == 77
    await flush(world)
    assert world.hbm.bytes == model


@cocotb.test
async def start_then_reset(dut):
    """A soft reset while the start still writes back calls the start off."""
    world = await World.create(dut, seeded("off"))
    starts = []

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            starts.append(int(dut.start.value))

    world.hbm.write_done.set_pause_generator(iter([True] * 400))
    await world.axi.write(0, bytes(8))
    cocotb.start_soon(watch())
    await world.csr_write("CTRL", 1)
    assert world.csrs["STATUS"].unpack(await world.csr_read("STATUS"))["starting"] == 1
    assert await world.csr_write("CTRL", 1) == SLVERR
    await world.csr_write("CTRL", 2)
    status = world.csrs["STATUS"].unpack(await world.csr_read("STATUS"))
    assert status["starting"] == 0 and status["resetting"] == 1
    assert await world.csr_write("CTRL", 1) == SLVERR
    await world.cycles(500)
    assert not any(starts) and await world.csr_read("STATUS") == 0
    await flush(world)
    assert sum(starts) == 1
