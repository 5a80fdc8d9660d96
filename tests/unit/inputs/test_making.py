"""What users pass for inputs, targets and weights becomes one value, or is refused before anything is computed."""

from __future__ import annotations

from types import SimpleNamespace

import dask
import numpy as np
import pandas as pd
import pytest
from dask import array as da
from dask import bag as db
from dask import dataframe as dd

from dask_train.collections.schema.category import CategoryColumn
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.collections.schema.plain import NumberColumn
from dask_train.data.columns import Column, Columns
from dask_train.inputs.making import Several, columns_for, input_data, names_columns
from dask_train.shared_data.segments import SharedSegments
from dask_train.spelling import spelled

FRAME = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "y": [0, 1], "w": [1.0, 0.5]})
TORN = FRAME.assign(kind=pd.Categorical(["u", None]), other=pd.Categorical(["v", "w"]))
X, Y = np.zeros((10, 3)), np.arange(10)


def published(*row_shapes, names=None, frames=()):
    """A data set in shared memory, with columns of these shapes."""
    columns = tuple(Column(dtype="<f8", row_shape=shape) for shape in row_shapes)
    schema = Columns(columns=columns, names=names, is_tuple=names is None)
    return SimpleNamespace(segments=SharedSegments(schema=schema, lengths=np.array([10]), futures=(), frames=frames))


def test_arrays_are_numbered_in_the_order_of_inputs_targets_and_weights():
    data = input_data("data", {"left": X, "right": X[:, :1]}, Y, np.ones(10))
    assert data.columns.features == {"left": 0, "right": 1}
    assert (data.columns.labels, data.columns.weights) == (2, 3)
    assert [column.row_shape for column in data.columns] == [(3,), (1,), (), ()]


@pytest.mark.parametrize(
    "x",
    [FRAME, da.zeros((10, np.nan), chunks=((10,), (np.nan,)))],
    ids=["a frame", "columns of unknown number"],
)
def test_columns_that_only_computing_tells_are_not_guessed(x):
    assert not input_data("data", x, Y, None).columns.are_known


def test_no_inputs_are_refused():
    with pytest.raises(ValueError, match="data: there are no inputs"):
        input_data("data", None, Y, None)


@pytest.mark.parametrize(
    "x",
    [
        db.from_sequence([{"a": 1.0, "y": 2.0}], npartitions=1),
        [dask.delayed(np.ones)(2)],
        {"a": dask.delayed(np.ones)(2)},
    ],
    ids=["a bag", "partitions", "a column"],
)
def test_what_tells_its_columns_when_it_is_computed_needs_their_names(x):
    with pytest.raises(TypeError, match=r"data is a bag or has delayed results.*features=\['a', 'b'\], label='y'"):
        input_data("data", x, None, None)


@pytest.mark.parametrize(("y", "weight"), [(Y, None), (Y, "w"), (None, np.ones(2))])
def test_arrays_beside_names_of_columns_are_refused(y, weight):
    with pytest.raises(ValueError, match="leave y and sample_weight out, or name the column of weights"):
        input_data("data", FRAME, y, weight, features=["a"])


@pytest.mark.parametrize(
    ("what", "says"), [("data", r"y is 'y'.* pass label='y'"), ("validation_data", r"'y' beside a frame.* frame alone")]
)
def test_the_name_of_a_column_in_place_of_targets_is_refused(what, says):
    with pytest.raises(TypeError, match=says):
        input_data(what, FRAME, "y", None)


@pytest.mark.parametrize(
    ("x", "named", "codes"),
    [
        (TORN, {"features": ["a", "kind"], "label": "y"}, {0: [(1, "kind")]}),
        (
            TORN,
            {"features": {"one": "kind", "both": ["a", "other", "kind"]}},
            {0: [(0, "kind")], 1: [(1, "other"), (2, "kind")]},
        ),
        (TORN[["a", "kind"]], {}, {0: [(1, "kind")]}),
        (TORN, {"features": ["a"]}, {}),
        (FRAME, {}, {}),
        (X, {}, {}),
    ],
)
def test_where_codes_of_categories_are_is_known(x, named, codes):
    like = Conformer(None, missing=True)
    assert input_data("data", x, None, None, like=like, **named).codes == codes


def test_names_choose_inputs_targets_and_weights_of_a_frame():
    data = input_data("data", FRAME, None, "w", features={"one": "a", "both": ["a", "b"]}, label="y")
    assert (data.columns.features, data.columns.labels, data.columns.weights) == ({"one": 0, "both": 1}, 2, 3)
    assert data.source("data") is data.opened


def test_a_list_of_labels_is_one_matrix_and_several_are_one_target_each():
    assert input_data("data", FRAME, None, None, features="a", label=["b", "y"]).columns.labels == 1
    assert input_data("data", FRAME, None, None, features="a", label=Several(["b", "y"])).columns.labels == [1, 2]


@pytest.mark.parametrize("label", ["y", ["b", "y"], {"out": "y"}])
def test_a_label_that_is_a_feature_too_is_refused(label):
    with pytest.raises(ValueError, match="'y' of data is the label and one of the features too"):
        input_data("data", FRAME, None, None, features=["a", "y"], label=label)


def test_features_that_are_left_out_are_all_columns_without_another_use():
    columns = input_data("data", FRAME, None, "w", label="y").columns
    assert [column.row_shape for column in columns] == [(2,), (), ()]


@pytest.mark.parametrize(
    ("weight", "named"),
    [("w", True), ({"out": "w"}, True), ({}, False), ({"out": Y}, False), ({"a": "w", "b": Y}, False), (None, False)],
    ids=["name", "a name each", "no output", "arrays", "both", "none"],
)
def test_weights_are_given_by_name_only_where_all_are_names(weight, named):
    assert names_columns(weight) is named


def test_a_published_pair_is_inputs_and_targets():
    layout = input_data("data", published((3,), ()), None, None).columns
    assert (layout.features, layout.labels, layout.weights) == (0, 1, None)


def test_published_columns_mean_what_they_are_called():
    layout = input_data("data", published((), (), (3,), names=("y", "sample_weight", "x")), None, None).columns
    assert (layout.features, layout.labels, layout.weights) == (2, 0, 1)


def test_batches_of_a_published_dict_are_tuples_in_a_run():
    schema = input_data("data", published((3,), (), names=("x", "y")), None, None).source("data").schema
    assert (schema.names, schema.is_tuple) == (None, True)


@pytest.mark.parametrize("names", [("a", "y"), ("y", "sample_weight"), ("x", "target")])
def test_published_columns_of_which_nobody_knows_the_inputs_are_refused(names):
    with pytest.raises(ValueError, match=f"columns of that data set are {', '.join(names)}; which of them are inputs"):
        input_data("data", published((), (), names=names), None, None)


def test_a_published_tuple_has_three_columns_at_most():
    assert input_data("data", published((3,), (), ()), None, None).columns.weights == 2
    with pytest.raises(ValueError, match="that data set has 4 columns"):
        input_data("data", published((3,), (), (), ()), None, None)


@pytest.mark.parametrize("others", [(Y, None), (None, np.ones(10))], ids=["targets", "weights"])
def test_nothing_goes_beside_a_published_data_set(others):
    with pytest.raises(ValueError, match="a published data set has inputs, targets and weights together"):
        input_data("data", published((3,), ()), *others)


def test_names_of_published_columns_become_their_numbers():
    data = input_data("data", published((), (), (), names=("t", "a", "b")), None, None, features={"in": "b"}, label="t")
    assert (data.columns.features, data.columns.labels) == ({"in": 2}, 0)


def test_published_columns_without_a_name_are_known_by_their_place():
    kind = CategoryColumn.of_names(None, ["u", "v"])
    frames = tuple(FrameSchema(columns=(column,)) for column in (NumberColumn(name=None, dtype="float64"), kind))
    given = published((), (), names=("n", "k"), frames=frames)
    features = {"in": "n", "other": "k"}
    schema = input_data("data", given, None, None, features=features).schema
    assert schema.inputs == {"in": [None], "other": [None]}
    like = Conformer(schema, learns=False)
    assert input_data("data", given, None, None, features=features, like=like).schema == schema
    single = input_data("data", given, None, None, features="k").schema
    assert (single.columns, single.features, single.inputs) == ((kind,), None, None)


def test_published_columns_are_not_put_together_as_a_matrix():
    with pytest.raises(ValueError, match=r"so \['a', 'b'\] can't be one matrix"):
        input_data("data", published((), (), names=("a", "b")), None, None, features=["a", "b"])


def model_of(inputs, num_outputs=1):
    return SimpleNamespace(_inputs_struct=inputs, outputs=[None] * num_outputs)


@pytest.mark.parametrize("features", [None, ["b", "a"]], ids=["left out", "the same names"])
def test_a_frame_gives_a_column_to_each_input_of_its_name(features):
    assert columns_for(model_of({"a": None, "b": None}), FRAME, None, features, "y")[0] == {"a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("x", "y", "features"),
    [(FRAME, None, ["a"]), (FRAME, None, "a"), (FRAME, Y, None), ({"a": X, "b": X}, None, None)],
    ids=["other names", "one name", "targets beside", "no frame"],
)
def test_features_stay_as_given_where_inputs_are_not_columns_by_name(x, y, features):
    assert columns_for(model_of({"a": None, "b": None}), x, y, features, None)[0] == features


def test_a_frame_without_the_column_of_an_input_is_told_which_inputs_there_are_and_how_to_name_columns():
    model = SimpleNamespace(_inputs_struct={"a": None, "speed": None}, outputs=[None], name="net")
    with pytest.raises(ValueError, match=r"'net' has the inputs 'a', 'speed'.* x has no column 'speed'\. It has 'a'"):
        columns_for(model, FRAME, None, None, None)
    with pytest.raises(ValueError, match=r"INPUT has no .* features=\{'a': 'a', 'speed': \.\.\.\}; or pass schema="):
        columns_for(model, FRAME, None, None, None, what="INPUT")
    with spelled({"x": "INPUT"}), pytest.raises(ValueError, match=r"INPUT has no column 'speed'.* with result\.save"):
        columns_for(model, FRAME, None, None, None)


def test_a_list_of_labels_is_a_target_for_each_of_several_outputs():
    assert isinstance(columns_for(model_of([]), FRAME, None, "a", ["b", "y"])[1], list)
    assert isinstance(columns_for(model_of([], 2), FRAME, None, "a", ["b", "y"])[1], Several)
    with pytest.raises(ValueError, match="names 2 columns, and the model has 3 outputs"):
        columns_for(model_of([], 3), FRAME, None, "a", ["b", "y"])


def test_labels_of_categories_are_all_there_however_they_are_passed():
    kinds = pd.Categorical(["u", None, "v", "u"])
    torn = pd.DataFrame({"a": np.arange(4.0), "kind": kinds})
    for frame in (torn.dropna(), dd.from_pandas(torn.dropna(), npartitions=2)):
        for data in (
            input_data("data", frame, None, None, features=["a"], label="kind"),
            input_data("data", frame[["a"]], frame["kind"], None),
        ):
            assert [column.dtype for column in data.source("data").columns] == ["<f8", "<i8"]
    for given in ((torn, None, {"features": ["a"], "label": "kind"}), (torn[["a"]], torn["kind"], {})):
        with pytest.raises(ValueError, match="1 labels of data are missing: column 'kind'"):
            input_data("data", *given[:2], None, **given[2])
    with pytest.raises(ValueError, match=r"1 values of column 'kind' of data are missing.*add_categories\('missing'\)"):
        input_data("data", torn, None, None, features=["kind"], label="a")
    assert input_data("data", torn[["kind"]], torn["a"], None, like=Conformer(None, coded=False)).columns.labels == 1, (
        "frames stay as they are"
    )


def test_a_schema_is_of_the_columns_that_are_used():
    frame = pd.DataFrame({"a": np.arange(3.0), "kind": pd.Categorical(["u", "v", "w"]), "y": np.arange(3)})
    for given in (frame, dd.from_pandas(frame, npartitions=1)):
        schema = input_data("data", given, None, None, features=["kind", "a"], label="y").schema
        assert schema == FrameSchema.of(frame, features=["kind", "a"], label="y")
        assert schema.categories == {"kind": ["u", "v", "w"]}
        assert input_data("data", given, None, None, label="y").schema.features == ["a", "kind"]
        assert input_data("data", given, None, None, features=["a"], label="y").schema.categories == {}
        assert input_data("data", given[["a"]], given["kind"], None).schema.categories == {"kind": ["u", "v", "w"]}
    assert input_data("data", X, Y, None).schema is None


@pytest.mark.parametrize("kind", [lambda frame: frame, lambda frame: dd.from_pandas(frame, npartitions=1)])
def test_categories_in_a_dict_of_columns_count_as_those_of_a_frame(kind):
    frame = pd.DataFrame({"kind": pd.Categorical(["u", None]), "y": [1, 2]})
    given = {name: kind(frame)[name] for name in frame}

    def computed():
        return dask.compute(input_data("data", given, None, None, features="kind", label="y").value, scheduler="sync")

    with pytest.raises(ValueError, match="values of column 'kind' of data are missing"):
        computed()


def test_nobody_knows_the_categories_of_a_model_that_learns_none_here():
    frame = pd.DataFrame({"kind": pd.Categorical(["u", "v"]), "y": [1, 2]})
    with pytest.raises(ValueError, match=r"Column 'kind' of data holds categories.*schema=result.schema"):
        input_data("data", frame, None, None, label="y", like=Conformer(None, learns=False))
    with pytest.raises(ValueError, match="Column 'kind' of data holds categories"):
        input_data("data", frame, None, None, features="y", label="kind", like=Conformer(None, learns=False))
    input_data("data", frame, None, None, label="y", like=Conformer(FrameSchema.of(frame, label="y"), learns=False))


def test_columns_of_a_dict_are_known_by_their_keys():
    kinds = [pd.Series(pd.Categorical([*values], [*values]), name=name) for values, name in (("uv", "d"), ("vu", None))]
    rows = {"c": kinds[0], "e": kinds[1], "n": np.ones(2), "y": pd.Series([0, 1])}
    features = {"one": "c", "two": "e", "three": "n"}
    data = input_data("data", rows, None, None, features=features, label="y")
    assert data.schema.inputs == {"one": ["c"], "two": ["e"], "three": None}
    given = {name: rows[key] for name, key in features.items()}
    turned = {**given, "two": kinds[0].rename(None)}
    found = input_data("validation_data", turned, Y[:2], None, like=Conformer(data.schema, learns=False)).value
    assert [list(each.cat.categories) for each in found[:2]] == [["u", "v"], ["v", "u"]]


def test_numbers_in_a_dict_do_not_get_the_only_categories_that_are_known():
    like = Conformer(FrameSchema(columns=(CategoryColumn.of_names("c", ["u", "v"]),)))
    rows = {"c": pd.Series(pd.Categorical(["u", "v"])), "d": pd.Series([1.0, 2.0]), "y": Y[:2]}
    found = input_data("data", rows, None, None, features={"one": "c", "two": "d"}, label="y", like=like).value
    assert found["d"] is rows["d"]
