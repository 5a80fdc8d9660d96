"""Pictures become arrays of bytes with an axis of channels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from dask_train.file_rows.decoding import decode_picture


def picture(mode: str, kind: str) -> bytes:
    content = io.BytesIO()
    Image.new(mode, (4, 3), 1).save(content, kind)
    return content.getvalue()


@pytest.mark.parametrize(
    ("mode", "kind", "channels"),
    [
        ("L", "PNG", 1),
        ("1", "PNG", 1),
        ("RGB", "JPEG", 3),
        ("LA", "PNG", 1),
        ("RGBA", "PNG", 3),
        ("P", "GIF", 3),
        ("CMYK", "JPEG", 3),
    ],
)
def test_grey_pictures_have_one_channel_and_others_three(mode, kind, channels):
    found = decode_picture(picture(mode, kind))
    assert (found.shape, found.dtype) == ((3, 4, channels), np.uint8)


@pytest.mark.parametrize(("mode", "kind"), [("I;16", "PNG"), ("F", "TIFF")])
def test_more_than_8_bits_are_refused(mode, kind):
    with pytest.raises(ValueError, match=f"a picture of mode '{mode}' has more than 8 bits"):
        decode_picture(picture(mode, kind))


def test_half_a_picture_is_an_error():
    content = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(content, "JPEG")
    with pytest.raises(OSError, match="truncated"):
        decode_picture(content.getvalue()[:500])
