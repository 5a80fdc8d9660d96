"""What ``result.save`` has written predicts as the model did, on frames whose columns and codes are others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost

import dask_train as dt
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.fitting.saved import save_model
from dask_train.predicting.saved_models import opened_model

CODES = np.arange(60) % 3
FRAME = pd.DataFrame({"kind": pd.Categorical.from_codes(CODES, ["u", "v", "w"]), "a": 0.5, "y": CODES % 2})
SUBSET = FRAME[FRAME["kind"] != "u"].assign(kind=lambda frame: frame["kind"].cat.remove_unused_categories())
LATER = SUBSET[["a", "kind"]]
SCHEMA = FrameSchema.of(FRAME, ["kind", "a"], "y")


def keras_model() -> Any:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def torch_module() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, 1, dtype=torch.float64), torch.nn.Flatten(0))


def xgboost_classifier() -> Any:
    model = xgboost.XGBClassifier(n_estimators=3, enable_categorical=True, n_jobs=1)
    return model.fit(FRAME[["kind", "a"]], FRAME["y"])


def lightgbm_classifier() -> Any:
    model = lightgbm.LGBMClassifier(n_estimators=3, min_child_samples=1, verbose=-1, n_jobs=1)
    return model.fit(FRAME[["kind", "a"]], FRAME["y"].map({0: "no", 1: "yes"}))


MAKES = [keras_model, torch_module, xgboost_classifier, lightgbm_classifier]
FILES = ["model.keras", "model.pt", "model.ubj", "model.pickle"]


@pytest.mark.parametrize(("make", "file"), list(zip(MAKES, FILES, strict=True)))
def test_a_saved_model_predicts_as_it_did(make: Any, file: str, tmp_path: Path) -> None:
    model, path = make(), tmp_path / "saved"
    save_model(model, SCHEMA, path)
    save_model(model, SCHEMA, path)  # what was there is replaced
    assert sorted(each.name for each in path.iterdir()) == sorted([file, "schema.json"])
    right = dt.predict(model, FRAME, schema=SCHEMA).compute(scheduler="threads")[SUBSET.index]
    for place in (path, f"file://{path}"):
        found = dt.predict(place, LATER).compute(scheduler="threads")
        pd.testing.assert_series_equal(found, right)
    assert opened_model(path, None)[1] == FrameSchema.load(path) == SCHEMA


def test_a_keras_file_has_its_schema_within(tmp_path: Path) -> None:
    model, path = keras_model(), tmp_path / "new" / "model.keras"
    save_model(model, SCHEMA, path)
    assert [each.name for each in path.parent.iterdir()] == ["model.keras"]
    right = dt.predict(model, FRAME, schema=SCHEMA).compute(scheduler="threads")[SUBSET.index]
    pd.testing.assert_series_equal(dt.predict(path, LATER).compute(scheduler="threads"), right)
    assert dt.evaluate(path, SUBSET, label="y")["loss"] == pytest.approx(
        dt.evaluate(model, SUBSET, label="y", schema=SCHEMA)["loss"]
    )
    opened = keras.saving.load_model(path)
    np.testing.assert_array_equal(opened.get_weights()[0], model.get_weights()[0])
    for schema in (path, FrameSchema.load(path)):
        later = dt.predict(opened, LATER, schema=schema).compute(scheduler="threads")
        pd.testing.assert_series_equal(later, right)


def test_evaluate_opens_what_was_saved_of_an_estimator(tmp_path: Path) -> None:
    boosted = lightgbm_classifier()
    named = SUBSET.assign(y=SUBSET["y"].map({0: "no", 1: "yes"}))
    save_model(boosted, SCHEMA, tmp_path / "boosted")
    assert dt.evaluate(tmp_path / "boosted", named, label="y") == {"accuracy": 1.0}


def test_a_model_without_a_schema_is_saved_too(tmp_path: Path) -> None:
    model = keras_model()
    for path in (tmp_path / "folder", tmp_path / "file.keras"):
        save_model(model, None, path)
        np.testing.assert_allclose(
            dt.predict(path, np.ones((3, 2))).compute(), model.predict(np.ones((3, 2)), verbose=0)
        )
        with pytest.raises(ValueError, match="Column 'kind' of x holds categories, of which the model takes codes"):
            dt.predict(path, LATER)
        with pytest.raises(ValueError, match=r"^path='.*' is of a model that was saved without a schema"):
            FrameSchema.load(path)


def test_a_file_that_is_not_of_the_schema_beside_it_is_refused(tmp_path: Path) -> None:
    save_model(keras_model(), SCHEMA, tmp_path / "one")
    save_model(keras_model(), SCHEMA, tmp_path / "two")
    (tmp_path / "one" / "model.keras").replace(tmp_path / "two" / "model.keras")
    with pytest.raises(ValueError, match=r"model.keras is not the model that was saved with the schema beside it"):
        dt.predict(tmp_path / "two", LATER)
    with pytest.raises(ValueError, match=r"The model .*model.keras can't be read"):
        dt.predict(tmp_path / "one", LATER)


def test_files_of_others_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for path in (tmp_path, tmp_path / "mine"):
        with pytest.raises(ValueError, match=r"has files that result.save has not written"):
            save_model(keras_model(), SCHEMA, path)
    with pytest.raises(ValueError, match=r"ends with .keras, and the model is a Sequential"):
        save_model(torch_module(), SCHEMA, tmp_path / "a.keras")
    periods = FrameSchema.of(pd.DataFrame({"p": pd.Categorical(pd.period_range("2024", periods=1, freq="M"))}))
    with pytest.raises(TypeError, match="Categories of column 'p'"):
        save_model(keras_model(), periods, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_another_kind_of_model_leaves_no_file_of_the_first(tmp_path: Path) -> None:
    save_model(torch_module(), SCHEMA, tmp_path / "saved")
    save_model(lightgbm_classifier(), SCHEMA, tmp_path / "saved")
    assert sorted(each.name for each in (tmp_path / "saved").iterdir()) == ["model.pickle", "schema.json"]
    assert json.loads((tmp_path / "saved" / "schema.json").read_text())["model"]["kind"] == "pickle"
