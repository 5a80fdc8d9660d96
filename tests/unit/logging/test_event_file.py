"""Event files are what TensorBoard reads, checksums included."""

from __future__ import annotations

import errno
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_train.logging.event_file import EventFile


def test_numbers_and_texts_come_back(tmp_path: Path, events: Callable[[Path], list[Any]]) -> None:
    file = EventFile(tmp_path / "a" / "b")
    points = [("loss", 0.5, 3, 100.25), ("näme", float("nan"), 2**40, 1e9), ("big", 1e300, -1, 5.0)]
    file.scalars(points)
    file.text("parameters", "| a |\n" * 100, 7.0)
    first, *told, text = events(file.path)
    assert first.file_version == "brain.Event:2"
    values = [event.summary.value[0] for event in told]
    assert [(v.tag, e.step, e.wall_time) for v, e in zip(values, told, strict=True)] == [
        (tag, step, at) for tag, _, step, at in points
    ]
    assert values[0].simple_value == 0.5
    assert math.isnan(values[1].simple_value)
    assert values[2].simple_value == math.inf, "float32 holds no more"
    (written,) = text.summary.value
    assert written.tensor.string_val == [("| a |\n" * 100).encode()]
    assert written.metadata.plugin_data.plugin_name == "text"


class NearlyFull(io.FileIO):
    """A file on a disk with room for ten more bytes."""

    def write(self, content: Any) -> int:
        if len(content) <= 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content[:10])


def test_half_a_record_is_taken_back(
    tmp_path: Path, events: Callable[[Path], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = EventFile(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(Path, "open", lambda path, mode, buffering: NearlyFull(path, mode))
        with pytest.raises(OSError, match="No space left"):
            file.scalars([("loss", 0.5, 0, 1.0)])
        with pytest.raises(OSError, match="No space left"):
            EventFile(tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []
    file.scalars([("loss", 0.25, 1, 1.0)])
    _, event = events(file.path)
    assert event.summary.value[0].simple_value == 0.25
