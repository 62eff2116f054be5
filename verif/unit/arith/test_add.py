"""The fp32 adder of every latency against integers: one model holds them all."""

import os

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from sluice_hw.arith import Fp32Add
from sluice_hw.arith.add import MAX_ADD_LATENCY
from verif.models.lanes import LaneRow
from verif.unit.arith import exact_bf16 as exact
from verif.unit.arith.fp32_cases import DIRECTED_SUMS, random_sums

SEED = int(os.environ.get("SLUICE_SEED", "1"))
LATENCIES = range(1, MAX_ADD_LATENCY + 1)


class EveryAdder(wiring.Component):
    """Adders of all latencies side by side, each delayed to that of the slowest."""

    LATENCY = MAX_ADD_LATENCY

    def __init__(self) -> None:
        self.adders = {latency: Fp32Add(latency=latency) for latency in LATENCIES}
        super().__init__({
            "all": In(wiring.Signature({"valid": Out(1)})),
            "col": In(wiring.Signature({"a": Out(32), "b": Out(32)})),
            "down": Out(wiring.Signature({f"result{latency}": Out(32) for latency in LATENCIES})),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        for latency, adder in self.adders.items():
            m.submodules[f"adder{latency}"] = adder
            m.d.comb += [
                adder.in_valid.eq(self.all.valid),
                Value.cast(adder.a).eq(self.col.a),
                Value.cast(adder.b).eq(self.col.b),
            ]
            value = Value.cast(adder.result)
            for stage in range(latency, MAX_ADD_LATENCY):
                later = Signal(32, name=f"later{latency}_{stage}", reset_less=True)
                m.d.sync += later.eq(value)
                value = later
            m.d.comb += getattr(self.down, f"result{latency}").eq(value)
        return m


def check(model: LaneRow, a: np.ndarray, b: np.ndarray) -> None:
    wanted = np.array(list(map(exact.add, a.tolist(), b.tolist())), np.uint32)
    got = model.run({"a": a, "b": b}, {}, bubbles=True)
    for latency in LATENCIES:
        found = got[f"result{latency}"]
        wrong = np.flatnonzero(found != wanted)
        assert not len(wrong), (latency, *(hex(values[wrong[0]]) for values in (a, b, found, wanted)))


def test_sums():
    """Directed cases (see fp32_cases), and a million at random."""
    print(f"SLUICE_SEED={SEED}")
    with LaneRow(EveryAdder(), name="adders", cols=16) as model:
        check(model, *DIRECTED_SUMS)
        check(model, *random_sums(np.random.default_rng([SEED, 0]), 1_000_000))


def test_parameters():
    with pytest.raises(ValueError, match="adder latency must be 1 to 6, not 7"):
        Fp32Add(latency=7)
    with pytest.raises(TypeError, match="adder latency must be an int, not '5'"):
        Fp32Add(latency="5")
    assert (Fp32Add.LATENCY, Fp32Add(latency=3).LATENCY) == (5, 3)
