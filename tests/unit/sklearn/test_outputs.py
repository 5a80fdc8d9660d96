"""What a network's outputs mean to scikit-learn: the same of arrays and of Dask's blocks."""

from __future__ import annotations

from types import SimpleNamespace

import dask
import numpy as np
import pytest
from dask import array as da
from scipy.special import expit, softmax

from dask_train.sklearn.outputs import check_units, labels, link_of, margins, one_target, probabilities, shape_of

RAW = np.array([[0.2, 0.5, 0.3], [0.7, 0.1, 0.2], [0.0, 0.4, 0.6], [0.1, 0.2, 0.7]], "f4")
BLOCKS = da.from_array(RAW, chunks=(3, 2))  # rows lie in two blocks each
CLASSES = np.array(["a", "b", "c"])


@pytest.mark.parametrize("raw", [RAW, BLOCKS], ids=["array", "blocks"])
def test_the_label_is_the_class_of_the_largest_output(raw):
    found = labels(raw, CLASSES)
    assert (found.shape, found.dtype) == ((4,), CLASSES.dtype)
    assert np.asarray(found).tolist() == ["b", "a", "c", "c"]


@pytest.mark.parametrize("raw", [RAW, BLOCKS], ids=["array", "blocks"])
@pytest.mark.parametrize(
    ("link", "wanted"),
    [
        (None, RAW),
        ("softmax", softmax(RAW, axis=1)),
        ("sigmoid", expit(RAW) / expit(RAW).sum(axis=1, keepdims=True)),
    ],
)
def test_probabilities_are_by_the_link_and_rows_sum_to_1(raw, link, wanted):
    found = probabilities(raw, 3, link)
    assert (found.shape, found.dtype) == ((4, 3), RAW.dtype)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(found).sum(axis=1), 1, rtol=1e-5)


def test_a_row_without_any_probability_has_the_same_of_each_class():
    assert probabilities(np.array([[0.0, 0.0], [0.0, 0.5]]), 2, None).tolist() == [[0.5, 0.5], [0.0, 1.0]]


@pytest.mark.parametrize("raw", [[[-0.1, 0.5]], [[1.1, 0.0]]], ids=["below 0", "above 1"])
def test_outputs_that_are_no_probabilities_are_refused(raw):
    with pytest.raises(ValueError, match=r"are no probabilities\. End it with a softmax"):
        probabilities(np.array(raw), 2, None)


def test_what_is_above_1_by_rounding_is_a_probability():
    assert probabilities(np.array([[1.000005, 0.0]]), 2, None).tolist() == [[1.0, 0.0]]


def test_the_error_of_a_dask_array_comes_when_it_is_computed():
    late = probabilities(BLOCKS - 1, 3, None)
    with pytest.raises(ValueError, match="are no probabilities"), dask.config.set(scheduler="synchronous"):
        late.compute()


@pytest.mark.parametrize("ask", [lambda raw: labels(raw, CLASSES[:2]), lambda raw: probabilities(raw, 2, None)])
def test_a_number_for_each_class_is_needed(ask):
    with pytest.raises(ValueError, match=r"makes \(3,\) numbers of each row, and there are 2 classes"):
        ask(RAW)


def test_a_row_of_one_number_is_not_enough_for_two_classes():
    check_units((2,), 2)
    with pytest.raises(ValueError, match=r"units=2, also for two classes"):
        check_units((1,), 2)


def test_a_margin_is_what_the_second_class_has_more():
    assert margins(np.array([[1.0, 3.0], [2.0, -1.0]])).tolist() == [2.0, -3.0]
    with pytest.raises(ValueError, match="there are 2 classes"):
        margins(RAW)


def test_one_target_is_one_number_a_row():
    assert one_target(RAW[:, :1]).shape == (4,)


@pytest.mark.parametrize("raw", [RAW, RAW[:, 0], RAW[:, :1, None]], ids=["three", "no column", "a matrix"])
def test_other_numbers_are_no_single_target(raw):
    with pytest.raises(ValueError, match="and y had one target"):
        one_target(raw)


class BinaryCrossentropy:
    from_logits = True


class CategoricalCrossentropy:
    from_logits = True


def test_the_loss_tells_what_makes_probabilities():
    assert link_of(BinaryCrossentropy()) == "sigmoid"
    assert link_of(CategoricalCrossentropy()) == "softmax"


@pytest.mark.parametrize("loss", ["mse", None, SimpleNamespace(from_logits=False)])
def test_outputs_of_other_losses_are_probabilities_already(loss):
    assert link_of(loss) is None


class NotBuilt:
    @property
    def outputs(self):
        raise ValueError("no layer knows its inputs")


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (SimpleNamespace(outputs=[np.zeros((1, 3))]), (3,)),
        (SimpleNamespace(outputs=[np.zeros((1, 3))] * 2), None),
        (SimpleNamespace(), None),
        (NotBuilt(), None),
    ],
    ids=["one array", "several", "a subclass", "not built"],
)
def test_the_shape_of_a_row_of_outputs_is_known_of_one_array_of_a_built_model(model, shape):
    assert shape_of(model) == shape
