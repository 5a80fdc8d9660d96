"""Models remember what they were fitted with: later frames mean the same to them, whatever their codes are."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import keras
import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch

import dask_train as dt
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.errors import CheckpointError
from dask_train.fitting.schemas import learnt_for, note_schema, row_of_zeros, schema_for

FRAME = pd.DataFrame({"a": np.arange(4.0), "kind": pd.Categorical(["u", "v", "w", "u"]), "y": np.arange(4.0)})
OTHER = FRAME.assign(kind=FRAME["kind"].cat.reorder_categories(["w", "v", "u"]))
SUBSET = FRAME.iloc[[0, 2, 3]].assign(kind=pd.Categorical(["u", "w", "u"], categories=["w", "u"]), a=0.5)
NEW = FRAME.assign(kind=pd.Categorical(["u", "x", "y", "u"]))
NAMES: dict[str, Any] = {"features": ["a", "kind"], "label": "y"}


def keras_model() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A model, and what fit and evaluate take besides."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    return model, {"verbose": 0, "workers": 0}, {}


def torch_module() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    module = torch.nn.Sequential(torch.nn.Linear(2, 1, dtype=torch.float64), torch.nn.Flatten(0))
    loss = torch.nn.MSELoss()
    return module, {"verbose": 0, "workers": 0, "loss": loss, "optimizer": torch.optim.SGD}, {"loss": loss}


def lazily(frame: Any) -> Any:
    return dd.from_pandas(frame, npartitions=2)


def computed(found: Any) -> Any:
    return found.compute(scheduler="threads")


@pytest.mark.parametrize("make", [keras_model, torch_module])
@pytest.mark.parametrize("kind", [lambda frame: frame, lazily], ids=["pandas", "dask"])
def test_later_frames_mean_what_the_model_was_fitted_with(make: Any, kind: Callable[[Any], Any], pool: Any) -> None:
    model, of_fit, of_evaluate = make()
    for call in (
        lambda: dt.predict(model, kind(FRAME), features=["a", "kind"]),
        lambda: dt.evaluate(model, kind(FRAME), **NAMES, **of_evaluate),
    ):
        with pytest.raises(ValueError, match=r"Column 'kind' of .* holds categories, .* are not known here"):
            call()
    result = dt.fit(model, kind(FRAME), **NAMES, **of_fit)
    assert result.schema == FrameSchema.of(FRAME, **NAMES)
    right = computed(dt.predict(model, kind(FRAME)))
    for other in (OTHER, FRAME[["kind", "y", "a"]], FRAME.assign(kind=FRAME["kind"].astype(object))):
        pd.testing.assert_series_equal(computed(dt.predict(model, kind(other))), right)
        pd.testing.assert_series_equal(computed(dt.predict(model, kind(other), features=["kind", "a"])), right)
    if make is keras_model:  # a module is evaluated by a run on a cluster
        assert dt.evaluate(model, kind(OTHER), **NAMES) == dt.evaluate(model, kind(FRAME), **NAMES)
    later = computed(dt.predict(model, kind(SUBSET)))
    codes = SUBSET[["a"]].assign(kind=[0.0, 2.0, 0.0])
    np.testing.assert_allclose(later, computed(dt.predict(model, codes.to_numpy())).ravel(), rtol=1e-6)
    dt.fit(model, kind(OTHER), validation_data=kind(OTHER), **NAMES, **of_fit)
    assert schema_for(model).categories == {"kind": ["u", "v", "w"]}
    with pytest.raises(ValueError, match="Column 'kind' of x has 'x', 'y', and the model is fitted with"):
        computed(dt.predict(model, NEW))
    torn = FRAME.assign(kind=pd.Categorical(["u", None, "v", "w"]))
    with pytest.raises(ValueError, match="1 values of column 'kind' of x are missing"):
        computed(dt.predict(model, torn))


@pytest.mark.parametrize("make", [keras_model, torch_module])
def test_a_run_is_not_gone_on_with_under_other_codes(make: Any, pool: Any, tmp_path: Path) -> None:
    kept = {"checkpoint": dt.Checkpoint(str(tmp_path), every_steps=1), **NAMES}
    model, of_fit, _ = make()
    dt.fit(model, FRAME, epochs=1, **of_fit, **kept)
    with pytest.raises(CheckpointError, match=r"categories.values\[0\] was 'u', and is 'w'"):
        dt.fit(make()[0], OTHER, epochs=2, resume=True, **of_fit, **kept)
    assert dt.fit(make()[0], FRAME, epochs=2, resume=True, **of_fit, **kept).schema == FrameSchema.of(FRAME, **NAMES)


@pytest.mark.parametrize("make", [keras_model, torch_module])
def test_files_of_predictions_are_of_the_values_too(make: Any, pool: Any, tmp_path: Path) -> None:
    model, of_fit, _ = make()
    with pytest.raises(ValueError, match=r"Column 'kind' of x holds categories, .* are not known here"):
        dt.predict_to(tmp_path / "none", model, FRAME, features=["a", "kind"])
    dt.fit(model, FRAME, **NAMES, **of_fit)
    for name, frame in (("same", FRAME), ("other", OTHER)):
        dt.predict_to(tmp_path / name, model, lazily(frame))
    found = [pd.read_parquet(tmp_path / name) for name in ("same", "other")]
    pd.testing.assert_frame_equal(*found)
    with pytest.raises(ValueError, match=r"has predictions of something else .*schema"):
        dt.predict_to(tmp_path / "same", model, lazily(FRAME), schema=FrameSchema.of(OTHER[["a", "kind"]]))
    with pytest.raises(ValueError, match=r"Column 'kind' of x has '[xy]', and the model is fitted"):
        dt.predict_to(tmp_path / "new", model, lazily(NEW))


@pytest.mark.parametrize("make", [keras_model, torch_module])
def test_a_model_of_another_origin_is_told_its_schema(make: Any, pool: Any, tmp_path: Path) -> None:
    model, of_fit, _ = make()
    schema = FrameSchema.of(FRAME, **NAMES)
    schema.save(tmp_path / "schema.json")
    found = [computed(dt.predict(model, OTHER, schema=each)) for each in (schema, tmp_path / "schema.json")]
    pd.testing.assert_series_equal(*found)
    np.testing.assert_allclose(found[0], computed(dt.predict(model, FRAME, schema=schema)))
    if make is keras_model:
        right = dt.evaluate(model, FRAME, **NAMES, schema=schema)
        assert dt.evaluate(model, OTHER, label="y", schema=schema) == right
    result = dt.fit(model, OTHER, label="y", schema=schema, **of_fit)
    assert result.schema == schema
    with pytest.raises(ValueError, match="schema= describes the columns of a frame, and x is a ndarray"):
        dt.predict(model, np.ones((2, 2)), schema=schema)


def test_training_tells_how_to_read_a_schema_with_credentials(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist") as caught:
        learnt_for(object(), "memory://bucket/gone.json")
    assert ["FrameSchema.load(url, storage_options=" in note for note in caught.value.__notes__] == [True]
    with pytest.raises(ValueError, match="does not exist") as caught:
        learnt_for(object(), str(tmp_path / "gone.json"))
    assert not hasattr(caught.value, "__notes__")


def test_what_is_no_schema_is_refused(tmp_path: Path) -> None:
    model, *_ = keras_model()
    with pytest.raises(TypeError, match=r"schema is a dict. Pass result.schema"):
        dt.predict(model, FRAME, schema={})
    model.save(tmp_path / "plain.keras")
    with pytest.raises(ValueError, match=r"^schema='.*\.keras' is of a model that was saved without a schema"):
        schema_for(model, tmp_path / "plain.keras")


def test_a_row_of_zeros_has_the_features_alone() -> None:
    frame = pd.DataFrame({"a": [1.5], "b": [2], "c": pd.Categorical(["x"]), "late": [1]})
    row = row_of_zeros(FrameSchema.of(frame, ["b", "a"], "late"))
    assert row.to_dict("list") == {"b": [0], "a": [0.0]}
    assert row.dtypes.tolist() == [frame["b"].dtype, frame["a"].dtype]
    assert row_of_zeros(FrameSchema.of(frame, ["a", "c"], "late")) is None, "0 is no category"
    assert row_of_zeros(FrameSchema.of(frame, {"input": ["a"]}, "late")) is None, "an input of several"


def test_what_is_noted_of_a_model_ends_with_it() -> None:
    model, _, _ = torch_module()
    schema = FrameSchema.of(FRAME, label="y")
    note_schema(model, schema)
    note_schema(model, None)
    assert schema_for(model) is schema
    assert [column.name for column in learnt_for(model).columns] == ["kind"]  # type: ignore[union-attr]
    assert learnt_for(model, schema) is schema
    assert schema_for([]) is schema_for(None) is learnt_for("a path") is None
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_an_estimator_gets_frames_with_the_categories_of_its_fit() -> None:
    codes = np.arange(60) % 3
    frame = pd.DataFrame({"kind": pd.Categorical.from_codes(codes, ["u", "v", "w"]), "a": 0.0, "y": codes * 1.0})
    model = lightgbm.LGBMRegressor(n_estimators=5, min_child_samples=1, verbose=-1).fit(
        frame[["kind", "a"]], frame["y"]
    )
    note_schema(model, FrameSchema.of(frame, ["kind", "a"], "y"))
    right = model.predict(frame[["kind", "a"]])
    later = frame.assign(kind=frame["kind"].astype(object))[["a", "kind"]]
    np.testing.assert_array_equal(computed(dt.predict(model, lazily(later))), right)
    scores = [dt.evaluate(model, lazily(each), label="y") for each in (frame, later.assign(y=frame["y"]))]
    assert scores[0] == scores[1]
    booster = {"metrics": [lambda y, found: float(np.abs(y - found).max())], "schema": schema_for(model), "label": "y"}
    assert (
        dt.evaluate(model.booster_, lazily(later.assign(y=frame["y"])), **booster)["<lambda>"]
        == np.abs(right - frame["y"]).max()
    )
    with pytest.raises(ValueError, match="Column 'kind' of x has 'x', and the model is fitted with the categories"):
        computed(dt.predict(model, lazily(later.assign(kind="x"))))
