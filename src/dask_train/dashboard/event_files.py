"""TensorBoard's event files, read without TensorFlow: numbers and texts by tag, as ``dask_train.logging`` writes them.

A file is a sequence of records (https://www.tensorflow.org/tutorials/load_data/tfrecord), each of which is an ``Event``
of tensorflow/core/util/event.proto. Fields are found by their numbers there. Checksums are not looked at: what is read
here is only shown. Fields are decoded here too, as in ``file_rows/examples.py``: the scheduler is sent this room alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class LoggedValue(NamedTuple):
    """A number or text of an event file."""

    tag: str
    value: float | str
    step: int
    time: float


def logged_values(content: bytes) -> Iterator[LoggedValue]:
    """Yield the values in the content of an event file; ends where a record is cut off, as while it is written."""
    at = 0
    while at + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        record = content[at + 12 : at + 12 + length]
        if len(record) < length:
            return
        yield from _of_event(record)
        at += 12 + length + 4


def _of_event(event: bytes) -> Iterator[LoggedValue]:
    time, step = 0.0, 0
    summaries = []
    for number, value in _fields(event):
        if number == 1 and isinstance(value, bytes):
            (time,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for _, one in _fields(summary):
            if isinstance(one, bytes) and (tag_and_value := _tagged(one)) is not None:
                yield LoggedValue(*tag_and_value, step, time)


def _tagged(summary: bytes) -> tuple[str, float | str] | None:
    """Return the tag of a value of a summary, and the number or text; None if it is something else."""
    fields = dict(_fields(summary))
    tag, number, tensor = (fields.get(field) for field in (1, 2, 8))
    if not isinstance(tag, bytes):
        return None
    if isinstance(number, bytes) and len(number) == 4:
        return tag.decode(errors="replace"), float(struct.unpack("<f", number)[0])
    text = dict(_fields(tensor)).get(8) if isinstance(tensor, bytes) else None
    return (tag.decode(errors="replace"), text.decode(errors="replace")) if isinstance(text, bytes) else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protocol buffer by number: https://protobuf.dev/programming-guides/encoding/."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"An event file has a field of kind {kind}.")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message):
            raise ValueError("An event file ends within a number.")
        byte = message[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return value, at
