"""Examples of TFRecord files are rows, without TensorFlow; those that are written are read again."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import fsspec
import pandas as pd
import pytest

import dask_train as dt
from dask_train.errors import DataError
from dask_train.file_rows import tfrecords

ROWS = [{"x": [float(number), 0.5], "y": number % 3, "name": f"class {number % 2}"} for number in range(10)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with dask.config.set(scheduler="synchronous"):
        paths = dt.to_tfrecords(tmp_path, db.from_sequence(ROWS, npartitions=3))
    assert paths == [f"{tmp_path}/part-0000{number}.tfrecord" for number in range(3)]
    assert sorted(map(str, tmp_path.iterdir())) == paths
    return tmp_path


def computed(rows: dt.RecordRows) -> list[list]:
    return [each.compute(scheduler="synchronous").tolist() for each in rows.to_dask()]


def test_examples_that_were_written_are_rows(folder):
    rows = dt.tfrecords(folder / "*.tfrecord", features="x", label="y")
    assert repr(rows) == "<RecordRows: 3 files, rows of float32 (2,)>"
    assert computed(rows) == [[row["x"] for row in ROWS], [row["y"] for row in ROWS]]


def test_compressed_files_are_read(folder):
    for path in folder.iterdir():
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert computed(dt.tfrecords(folder / "*", features="x", label="y"))[1] == [row["y"] for row in ROWS]


def test_decode_is_given_a_feature_or_the_example(folder):
    doubled = dt.tfrecords(folder / "*", features="x", label="y", decode=lambda x: x * 2)
    assert computed(doubled)[0][3] == [6.0, 1.0]
    whole = dt.tfrecords(folder / "*", label=lambda one: one["y"][0] + 1, decode=lambda one: one["x"][:1])
    assert [each[2:4] for each in computed(whole)] == [[[2.0], [3.0]], [3, 1]]


def test_names_are_numbered_as_classes(folder):
    rows = dt.tfrecords(folder / "*", features="x", label="name", classes=["class 1", "class 0"])
    assert computed(rows)[1] == [1, 0] * 5


def test_a_frame_is_written(tmp_path):
    frame = dd.from_pandas(pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}), npartitions=2)
    with dask.config.set(scheduler="synchronous"):
        dt.to_tfrecords(f"memory://{tmp_path}", frame)
    rows = dt.tfrecords(f"memory://{tmp_path}/*.tfrecord", features="b", label="a")
    assert computed(rows) == [[[0.5], [1.5], [2.5]], [1, 2, 3]]


def test_few_columns_of_parquet_are_written_a_file_for_each_partition(tmp_path):
    """Dask reads several files of few columns in one task, unless it is told otherwise."""
    for part in range(6):
        table = pd.DataFrame({name: [2 * part, 2 * part + 1] for name in "abcdefgh"})
        table.to_parquet(tmp_path / f"{part}.parquet")
    with dask.config.set(scheduler="synchronous"):
        paths = dt.to_tfrecords(tmp_path / "rows", dd.read_parquet(tmp_path / "*.parquet")[["a"]])
    assert len(paths) == 6
    read = dt.tfrecords(paths, features="a").to_dask().compute(scheduler="synchronous")
    assert read.tolist() == [[number] for number in range(12)]


def test_two_workers_may_write_a_file_at_the_same_time(tmp_path, monkeypatch):
    """Dask may run a task again that is running elsewhere."""
    fs, path, rename = fsspec.filesystem("file"), str(tmp_path / "part.tfrecord"), os.replace

    def rename_late(*paths: str) -> None:
        monkeypatch.setattr(os, "replace", rename)
        tfrecords._written(fs, path, ROWS)
        rename(*paths)

    monkeypatch.setattr(os, "replace", rename_late)
    tfrecords._written(fs, path, ROWS)
    assert list(map(str, tmp_path.iterdir())) == [path]


def test_what_killed_writers_have_left_is_removed(tmp_path):
    left = tmp_path / ".part-00001.tfrecord.0123abcd.partial"
    others = [tmp_path / ".part-00009.tfrecord.0123abcd.partial", tmp_path / ".part-00001.tfrecord.mine.partial"]
    for path in (left, *others):
        path.write_bytes(b"half")
    with dask.config.set(scheduler="synchronous"):
        written = dt.to_tfrecords(tmp_path, db.from_sequence([{"x": 1}, {"x": 2}], npartitions=2))
    assert sorted(tmp_path.iterdir()) == sorted([*map(Path, written), *others])


def test_a_damaged_record_is_told(folder):
    path = folder / "part-00001.tfrecord"
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"part-00001\.tfrecord' can't be read after record '2': ValueError: record 3"):
        computed(dt.tfrecords(folder / "*", features="x", label="y"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "Neither features= nor decode= says what a row is"),
        ({"features": "z"}, "decode raised RecordError: has no feature 'z'; it has 'name', 'x', 'y'"),
        ({"features": "x", "label": "z"}, r"Record '0' of '.*' has no feature 'z'; it has 'name', 'x', 'y'\. Name one"),
        (
            {"features": "x", "label": lambda one: one["z"]},
            "Record '0' of '.*' has no label, since label raised KeyErr",
        ),
        ({"features": "x", "label": "name"}, "has the label 'class 0', a name. Pass the names of all classes"),
    ],
)
def test_what_an_example_lacks_is_told(folder, settings, message):
    with pytest.raises((ValueError, DataError), match=message):
        dt.tfrecords(folder / "*", **settings)


def written(path: Path, frame: pd.DataFrame) -> None:
    with dask.config.set(scheduler="synchronous"):
        dt.to_tfrecords(path, dd.from_pandas(frame, npartitions=1))


@pytest.mark.parametrize(
    ("names", "message"), [("aa", "rows names 'a' more than once"), ([1, 2], "Feature 1 has a name")]
)
def test_names_that_examples_can_not_have_are_told_before_anything_is_written(tmp_path, names, message):
    with pytest.raises((TypeError, ValueError), match=message):
        written(tmp_path / "new", pd.DataFrame([[1, 2]], columns=list(names)))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("values", [["u", None], pd.array([1, None], "Int64"), pd.Categorical(["u", None])], ids=type)
def test_missing_values_of_a_column_are_told_and_nan_is_a_number(tmp_path, values):
    with pytest.raises(ValueError, match="1 values of column 'a' are missing, which an example can't hold"):
        written(tmp_path, pd.DataFrame({"a": values}))
    written(tmp_path, pd.DataFrame({"a": [0.5, float("nan")]}))


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (ROWS, "list"),
        (da.ones((4, 2)), "Array"),
        (dd.from_pandas(pd.Series([1, 2], name="a"), npartitions=1), "Series"),
        (pd.DataFrame({"a": [1, 2]}), "DataFrame"),
    ],
)
def test_what_is_no_bag_or_frame_of_dask_is_not_written(tmp_path, rows, kind):
    with pytest.raises(TypeError, match=f"rows is a {kind}; pass a Dask bag of dicts, or a Dask frame"):
        dt.to_tfrecords(tmp_path / "new", rows)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_files_are_those_of_tensorflow(folder, tmp_path_factory, compression):
    tf = pytest.importorskip("tensorflow")
    paths = sorted(map(str, folder.iterdir()))
    kinds = {"x": tf.io.FixedLenFeature([2], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}
    read = [tf.io.parse_single_example(each, kinds) for each in tf.data.TFRecordDataset(paths)]
    assert [(each["x"].numpy().tolist(), int(each["y"])) for each in read] == [(row["x"], row["y"]) for row in ROWS]
    written = tmp_path_factory.mktemp("tensorflow") / "rows.tfrecord"
    with tf.io.TFRecordWriter(str(written), compression) as file:
        for record in tf.data.TFRecordDataset(paths):
            file.write(record.numpy())
    assert computed(dt.tfrecords(written, features="x", label="y")) == [
        [row["x"] for row in ROWS],
        [row["y"] for row in ROWS],
    ]
