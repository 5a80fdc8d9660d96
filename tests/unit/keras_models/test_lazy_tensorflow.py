"""Keras serializes without importing TensorFlow, and still knows what belongs to it where it has been imported."""

from __future__ import annotations

import sys

import keras
import pytest
from keras.src.saving import serialization_lib

from dask_train.keras_models.lazy_tensorflow import spare_tensorflow


class Lazy:
    """As Keras' own: imports TensorFlow when it is asked whether that is there."""

    def __init__(self):
        self.imports = 0

    @property
    def available(self):
        self.imports += 1
        return True

    class TensorShape:
        _dims = (3, None)

        def as_list(self):
            return list(self._dims)

    class DType:
        name = "float32"

    class TypeSpec:
        pass


@pytest.fixture
def lazy(monkeypatch):
    found = Lazy()
    monkeypatch.setattr(serialization_lib, "tf", found)
    return found


def test_what_nothing_has_imported_is_not_imported(lazy, monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    told = keras.saving.serialize_keras_object(keras.layers.Dense(3, name="dense"))
    imports = lazy.imports
    spare_tensorflow()
    assert keras.saving.serialize_keras_object(keras.layers.Dense(3, name="dense")) == told
    assert imports > 0
    assert lazy.imports == imports


def test_what_belongs_to_it_is_known_once_it_is_imported(lazy, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", lazy)
    spare_tensorflow()
    assert keras.saving.serialize_keras_object(Lazy.TensorShape()) == [3, None]
    assert keras.saving.serialize_keras_object(Lazy.DType()) == "float32"


def test_it_is_done_once(lazy):
    spare_tensorflow()
    once = serialization_lib.tf
    spare_tensorflow()
    assert once is not lazy
    assert serialization_lib.tf is once


@pytest.mark.parametrize("found", [None, sys], ids=["nothing", "a module"])
def test_a_keras_that_looks_in_another_way_is_left_as_it_is(monkeypatch, found):
    monkeypatch.setattr(serialization_lib, "tf", found)
    spare_tensorflow()
    assert serialization_lib.tf is found
