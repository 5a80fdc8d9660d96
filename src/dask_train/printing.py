"""Lines for users who watch: notices by way of the standard library's logging, and files that never fail.

Nothing printed may hurt a run: standard error may be a pipe whose reader has gone (``python train.py 2>&1 | head``), it
may be closed, or lack a letter. The logger is ``dask_train``; its lines go to the standard error of the moment, and
programs may give it other handlers or another level.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO

from dask_train.masking import masked

logger = logging.getLogger("dask_train")


class SafeFile:
    """A text file to which writing never raises: what it can't take is left out, letters that it lacks are escaped.

    Parameters
    ----------
    file
        Where to write; None is standard error as it is at each moment.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._given = file

    @property
    def _file(self) -> Any:
        return sys.stderr if self._given is None else self._given

    def write(self, text: str) -> int:
        """Write text, if that is possible."""
        try:
            try:
                self._file.write(text)
            except UnicodeEncodeError:
                encoding = getattr(self._file, "encoding", None) or "ascii"
                self._file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        except (OSError, ValueError, AttributeError):  # a closed pipe; a closed file; there is none (pythonw)
            pass
        return len(text)

    def flush(self) -> None:
        """Write what a buffer has, if that is possible."""
        with suppress(OSError, ValueError, AttributeError):
            self._file.flush()

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        try:
            return bool(self._file.isatty())
        except (OSError, ValueError, AttributeError):
            return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Lines(logging.Handler):
    """Writes each record to standard error, as it is when the record comes."""

    def emit(self, record: logging.LogRecord) -> None:
        file = SafeFile()
        try:
            line = self.format(record)
        except Exception:  # a message that can't be made is no reason to end a run
            line = f"dask_train: {record.msg}"
        file.write(f"{masked(line)}\n")
        file.flush()


def say(text: str, *, level: int = logging.INFO) -> None:
    """Print a sentence as a line of its own on standard error, by way of the logger; never raises."""
    try:
        logger.log(level, "%s", masked(text))
    except Exception:  # a handler of the user's
        SafeFile().write(f"dask_train: {masked(text)}\n")


def set_up_logger() -> None:
    """Give the logger a handler for standard error, which a program may take away again."""
    if any(type(handler).__name__ == _Lines.__name__ for handler in logger.handlers):
        return  # the package was imported anew
    handler = _Lines()
    handler.setFormatter(logging.Formatter("dask_train: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False  # else a program with handlers of its own shows each line twice
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
