"""How files become rows: the default of ``decode=``, pictures by Pillow, and checks of what all kinds of files take."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from dask_train.extras import check_installed


def decode_picture(content: bytes) -> np.ndarray:
    """Decode a picture of any format that Pillow opens.

    Parameters
    ----------
    content
        Of the file.

    Returns
    -------
    numpy.ndarray
        uint8 ``(height, width, channels)``: 1 channel for grey pictures, 3 for others. Transparency is left out.

    Raises
    ------
    ValueError
        The picture has more than 8 bits per channel, which Pillow would clip.
    """
    check_installed("Decoding pictures", "PIL", "pip install pillow")
    from PIL import Image

    with Image.open(io.BytesIO(content)) as picture:
        if picture.mode.startswith(("I", "F")):
            raise ValueError(f"a picture of mode {picture.mode!r} has more than 8 bits; pass decode= to dt.files")
        pixels = np.asarray(picture.convert("L" if picture.mode in ("1", "L", "LA") else "RGB"))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def check_functions(*, decode: Any, augment: Any, on_error: Any) -> None:
    """Check that functions can be called, and ``on_error`` is one of two words.

    Raises
    ------
    TypeError, ValueError
        It is not so.
    """
    for name, function in (("decode", decode), ("augment", augment)):
        if function is not None and not callable(function):
            raise TypeError(f"{name} is a {type(function).__name__}; pass a function.")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is {on_error!r}; it is 'raise' or 'skip'.")
