"""Codes mean the same categories where a model is fitted, validated, evaluated and predicts."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import pytest
import torch

import dask_train as dt
from dask_train.fitting.categories import categories_of, check_categories, check_learnt, note_learnt

FRAME = pd.DataFrame({"a": np.arange(4.0), "kind": pd.Categorical(["u", "v", "w", "u"]), "y": np.arange(4.0)})
OTHER = FRAME.assign(kind=FRAME["kind"].cat.reorder_categories(["w", "v", "u"]))
NAMES: dict[str, Any] = {"features": ["a", "kind"], "label": "y"}


def keras_model() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A model, and what fit and evaluate take besides."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model, {"verbose": 0}, {}


def torch_module() -> tuple[Any, dict[str, Any], dict[str, Any]]:
    module = torch.nn.Sequential(torch.nn.Linear(2, 1, dtype=torch.float64), torch.nn.Flatten(0))
    loss = torch.nn.MSELoss()
    return module, {"verbose": 0, "loss": loss, "optimizer": torch.optim.SGD}, {"loss": loss}


def lazily(frame: Any) -> Any:
    return dd.from_pandas(frame, npartitions=2)


@pytest.mark.parametrize("kind", [lambda frame: frame, lazily], ids=["pandas", "dask"])
def test_they_are_those_of_columns_by_name(kind: Callable[[Any], Any]) -> None:
    assert categories_of([kind(FRAME)]) == {"kind": ["u", "v", "w"]}
    assert categories_of([kind(OTHER)["kind"], np.ones(3)]) == {"kind": ["w", "v", "u"]}
    assert categories_of([kind(FRAME)], ["a", "y"]) == {}
    told = r"Column 'kind' of x has the categories \['w', 'v', 'u'\], and that of the data \['u', 'v', 'w'\], so"
    with pytest.raises(ValueError, match=told):
        check_categories("x", categories_of([kind(OTHER)]), categories_of([kind(FRAME)]))
    check_categories("x", categories_of([kind(OTHER)]), {"other": ["u"]})


@pytest.mark.parametrize("make", [keras_model, torch_module])
@pytest.mark.parametrize("kind", [lambda frame: frame, lazily], ids=["pandas", "dask"])
def test_what_a_model_was_fitted_with_is_what_it_gets_later(make: Any, kind: Callable[[Any], Any], pool: Any) -> None:
    model, of_fit, of_evaluate = make()
    own, other = kind(FRAME), kind(OTHER)
    dt.predict(model, other, features=["a", "kind"])  # nothing is known yet
    for _ in range(2):
        dt.fit(model, own, workers=0, **NAMES, **of_fit)
    told = r"Column 'kind' of \w+( \w+)? has the categories .*the data that the model was fitted with \['u'"
    for call in (
        lambda: dt.predict(model, other, features=["a", "kind"]),
        lambda: dt.evaluate(model, other, **NAMES, **of_evaluate),
        lambda: dt.fit(model, other, workers=0, **NAMES, **of_fit),
    ):
        with pytest.raises(ValueError, match=told):
            call()
    dt.predict(model, own, features=["a", "kind"])
    dt.predict(model, other.assign(kind=other["kind"].cat.set_categories(["u", "v", "w"])), features=["a", "kind"])


def test_what_is_noted_of_a_model_ends_with_it() -> None:
    model, _, _ = torch_module()
    note_learnt(model, {"kind": ["u"]})
    note_learnt(model, {"more": ["v"]})
    with pytest.raises(ValueError, match="Column 'kind' of x"):
        check_learnt("x", model, {"kind": ["v"]})
    check_learnt("x", model, {"more": ["v"]})
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
