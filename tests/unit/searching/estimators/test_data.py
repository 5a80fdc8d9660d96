"""What a search over estimators takes for features, targets, weights and groups, and what it refuses at once."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from dask import dataframe as dd
from sklearn.dummy import DummyRegressor

from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.columns import Column, Columns
from dask_train.searching.estimators.data import estimator_data, folds_of
from dask_train.shared_data.segments import SharedSegments

X, Y, GROUPS = np.zeros((6, 3)), np.arange(6), np.repeat([0, 1, 2], 2)
FRAME = pd.DataFrame({"a": np.zeros(6), "b": np.ones(6, "f4"), "y": Y, "w": np.ones(6), "g": GROUPS})


def places(data):
    """Where features, targets, weights and groups lie."""
    return (*data.columns.places().values(), data.columns.groups)


def categories_of(data, number):
    """Of a column; None where it has none."""
    return data.columns[number].categories and list(data.columns[number].categories[0])


def data_of(x, y=None, features=None, label=None, **others):
    return estimator_data("data", x, y, features, label, **others)


def published(*row_shapes):
    schema = Columns(
        columns=tuple(Column(dtype="<f8", row_shape=shape) for shape in row_shapes), names=None, is_tuple=True
    )
    return SharedSegments(schema=schema, lengths=np.array([4, 2]), futures=())


def test_arrays_lie_in_the_order_of_features_targets_and_weights_and_groups_come_last():
    data = data_of(X, Y, sample_weight=np.ones(6), groups=GROUPS)
    assert places(data) == (0, 1, 2, 3)
    assert data.value[3] is GROUPS


def test_a_frame_keeps_the_types_of_its_features_and_other_columns_are_none():
    data = data_of(FRAME, label="y", sample_weight="w", groups="g")
    assert [data.columns[number].origins[0].dtype for number in range(2)] == [np.float64, np.float32]
    assert places(data) == ({"a": 0, "b": 1}, 2, 3, 4)
    assert [column.name for column in data.value] == ["a", "b", "y", "w", "g"]


@pytest.mark.parametrize("spread", [lambda frame: frame, lambda frame: dd.from_pandas(frame, npartitions=2)])
def test_names_of_columns_may_be_whole_numbers(spread):
    data = data_of(spread(pd.DataFrame(np.ones((6, 5)))), label=0, sample_weight=3, groups=1)
    assert places(data) == ({2: 0, 4: 1}, 2, 3, 4)
    assert [column.name for column in data.value] == [2, 4, 0, 3, 1]


@pytest.mark.parametrize(("features", "kept"), [("b", ["b"]), (["w", "a"], ["w", "a"])])
def test_features_are_those_that_are_named_in_that_order(features, kept):
    assert list(data_of(FRAME, features=features, label="y").columns.features) == kept


def test_lists_are_arrays_of_a_value_each_row():
    data = data_of(X, Y.tolist(), groups=GROUPS.tolist())
    assert (data.columns.labels, data.columns.groups) == (1, 2)
    assert [column.shape for column in data.value] == [(6, 3), (6,), (6,)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"x": X, "label": "y"}, "label= names a column of a frame; pass y"),
        ({"x": FRAME, "y": Y, "label": "y"}, "label= names a column of a frame; pass y"),
        ({"x": FRAME, "label": ["a", "y"]}, "an estimator's target is one column"),
        ({"x": FRAME, "features": ["a", "y"], "label": "y"}, "'y' of data is the label and one of the features too"),
        ({"x": FRAME, "features": "y", "label": "y"}, "'y' of data is the label and one of the features too"),
        ({"x": X, "features": ["a"]}, "features= names columns of a frame, and x is none"),
        ({"x": X, "groups": "g"}, "groups='g' names a column of a frame, and x is none"),
        ({"x": X, "y": Y, "sample_weight": 2}, "sample_weight=2 names a column of a frame, and x is none"),
        ({"x": FRAME, "label": "z"}, "data has no column 'z'"),
        ({"x": FRAME, "features": ["a", "z"]}, "data has no column 'z'"),
        ({"x": FRAME, "features": ["a", "a"]}, "names 'a' more than once"),
        ({"x": X, "y": Y, "sample_weight": np.ones((6, 1))}, "sample_weight of data has 2 dimensions"),
        ({"x": X, "y": Y, "groups": np.ones((6, 1))}, "groups of data has 2 dimensions"),
    ],
)
def test_what_does_not_go_together_is_refused(given, told):
    with pytest.raises(ValueError, match=told):
        data_of(**given)


def test_several_arrays_of_features_are_refused():
    with pytest.raises(TypeError, match="takes one array or frame of features"):
        data_of((X, X), Y)


def test_groups_can_not_be_added_to_what_lies_in_shared_memory():
    with pytest.raises(ValueError, match="data lies in shared memory already"):
        data_of(SimpleNamespace(segments=published((3,), ())), groups=GROUPS)


def test_targets_and_groups_that_are_categories_keep_their_type():
    named = FRAME.assign(y=pd.Categorical(["no", "yes"] * 3), g=pd.Categorical(list("aabbcc")))
    data = data_of(named, label="y", groups="g")
    assert categories_of(data, data.columns.labels) == ["no", "yes"]
    assert categories_of(data, data.columns.groups) == ["a", "b", "c"]
    data = data_of(FRAME, label="y", groups="g")
    assert [categories_of(data, number) for number in (data.columns.labels, data.columns.groups)] == [None, None]


def test_categories_that_are_not_known_yet_are_refused_with_what_makes_them_known():
    frame = dd.from_pandas(FRAME.assign(y=pd.Categorical(["no", "yes"] * 3)), npartitions=2)
    unknown = frame.assign(y=frame.y.cat.as_unknown())
    data = data_of(frame, label="y")
    assert categories_of(data, data.columns.labels) == ["no", "yes"]
    with pytest.raises(ValueError, match=r"The categories of y are not known yet.*y = y.cat.as_known\(\)"):
        data_of(unknown, label="y")


KIND = FRAME[["a", "y"]].assign(kind=pd.Categorical(list("uvwuvw")))


@pytest.mark.parametrize("lazy", [False, True], ids=["pandas", "dask"])
def test_rows_to_score_on_get_the_categories_of_those_to_fit_on(lazy):
    data = data_of(KIND, label="y")
    assert data.schema == FrameSchema.of(KIND[["a", "kind"]])
    turned = KIND.assign(kind=KIND["kind"].cat.set_categories(["w", "v", "u"]))
    turned = dd.from_pandas(turned, npartitions=2) if lazy else turned
    later = data_of(turned, label="y", known=data.schema)
    assert [column.origins for column in later.columns] == [column.origins for column in data.columns]
    codes = later.value[later.columns.features["kind"]].cat.codes
    assert list(codes.compute(scheduler="sync") if lazy else codes) == [0, 1, 2, 0, 1, 2]
    with pytest.raises(ValueError, match="Column 'kind' of data has 'x', and the model is fitted with the categories"):
        data_of(KIND.assign(kind="x"), label="y", known=data.schema)
    assert data_of(X, Y).schema is None


class Client:
    """Has computed what it is asked for: 6 numbers."""

    def compute(self, column):
        self.asked = column.name
        return SimpleNamespace(result=lambda: np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0]))


class Splitter:
    """Notes what it is shown."""

    def split(self, x, y, groups=None):
        self.seen = x.shape, y, groups
        yield np.arange(3), np.arange(3, 6)

    def get_n_splits(self, *_):
        return 1


@pytest.mark.parametrize("wide", [False, True], ids=["array", "frame"])
def test_folds_are_made_of_targets_alone_and_see_the_shape_of_the_features(wide, monkeypatch):
    monkeypatch.setattr(SharedSegments, "array", lambda self, number: SimpleNamespace(name=number))
    x, segments = (FRAME[["a", "b"]], published((), (), ())) if wide else (X, published((3,), ()))
    columns = data_of(x, Y).columns
    cv, client = Splitter(), Client()
    folds_of(cv, segments, columns, client).of(DummyRegressor())
    seen, y, groups = cv.seen
    assert seen == ((6, 2) if wide else (6, 3))
    assert (client.asked, y.tolist(), groups) == (2 if wide else 1, [0, 1, 0, 1, 0, 1], None)


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
def test_numbers_of_groups_keep_all_digits(dtype):
    named = FRAME.assign(g=pd.Series(2**60 + np.arange(6)).astype(dtype))
    for given in ({"x": named, "label": "y", "groups": "g"}, {"x": X, "y": Y, "groups": named["g"]}):
        data = data_of(**given)
        groups = data.value[data.columns.groups]
        assert groups.dtype == np.int64
        assert groups.tolist() == named["g"].tolist()
