"""TensorBoard's event files, written without TensorFlow or TensorBoard.

An event file is a sequence of records, each framed as TensorFlow's TFRecord is
(https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details): length, its checksum, data, its
checksum. The data is an ``Event`` of tensorflow/core/util/event.proto, encoded as protocol buffers are
(https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DT_STRING = 7


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
        self._append([_double(1, time.time()) + _text(3, "brain.Event:2")])

    def scalars(self, points: list[tuple[str, float, int, float]]) -> None:
        """Append numbers: name, value, step, time."""
        self._append([_event(at, step, _text(1, tag) + _float(2, value)) for tag, value, step, at in points])

    def text(self, tag: str, text: str, at: float) -> None:
        """Append a text, which TensorBoard shows as Markdown."""
        tensor = _int(1, _DT_STRING) + _message(2, b"") + _text(8, text)
        metadata = _message(1, _text(1, "text"))
        self._append([_event(at, 0, _text(1, tag) + _message(8, tensor) + _message(9, metadata))])

    def _append(self, events: list[bytes]) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.write(b"".join(map(_record, events)))


def _event(at: float, step: int, value: bytes) -> bytes:
    return _double(1, at) + _int(2, step) + _message(5, _message(1, value))


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


# Protocol buffers


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers are two's complement in 64 bits
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _int(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _key(field, _FIXED64) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:  # more than float32 holds
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _key(field, _FIXED32) + packed


def _message(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode())


# CRC-32C (Castagnoli), RFC 3720, appendix B.4, reflected; masked as TensorFlow's records have it.


def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)  # noqa: PLW2901
        table.append(number)
    return table


_TABLE = _table()


def _masked(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
