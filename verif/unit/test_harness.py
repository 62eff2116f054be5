"""The test harness itself, on a FIFO from Amaranth's library and on streams that break the rules."""

import json

import pytest
from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from sluice.build import SimulationFailed, sim_build_dir
from verif.coverage.points import read_points
from verif.harness import report_dir, run_bench

ITEM = data.StructLayout({"tag": unsigned(5), "value": signed(8)})
BENCH = "verif.unit.bench_harness"


class Fifo(wiring.Component):
    """Library FIFO behind two streams; ``fault`` breaks its output stream in a named way."""

    def __init__(self, *, depth: int = 4, fault: str = ""):
        self._depth = depth
        self._fault = fault
        super().__init__({"i": In(stream.Signature(ITEM)), "o": Out(stream.Signature(ITEM))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=ITEM.size, depth=self._depth)
        tick = Signal()
        m.d.sync += tick.eq(~tick)
        m.d.comb += [
            fifo.w_data.eq(self.i.payload),
            fifo.w_en.eq(self.i.valid),
            self.i.ready.eq(fifo.w_rdy),
            self.o.payload.eq(fifo.r_data),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.o.ready & self.o.valid),
        ]
        match self._fault:
            case "drops-valid":
                m.d.comb += self.o.valid.eq(fifo.r_rdy & tick)
            case "changes-payload":
                m.d.comb += self.o.payload.eq(fifo.r_data ^ tick)
            case "waits-for-ready":
                m.d.comb += self.o.valid.eq(fifo.r_rdy & self.o.ready)
        return m


@pytest.mark.parametrize("depth", [1, 4])
def test_fifo(depth):
    env = {"DEPTH": str(depth)}
    results = run_bench(Fifo(depth=depth), BENCH, name="harness-fifo", testcases=["ordered", "fields"], env=env)
    assert results.passed == 5  # `ordered` has four combinations
    assert (results.folder / "seed").read_text().strip() == str(results.seed)


def test_seed_reaches_the_bench():
    log = run_bench(Fifo(), BENCH, name="harness-fifo", testcases="fields", seed=12345).log.read_text()
    assert "seed 12345" in log


def test_python_without_shared_library(monkeypatch):
    """Debian's python3 alone: the model then runs inside the Python program."""
    monkeypatch.setattr("sluice.build.model._find_libpython", lambda: None)
    results = run_bench(Fifo(), BENCH, name="harness-fifo", testcases=["fields", "subprocess_is_python"])
    assert results.passed == 2
    with pytest.raises(SimulationFailed, match="wrong_on_purpose"):
        run_bench(Fifo(), BENCH, name="harness-fifo", testcases="wrong_on_purpose")


def test_waves():
    results = run_bench(Fifo(), BENCH, name="harness-fifo", testcases="fields", waves=True)
    assert results.waves.stat().st_size > 300
    # An FST file opens with block type 0 (header), its length 329 and the byte order mark e.
    assert results.waves.read_bytes()[:9] == bytes([0, 0, 0, 0, 0, 0, 0, 1, 73])


def test_coverage():
    env = {"SLUICE_COVERAGE": "1"}
    results = run_bench(Fifo(), BENCH, name="harness-fifo", testcases="fields", coverage=True, env=env)
    points = read_points(results.coverage)
    assert {point.kind for point in points} >= {"line", "toggle"}
    assert {True, False} == {point.count > 0 for point in points}
    bins = json.loads((results.folder / "functional.json").read_text())["stream.top.o"]
    assert bins["transfer"] == bins["transfer after stall"] == 3  # the sink raises ready only after valid
    assert bins["back to back"] == 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [("drops-valid", "valid fell"), ("changes-payload", "payload changed"), ("waits-for-ready", "SimTimeoutError")],
)
def test_protocol_violation_fails(fault, message):
    with pytest.raises(SimulationFailed, match="cocotb tests failed") as caught:
        run_bench(Fifo(fault=fault), BENCH, name="harness-fault", testcases="protocol")
    assert message in caught.value.log.read_text()
    assert str(caught.value.log) in str(caught.value)
    assert f"SLUICE_SEED={caught.value.seed}" in str(caught.value)


def test_failing_bench_fails():
    with pytest.raises(SimulationFailed, match="1 of 1 cocotb tests failed.*wrong_on_purpose") as caught:
        run_bench(Fifo(), BENCH, name="harness-fifo", testcases="wrong_on_purpose")
    assert "where 16 = len('wrong on purpose')" in caught.value.log.read_text()  # pytest's words


def test_a_bench_that_hangs_fails():
    with pytest.raises(SimulationFailed, match="1 of 1 cocotb tests failed.*hangs") as caught:
        run_bench(Fifo(), BENCH, name="harness-fifo", testcases="hangs")
    assert "the test has not ended after 500 cycles" in caught.value.log.read_text()


def test_bench_without_tests_fails():
    with pytest.raises(SimulationFailed, match="no cocotb test named 'no_such_test' ran"):
        run_bench(Fifo(), BENCH, name="harness-fifo", testcases="no_such_test")


def test_missing_bench_fails():
    with pytest.raises(SimulationFailed, match="verif.unit.bench_absent"):
        run_bench(Fifo(), "verif.unit.bench_absent", name="harness-fifo")


def test_report_dir_is_named_after_the_test():
    assert report_dir("x") == sim_build_dir() / "report" / "unit.test_harness.test_report_dir_is_named_after_the_test"
