"""What a fit validates on is read as what it trains on, or split off of that."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from dask import array as da
from dask import compute, delayed
from scipy.sparse import dia_array

from dask_train.collections import shared
from dask_train.collections.partition import part
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.columns import Column
from dask_train.data.one_hot import OneHot
from dask_train.data.segment import Segment
from dask_train.fitting.data import rows_of, run_inputs, split_off, validation_of
from dask_train.inputs.making import Several, input_data
from dask_train.shared_data.segments import SharedSegments

FRAME = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "y": [0, 1], "w": [1.0, 0.5]})
X, Y = np.zeros((10, 3)), np.arange(10)


@pytest.mark.parametrize(("given", "weight"), [((X, Y), None), ([X, Y, np.ones(10)], 2)])
def test_validation_data_is_a_pair_or_has_weights_too(given, weight):
    layout = validation_of(given, None, None).columns
    assert (layout.features, layout.labels, layout.weights) == (0, 1, weight)


@pytest.mark.parametrize("num_parts", [1, 2, 3, 4])
def test_delayed_partitions_to_validate_on_are_no_columns_however_many_there_are(num_parts):
    found = validation_of([delayed(FRAME)] * num_parts, ["a", "b"], "y")
    assert (found.columns.features, found.columns.labels, len(found.value)) == (0, 1, num_parts)
    settings = SimpleNamespace(validation_data=[delayed(FRAME)] * num_parts, validates=True, sample_weight=None)
    data, found = rows_of(settings, FRAME, None, features=["a", "b"], label="y", known=None, missing=True)
    assert (data.columns.labels, len(found.value)) == (1, num_parts)


@pytest.mark.parametrize(("weight", "place"), [("w", 2), (np.ones(10), None)], ids=["name", "array of the data's rows"])
def test_weights_of_the_data_count_in_a_frame_to_validate_on_where_they_are_a_name(weight, place):
    assert validation_of(FRAME, ["a", "b"], "y", weight).columns.weights == place


def test_the_last_rows_are_split_off_as_keras_does():
    trained, validated = split_off(input_data("data", X, Y, None), 0.25)
    assert trained.value[1].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert validated.value[1].tolist() == [7, 8, 9]


def test_sparse_rows_are_split_off_in_any_format():
    trained, validated = split_off(input_data("data", dia_array(X), Y, None), 0.25)
    assert (trained.value[0].shape, validated.value[0].toarray().tolist()) == (X[:7].shape, X[7:].tolist())


@pytest.mark.parametrize("fraction", [0.95, 0.999])
def test_a_split_that_leaves_no_row_to_train_on_is_refused(fraction):
    with pytest.raises(ValueError, match="of 10 rows leaves one side without rows"):
        split_off(input_data("data", X, Y, None), fraction)


@pytest.mark.parametrize(
    "x", [FRAME, da.from_array(X)[da.from_array(Y) > 2]], ids=["a frame", "rows of unknown number"]
)
def test_rows_of_unknown_number_can_not_be_split(x):
    with pytest.raises(ValueError, match="needs arrays whose number of rows is known"):
        split_off(input_data("data", x, None, None), 0.2)


def test_frames_to_validate_on_are_made_like_the_data():
    frame = pd.DataFrame({"a": np.arange(3.0), "kind": pd.Categorical(["u", "v", "w"]), "y": np.arange(3)})
    other = pd.DataFrame({"y": [1], "kind": pd.Categorical(["w"]), "a": [0.5]})
    for named in ({"label": "y"}, {"features": ["a", "kind"], "label": "y"}):
        data = input_data("data", frame, None, None, **named)
        found = validation_of(other, *(named.get(name) for name in ("features", "label")), like=Conformer(data.schema))
        arrays = found.source("validation_data").arrays
        assert [each.compute(scheduler="sync").tolist() for each in arrays] == [[[0.5, 2.0]], [1]]
    data = input_data("data", frame[["a", "kind"]], frame["y"], None)
    found = validation_of((other[["kind", "a"]], other["y"]), None, None, like=Conformer(data.schema))
    assert found.value[0]["kind"].cat.codes.tolist() == [2]
    assert list(found.value[0].columns) == ["a", "kind"]


def test_decoded_labels_in_shared_memory_are_not_copied(pool):
    rows = {("part", number): Segment([np.ones((3, 2), "f4"), np.arange(3)]) for number in range(2)}
    columns = [Column(dtype="<f4", row_shape=(2,)), Column(dtype="<i8", row_shape=())]
    x, y = shared.arrays_of(rows, columns, (3, 3))
    data = input_data("data", x, shared.decoded(y, OneHot.of(np.arange(3))), None)
    assert [(column.dtype, column.row_shape) for column in data.columns] == [("<f4", (2,)), ("<f8", (3,))]
    source = run_inputs(data, None).data["worker"]
    assert isinstance(source, SharedSegments)
    assert list(source.futures) == list(rows.values())
    assert [column.in_batch.row_shape for column in source.schema] == [(2,), (3,)]


def of_carriers(carriers, *known):
    return pd.DataFrame({"carrier": pd.Categorical(carriers, known or None), "y": [0, 1]})


def validated_on(x, validation_data, known=None):
    settings = SimpleNamespace(validation_data=validation_data, validates=True, sample_weight=None)
    return rows_of(settings, x, None, features=["carrier"], label="y", known=known)[1]


def computed(data):
    parts = compute(*data.source("validation_data").delayed_parts(part, list), scheduler="sync")
    return [array.tolist() for array in parts[0]]


TRAINED, OTHERS = of_carriers(["AA", "UA"]), of_carriers(["AA", "UA"], "AA", "DL", "UA")


def test_categories_of_delayed_partitions_to_validate_on_are_found_by_value():
    assert computed(validated_on([delayed(TRAINED)], [delayed(OTHERS)])) == [[[0], [1]], [0, 1]]
    assert computed(validated_on([delayed(dict)(TRAINED)], [delayed(OTHERS)])) == [[[0], [1]], [0, 1]]
    assert computed(validated_on([delayed(TRAINED)], [delayed(OTHERS)], FrameSchema.of(OTHERS[["carrier"]]))) == [
        [[0], [2]],
        [0, 1],
    ]
    with pytest.raises(ValueError, match="Column 'carrier' of validation_data has 'DL'"):
        computed(validated_on([delayed(TRAINED)], [delayed(of_carriers(["AA", "DL"]))]))
    numbers = delayed(TRAINED.assign(carrier=[0, 1]))
    with pytest.raises(ValueError, match="Column 'carrier' of validation_data holds categories"):
        computed(validated_on([numbers], [delayed(OTHERS)]))


@pytest.mark.parametrize("x", [[delayed(TRAINED)], TRAINED.assign(carrier=[0, 1])], ids=["delayed", "numbers"])
def test_categories_to_validate_on_that_the_data_does_not_tell_are_refused(x):
    with pytest.raises((ValueError, TypeError), match=r"Column 'carrier' of validation_data (holds|is) categor"):
        validated_on(x, OTHERS)


def test_columns_of_delayed_partitions_to_validate_on_are_matched_by_name():
    def validated(frame, features=None):
        settings = SimpleNamespace(validation_data=frame, validates=True, sample_weight="w")
        return rows_of(settings, [delayed(FRAME)], None, features=features, label="y", known=None)[1]

    rows = FRAME[["a", "b"]].to_numpy().tolist()
    turned = FRAME[["w", "b", "y", "a"]]
    for frame in (turned, turned.assign(c=1)):
        assert computed(validated([delayed(frame)]))[0] == rows
    with pytest.raises(ValueError, match="validation_data has no column 'a' where the model was fitted with 'a', 'b'"):
        computed(validated([delayed(turned.rename(columns={"a": "c"}))]))
    for frame in (turned, (turned[["b", "a"]], turned["y"])):
        with pytest.raises(ValueError, match=r"validation_data is a frame, .* features=\['a', 'b'\]"):
            validated(frame)
        assert computed(validated(frame, ["a", "b"]))[0] == rows


def test_a_schema_says_which_categories_those_of_delayed_partitions_are():
    known = FrameSchema.of(OTHERS[["carrier"]])
    assert computed(validated_on([delayed(TRAINED)], of_carriers(["AA", "UA"]), known)) == [[[0], [2]], [0, 1]]


def test_persisted_arrays_are_inputs_beside_targets_of_their_own(pool):
    rows = {"part": Segment([np.ones((3, 2), "f4"), np.arange(3)])}
    columns = [Column(dtype="<f4", row_shape=(2,)), Column(dtype="<i8", row_shape=())]
    x, y = shared.arrays_of(rows, columns, (3,))
    found = input_data("data", (x, y), np.ones(3), None).columns
    assert (found.features, found.labels) == ((0, 1), 2)


def test_labels_are_matched_by_name():
    known = FrameSchema.of(FRAME, ["a"], ["y", "w"])
    for label in (["w", "y"], Several(["w", "y"])):
        data = input_data("data", FRAME, None, None, features=["a"], label=label, like=Conformer(known, learns=False))
        assert [column.name for column in data.schema.targets] == ["y", "w"]
