"""A requester of HBM, as the benches of the arbiter and of the memories need it."""

from cocotb.triggers import Event

from sluice_hw.config import ChipConfig
from verif.transactors import StreamDriver, StreamMonitor, StreamSink
from verif.unit.memory import slice_shape, to_bytes, to_int

__all__ = ["PoisonedRequester", "Requester"]


class Requester:
    """Issues trains on the slice port ``port`` and splits what comes back into trains.

    Attributes
    ----------
    read_trains
        What each read gave, in the order of requests: its bytes, or ``None`` when it was refused.
    answers
        Error bit of each write.
    reads, writes, beats, write_beats, dones
        Monitors of the port's streams.
    """

    def __init__(self, dut, port: str, config: ChipConfig, *, pauses=lambda: None) -> None:
        self.config = config
        self._read = StreamDriver(dut, f"{port}__read", shape=slice_shape(config, "read"), pauses=pauses())
        self._write = StreamDriver(dut, f"{port}__write", shape=slice_shape(config, "write"), pauses=pauses())
        self._data = StreamDriver(dut, f"{port}__write_data", pauses=pauses())
        self.reads = StreamMonitor(dut, f"{port}__read")
        self.writes = StreamMonitor(dut, f"{port}__write")
        self.write_beats = StreamMonitor(dut, f"{port}__write_data")
        self.beats = StreamSink(dut, f"{port}__read_data", pauses=pauses(), callback=self._beat)
        self.dones = StreamSink(dut, f"{port}__write_done", pauses=pauses(), callback=self._done)
        self.read_trains: list[bytes | None] = []
        self.answers: list[int] = []
        self._bytes = bytearray()
        self._reads_open: list[Event] = []
        self._writes_open: list[Event] = []

    def read(self, slice_: int, count: int) -> Event:
        """Ask for a train; the event is set when its last beat has come."""
        self._read.send_nowait({"slice": slice_, "count": count})
        self._reads_open.append(Event())
        return self._reads_open[-1]

    def write(self, slice_: int, values: bytes) -> Event:
        """Write a train, a whole number of slices; the event is set with its answer."""
        count, rest = divmod(len(values), self.config.slice_bytes)
        assert not rest
        self._write.send_nowait({"slice": slice_, "count": count})
        step = self.config.hbm_beat_bytes
        for at in range(0, len(values), step):
            self._data.send_nowait(to_int(values[at : at + step]))
        self._writes_open.append(Event())
        return self._writes_open[-1]

    def _beat(self, payload: int) -> None:
        width = self.config.hbm_beat_bytes
        last, error = payload >> 8 * width & 1, payload >> 8 * width + 1
        if error:
            assert last and not self._bytes, "a refused train is one beat"
            self.read_trains.append(None)
        else:
            self._bytes += to_bytes(payload & (1 << 8 * width) - 1, width)
            if last:
                self.read_trains.append(bytes(self._bytes))
                self._bytes.clear()
        if last:
            self._reads_open.pop(0).set()

    def _done(self, error: int) -> None:
        self.answers.append(error)
        self._writes_open.pop(0).set()


class PoisonedRequester(Requester):
    """A requester whose trains may have wrong beats; a train with any is recorded as the list of them."""

    def __init__(self, dut, name: str, config: ChipConfig, *, pauses=lambda: None) -> None:
        super().__init__(dut, name, config, pauses=pauses)
        self._bad: list[int] = []
        self._seen = 0

    def _beat(self, payload: int) -> None:
        width = self.config.hbm_beat_bytes
        if payload >> 8 * width + 1:
            self._bad.append(self._seen)
        self._bytes += to_bytes(payload & (1 << 8 * width) - 1, width)
        self._seen += 1
        if payload >> 8 * width & 1:
            self.read_trains.append(self._bad or bytes(self._bytes))
            self._bytes.clear()
            self._bad, self._seen = [], 0
            self._reads_open.pop(0).set()
