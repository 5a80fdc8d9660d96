"""Files are cut into partitions, and each becomes rows of paths and contents beside labels."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import dask
import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.file_decoder import FileDecoder
from dask_train.data.text import packed
from dask_train.errors import DataError
from dask_train.file_rows import source as source_module
from dask_train.file_rows.reading import unpacked_paths
from dask_train.file_rows.source import FileSet, bounds_of, decoded_arrays, files_source, packed_paths, stored_sizes


def length_of(content: bytes) -> np.ndarray:
    if content == b"bad":
        raise ValueError("no")
    return np.array([len(content)])


DECODER = FileDecoder.of(length_of, None, np.array([0]))
CONTENTS = [b"1", b"22", b"bad", b"", b"55555"]


@pytest.fixture
def file_set(tmp_path) -> FileSet:
    paths = [f"{tmp_path}/{number} [*].bin" for number in range(len(CONTENTS))]
    for path, content in zip(paths, CONTENTS, strict=True):
        with open(path, "wb") as file:
            file.write(content)
    sizes, labels = np.array([len(each) for each in CONTENTS]), np.arange(5) * 10
    stamps = tuple(map(str, sizes))
    return FileSet(fs=fsspec.filesystem("file"), paths=tuple(paths), sizes=sizes, stamps=stamps, labels=labels)


def computed(delayed):
    return dask.compute(*delayed, scheduler="synchronous")


@given(st.lists(st.integers(0, 40 << 20), min_size=1, max_size=60))
def test_partitions_cover_all_files_in_order_and_are_small(sizes):
    bounds = bounds_of(np.array(sizes))
    assert bounds[0] == 0
    assert bounds[-1] == len(sizes)
    assert all(start < stop for start, stop in pairwise(bounds))
    for start, stop in pairwise(bounds):
        assert stop - start == 1 or sum(sizes[start:stop]) <= source_module.PART_BYTES


def test_many_files_make_partitions_of_bounded_length():
    assert np.diff(bounds_of(np.zeros(100_000, np.int64))).max() == source_module.PART_ROWS
    assert len(bounds_of(np.zeros(100, np.int64))) - 1 == 15


def test_paths_travel_packed():
    paths = [f"bucket/train/dog/{number}.jpg" for number in range(2000)]
    packed = packed_paths(paths)
    assert unpacked_paths(packed) == paths
    assert len(packed) < len("".join(paths)) / 5


def test_rows_are_paths_and_contents_beside_labels(file_set):
    source = files_source(file_set, DECODER, skips=False)
    assert (source.num_rows, sum(source.lengths), source.is_tuple) == (5, 5, True)
    assert source.columns[0].in_batch.row_shape == (1,)
    parts = computed(source.delayed_parts(None, list))
    assert [len(files) for files, _ in parts] == list(source.lengths)
    rows = [tuple(row) for files, _ in parts for row in files]
    assert rows == list(zip(file_set.paths, CONTENTS, strict=True))
    assert np.concatenate([labels for _, labels in parts]).tolist() == [0, 10, 20, 30, 40]


def test_files_have_names_that_are_no_utf_8(tmp_path):
    """Shared memory holds text in UTF-8."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.bin")
    Path(path).write_bytes(b"22")
    files = FileSet(fs=fsspec.filesystem("file"), paths=(path,), sizes=np.array([2]), stamps=("2",), labels=None)
    assert unpacked_paths(packed_paths(files.paths)) == [path]
    ((rows,),) = computed(files_source(files, DECODER, skips=False).delayed_parts(None, list))
    (name, content), (nbytes,) = rows[0], stored_sizes(files)
    assert (name, content) == (f"{tmp_path}/\\udcff.bin", b"22")
    assert packed(rows).nbytes == nbytes
    assert computed([decoded_arrays(files, DECODER)[0]])[0].tolist() == [[2]]


def test_files_without_labels_are_bare(file_set):
    source = files_source(FileSet(**{**vars(file_set), "labels": None}), DECODER, skips=False)
    assert not source.is_tuple
    assert [len(part) for part in computed(source.delayed_parts(None, list))] == [1] * 5


def test_files_that_can_not_be_decoded_are_left_out_with_their_labels(file_set):
    source = files_source(file_set, DECODER, skips=True)
    assert source.num_rows is source.lengths is None
    parts = computed(source.delayed_parts(None, list))
    assert [content for files, _ in parts for _, content in files] == [b"1", b"22", b"", b"55555"]
    assert np.concatenate([labels for _, labels in parts]).tolist() == [0, 10, 30, 40]


def test_no_file_is_left_out_because_it_can_not_be_augmented(file_set):
    def unlucky(row, generator):
        raise ValueError("an unlucky draw")

    source = files_source(file_set, FileDecoder.of(length_of, unlucky, np.array([0])), skips=True)
    assert sum(len(files) for files, _ in computed(source.delayed_parts(None, list))) == 4


def test_a_file_that_is_gone_is_named(file_set):
    gone = FileSet(**{**vars(file_set), "paths": (*file_set.paths[:4], "/nowhere/5.jpg")})
    with pytest.raises(DataError, match=r"File '/nowhere/5\.jpg' can't be read: FileNotFoundError"):
        computed(files_source(gone, DECODER, skips=True).delayed_parts(None, list))


def test_decoded_arrays_have_known_chunks(file_set):
    good = FileSet(**{name: value if name == "fs" else value[:2] for name, value in vars(file_set).items()})
    x, y = decoded_arrays(good, DECODER)
    assert (x.shape, x.dtype, x.chunks[0]) == ((2, 1), np.int64, y.chunks[0])
    assert computed([x, y])[0].tolist() == [[1], [2]]
    with pytest.raises(DataError, match=r"2 .*can't be decoded: decode raised ValueError: no"):
        computed([decoded_arrays(file_set, DECODER)[0]])
