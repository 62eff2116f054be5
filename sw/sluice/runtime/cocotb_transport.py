"""Transport to the Verilated chip: a child process with a cocotb test that drives its AXI ports."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from sluice.build import CocotbModel, sim_build_dir
from sluice.errors import AccessError, TransportError
from sluice_hw.config import ChipConfig

from . import wire
from .interrupts import interrupts_deferred
from .transport import SimTime, Transport, check_range
from .wire import Request, Status

__all__ = ["CocotbTransport"]

SERVER = "sluice.runtime.cocotb_server"
_START_SECONDS = 120.0


class CocotbTransport(Transport):
    """The chip in simulation.

    Parameters
    ----------
    config
        The chip.
    emission, opt
        Form of the array, and C++ optimisation of the model (:func:`.chip_model.build_chip`).
    waves
        FST file to write; None: none.
    model
        A model that is built already.
    progress
        Called with a line of text when something takes long.
    """

    name = "cocotb"
    timed = True

    def __init__(
        self,
        config: ChipConfig,
        *,
        emission: str = "loop",
        opt: str | None = None,
        waves: Path | str | None = None,
        model: CocotbModel | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.config = config
        say = progress or (lambda line: None)
        if model is None:
            from .chip_model import build_chip

            say(f"building the {config.name} chip")
            model = build_chip(config, emission=emission, waves=waves is not None, opt=opt)
        say(f"starting the simulation of {model.name}")
        self._time = SimTime()
        self._failure: BaseException | None = None
        self._connection: socket.socket | None = None
        self._sockets = Path(tempfile.mkdtemp(prefix="sluice-"))
        runs = sim_build_dir() / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        #: Log and results of the simulation; removed when it ends well.
        self.folder = Path(tempfile.mkdtemp(prefix=f"{model.name}-", dir=runs))
        self._model, self._waves = model, waves
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        path = self._sockets / "chip"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(1)
            listener.settimeout(0.25)
            self._thread = threading.Thread(target=self._simulate, args=(str(path),), daemon=True)
            self._thread.start()
            for _ in range(int(_START_SECONDS / 0.25)):
                with contextlib.suppress(TimeoutError):
                    self._connection, _ = listener.accept()
                    self._connection.settimeout(None)
                    return
                if not self._thread.is_alive():
                    break
        raise self._gone("the simulation did not start")

    def _simulate(self, path: str) -> None:
        """Body of the thread that lives as long as the child process."""
        c, period = self.config, 0
        if c.memory_crosses:  # an even number of the simulator's steps
            period = 2 * round(500 * wire.PERIOD_NS * c.core_clocks / c.memory_clocks)
        env = {wire.SOCKET_VARIABLE: path, wire.MEMORY_PERIOD_VARIABLE: str(period)}
        try:
            self._model.run(SERVER, env=env, waves_file=self._waves, results_dir=self.folder)
        except BaseException as error:
            self._failure = error

    def _gone(self, what: str) -> TransportError:
        thread = getattr(self, "_thread", None)
        if thread is not None:
            thread.join(5)
        why = f": {self._failure}" if self._failure else f"; log: {self.folder / 'sim.log'}"
        return TransportError(f"{what}{why}")

    def _ask(self, kind: Request, a: int = 0, b: int = 0, data: bytes = b"") -> tuple[int, bytes]:
        if self._connection is None:
            raise TransportError("the connection to the simulation is closed")
        try:
            with interrupts_deferred():  # request and reply stay a pair
                wire.send_request(self._connection, kind, a, b, data)
                status, value, cycles, seconds, answer = wire.receive_reply(self._connection)
        except (EOFError, OSError) as error:
            raise self._gone("the simulation has ended by itself") from error
        self._time = SimTime(cycles, seconds)
        if status is Status.REFUSED:
            memory = kind in (Request.MEM_READ, Request.MEM_WRITE)
            size = f"{b or len(data)} bytes at " if memory else ""
            what = "memory" if memory else "register"
            raise AccessError(f"{what} access to {size}{a:#x} answered {answer.decode()}", kind=what, address=a)
        return value, answer

    # -- Transport -----------------------------------------------------------------------------------------------
    def csr_read(self, offset: int) -> int:
        return self._ask(Request.CSR_READ, offset)[0]

    def csr_write(self, offset: int, value: int) -> None:
        self._ask(Request.CSR_WRITE, offset, value)

    def mem_read(self, address: int, size: int) -> bytes:
        check_range(address, size)
        return self._ask(Request.MEM_READ, address, size)[1]

    def mem_write(self, address: int, data: bytes) -> None:
        check_range(address, len(data))
        self._ask(Request.MEM_WRITE, address, 0, bytes(data))

    def wait_interrupt(self, timeout_cycles: int) -> bool:
        return bool(self._ask(Request.WAIT, timeout_cycles)[0])

    def advance(self, cycles: int) -> None:
        self._ask(Request.ADVANCE, cycles)

    def sim_time(self) -> SimTime:
        return self._time

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(TransportError):
                self._ask(Request.QUIT)
            self._connection.close()
            self._connection = None
        thread = getattr(self, "_thread", None)
        if thread is not None:
            thread.join(30)
        shutil.rmtree(self._sockets, ignore_errors=True)
        if self._failure is None:
            shutil.rmtree(self.folder, ignore_errors=True)
