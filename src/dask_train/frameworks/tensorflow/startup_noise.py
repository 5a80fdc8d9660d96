"""Keeps the two lines that TensorFlow writes at every start, whatever its log level, off the terminal.

TensorFlow 2.21 logs them before its log level is read, once at import and once with the first server, in each of the
network's processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOISE = (b"All log messages before absl::InitializeLog() is called", b"oneDNN custom operations are on")


@contextmanager
def without_startup_noise() -> Iterator[None]:
    """Hold back what this process writes to standard error; afterwards all of it is written but the two lines.

    Native code writes to the file descriptor, so the descriptor is what is exchanged. What other threads write
    meanwhile comes later, but comes.
    """
    terminal = os.dup(2)
    captured = os.memfd_create("dask-train-stderr", os.MFD_CLOEXEC)
    os.dup2(captured, 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        with os.fdopen(captured, "rb") as lines:
            lines.seek(0)
            for line in lines:
                if not any(noise in line for noise in _NOISE):
                    os.write(2, line)
        os.close(terminal)
