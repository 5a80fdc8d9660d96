"""Runs as TensorBoard shows them: a folder each, trials in folders of their search.

Of a trial its HParams page reads the parameters, and whether it ended well; these messages are those of
tensorboard/plugins/hparams/plugin_data.proto.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dask_train.input_errors import raises_at_the_call
from dask_train.logging.base import Ending, Logger, Score, Sink, Start
from dask_train.logging.event_file import EventFile
from dask_train.logging.points import Point, Points
from dask_train.logging.protobuf import double_field, int_field, message_field, text_field
from dask_train.stores import is_url, named_place

_PLUGIN = "hparams"
_START, _END = "_hparams_/session_start_info", "_hparams_/session_end_info"
# Of api.proto.
_SUCCESS, _FAILURE = 1, 2


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
        path = named_place(folder)
        if is_url(path):
            raise ValueError(f"TensorBoard's folder is {folder!r}; event files grow, so pass a local folder.")
        self.folder = Path(path)
        self.place = f"TensorBoard's folder {path}"

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
        self._is_begun = False

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
        if not self._is_begun:
            rows = [f"| {name} | {value} |" for name, value in self._start.params.items()]
            self._file.text("parameters", "\n".join(["| name | value |", "| --- | --- |", *rows]), self._start.time)
            if self._is_trial:
                write_start(self._file, self._start.params, self._start.time)
            self._is_begun = True
        return self._file


def write_start(file: EventFile, params: Mapping[str, Any], at: float) -> None:
    """Write the parameters of a trial, which has a folder of its own, and when it began."""
    # A map is a repeated message of key and value; the value is a google.protobuf.Value.
    pairs = [text_field(1, name) + message_field(2, _value(value)) for name, value in params.items()]
    info = b"".join(message_field(1, pair) for pair in pairs) + double_field(5, at)
    file.plugin(_START, _PLUGIN, int_field(1, 0) + message_field(3, info), at)


def write_end(file: EventFile, *, is_good: bool, at: float) -> None:
    """Write how a trial ended, and when."""
    info = int_field(1, _SUCCESS if is_good else _FAILURE) + double_field(2, at)
    file.plugin(_END, _PLUGIN, int_field(1, 0) + message_field(4, info), at)


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return int_field(4, value)
    if isinstance(value, int | float):
        return double_field(2, float(value))
    return text_field(3, str(value))
