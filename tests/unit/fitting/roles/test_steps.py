"""What a batch is made into before a step."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

from dask_train.errors import DataError
from dask_train.fitting.checks import check_weights
from dask_train.fitting.roles.steps import check_class_numbers, weights_of
from dask_train.inputs.making import input_data

SIGNS = np.array([-1, 1, 1, -1, 0])


@pytest.mark.parametrize(
    "y",
    [
        SIGNS,
        SIGNS.astype("f4"),
        SIGNS[:, None],
        SIGNS[:, None].astype("f8"),
        SIGNS.astype("i1") + np.int8(3),
        SIGNS > 0,
        (SIGNS > 0)[:, None],
        np.array([0.4, 0.6, 1.5, 2.5, -0.4]),
        np.array([[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]]),
        np.eye(4, dtype="i8")[[3, 0, 2, 1]],
        np.eye(3, dtype=bool)[[2, 0, 1]],
        np.array([7, 2**20, -5]),
        np.zeros(0, "i8"),
    ],
    ids=lambda y: f"{y.dtype}{y.shape}",
)
@pytest.mark.parametrize(
    "class_weight",
    [
        {1: 5.0},
        {-1: 2.0, 0: 0.5},
        dict(zip(np.unique(SIGNS), [3.0, 1.5, 2.5], strict=True)),
        {0.0: 3.0, np.float32(2.0): np.float32(0.25)},
        {True: 4, False: 0},
        {},
    ],
    ids=str,
)
def test_class_weights_are_those_of_keras(y, class_weight):
    checked = check_weights(class_weight, None, input_data("data", np.zeros((len(y), 2)), y, None))
    found = weights_of(keras.ops.convert_to_tensor(y), checked)
    np.testing.assert_array_equal(found, class_weight_to_sample_weights(y, class_weight))
    assert found.dtype == keras.config.floatx()


def test_rows_of_several_classes_have_no_class_weight():
    with pytest.raises(DataError, match=r"rows have targets of shape \(3, 2\)"):
        weights_of(np.zeros((5, 3, 2)), {0: 2.0})


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        (["a", "b"], "labels that are text, b'a' for one, and the loss takes class numbers"),
        ([0, 3], "labels from 0 to 3, and the model tells 3 classes apart"),
        ([-1.0, 2.0], "labels from -1.0 to 2.0"),
    ],
)
def test_labels_are_numbers_of_classes(labels, match):
    with pytest.raises(DataError, match=match):
        check_class_numbers(keras.ops.convert_to_tensor(labels), 3)
    check_class_numbers(keras.ops.convert_to_tensor([0, 2]), 3)
