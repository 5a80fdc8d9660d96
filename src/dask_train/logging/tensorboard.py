"""Runs as TensorBoard shows them: a folder each, trials in folders of their search."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from dask_train.input_errors import raises_at_the_call
from dask_train.logging.base import Ending, Logger, Score, Sink, Start
from dask_train.logging.event_file import EventFile
from dask_train.logging.hparams import write_end, write_start
from dask_train.logging.points import Point, Points


class TensorBoard(Logger):
    """Event files for ``tensorboard --logdir``; neither TensorFlow nor TensorBoard is needed to write them.

    Parameters
    ----------
    folder
        On the client's machine. Each run gets a folder of its name in it, with the model, the ledger and the report
        next to its event file; each trial of a search a folder within that, and a row of TensorBoard's HParams page.

    Raises
    ------
    ValueError
        It is a URL.
    TypeError
        It is no path.
    """

    @raises_at_the_call
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if "://" in os.fspath(folder):
            raise ValueError(f"TensorBoard's folder is {folder!r}; event files grow, so pass a local folder.")
        self.folder = Path(folder)
        self.place = f"TensorBoard's folder {os.fspath(folder)}"

    def open(self, start: Start, parent: Sink | None) -> Sink:
        """See :meth:`Logger.open`."""
        if isinstance(parent, _Folder):
            return _Folder(parent.folder / start.run, start, is_trial=True)
        return _Folder(self.folder / start.run, start, is_trial=False)


class _Folder(Sink):
    def __init__(self, folder: Path, start: Start, *, is_trial: bool) -> None:
        self.folder, self._start, self._is_trial = folder, start, is_trial
        self._points, self._pending = Points(), list[Point]()
        self._file: EventFile | None = None

    def write(self, scores: Sequence[Score]) -> None:
        self._pending += self._points.of(scores)
        self._opened().scalars([(point.name, point.value, point.step, point.time) for point in self._pending])
        self._pending.clear()

    def end(self, ending: Ending) -> None:
        file = self._opened()
        file.scalars([(name, value, 0, ending.time) for name, value in ending.values.items()])
        file.text("ended", f"{ending.status}: {ending.reason}", ending.time)
        if self._is_trial:
            write_end(file, is_good=ending.status != "failed", at=ending.time)

    def keep(self, files: Sequence[Path]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copyfile(file, self.folder / file.name)

    def _opened(self) -> EventFile:
        if self._file is None:
            self._file = EventFile(self.folder)
            rows = [f"| {name} | {value} |" for name, value in self._start.params.items()]
            self._file.text("parameters", "\n".join(["| name | value |", "| --- | --- |", *rows]), self._start.time)
            if self._is_trial:
                write_start(self._file, self._start.params, self._start.time)
        return self._file
