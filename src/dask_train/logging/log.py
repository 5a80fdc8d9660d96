"""What a verb writes to all places of ``log=``: a run with its scores, and the trials of a search.

A place may be any function.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dask_train.errors import in_words
from dask_train.logging.base import Ending, Logger, ModelSink, Score, Sink, Start
from dask_train.logging.writer import Writer
from dask_train.printing import say

# How long places of a log are waited for after an interrupt.
INTERRUPTED_S = 5.0


def check_log(log: Any) -> list[Logger]:
    """Return what a user passed as ``log=``, as a list of loggers.

    Raises
    ------
    TypeError
        There is something else among them.
    """
    loggers = [] if log is None else list(log) if isinstance(log, list | tuple) else [log]
    return [_logger(each) for each in loggers]


def _logger(each: Any) -> Logger:
    if isinstance(each, Logger):
        return each
    if isinstance(each, type) or not callable(each):
        raise TypeError(
            f"log has {each!r}; pass dt.logging.MLflow(...), dt.logging.TensorBoard(folder), dt.logging.WandB(...), a "
            "function that takes a score, or a list of these."
        )
    return FunctionLogger(each)


class Log:
    """Writes a run, or a search with its trials, to several places; no method but :meth:`wait_until_written` waits.

    Parameters
    ----------
    loggers
        The places.
    start
        What begins.
    timeout_s
        Seconds for which a place is tried at the end.

    Attributes
    ----------
    tell
        Called with a sentence about a place that can't be written to; on standard error until it is set.
    """

    def __init__(self, loggers: Sequence[Logger], start: Start, timeout_s: float) -> None:
        self.tell: Callable[[str], None] = say
        self._loggers = loggers
        self._writers = [Writer(logger.place, self._tell, timeout_s) for logger in loggers]
        self._sinks = [logger.open(start, None) for logger in loggers]
        self._is_delivered = False
        self._of_trials: dict[Any, list[Any]] = {}

    def write(self, scores: Sequence[Score], trial: Any = None) -> None:
        """Scores of the run, or of a trial, have come."""
        for writer, sink in zip(self._writers, self._sinks_of(trial), strict=True):
            writer.write(sink, scores)

    def begin_trial(self, trial: Any, name: str, params: Mapping[str, Any]) -> None:
        """Begin a trial of a search."""
        start = Start(run=name, params=params, time=time.time())
        self._of_trials[trial] = [
            logger.open(start, sink) for logger, sink in zip(self._loggers, self._sinks, strict=True)
        ]

    def end(self, ending: Ending, trial: Any = None) -> None:
        """End the run or a trial; after that of the run nothing but files may come."""
        for writer, sink in zip(self._writers, self._sinks_of(trial), strict=True):
            writer.say(sink, sink.end, ending)
            if trial is None:
                writer.close()
        if trial is not None:
            self._of_trials.pop(trial, None)

    def deliver(self, save: Callable[[Path], Iterable[Path]], model: Any = None, example: Any = None) -> None:
        """Let all places keep what the run has left; only the first call does.

        A file that can't be written is reported, and those before it are kept: the result does not depend on it.

        Parameters
        ----------
        save
            Given a folder, writes files to it, and names each once it is whole. They are gone when this returns.
        model
            What was trained, if it is a model.
        example
            A row of zeros as it takes them, if that is known.
        """
        if self._is_delivered:
            return
        self._is_delivered = True
        files: list[Path] = []
        with ExitStack() as stack:
            try:
                folder = TemporaryDirectory(prefix="dask-train-log-", ignore_cleanup_errors=True)
                for file in save(Path(stack.enter_context(folder))):
                    files.append(file)  # one at a time: those before one that can't be written are kept
            except Exception as error:
                self._tell(f"Not all files for log= could be written: {in_words(error)}")
            for writer, sink in zip(self._writers, self._sinks, strict=True):
                writer.close()
                writer.say(sink, sink.keep, files)
                if model is not None and isinstance(sink, ModelSink):
                    writer.say(sink, sink.keep_model, model, example)
            self.wait_until_written()

    def wait_until_written(self, at_most_s: float | None = None) -> None:
        """Wait until all is written, or given up, or that many seconds have passed."""
        for writer in self._writers:
            writer.wait_until_written(at_most_s)

    def _tell(self, text: str) -> None:
        self.tell(text)

    def _sinks_of(self, trial: Any) -> list[Any]:
        return self._sinks if trial is None else self._of_trials[trial]


class FunctionLogger(Logger):
    """Calls a function with every score, as a dict of its own."""

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function
        self.place = f"the function {getattr(function, '__name__', function)!s}"

    def open(self, start: Start, parent: Sink | None) -> Sink:  # noqa: ARG002 - scores name their trials
        """See :meth:`Logger.open`."""
        return _Calls(self._function)


class _Calls(Sink):
    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function
        self._pending = deque[Score]()

    def write(self, scores: Sequence[Score]) -> None:
        self._pending += scores
        while self._pending:
            self._function(dict(self._pending[0]))
            self._pending.popleft()

    def end(self, ending: Ending) -> None:
        """Do nothing: a function hears scores alone."""

    def keep(self, files: Sequence[Path]) -> None:
        """Do nothing, as at the end."""
