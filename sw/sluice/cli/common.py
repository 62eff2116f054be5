"""What several commands share: options, progress, files."""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.build import sim_build_dir
from sluice.errors import UsageError

from .bar import Bar

if TYPE_CHECKING:
    from sluice.runtime.wave_window import WaveWindow

__all__ = [
    "Progress", "add_backend", "add_config", "add_json", "emit_json", "open_device", "project_root", "read_file",
    "running", "waves_of", "write_file",
]  # fmt: skip

_BEAT_SECONDS = 10.0


def add_config(command: argparse.ArgumentParser, default: str | None = "tiny") -> None:
    """Option ``--config``."""
    text = f"preset, or a .toml or .json file with fields{f' (default {default})' if default else ''}"
    command.add_argument("--config", default=default, metavar="NAME", help=text)


def add_backend(command: argparse.ArgumentParser) -> None:
    """Options ``--backend``, ``--waves`` and ``--progress``."""
    command.add_argument("--backend", choices=("golden", "cocotb", "rtl"), default="rtl",
                         help="what runs it: the interpreter, the simulated chip behind cocotb's AXI masters, or the "
                              "same chip inside this process (default; the fastest)")  # fmt: skip
    command.add_argument("--waves", nargs="?", const="", metavar="FIRST:LAST",
                         help="write an FST waveform and a GTKWave save file; of all cycles, or of cycles FIRST up to "
                              "LAST after the doorbell (--waves=1000:3000; rtl only)")  # fmt: skip
    command.add_argument("--progress", action="store_true",
                         help="show cycles and cycles/s while a program runs, also where stderr is no terminal")


def add_json(command: argparse.ArgumentParser) -> None:
    """Option ``--json``."""
    command.add_argument("--json", action="store_true", help="print one JSON object and nothing else on stdout")


def emit_json(value: Any) -> None:
    """Print one JSON object."""
    print(json.dumps(value))


class Progress:
    """Lines with the time since the start, on standard error.

    Parameters
    ----------
    quiet
        Print nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet, self._began = quiet, time.monotonic()

    def __call__(self, line: str) -> None:
        if not self._quiet:
            print(f"[{time.monotonic() - self._began:6.1f} s] {line}", file=sys.stderr, flush=True)

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Say ``what`` now, and that it still goes on every few seconds."""
        self(what)
        done = threading.Event()

        def beat() -> None:
            while not done.wait(_BEAT_SECONDS):
                self(f"... still {what}")

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def read_file(path: str) -> bytes:
    """Contents of a file, ``-`` for standard input; raises :class:`UsageError` with the reason."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def read_text(path: str) -> str:
    """As :func:`read_file`, UTF-8 text."""
    try:
        return read_file(path).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None


def write_file(path: str | Path, data: bytes) -> None:
    """Write a file, making its folder; ``-`` for standard output."""
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def project_root() -> Path:
    """Top of the repository, where the examples are.

    Raises
    ------
    UsageError
        When the package is not installed from a clone (``pip install -e .``).
    """
    for folder in Path(__file__).resolve().parents:
        if (folder / "pyproject.toml").is_file() and (folder / "examples" / "digits").is_dir():
            return folder
    raise UsageError("this command needs the project's folder: install it in place, from a clone (make sim does)")


def waves_of(args: argparse.Namespace) -> WaveWindow | None:
    """The cycles that ``--waves`` asks for, None for no waves.

    Raises
    ------
    UsageError
        For a window that cannot be, or a backend that has no waves or shows them whole.
    """
    from sluice.runtime.wave_window import WaveWindow

    if args.waves is None:
        return None
    if args.backend == "golden":
        raise UsageError("--waves needs --backend rtl or cocotb: golden has no signals")
    try:
        window = WaveWindow.parse(args.waves) if args.waves else WaveWindow()
    except UsageError as error:
        raise UsageError(f"--waves={args.waves}: {error}") from None
    if not window.whole and args.backend == "cocotb":
        raise UsageError(f"--waves={args.waves} needs --backend rtl: cocotb shows all cycles or none")
    return window


@contextmanager
def running(device, what: str, args: argparse.Namespace, cycles: int | None = None) -> Iterator[None]:
    """Show the progress of the program that the body runs, of about ``cycles``."""
    with Bar(what, cycles, always=args.progress) as bar:
        device.on_progress(bar)
        try:
            yield
        finally:
            device.on_progress(None)


@contextmanager
def open_device(config, backend: str, progress: Progress, *, waves: WaveWindow | None = None, name: str = ""):
    """A device for the body of a ``with`` statement. Leaving it closes the device, and finishes its waveform.

    Parameters
    ----------
    waves
        What the waveform shows, None for none.
    name
        First part of the waveform's name in ``sim_build/waves``.
    """
    from sluice.runtime import Device
    from sluice.runtime.chip_model import build_chip, build_library

    if backend == "golden":
        with Device(config, "golden") as device:
            yield device
        return
    traced = waves is not None
    with progress.during(f"building the {config.name} chip{' with waveforms' if traced else ''}"):
        built = build_chip(config, waves=traced) if backend == "cocotb" else build_library(config, waves=traced)
    part = "" if waves is None or waves.whole else f"-{waves.first}-{waves.last or 'end'}"
    fst = sim_build_dir() / "waves" / f"{name}-{config.name}{part}.fst" if traced else None
    if backend == "cocotb":
        device = Device(config, "cocotb", model=built, waves=fst, progress=progress)
    else:
        device = Device(config, "rtl", library=built, waves=fst, window=waves, progress=progress)
    shown = 1
    with device:
        yield device
        if traced and backend == "rtl":
            shown = device.transport.wave_cycles
    if fst is None:
        return
    if not shown:
        progress(f"no waves: the simulation ended before {waves}")
        return
    from sluice.waves import write_save_file

    save = write_save_file(fst, config)
    progress(f"waves{'' if waves.whole else f', {waves}'}: gtkwave {fst} {save}")
