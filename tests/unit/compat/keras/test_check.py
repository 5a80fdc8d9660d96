"""A version of Keras that has moved what the library uses is told by what it lacks."""

from __future__ import annotations

import importlib
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

from keras.src.losses import loss

from dask_train.compat.keras import check
from dask_train.compat.keras.check import check_private_parts
from dask_train.errors import VersionMismatchError


@pytest.fixture
def model():
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("adam", "mse", metrics=["mae"])
    return made


def test_this_version_has_all_of_them_also_for_models_of_which_there_is_less(model):
    check_private_parts(model)
    without = keras.Sequential([keras.layers.Flatten()])
    without.compile("sgd")
    check_private_parts(without)


@pytest.mark.parametrize("owner", ["model", "layer", "optimizer", "variable", "losses that are compiled"])
def test_what_an_object_lacks_is_told_with_its_class(model, owner, monkeypatch):
    monkeypatch.setitem(check.ATTRIBUTES, owner, ("_name_of_another_version",))
    kind = {
        "model": "Sequential",
        "layer": "Sequential",
        "optimizer": "Adam",
        "variable": "Variable",
        "losses that are compiled": "CompileLoss",
    }[owner]
    with pytest.raises(VersionMismatchError, match=rf"a {kind} has no _name_of_another_version") as told:
        check_private_parts(model)
    assert f"Keras {keras.__version__} is none that fit can train with" in str(told.value)
    assert told.value.cause
    assert told.value.change


def test_modules_that_are_gone_and_names_that_they_lack_are_told_at_once(model, monkeypatch):
    monkeypatch.delattr(loss, "apply_mask")

    def gone(name):
        if name == "keras.src.backend":
            raise ModuleNotFoundError(name)
        return importlib.import_module(name)

    monkeypatch.setattr(check, "import_module", gone)
    with pytest.raises(
        VersionMismatchError, match=r"there is no keras\.src\.backend; keras\.src\.losses\.loss has no apply_mask\."
    ):
        check_private_parts(model)


def test_a_function_that_takes_something_else_would_not_be_replaced_alike(model, monkeypatch):
    monkeypatch.setattr(loss, "reduce_weighted_values", lambda values, weight: values)
    with pytest.raises(VersionMismatchError, match="reduce_weighted_values does not take values, sample_weight, mask"):
        check_private_parts(model)


@pytest.mark.parametrize(
    ("owner", "name", "told"),
    [
        (keras.losses.Loss, "__call__", "Loss.__call__ does not use reduce_weighted_values"),
        (keras.Model, "compute_loss", "Model.compute_loss does not use _aggregate_additional_loss"),
        (keras.Model, "evaluate", "Model.evaluate does not use test_function"),
        (keras.Model, "fit", "Model.fit does not use train_function"),
    ],
)
def test_what_keras_would_pass_by_is_told(model, owner, name, told, monkeypatch):
    monkeypatch.setattr(owner, name, lambda self, *given, **more: 0.0)
    with pytest.raises(VersionMismatchError, match=told):
        check_private_parts(model)
