"""Bench of one PE: the multiply-add for every pair of int8 operands, and when each register moves."""

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge, Timer

from verif.transactors import parameter, seeded, start_up
from verif.unit.arith import exact_bf16 as exact

LATENCY, WIDTH, DTYPE = int(parameter("LATENCY")), int(parameter("WIDTH")), parameter("DTYPE")
INT8 = DTYPE == "int8"
DATA_BITS, WEIGHT_BITS = {"int8": (8, 8), "bf16": (16, 16), "int8+bf16": (17, 16)}[DTYPE]
INT_WIDTH = int(parameter("INT_WIDTH"))  # bits of an exact int8 sum


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> width - 1 else value


def wrap(value: int) -> int:
    return value & (1 << WIDTH) - 1


def product(data: int, weight: int) -> tuple[bool, int]:
    """Whether it is floating point, and the product."""
    if DTYPE == "bf16" or (not INT8 and data >> 16):
        return True, exact.mul(data & 0xFFFF, weight)
    return False, signed(data & 255, 8) * signed(weight & 255, 8)


def add(psum: int, is_float: bool, term: int) -> int:
    if is_float:
        return exact.add(psum, term)
    return wrap(signed((psum + term) & (1 << INT_WIDTH) - 1, INT_WIDTH))


class Model:
    """The PE by its contract: what stands at its outputs, given what stood at its inputs in the cycles before."""

    def __init__(self) -> None:
        self.shadow = self.active = 0
        self.right = {"valid": 0, "swap": 0, "data": 0}
        # Stages between the top and the bottom, oldest last: (valid, value).
        self.psum, self.weight = ([(0, 0)] * LATENCY for _ in range(2))
        self.start = [0] * LATENCY
        self.next_is_first = 0
        self.term = (0, False, 0)  # of the cycle before, for bf16: valid, product

    def step(self, i: dict) -> None:
        weight = self.shadow if i["swap"] else self.active
        self.right.update(valid=i["valid"], swap=i["swap"])

        def shift(stages, valid, value):
            # A stage takes the value before it only when that is valid.
            before = [(valid, value), *stages[:-1]]
            return [(v, new if v else old) for (v, new), (_, old) in zip(before, stages, strict=True)]

        term = (i["valid"], *product(i["data"], weight))
        if not INT8:  # the partial sum comes a cycle later
            term, self.term = self.term, term
        valid, is_float, value = term
        self.psum = shift(self.psum, valid, add(i["psum"], is_float, value) if valid else 0)
        # The first weight of a tile stays here, the second is the first for the PE below.
        ours = i["w_valid"] & i["w_start"]
        passes = i["w_valid"] & ~i["w_start"]
        self.weight = shift(self.weight, passes, i["w_data"])
        self.start = [passes & self.next_is_first, *self.start[:-1]]
        if i["w_valid"]:
            self.next_is_first = ours
        if i["valid"]:
            self.right["data"] = i["data"]
            if i["swap"]:
                self.active = self.shadow
        if ours:
            self.shadow = i["w_data"]

    def check(self, dut, cycle: int) -> None:
        valid, psum = self.psum[-1]
        w_valid, w_data = self.weight[-1]
        expected = {"right__valid": self.right["valid"], "right__swap": self.right["swap"],
                    "right__data": self.right["data"] & (1 << DATA_BITS) - 1, "down__valid": valid, "down__psum": psum,
                    "down__w_valid": w_valid, "down__w_data": w_data & (1 << WEIGHT_BITS) - 1,
                    "down__w_start": self.start[-1]}
        for name, value in expected.items():
            got = int(getattr(dut, name).value)
            assert got == value, f"cycle {cycle}: {name} is {got}, not {value}"


PORTS = {"valid": "left__valid", "swap": "left__swap", "data": "left__data", "psum": "up__psum",
         "w_valid": "up__w_valid", "w_start": "up__w_start", "w_data": "up__w_data"}
WIDTHS = {"data": DATA_BITS, "w_data": WEIGHT_BITS, "psum": WIDTH}


def drive(dut, inputs: dict) -> None:
    for name, port in PORTS.items():
        getattr(dut, port).value = inputs[name] & (1 << WIDTHS.get(name, 1)) - 1


async def tick(dut) -> None:
    await RisingEdge(dut.clk)
    await Timer(1, unit="ns")


@cocotb.test(skip=not INT8)
async def every_product(dut):
    """All 65,536 pairs: a weight is loaded while the one before is in use."""
    await start_up(dut, **dict.fromkeys(PORTS.values(), 0))
    rng = seeded("psum")
    sent: list[int] = []
    count = 0

    def look() -> None:
        nonlocal count
        if int(dut.down__valid.value):
            assert signed(int(dut.down__psum.value), WIDTH) == sent[count], f"product {count}"
            count += 1

    idle = dict.fromkeys(PORTS, 0)
    drive(dut, {**idle, "w_valid": 1, "w_start": 1, "w_data": -128})
    await tick(dut)
    for w in range(-128, 128):
        for a in range(-128, 128):
            psum = rng.randint(-(1 << WIDTH - 2), (1 << WIDTH - 2) - 1)
            sent.append(psum + a * w)
            # The next weight arrives in the last cycle of this one.
            load = int(a == 127)
            drive(dut, {"valid": 1, "swap": int(a == -128), "data": a, "psum": psum, "w_valid": load, "w_start": load,
                        "w_data": (w + 1) * load})
            await tick(dut)
            look()
    drive(dut, idle)
    for _ in range(LATENCY + 1):
        await tick(dut)
        look()
    assert count == len(sent) == 65536


@cocotb.test
async def every_register(dut):
    """Random inputs, among them capture and swap in one cycle: every output of every cycle against the model.

    Data inputs change in every cycle, so that a register that moves without its valid bit shows.
    """
    await start_up(dut, **dict.fromkeys(PORTS.values(), 0))
    rng, model = seeded("registers"), Model()
    # Reset does not touch data registers: what they hold is known once something valid has passed through them all.
    known, together = 2 * LATENCY + 8, 0
    for cycle in range(4000):
        busy = (0.05, 0.5, 0.95)[cycle // 100 % 3] if cycle >= known else 1
        inputs = {name: int(rng.random() < busy) for name in ("valid", "swap", "w_valid", "w_start")}
        if cycle < known:
            inputs["w_start"] = int(cycle == 0)
        inputs |= {"data": rng.getrandbits(DATA_BITS), "w_data": rng.getrandbits(WEIGHT_BITS),
                   "psum": rng.getrandbits(WIDTH)}
        together += inputs["valid"] & inputs["swap"] & inputs["w_valid"] & inputs["w_start"]
        drive(dut, inputs)
        await tick(dut)
        model.step(inputs)
        await ReadOnly()
        if cycle >= known:
            model.check(dut, cycle)
        await Timer(1, unit="ns")
    assert together > 50


@cocotb.test
async def reset_clears_control_only(dut):
    """After a reset nothing is valid, and what was in the data registers is still there."""
    await start_up(dut, **dict.fromkeys(PORTS.values(), 0))
    inputs = {"valid": 1, "swap": 1, "data": 5, "psum": 1000, "w_valid": 1, "w_start": 1, "w_data": 77}
    total = 1000 + 5 * 77
    if DTYPE == "bf16":
        inputs |= {"data": 0x40A0, "psum": 0x447A0000, "w_data": 0x429A}
        total = 0x44AD2000
    for _ in range(LATENCY + 3):
        drive(dut, inputs)
        await tick(dut)
        inputs["w_start"] = 0
    assert int(dut.down__psum.value) == total
    # A bf16 product that is under way is still added.
    drive(dut, dict.fromkeys(PORTS, 0) | {"data": 9, "psum": 3 if INT8 else inputs["psum"], "w_data": 1})
    dut.rst.value = 1
    await tick(dut)
    dut.rst.value = 0
    for _ in range(LATENCY + 2):
        for name in ("right__valid", "right__swap", "down__valid", "down__w_valid", "down__w_start"):
            assert int(getattr(dut, name).value) == 0, name
        assert int(dut.right__data.value) == inputs["data"] and int(dut.down__w_data.value) == inputs["w_data"]
        assert int(dut.down__psum.value) == total
        await tick(dut)
