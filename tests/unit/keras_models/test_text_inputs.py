"""Text is refused where a model takes numbers, before anything runs."""

from __future__ import annotations

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

from dask_train.keras_models.text_inputs import check_text_inputs, check_texts


def of(**dtypes):
    """A model of named inputs, a number each, of these dtypes."""
    inputs = {name: keras.Input((1,), name=name, dtype=dtype) for name, dtype in dtypes.items()}
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()([*numbers(inputs), *numbers(inputs)])))


def numbers(inputs):
    return [
        keras.layers.StringLookup(vocabulary=["a"])(each) if each.dtype == "string" else each
        for each in inputs.values()
    ]


class Own(keras.Model):
    """Takes what it takes."""

    def call(self, x):
        return x


@pytest.mark.parametrize("texts", [False, [False], {"a": False}, None])
def test_numbers_are_no_text(texts):
    check_text_inputs(of(a="float32"), texts)


@pytest.mark.parametrize("texts", [True, [True], {"a": True}, [False, True]])
def test_text_for_a_model_of_numbers_is_refused_with_their_dtypes(texts):
    with pytest.raises(TypeError, match=r"^Its inputs are float32, int64, not text; make codes"):
        check_text_inputs(of(a="int64", b="float32"), texts)


def test_text_for_an_input_of_text_is_taken():
    check_text_inputs(of(a="string"), {"a": True})
    check_text_inputs(of(a="string", b="float32"), {"a": True, "b": False})


def test_of_several_inputs_the_one_that_takes_numbers_is_named():
    with pytest.raises(TypeError, match=r"^Its input 'b' is float32, not text; make codes"):
        check_text_inputs(of(a="string", b="float32"), {"a": True, "b": True})


def test_text_under_a_name_that_the_model_has_not_is_keras_affair():
    check_text_inputs(of(a="string"), {"a": True, "more": True})


@pytest.mark.parametrize("texts", [True, {"a": True}])
def test_inputs_of_a_subclassed_model_are_its_own_affair(texts):
    check_text_inputs(Own(), texts)


@pytest.mark.parametrize(
    ("y", "weight", "told"),
    [
        (True, None, "Its targets are text; make numbers of them, classes with .astype"),
        ({"a": False, "b": True}, None, "Its targets are text"),
        (False, True, "Its sample weights are text"),
    ],
)
def test_targets_and_weights_are_numbers(y, weight, told):
    with pytest.raises(TypeError, match=told):
        check_texts(Own(), False, y, weight)


def test_training_takes_numbers_and_texts_where_the_model_does():
    check_texts(of(a="string"), {"a": True}, False, None)
    with pytest.raises(TypeError, match="Its inputs are float32, not text"):
        check_texts(of(a="float32"), True, False, None)
