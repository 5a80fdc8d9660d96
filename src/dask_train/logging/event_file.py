"""TensorBoard's event files, written without TensorFlow or TensorBoard.

An event file is a TFRecord file (:mod:`dask_train.tfrecord`), whose records are an ``Event`` of
tensorflow/core/util/event.proto each.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from dask_train.logging.protobuf import double_field, float_field, int_field, message_field, text_field
from dask_train.tfrecord import framed

# Of tensorflow/core/framework/types.proto and summary.proto.
_DT_FLOAT, _DT_STRING = 1, 7
_DATA_CLASS_TENSOR = 2


class EventFile:
    """An event file that grows; each write goes to the operating system as a whole.

    Parameters
    ----------
    folder
        Of the run; made where it is not there.

    Attributes
    ----------
    path
        The file.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}.dask_train"
        self.path = folder / name
        try:
            self._append([double_field(1, time.time()) + text_field(3, "brain.Event:2")])
        except BaseException:
            self.path.unlink(missing_ok=True)  # the next try has another name
            raise

    def scalars(self, points: list[tuple[str, float, int, float]]) -> None:
        """Append numbers: name, value, step, time."""
        self._append([_event(at, step, text_field(1, tag) + float_field(2, value)) for tag, value, step, at in points])

    def text(self, tag: str, text: str, at: float) -> None:
        """Append a text, which TensorBoard shows as Markdown."""
        tensor = int_field(1, _DT_STRING) + message_field(2, b"") + text_field(8, text)
        metadata = message_field(1, text_field(1, "text"))
        self._append([_event(at, 0, text_field(1, tag) + message_field(8, tensor) + message_field(9, metadata))])

    def plugin(self, tag: str, plugin: str, content: bytes, at: float) -> None:
        """Append what a plug-in of TensorBoard reads; the number next to it means nothing."""
        tensor = int_field(1, _DT_FLOAT) + message_field(2, message_field(2, int_field(1, 1))) + float_field(5, 0.0)
        metadata = message_field(1, text_field(1, plugin) + message_field(2, content)) + int_field(
            4, _DATA_CLASS_TENSOR
        )
        self._append([_event(at, 0, text_field(1, tag) + message_field(8, tensor) + message_field(9, metadata))])

    def _append(self, events: list[bytes]) -> None:
        left = memoryview(b"".join(map(framed, events)))
        with self.path.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                while left:  # a disk that is nearly full takes a part
                    left = left[file.write(left) :]
            except BaseException:
                file.truncate(end)  # nothing that follows half a record can be read
                raise


def _event(at: float, step: int, value: bytes) -> bytes:
    return double_field(1, at) + int_field(2, step) + message_field(5, message_field(1, value))
