"""Pictures of the data set side by side, as in the blog."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dask_train.extras import check_installed, install_command
from dask_train.report.drawing import new_figure, png_of
from dask_train.report.pictures import range_text
from dask_train.report.record import checked_picture
from dask_train.report.whole_file import write_whole


def save_pictures(pictures: Mapping[str, NDArray[np.float64]], path_png: str | os.PathLike[str]) -> Path:
    """Draw named 2-d arrays side by side into one PNG file, each on its own grey scale.

    Parameters
    ----------
    pictures
        Name to picture, such as one image, the mean and the variance: shape (rows, columns), any real dtype,
        finite. Each is copied once.
    path_png
        The file to make or replace, in one step.

    Returns
    -------
    Path
        The file, as it was named.

    Raises
    ------
    ImportError
        matplotlib, which draws them, is not installed.
    ValueError
        There are no pictures, or one isn't 2-d, is empty or isn't finite.
    FileNotFoundError
        The file's folder doesn't exist.
    """
    if not pictures:
        raise ValueError("There are no pictures to save. Give at least one named 2-d array.")
    checked = {name: checked_picture(name, picture) for name, picture in pictures.items()}
    check_installed("A picture", "matplotlib", install_command("plots"))
    figure = new_figure(2.6 * len(checked), 3.1)
    for position, (name, picture) in enumerate(checked.items(), start=1):
        axes = figure.add_subplot(1, len(checked), position)
        axes.imshow(picture, cmap="gray", interpolation="nearest", origin="upper")
        axes.set_title(name, fontsize=12, color="black", wrap=True)
        axes.set_xlabel(range_text(picture), fontsize=8, color="#444444")
        axes.set_xticks([])
        axes.set_yticks([])
    return write_whole(path_png, png_of(figure, background="white"))
