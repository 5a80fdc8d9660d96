"""Grey pictures of 2-d arrays.

Owns how an array of numbers becomes a PNG. Doesn't choose what is worth looking at.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
from numpy.typing import NDArray


def picture_png(picture: NDArray[np.float64]) -> bytes:
    """Encode one array as a PNG of one pixel a value, its least value black and its greatest white.

    Parameters
    ----------
    picture
        Shape (rows, columns), any real dtype, finite. An array of one value all over is black.

    Returns
    -------
    bytes
        The PNG file.
    """
    from matplotlib.image import imsave

    png = BytesIO()
    imsave(png, picture, format="png", cmap="gray", origin="upper")
    return png.getvalue()


def range_text(picture: NDArray[np.float64]) -> str:
    """Say which values a picture's black and white stand for, such as ``"black 0, white 0.996"``."""
    return f"black {picture.min():.3g}, white {picture.max():.3g}"
