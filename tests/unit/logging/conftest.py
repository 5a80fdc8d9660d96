"""Event files, read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def events_of(path: Path) -> list[Any]:
    """The events of a file, as TensorBoard's own reader, which needs no TensorFlow, has them."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub.errors import OutOfRangeError
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    reader, found = PyRecordReader_New(str(path)), []
    while True:
        try:
            reader.GetNext()
        except OutOfRangeError:  # the end; another error where a checksum is wrong
            return found
        found.append(Event.FromString(reader.record()))


@pytest.fixture
def events() -> Callable[[Path], list[Any]]:
    """Reads event files."""
    return events_of
