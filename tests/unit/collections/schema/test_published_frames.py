"""What lies in shared memory is described as the frame that it was: by the columns of the data set."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.collections.schema.published_frames import frames_in, without_missing

FRAME = pd.DataFrame({"a": [1.0, 2.0], "kind": pd.Categorical(["u", "v"]), "y": pd.Categorical(["no", "yes"])})
A, KIND, Y = (FrameSchema(columns=FrameSchema.of(FRAME[[name]]).columns, features=name) for name in FRAME)
BOTH = FrameSchema.of(FRAME[["a", "kind"]])
LAZY = dd.from_pandas(FRAME, npartitions=2)


@pytest.mark.parametrize(
    ("data", "names", "found"),
    [
        (LAZY, {"features": ["a", "kind"], "label": "y"}, (BOTH, Y)),
        (FRAME, {"label": "y"}, (BOTH, Y)),
        (FRAME, {"features": "kind"}, (KIND,)),
        ({"m": LAZY[["a", "kind"]], "y": LAZY["y"], "n": np.ones(2)}, {}, (BOTH, Y, None)),
        ({"kind": LAZY["kind"], "y": LAZY["y"]}, {"features": "kind", "label": "y"}, (KIND, Y)),
        ((LAZY[["a", "kind"]], np.ones(2)), {}, (BOTH, None)),
        (LAZY[["kind"]], {}, (FrameSchema.of(FRAME[["kind"]]),)),
        (LAZY["a"], {}, (A,)),
        (FRAME, {"features": "a"}, (A,)),
        (FRAME[["a"]].set_axis([pd.Timestamp(0)], axis=1), {}, ()),
        (np.ones(2), {}, ()),
        ([delayed(np.ones)(2)], {}, ()),
    ],
)
def test_each_column_of_a_data_set_is_a_frame_or_an_array(data: Any, names: dict[str, Any], found: Any) -> None:
    assert frames_in("data", data, names.get("features"), names.get("label")) == found


TORN = FRAME.assign(kind=pd.Categorical(["u", None]))


FORMS = [TORN, TORN["kind"], {"kind": TORN["kind"]}, (np.ones(2), TORN), [np.ones(2), TORN["kind"]]]


@pytest.mark.parametrize("data", FORMS, ids=type)
def test_a_missing_one_has_no_code(data: Any) -> None:
    with pytest.raises(ValueError, match="1 values of column 'kind' of data are missing"):
        without_missing("data", data, None, None)


@pytest.mark.parametrize("part", FORMS, ids=type)
def test_categories_of_a_delayed_partition_are_refused_in_its_task(part: Any) -> None:
    (checked,) = without_missing("data", [delayed(part)], None, None)
    with pytest.raises(ValueError, match="Column 'kind' of a partition of data holds categories"):
        checked.compute(scheduler="sync")


@pytest.mark.parametrize("part", [FRAME[["a"]], {"a": FRAME["a"]}, (FRAME[["a"]], FRAME["a"]), np.ones(2)], ids=type)
def test_a_delayed_partition_without_categories_keeps_its_form(part: Any) -> None:
    (checked,) = without_missing("data", [delayed(part)], None, None)
    assert type(checked.compute(scheduler="sync")) is type(part)


@pytest.mark.parametrize("data", [FRAME, {"kind": FRAME["kind"]}, (FRAME, FRAME["y"]), [FRAME, FRAME["y"]]], ids=type)
def test_data_in_which_none_is_missing_keeps_its_form(data: Any) -> None:
    checked = without_missing("data", data, None, None)
    assert type(checked) is type(data)
    assert len(checked) == len(data)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_name_that_two_columns_have_is_told(lazy: bool) -> None:
    frame = FRAME.set_axis(["a", "a", "y"], axis=1)
    data = dd.from_pandas(frame, npartitions=1) if lazy else frame
    for names in ((None, None), (None, "y"), (["a"], "y")):
        with pytest.raises(ValueError, match=r"data names 'a' more than once\. Name each column once"):
            without_missing("data", data, *names)
    assert without_missing("data", data, ["y"], None) is not None


def test_labels_are_told_apart_and_other_columns_do_not_count() -> None:
    with pytest.raises(ValueError, match="1 labels of data are missing: column 'kind'"):
        without_missing("data", TORN, "a", "kind")
    with pytest.raises(ValueError, match="1 labels of data are missing: column 'kind'"):
        without_missing("data", dict(TORN), "a", "kind")
    with pytest.raises(ValueError, match="Column 'kind' of a partition of data holds categories"):
        without_missing("data", [delayed(TORN)], "a", "kind")[0].compute(scheduler="sync")
    assert without_missing("data", [delayed(TORN)], ["a"], None)[0].compute(scheduler="sync") is not None
    (array,) = without_missing("data", [delayed(np.ones)(2)], "a", "kind")
    assert array.compute(scheduler="sync").tolist() == [1, 1]
    assert without_missing("data", TORN, ["a"], "y") is TORN
    assert without_missing("data", dict(TORN), "a", "y").keys() == dict(TORN).keys()
    pd.testing.assert_frame_equal(without_missing("data", LAZY, None, "y").compute(scheduler="sync"), FRAME)


def test_categories_that_can_not_be_kept_are_refused_before_anything_is_computed() -> None:
    months = FRAME.assign(kind=pd.Categorical(pd.period_range("2026", periods=2, freq="M")))
    with pytest.raises(TypeError, match=r"Categories of column 'kind': Period.* JSON"):
        frames_in("data", months, None, None)
