"""Models in ``.keras`` files: opened as Keras opens them, and refused in words where that can't be."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
import zipfile
from pathlib import Path

import fsspec
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

from dask_train.predicting.server.files import ModelFile, header_of, open_file, read_file

X = np.ones((3, 4), "f4")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A compiled model, and its file."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    path = tmp_path_factory.mktemp("models") / "saved.keras"
    model.save(path)
    return model, path


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Where temporary files go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("compiled", [True, False])
def test_a_file_is_the_model_that_was_saved_and_leaves_nothing(saved, places, compiled):
    model, path = saved
    found, digest = read_file(ModelFile(str(path)), compiled=compiled)
    np.testing.assert_array_equal(np.asarray(found(X)), np.asarray(model(X)))
    assert found.compiled is compiled
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert list(places.iterdir()) == []


def test_a_file_is_read_from_any_place_that_fsspec_opens(saved, places):
    model, path = saved
    with fsspec.open("memory://models/far.keras", "wb") as file:
        file.write(path.read_bytes())
    found, _ = read_file(ModelFile("memory://models/far.keras"), compiled=False)
    np.testing.assert_array_equal(np.asarray(found(X)), np.asarray(model(X)))
    fsspec.filesystem("memory").rm("/models", recursive=True)


def test_a_file_that_is_not_there_is_told_by_its_name(places):
    with pytest.raises(ValueError, match=r"Model file .*none\.keras can't be read: .*No such file") as told:
        read_file(ModelFile(str(places / "none.keras")), compiled=False)
    assert isinstance(told.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize(
    "data", [b"", b"no model", b"PK\x05\x06", None], ids=["empty", "text", "a beginning", "cut off"]
)
def test_a_file_that_is_not_whole_is_told_with_its_size(saved, places, data):
    data = saved[1].read_bytes()[:-100] if data is None else data
    (places / "part.keras").write_bytes(data)
    with pytest.raises(ValueError, match=rf"part\.keras \({len(data)} bytes\) is cut off, or no file that model\.save"):
        read_file(ModelFile(str(places / "part.keras")), compiled=False)


def test_a_file_that_is_damaged_is_told_with_the_part(saved, places):
    data = bytearray(saved[1].read_bytes())
    with zipfile.ZipFile(saved[1]) as parts:
        entry = parts.getinfo("model.weights.h5")
    data[entry.header_offset + 200] ^= 0xFF
    (places / "damaged.keras").write_bytes(data)
    with pytest.raises(ValueError, match=r"damaged\.keras \(\d+ bytes\) is damaged at 'model\.weights\.h5'"):
        read_file(ModelFile(str(places / "damaged.keras")), compiled=False)


def test_a_zip_file_of_something_else_is_no_model_and_its_own_name_is_told(places):
    with zipfile.ZipFile(places / "other.keras", "w") as parts:
        parts.writestr("readme.txt", "something")
    with pytest.raises(ValueError, match=r"other\.keras is no model that Keras opens: \w+: ") as told:
        read_file(ModelFile(str(places / "other.keras")), compiled=False)
    assert "model.keras" not in str(told.value), "the copy that Keras was given"
    assert [path.name for path in places.iterdir()] == ["other.keras"]


def test_a_host_without_room_is_told_with_the_folder(saved, places, monkeypatch):
    def full(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ValueError, match=rf"can't be put into {places}/.*: No space left on device\. Make room"):
        read_file(ModelFile(str(saved[1])), compiled=False)


def test_the_file_of_the_client_is_opened_elsewhere(saved):
    model, path = saved
    _, digest = read_file(ModelFile(str(path)), compiled=True)
    for compiled in (True, False):
        found = open_file(header_of(ModelFile(str(path)), digest, compiled=compiled))
        np.testing.assert_array_equal(np.asarray(found(X)), np.asarray(model(X)))
        assert found.compiled is compiled


def test_another_file_under_that_name_is_refused(saved, places):
    path = places / "changing.keras"
    path.write_bytes(saved[1].read_bytes())
    _, digest = read_file(ModelFile(str(path)), compiled=False)
    keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]).save(path)
    with pytest.raises(ValueError, match=r"changing\.keras has changed since the prediction was asked for"):
        open_file(header_of(ModelFile(str(path)), digest, compiled=False))
