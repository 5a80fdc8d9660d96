"""Named arrays side by side in one PNG."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread

from dask_train.demo.pictures import save_pictures


def test_pictures_stand_side_by_side(tmp_path: Path) -> None:
    white, black = np.array([[0.0, 1.0], [1.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])
    path = save_pictures({"mostly white": white, "mostly black": black}, tmp_path / "two.png")
    pixels = imread(path)[:, :, :3]
    height, width, _ = pixels.shape
    assert width > height
    below_the_middle = pixels[int(0.6 * height)]  # the second row of both pictures
    assert (below_the_middle[int(0.15 * width)] == 1).all()
    assert (below_the_middle[int(0.85 * width)] == 0).all()


def test_width_grows_with_the_number_of_pictures(tmp_path: Path) -> None:
    one = imread(save_pictures({"one": np.eye(28)}, tmp_path / "one.png"))
    three = imread(save_pictures({name: np.eye(28) for name in "abc"}, tmp_path / "three.png"))
    assert three.shape == (one.shape[0], 3 * one.shape[1], 4)


@pytest.mark.parametrize("name", ["$x_{$", "a & <b>", "100%", "x" * 100])
def test_names_are_taken_as_they_are(name: str, tmp_path: Path) -> None:
    assert save_pictures({name: np.eye(28)}, tmp_path / "one.png").stat().st_size > 0


@pytest.mark.parametrize("value", [0, 255, True, -1.5])
def test_pictures_of_one_value_and_of_any_dtype(value: object, tmp_path: Path) -> None:
    assert save_pictures({"flat": np.full((3, 5), value)}, tmp_path / "flat.png").exists()


def test_what_is_no_picture_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no pictures to save"):
        save_pictures({}, tmp_path / "none.png")
    with pytest.raises(ValueError, match=r"'row' is of shape \(784,\)"):
        save_pictures({"row": np.zeros(784)}, tmp_path / "none.png")
    assert list(tmp_path.iterdir()) == []


def test_users_matplotlib_settings_are_neither_changed_nor_used(tmp_path: Path) -> None:
    plain = save_pictures({"one": np.eye(28)}, tmp_path / "plain.png").read_bytes()
    with mpl.rc_context({"figure.facecolor": "red", "image.origin": "lower", "text.usetex": True, "savefig.dpi": 20}):
        before = dict.copy(mpl.rcParams)
        assert save_pictures({"one": np.eye(28)}, tmp_path / "set.png").read_bytes() == plain
        assert dict.copy(mpl.rcParams) == before
