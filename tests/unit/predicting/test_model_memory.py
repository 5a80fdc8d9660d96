"""Memory that a Dask worker shares with a model process: it grows, is given back, and is closed once."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dask_train.data.columns import Column, Columns
from dask_train.predicting import model_memory
from dask_train.predicting.model_memory import Slot, SlotClosedError, packed_arrays
from dask_train.predicting.server.values import Call, views

CALL = Call(
    verb="predict",
    columns=Columns.of_batch(1, (Column(dtype="<f4", row_shape=(3,)),)),
    outputs=(Column(dtype="<i8", row_shape=()), Column(dtype="<f8", row_shape=(2,))),
    batch_size=2,
)


@pytest.fixture
def slot():
    made = Slot(7)
    opened = list(made.descriptors)
    yield made
    made.close()
    made.close()  # again does no harm
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def seen_by_the_process(slot: Slot, which: int, columns: Any, num_rows: int) -> list[np.ndarray]:
    """As the model process maps it."""
    size = os.fstat(slot.descriptors[which]).st_size
    return views(mmap.mmap(slot.descriptors[which], size), columns, num_rows)


def answered(slot: Slot, num_rows: int) -> None:
    """Fill it, see the rows from the other side, and answer from there."""
    rows = np.random.default_rng(num_rows).normal(size=(num_rows, 3)).astype("f4")
    slot.fill(CALL, num_rows, [rows], ())
    np.testing.assert_array_equal(seen_by_the_process(slot, 0, CALL.columns, num_rows)[0], rows)
    numbers, pairs = seen_by_the_process(slot, 1, CALL.outputs, num_rows)
    numbers[...], pairs[...] = np.arange(num_rows), 0.5
    found = slot.read(CALL, num_rows)
    assert [found[0].tolist(), found[1].shape] == [list(range(num_rows)), (num_rows, 2)]
    numbers[...] = -1
    assert found[0].tolist() == list(range(num_rows)), "what was read is a copy: the next block comes there"


def test_blocks_of_any_size_follow_each_other(slot):
    for num_rows in (4, 1000, 2, 5000, 1):
        answered(slot, num_rows)
    assert slot.number == 7


def test_large_memory_is_given_back_and_taken_anew(slot, monkeypatch):
    answered(slot, 10)
    slot.trim()
    kept = [os.fstat(each).st_size for each in slot.descriptors]
    assert all(kept), "a little stays warm"
    monkeypatch.setattr(model_memory, "KEEP_WARM_BYTES", 50_000)
    answered(slot, 5000)
    slot.trim()
    assert [os.fstat(each).st_size for each in slot.descriptors] == [0, 0]
    answered(slot, 5000)


def test_one_whose_process_was_ended_takes_no_rows(slot):
    answered(slot, 3)
    slot.close()
    slot.trim()
    with pytest.raises(SlotClosedError):
        slot.fill(CALL, 10_000, [np.zeros((10_000, 3), "f4")], ())
    with pytest.raises(SlotClosedError):
        slot.read(CALL, 3)


def test_one_that_is_closed_gives_its_memory_and_files_back_while_somebody_has_it(slot, no_leaks):
    with no_leaks():
        closed = Slot(1)
        answered(closed, 3)
        closed.close()


def test_rows_that_would_lose_values_are_not_taken(slot):
    with pytest.raises(TypeError, match="Cannot cast"):
        slot.fill(CALL, 1, [np.array([["a", "b", "c"]])], ())


@settings(max_examples=30)
@given(
    st.lists(
        hnp.arrays(
            st.sampled_from(["f2", "<f4", ">f8", "i1", "u8", "?", "c8"]), hnp.array_shapes(min_dims=0, min_side=0)
        ),
        max_size=4,
    )
)
def test_a_models_arrays_lie_where_it_is_told(arrays):
    descriptor, places = packed_arrays(arrays)
    try:
        size = os.fstat(descriptor).st_size
        memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ) if size else b""
        found = [np.ndarray(shape, dtype, memory, at) for dtype, shape, at in places]
    finally:
        os.close(descriptor)
    assert len(found) == len(arrays)
    for mine, theirs in zip(arrays, found, strict=True):
        assert theirs.dtype == mine.dtype
        np.testing.assert_array_equal(theirs, mine)
    assert all(at % 64 == 0 for *_, at in places)


def test_arrays_in_another_order_in_memory_come_as_they_are_indexed():
    array = np.asfortranarray(np.arange(12).reshape(3, 4))[:, ::2]
    descriptor, ((dtype, shape, at),) = packed_arrays([array])
    try:
        memory = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    np.testing.assert_array_equal(np.ndarray(shape, dtype, memory, at), array)


def test_a_model_that_does_not_fit_into_memory_keeps_none(no_leaks, monkeypatch):
    def full(*_: Any) -> int:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(os, "pwrite", full)
    with no_leaks(), pytest.raises(OSError, match="Cannot allocate memory"):
        packed_arrays([np.zeros(4)])
