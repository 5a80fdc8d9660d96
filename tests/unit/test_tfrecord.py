"""Records of TFRecord files are read as they were written, and damage is found."""

from __future__ import annotations

import io

import numpy as np
import pytest

from dask_train.tfrecord import crc32c, framed, records_of


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # RFC 3720, appendix B.4
        (bytes([255]) * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_checksums_are_those_that_are_known(data, wanted):
    assert crc32c(data) == wanted


@pytest.mark.parametrize("size", [1023, 1024, 1025, 1088, 4096, 100_001])
def test_checksums_of_much_data_are_those_of_byte_after_byte(size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    assert crc32c(data) == crc ^ 0xFFFFFFFF


RECORDS = [b"one", b"", bytes(2000), b"four"]
WHOLE = b"".join(map(framed, RECORDS))


def test_records_are_read_as_they_were_written():
    assert list(records_of(io.BytesIO(WHOLE))) == RECORDS
    assert list(records_of(io.BytesIO())) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no records at all", "record 0 has a damaged length, or the file is no TFRecord file"),
        (WHOLE[:8], "record 0 has a damaged length"),
        (WHOLE[:13], "the file ends within record 0"),
        (WHOLE[:-1], "the file ends within record 3"),
        (WHOLE.replace(b"one", b"One"), "record 0 is damaged: its checksum is another one"),
    ],
)
def test_damage_is_found(content, message):
    with pytest.raises(ValueError, match=message):
        list(records_of(io.BytesIO(content)))
