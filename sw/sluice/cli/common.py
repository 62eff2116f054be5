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
from typing import Any

from sluice.build import sim_build_dir
from sluice.errors import UsageError

__all__ = ["Progress", "add_backend", "add_config", "add_json", "emit_json", "project_root", "read_file", "write_file"]

_BEAT_SECONDS = 10.0


def add_config(command: argparse.ArgumentParser, default: str | None = "tiny") -> None:
    """Option ``--config``."""
    text = f"preset, or a .toml or .json file with fields{f' (default {default})' if default else ''}"
    command.add_argument("--config", default=default, metavar="NAME", help=text)


def add_backend(command: argparse.ArgumentParser) -> None:
    """Options ``--backend`` and ``--waves``."""
    command.add_argument("--backend", choices=("golden", "cocotb"), default="cocotb",
                         help="what runs it: the interpreter, or the simulated chip (default)")  # fmt: skip
    command.add_argument("--waves", action="store_true", help="write an FST waveform and a GTKWave save file")


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


def open_device(config, backend: str, progress: Progress, *, waves_name: str | None = None):
    """A device, and where its waveform goes (None: nowhere).

    Parameters
    ----------
    waves_name
        Name of the waveform in ``sim_build/waves``; None for none.
    """
    from sluice.runtime import Device
    from sluice.runtime.chip_model import build_chip

    if backend == "golden":
        if waves_name is not None:
            raise UsageError("--waves needs --backend cocotb: golden has no signals")
        return Device(config, "golden"), None
    waves = None if waves_name is None else sim_build_dir() / "waves" / f"{waves_name}-{config.name}.fst"
    with progress.during(f"building the {config.name} chip{' with waveforms' if waves else ''}"):
        model = build_chip(config, waves=waves is not None)
    return Device(config, "cocotb", model=model, waves=waves, progress=progress), waves


def finish_waves(waves: Path | None, config, progress: Progress) -> None:
    """Write the save file beside a waveform (the device must be closed) and say how to open it."""
    if waves is None:
        return
    from sluice.waves import write_save_file

    save = write_save_file(waves, config)
    progress(f"waves: gtkwave {waves} {save}")
