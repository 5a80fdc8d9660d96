"""TensorBoard's event files, written without TensorFlow or TensorBoard.

An event file is a sequence of records, each framed as TensorFlow's TFRecord is
(https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details): length, its checksum, data, its
checksum. The data is an ``Event`` of tensorflow/core/util/event.proto.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

from dask_train.logging.protobuf import double_field, float_field, int_field, message_field, text_field

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
        self._append([double_field(1, time.time()) + text_field(3, "brain.Event:2")])

    def scalars(self, points: list[tuple[str, float, int, float]]) -> None:
        """Append numbers: name, value, step, time."""
        self._append([_event(at, step, text_field(1, tag) + float_field(2, value)) for tag, value, step, at in points])

    def text(self, tag: str, text: str, at: float) -> None:
        """Append a text, which TensorBoard shows as Markdown."""
        tensor = int_field(1, _DT_STRING) + message_field(2, b"") + text_field(8, text)
        metadata = message_field(1, text_field(1, "text"))
        self._append([_event(at, 0, text_field(1, tag) + message_field(8, tensor) + message_field(9, metadata))])

    def plugin(self, tag: str, plugin: str, content: bytes, at: float) -> None:
        """Append what a plug-in of TensorBoard reads; the number beside it means nothing."""
        tensor = int_field(1, _DT_FLOAT) + message_field(2, message_field(2, int_field(1, 1))) + float_field(5, 0.0)
        metadata = message_field(1, text_field(1, plugin) + message_field(2, content)) + int_field(
            4, _DATA_CLASS_TENSOR
        )
        self._append([_event(at, 0, text_field(1, tag) + message_field(8, tensor) + message_field(9, metadata))])

    def _append(self, events: list[bytes]) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.write(b"".join(map(_record, events)))


def _event(at: float, step: int, value: bytes) -> bytes:
    return double_field(1, at) + int_field(2, step) + message_field(5, message_field(1, value))


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


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
