"""``files`` lists, looks at the first file, and refuses what can't be; nothing else is read."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dask_train as dt
from dask_train.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Four grey pictures of two classes, each of one shade."""
    for number in range(4):
        path = tmp_path / ("odd" if number % 2 else "even") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("L", (3, 2), number * 10).save(path)
    return f"{tmp_path}/*/*.png"


def test_pictures_in_folders(folder):
    files = dt.files(folder, label="folder")
    assert (len(files), files.shape, files.dtype, files.classes) == (4, (4, 2, 3, 1), np.uint8, ("even", "odd"))
    assert repr(files) == "<FileRows: 4 files, uint8 (2, 3, 1), 2 classes>"
    assert files.labels.tolist() == [0, 0, 1, 1]
    assert [int(files.to_numpy(number).max()) for number in range(4)] == [0, 20, 10, 30]
    x, y = files.to_dask()
    assert x.compute(scheduler="synchronous")[:, 0, 0, 0].tolist() == [0, 20, 10, 30]
    assert y.compute(scheduler="synchronous").tolist() == [0, 0, 1, 1]


def test_some_of_the_files(folder):
    files = dt.files(folder, label="folder")
    some = files[[3, 0]]
    assert (some.paths, some.labels.tolist()) == ((files.paths[3], files.paths[0]), [1, 0])
    assert files[files.labels == 1].paths == files[2:].paths
    rest, held = files.split(0.25, seed=3)
    assert sorted(rest.paths + held.paths) == list(files.paths)
    assert (len(rest), len(held), held.classes) == (3, 1, files.classes)
    assert files.split(0.25, seed=3)[1].paths == held.paths


def test_members_of_a_zip_archive_are_files(folder, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "pictures"), "zip", tmp_path)
    files = dt.files(f"zip://*/*.png::{archive}", label="folder")
    assert (files.paths, files.classes) == (("even/0.png", "even/2.png", "odd/1.png", "odd/3.png"), ("even", "odd"))
    files = pickle.loads(pickle.dumps(files))
    x, _ = files.to_dask()
    assert x.compute(scheduler="threads")[:, 0, 0, 0].tolist() == [0, 20, 10, 30]


@pytest.mark.parametrize("fraction", [0, 0.01, 1.0])
def test_a_part_without_files_is_refused(folder, fraction):
    with pytest.raises(ValueError, match="of 4 files leaves one part without files"):
        dt.files(folder).split(fraction)


def test_one_row_and_none_are_refused(folder):
    files = dt.files(folder)
    assert files.labels is files.classes is None
    with pytest.raises(TypeError, match=r"use files\.to_numpy\(1\), or a slice"):
        files[1]
    with pytest.raises(IndexError, match="No file is left"):
        files[:0]


def test_augmented_rows_may_have_another_shape_which_only_training_sees(folder):
    files = dt.files(folder, augment=lambda row, generator: row[:1] * np.float32(generator.uniform()))
    assert files.shape == (4, 2, 3, 1)
    assert files.source().columns[0].in_batch.row_shape == (1, 3, 1)
    assert files.source().columns[0].in_batch.dtype == "<f4"
    assert files.not_augmented().source().columns[0].in_batch.row_shape == (2, 3, 1)


def fails_on_even(content: bytes) -> np.ndarray:
    raise ValueError(f"{len(content)} bytes")


def test_the_first_file_that_can_not_be_decoded_is_named_at_once(folder):
    with pytest.raises(DataError, match=r"File '.*even/0\.png' can't be decoded: decode raised ValueError") as caught:
        dt.files(folder, decode=fails_on_even)
    assert caught.value.__cause__.__traceback__.tb_next.tb_frame.f_code.co_name == "fails_on_even"
    with pytest.raises(DataError, match=r"None of the first 4 files can be decoded\. File '.*0\.png' can't"):
        dt.files(folder, decode=fails_on_even, on_error="skip")


def test_a_broken_first_file_is_skipped_where_that_is_asked_for(folder):
    path = Path(dt.files(folder).paths[0])
    path.write_bytes(path.read_bytes()[:20])
    files = dt.files(folder, on_error="skip")
    assert files.shape == (4, 2, 3, 1)
    assert files.source().skips
    with pytest.raises(ValueError, match="Arrays of files with on_error='skip' would have rows that are not"):
        files.to_dask()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"decode": "image"}, "decode is a str; pass a function"),
        ({"augment": 3}, "augment is a int; pass a function"),
        ({"on_error": "ignore"}, "on_error is 'ignore'; it is 'raise' or 'skip'"),
    ],
)
def test_arguments_that_can_not_be_are_refused(folder, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dt.files(folder, **arguments)
