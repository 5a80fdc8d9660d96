"""Keras models of files, on each backend: those of decoded arrays, with prediction, evaluation and search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.bag
import keras
import numpy as np
import pytest
from distributed import Client
from keras import layers
from PIL import Image

import dask_train as dt

pytestmark = [pytest.mark.backends]

FILES = 90
SHADES = np.random.default_rng(0).integers(0, 80, (FILES, 6, 6, 3), np.uint8)
CLASSES = np.arange(FILES) // 30
for _number, _class in enumerate(CLASSES):
    SHADES[_number, 2 * _class : 2 * _class + 2] += 150


@pytest.fixture(scope="module")
def client(local_clusters):
    """Two Dask workers."""
    with local_clusters() as make, Client(make(n_workers=2, threads_per_worker=2)) as one:
        yield one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Coloured pictures of three classes."""
    for number, shades in enumerate(SHADES):
        path = tmp_path / f"class {CLASSES[number]}" / f"{number:03}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(shades).save(path)
    return tmp_path


def network() -> Any:
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [layers.Input((6, 6, 3)), layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(3, activation="softmax")]
    )
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_model_is_that_of_decoded_arrays(client, folder, workers):
    files = dt.files(folder / "*" / "*.png", label="folder")
    settings = {"epochs": 3, "batch_size": 20, "shuffle": False, "verbose": 0}
    wanted, model = network(), network()
    history = wanted.fit(SHADES, CLASSES, validation_data=(SHADES, CLASSES), **settings).history
    result = dt.fit(model, files, validation_data=files, workers=workers, client=client, **settings)
    for one, other in zip(model.get_weights(), wanted.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    for name, values in history.items():
        assert result.history[name] == pytest.approx(values, rel=1e-3)
    assert result.ledger.trained == 3 * FILES


def test_files_are_evaluated_and_predicted(client, folder):
    files, model = dt.files(folder / "*" / "*.png", label="folder"), network()
    wanted = model.evaluate(SHADES, CLASSES, return_dict=True, verbose=0)
    assert dt.evaluate(model, files, client=client, verbose=0) == pytest.approx(wanted, rel=1e-4)
    predicted = dt.predict(model, files, client=client)
    assert predicted.shape == (FILES, 3)
    np.testing.assert_allclose(predicted.compute(), model.predict(SHADES, verbose=0), rtol=1e-4)
    with pytest.raises(ValueError, match=r"x is a FileRows, which has its labels\. Leave y out"):
        dt.evaluate(model, files, CLASSES, client=client)


@pytest.mark.parametrize("workers", [0, 3])
def test_a_model_of_tfrecords_is_that_of_arrays(client, folder, tmp_path_factory, workers):
    place = tmp_path_factory.mktemp("tfrecords")
    paths = sorted(folder.glob("*/*.png"))
    rows = [{"image": path.read_bytes(), "class": path.parent.name} for path in paths]
    dt.to_tfrecords(place, dask.bag.from_sequence(rows, npartitions=4))
    names = sorted({row["class"] for row in rows})
    records = dt.tfrecords(place / "*.tfrecord", features="image", label="class", classes=names)
    settings = {"epochs": 2, "batch_size": 20, "shuffle": False, "verbose": 0}
    wanted, model = network(), network()
    wanted.fit(SHADES, CLASSES, **settings)
    result = dt.fit(model, records, validation_data=records, workers=workers, client=client, **settings)
    assert (result.schema.classes, result.ledger.trained) == (names, 2 * FILES)
    predicted = dt.predict(model, records, client=client).compute()
    np.testing.assert_allclose(predicted, wanted.predict(SHADES, verbose=0), rtol=1e-3, atol=1e-4)
    scores = dt.evaluate(model, records, client=client, verbose=0)
    assert scores["loss"] == pytest.approx(result.history["val_loss"][-1], rel=1e-3)


def test_names_of_classes_go_with_a_saved_model(client, folder, tmp_path_factory):
    files, model = dt.files(folder / "*" / "*.png", label="folder"), network()
    result = dt.fit(model, files, epochs=1, batch_size=30, workers=2, client=client, verbose=0)
    assert result.schema.classes == list(files.classes)
    saved = tmp_path_factory.mktemp("saved") / "model.keras"
    result.save(saved)
    unnamed = dt.files(folder / "*" / "*.png")
    frame = unnamed.with_paths(dt.predict(saved, unnamed, client=client), result.schema.classes)
    found = frame.compute()
    assert (found.index.tolist(), list(found.columns)) == (list(files.paths), list(files.classes))
    np.testing.assert_allclose(found.to_numpy(), model.predict(SHADES, verbose=0), rtol=1e-4)
    assert dt.evaluate(saved, files, client=client, verbose=0) == pytest.approx(
        model.evaluate(SHADES, CLASSES, return_dict=True, verbose=0), rel=1e-4
    )
    others = dt.files(folder / "*" / "*.png", label="folder", classes=sorted(files.classes, reverse=True))
    with pytest.raises(ValueError, match=r"The classes of x are 'class 2'.*, and the model knows 'class 0'"):
        dt.evaluate(saved, others, client=client)
    with pytest.raises(ValueError, match="The classes of data are 'class 2'"):
        dt.fit(model, others, workers=2, client=client)


def test_trials_train_on_files(client, folder):
    def build(trial: Any) -> Any:
        trial.suggest_float("unused", 0, 1)
        return network()

    train, test = dt.files(folder / "*" / "*.png", label="folder").split(0.3)
    found = dt.search(
        build, train, validation_data=test, metric="val_accuracy", trials=1, epochs=4, client=client, progress=False
    )
    assert found.best_value > 0.9
