"""Columns that are picked of an object keep what they were cut from."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.collections.schema.published_frames import frames_in
from dask_train.shared_data.vineyard.dataset import frames_of
from dask_train.shared_data.vineyard.opening import OpenedObject

FRAME = pd.DataFrame({"kind": pd.Categorical(["u", "v"]), "n": [1, 2], "late": [0, 1]})
KIND, N, LATE = frames_in("data", dict(FRAME.items()), None, None)


def an_object(*frames):
    contents = json.dumps([None if frame is None else frame.to_json() for frame in frames])
    columns = ("kind", "n", "late")[: len(frames)] or None
    return OpenedObject(
        identifier="o1", type_name="", partitions=(), columns=columns, form=None, frames=contents if frames else None
    )


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (("kind", "n", "late"), (KIND, N, LATE)),
        (("kind", "late"), (KIND, LATE)),
        ((("n", "kind"), "late"), (FrameSchema.of(FRAME[["n", "kind"]]), LATE)),
        ((("kind",),), (FrameSchema.of(FRAME[["kind"]]),)),
    ],
)
def test_picked_columns_keep_their_frames(columns, found):
    assert frames_of(an_object(KIND, N, LATE), columns) == found


def test_columns_beside_arrays_keep_their_categories():
    (both,) = frames_of(an_object(KIND, None), (("kind", "n"),))
    assert (both.features, both.columns) == (None, KIND.columns)
    assert frames_of(an_object(None, None), (("kind", "n"), "n")) == (None, None)
    assert frames_of(an_object(), ("kind",)) == ()
