"""Rows that are streamed, as pages of a file."""

from __future__ import annotations

import resource
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.data.columns import Column, Columns
from dask_train.fitting.trees.spool import spooled

LABEL, MATRIX = Column(dtype="<i8", row_shape=()), Column(dtype="<f8", row_shape=(2,))
PLAN = Columns(columns=(LABEL, MATRIX), features=1, labels=0, weights=3)
X, Y, NOTHING, WEIGHTS = np.arange(20.0).reshape(10, 2), np.arange(10), np.zeros(10), np.arange(10.0) / 2


def session(folder, *others):
    return SimpleNamespace(scratch=folder, all_gather=lambda counts: np.append(counts, others).astype(int))


def partitions():
    for start, stop in ((0, 3), (3, 4), (4, 10)):
        yield tuple(column[start:stop] for column in (Y, X, NOTHING, WEIGHTS))


def test_rows_come_in_pages_out_of_a_file_without_a_name(tmp_path):
    pages = spooled(session(tmp_path), partitions(), PLAN, page_bytes=4 * X[0].nbytes)
    assert [len(page[1]) for page in pages] == [3, 3, 4]
    for place, whole in ((0, Y), (1, X), (3, WEIGHTS)):
        np.testing.assert_array_equal(np.concatenate([page[place] for page in pages]), whole)
    assert all(isinstance(page[1], np.memmap) and not page[1].flags.writeable for page in pages)
    assert list(tmp_path.iterdir()) == []
    (whole,) = spooled(session(tmp_path), partitions(), PLAN)
    assert len(whole[1]) == 10


def test_every_rank_says_that_one_has_no_rows(tmp_path):
    for mine, others in ((iter(()), (5,)), (partitions(), (0,))):
        with pytest.raises(ValueError, match="1 of 2 workers have no rows"):
            spooled(session(tmp_path, *others), mine, PLAN)


def test_a_disk_that_is_full_is_named(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, before[1]))  # as good as full: the signal is ignored by Python
    try:
        with pytest.raises(OSError, match=rf"110 bytes of rows can't be written behind 50 in {tmp_path}.*local_direc"):
            spooled(session(tmp_path), [(Y, X, NOTHING, WEIGHTS)], PLAN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
