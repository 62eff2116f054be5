"""A build cache on disk that several processes may use at once.

An entry is a folder ``<name>-<hash>`` whose name is a hash of everything that went into it. It appears by one rename,
so it is either absent or complete. A failed build leaves its log beside the cache and no entry.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["BuildFailed", "atomic_write", "cached", "content_hash", "locked", "sim_build_dir"]


class BuildFailed(RuntimeError):
    """A build step failed.

    Attributes
    ----------
    log
        The log of the failed build, or ``None``.
    """

    def __init__(self, message: str, log: Path | None = None):
        super().__init__(message)
        self.log = log


def sim_build_dir() -> Path:
    """Folder of everything generated: ``$SLUICE_BUILD``, or ``sim_build`` at the top of the repository.

    A copy of the package that lies outside a repository (an ordinary install) uses ``sim_build`` in the working
    directory.
    """
    chosen = os.environ.get("SLUICE_BUILD")
    if chosen:
        return Path(chosen).absolute()
    for folder in Path(__file__).resolve().parents:
        if (folder / "pyproject.toml").is_file() and (folder / "hw" / "sluice_hw").is_dir():
            return folder / "sim_build"
    return Path.cwd() / "sim_build"


def content_hash(*parts: str | bytes) -> str:
    """Hash of a sequence of texts; the borders between them count. 16 hex digits (64 bits)."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:16]


def atomic_write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a text file so that another process sees the old content or the new, never a part."""
    data = text.encode()
    try:
        if path.read_bytes() == data:
            return
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a lock file; other processes wait. The lock dies with its process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cached(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return ``folder``, building it first if it is absent.

    Parameters
    ----------
    folder
        The entry. Its name must be derived from a hash of all inputs.
    build
        Called with an empty folder to fill. An exception discards what it wrote, except ``build.log``, which is kept
        as ``<folder>.failed.log``.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    failed = folder.with_name(folder.name + ".failed.log")
    with locked(folder.parent / ".locks" / f"{folder.name}.lock"):
        if folder.is_dir():  # built by another process while this one waited
            return folder
        # The lock is held, so a folder of this name can only be the remains of a killed process.
        work = folder.parent / f".tmp-{folder.name}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        try:
            build(work)
            os.replace(work, folder)
            failed.unlink(missing_ok=True)
        except BaseException as error:
            log = work / "build.log"
            if log.is_file():
                os.replace(log, failed)
                if isinstance(error, BuildFailed):
                    error.log = failed
                    error.args = (f"{error.args[0]}\n  log: {failed}",)
            shutil.rmtree(work, ignore_errors=True)
            raise
    return folder
