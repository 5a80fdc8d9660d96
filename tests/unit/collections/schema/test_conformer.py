"""What a model is fitted with is noted, and made as it is known already."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import compute, delayed

from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema

FRAME = pd.DataFrame({"a": [1.0, 2.0], "kind": pd.Categorical(["u", "v"]), "y": pd.Categorical(["no", "yes"])})
OTHER = pd.DataFrame({"y": pd.Categorical(["yes"]), "kind": pd.Categorical(["v"]), "a": [0.5]})
SCHEMA = FrameSchema.of(FRAME, label="y")
KINDS: list[Any] = [lambda frame: frame, lambda frame: dd.from_pandas(frame, npartitions=1)]


@pytest.mark.parametrize("kind", KINDS, ids=["pandas", "dask"])
def test_what_it_has_seen_is_the_schema(kind: Any) -> None:
    like = Conformer(None)
    x, features = like.named("data", kind(FRAME), None, ["y"])
    like.targets("data", x, ["y"])
    assert features == ["a", "kind"]
    assert like.schema(features) == SCHEMA
    assert Conformer(None).schema(None) is None


@pytest.mark.parametrize("kind", KINDS, ids=["pandas", "dask"])
def test_rows_are_made_as_they_are_known(kind: Any) -> None:
    like = Conformer(SCHEMA, learns=False)
    x, features = like.named("x", kind(OTHER), None, ["y"])
    x = like.targets("x", x, ["y"])
    assert features == ["a", "kind"]
    assert [x[name].cat.codes.values.tolist() if kind is KINDS[0] else None for name in ("kind", "y")] in (
        [[1], [1]],
        [None] * 2,
    )
    assert [list(x[name].dtype.categories) for name in ("kind", "y")] == [["u", "v"], ["no", "yes"]]
    apart = like.inputs("x", like.ordered("x", kind(OTHER)))
    assert list(apart.columns) == ["a", "kind"]
    label = like.targets("x", kind(OTHER)["y"].rename("other name"))
    assert list(label.dtype.categories) == ["no", "yes"]
    column = Conformer(FrameSchema.of(FRAME[["kind"]])).inputs("x", kind(OTHER)["kind"].rename("other name"))
    assert list(column.dtype.categories) == ["u", "v"]


def test_categories_that_nobody_knows_are_refused() -> None:
    like = Conformer(None, learns=False)
    for call in (lambda: like.inputs("x", FRAME["kind"]), lambda: like.targets("x", FRAME, ["y"])):
        with pytest.raises(ValueError, match=r"Column '(kind|y)' of x holds categories.*schema=result.schema"):
            call()
    assert like.inputs("x", FRAME[["a"]]) is not None
    for other in (np.ones(2), None, [1]):
        assert like.inputs("x", other) is other
        assert like.targets("x", other) is other
        assert like.ordered("x", other) is other


def test_rows_that_stay_a_frame_may_have_missing_categories() -> None:
    torn = FRAME.assign(kind=pd.Categorical(["u", None]))
    assert Conformer(None, coded=False).inputs("x", torn)["kind"].isna().sum() == 1
    with pytest.raises(ValueError, match="1 values of column 'kind' of x are missing"):
        Conformer(None).inputs("x", torn)
    with pytest.raises(ValueError, match="1 labels of x are missing"):
        Conformer(None, coded=False).targets("x", torn["kind"])


def test_codes_that_lie_in_shared_memory_have_to_be_those_of_the_model() -> None:
    held = [FrameSchema.of(FRAME[["a", "kind"]])]
    turned = [FrameSchema.of(FRAME[["kind", "a"]])]
    strange = [FrameSchema.of(OTHER[["a", "kind"]])]
    targets = [FrameSchema.of(FRAME[["y"]]), None]
    like = Conformer(None)
    like.lying("data", held, targets)
    assert like.schema(["a", "kind"]) == SCHEMA
    Conformer(SCHEMA, learns=False).lying("data", held, targets)
    with pytest.raises(ValueError, match=r"lie in the order 'kind', 'a', and .* the order 'a', 'kind'"):
        Conformer(SCHEMA).lying("data", turned, targets)
    with pytest.raises(ValueError, match=r"'kind' of data lies in shared memory as codes of 'v', and .*'u', 'v'"):
        Conformer(SCHEMA).lying("data", strange, targets)
    with pytest.raises(ValueError, match=r"'y' of data lies in shared memory as codes of 'yes', .*'no', 'yes'"):
        Conformer(SCHEMA).lying("data", held, [FrameSchema.of(OTHER[["y"]])])
    with pytest.raises(ValueError, match=r"Column 'kind' of data holds categories.*schema=result.schema"):
        Conformer(None, learns=False).lying("data", held, [])
    with pytest.raises(TypeError, match=r"'kind' of data lies in shared memory as codes .* Pass the frame"):
        Conformer(None, coded=False).lying("data", held, [])


@pytest.mark.parametrize("features", [None, ["kind", "a"]])
def test_delayed_frames_are_made_as_they_are_known(features: Any) -> None:
    like = Conformer(SCHEMA, learns=False)
    parts, features = like.parts("x", [delayed(OTHER), delayed(FRAME)], features, ["y"], ["y"])
    assert features == ["a", "kind"]
    codes = [[part[name].cat.codes.tolist() for name in ("kind", "y")] for part in compute(*parts, scheduler="sync")]
    assert codes == [[[1], [1]], [[0, 1], [0, 1]]]
    (columns,), _ = like.parts("x", [delayed(dict(OTHER.items()))], None, ["y"], ["y"])
    assert [columns.compute()[name].cat.codes.tolist() for name in ("kind", "y")] == [[1], [1]]
    (pair,), _ = like.parts("x", [delayed((np.ones(2), np.ones(2)))], None, [], [])
    assert len(pair.compute()) == 2
    (unknown,), _ = Conformer(None, learns=False).parts("x", [delayed(FRAME)], None, ["y"], ["y"])
    with pytest.raises(ValueError, match=r"Column 'kind' of x holds categories.*schema=result.schema"):
        unknown.compute(scheduler="sync")
    (torn,), _ = Conformer(None).parts("x", [delayed(FRAME.assign(kind=None).astype(FRAME.dtypes))], None, ["y"], ["y"])
    with pytest.raises(ValueError, match="2 values of column 'kind' of x are missing"):
        torn.compute(scheduler="sync")
