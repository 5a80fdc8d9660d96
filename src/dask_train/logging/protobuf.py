"""Fields of protocol buffers, as bytes: https://protobuf.dev/programming-guides/encoding/."""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


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


def int_field(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value)


def double_field(field: int, value: float) -> bytes:
    return _key(field, _FIXED64) + struct.pack("<d", value)


def float_field(field: int, value: float) -> bytes:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:  # more than float32 holds
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _key(field, _FIXED32) + packed


def message_field(field: int, content: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(content)) + content


def text_field(field: int, text: str) -> bytes:
    return message_field(field, text.encode())
