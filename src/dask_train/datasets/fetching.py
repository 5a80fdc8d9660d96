"""Where fetched files lie, and what all fetching has in common: programs with a deadline, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from dask_train.errors import DataError

# Name of a temporary folder next to the files, before it is complete.
TEMPORARY = ".fetching-"
_ABANDONED_AFTER_S = 3600.0  # longer than a fetch takes anywhere


def cache_folder(name: str) -> Path:
    """``dask-train/<name>`` in ``$XDG_CACHE_HOME`` or, without it, in ``~/.cache``; not made.

    By the XDG Base Directory Specification: a relative path in the variable is to be ignored.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "dask-train" / name


def sweep(folder: Path) -> None:
    """Remove what processes left in a folder that were killed while they fetched."""
    for temporary in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):  # another process sweeps, too
            if time.time() - temporary.stat().st_mtime > _ABANDONED_AFTER_S:
                shutil.rmtree(temporary, ignore_errors=True)


def run_program(command: list[str], folder: Path, *, timeout_s: float, called: str) -> None:
    """Run a program to its end, in a folder, into which its output goes as ``program.log``.

    Parameters
    ----------
    called
        How errors name it.

    Raises
    ------
    DataError
        It has failed, or has not ended in time; then it is killed, with all that it started.
    OSError
        There is no such program.
    """
    with Path(folder, "program.log").open("w+", errors="replace") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise DataError(f"{called} took longer than {timeout_s:.0f} s.") from error
        finally:
            if process.poll() is None:  # also after Ctrl-C, which does not reach another session
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        log.seek(0)
        words = " ".join(log.read().split())
    if code != 0:
        raise DataError(f"{called} ended with code {code}: {words[:300]}.")
