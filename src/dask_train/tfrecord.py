"""TFRecord files: records with their lengths and checksums, read and written without TensorFlow.

https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO

import numpy as np

# CRC-32C (Castagnoli) of RFC 3720, appendix B.4, reflected.
_POLYNOMIAL = 0x82F63B78
# Bytes that are taken one after the other, while all stretches of this many bytes are taken at the same time.
_STRETCH = 64
# Fewer bytes than these are taken one after the other: calls of NumPy would take longer.
_FEW = 1024


def framed(data: bytes) -> bytes:
    """Return a record as it stands in a file: its length, the length's checksum, the data, the data's checksum."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def records_of(file: BinaryIO) -> Iterator[bytes]:
    """Read the records of a file, in order.

    Raises
    ------
    ValueError
        A checksum is wrong, or the file ends within a record.
    """
    number = 0
    while header := file.read(12):
        if len(header) < 12 or _checksum(header[8:]) != masked_crc32c(header[:8]):
            raise ValueError(f"record {number} has a damaged length, or the file is no TFRecord file")
        (size,) = struct.unpack("<Q", header[:8])
        data = file.read(size)
        end = file.read(4)
        if len(data) < size or len(end) < 4:
            raise ValueError(f"the file ends within record {number}")
        if _checksum(end) != masked_crc32c(data):
            raise ValueError(f"record {number} is damaged: its checksum is another one")
        yield data
        number += 1


def _checksum(data: bytes) -> int:
    return int.from_bytes(data, "little")


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of data, masked as TFRecords have it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of data: that of stretches at the same time, which are then joined in pairs."""
    num_stretches = len(data) // _STRETCH if len(data) >= _FEW else 0
    crc = np.uint32(0xFFFFFFFF)
    if num_stretches:
        words = np.frombuffer(data, "<u2", num_stretches * _STRETCH // 2).reshape(num_stretches, -1).T
        several = np.zeros(num_stretches, np.uint32)
        several[0] = crc
        for each in words:
            several = _pairs_table()[(several ^ each) & 0xFFFF] ^ (several >> np.uint32(16))
        power = 0
        while len(several) > 1:
            if len(several) % 2:  # zeros in front change nothing
                several = np.concatenate([np.zeros(1, np.uint32), several])
            several = _after_zeros(power, several[0::2]) ^ several[1::2]
            power += 1
        crc = several[0]
    left, table = int(crc), _byte_list()
    for byte in data[num_stretches * _STRETCH :]:
        left = table[(left ^ byte) & 0xFF] ^ left >> 8
    return left ^ 0xFFFFFFFF


@cache
def _byte_table() -> np.ndarray:
    """Return the remainder of each byte, uint32 ``(256,)``."""
    table: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ np.where(table & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


@cache
def _byte_list() -> list[int]:
    """Return the same as numbers of Python, which one at a time are faster."""
    remainders: list[int] = _byte_table().tolist()
    return remainders


@cache
def _pairs_table() -> np.ndarray:
    """Return the remainder of each two bytes, uint32 ``(65536,)``."""
    table, remainders = _byte_table(), np.arange(1 << 16, dtype=np.uint32)
    for _ in range(2):
        remainders = table[remainders & 0xFF] ^ (remainders >> np.uint32(8))
    return remainders


@cache
def _zeros_table(power: int) -> np.ndarray:
    """Return what ``_STRETCH << power`` zeros make of each byte of a checksum, uint32 ``(4, 256)``."""
    checksums = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
    if power:
        return _after_zeros(power - 1, _after_zeros(power - 1, checksums))
    for _ in range(_STRETCH // 2):
        checksums = _pairs_table()[checksums & 0xFFFF] ^ (checksums >> np.uint32(16))
    return checksums


def _after_zeros(power: int, crc: np.ndarray) -> np.ndarray:
    table = _zeros_table(power)
    checksums: np.ndarray = table[0][crc & 0xFF]
    for place in range(1, 4):
        checksums = checksums ^ table[place][(crc >> np.uint32(8 * place)) & 0xFF]
    return checksums
