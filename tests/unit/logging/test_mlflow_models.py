"""Models in MLflow's own format predict what they predicted, and say which rows they take."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from dask_train.logging.mlflow_models import write_model

# Both are MLflow's own: of its type hints, and of how it writes an example with a newer pandas.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*inferred as AnyType:UserWarning", "ignore:Operation with range:DeprecationWarning"
)

FRAME = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "b": [1.0, 0.0, 1.0, 0.0]})
LABEL = np.array([0.0, 1.0, 2.0, 3.0])


def estimators():
    import lightgbm
    import xgboost

    return {
        "sklearn": LinearRegression(),
        "xgboost": xgboost.XGBRegressor(n_estimators=3),
        "lightgbm": lightgbm.LGBMRegressor(n_estimators=3, min_child_samples=1, verbose=-1),
    }


@pytest.mark.parametrize("flavour", ["sklearn", "xgboost", "lightgbm"])
@pytest.mark.parametrize("rows", [FRAME, FRAME.to_numpy()], ids=["frame", "array"])
def test_an_estimator_comes_back(tmp_path, flavour, rows):
    import mlflow

    model = estimators()[flavour].fit(rows, LABEL)
    write_model(model, tmp_path / "model")
    told = mlflow.models.get_model_info(str(tmp_path / "model"))
    assert flavour in told.flavors
    opened = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    np.testing.assert_allclose(opened.predict(rows), model.predict(rows), rtol=1e-6)
    assert opened.input_example.shape == (1, 2)
    if isinstance(rows, pd.DataFrame):
        assert told.signature.inputs.input_names() == ["a", "b"]


def test_where_zeros_are_no_row_there_is_no_signature(tmp_path):
    import mlflow

    class Strict(LinearRegression):
        def predict(self, rows):
            raise ValueError("no such category: 0")

    write_model(Strict().fit(FRAME, LABEL), tmp_path / "model")
    assert mlflow.models.get_model_info(str(tmp_path / "model")).signature is None


def test_a_keras_model_comes_back(tmp_path):
    import keras
    import mlflow

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dropout(0.5)])
    model.compile("adam", "mse")
    model.fit(FRAME.to_numpy(np.float32), np.zeros((len(FRAME), 3)), verbose=0)
    write_model(model, tmp_path / "model")
    told = mlflow.models.get_model_info(str(tmp_path / "model"))
    assert ("keras" in told.flavors, told.signature.inputs.inputs[0].shape) == (True, (-1, 2))
    opened = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    rows = FRAME.to_numpy(np.float32)
    np.testing.assert_allclose(opened.predict(rows), model.predict(rows, verbose=0), rtol=1e-6)
    assert opened.input_example.shape == (1, 2)


def test_a_keras_model_of_several_inputs_takes_them_by_name(tmp_path):
    import keras
    import mlflow

    a, b = keras.Input((2,), name="a"), keras.Input((), name="b", dtype="int32")
    added = keras.layers.Concatenate()([a, keras.layers.Embedding(4, 2)(b)])
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(1)(added))
    write_model(model, tmp_path / "model")
    opened = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    rows = {"a": np.ones((3, 2), np.float32), "b": np.arange(3, dtype=np.int32)}
    np.testing.assert_allclose(opened.predict(rows), model.predict(rows, verbose=0), rtol=1e-6)
    assert set(opened.input_example) == {"a", "b"}


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")  # of MLflow's own
@pytest.mark.parametrize("example", [FRAME.iloc[:1] * 0, None], ids=["frame", "unknown"])
def test_a_module_of_torch_comes_back(tmp_path, example):
    import mlflow
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Dropout(0.5)).train()
    write_model(model, tmp_path / "model", example)
    told = mlflow.models.get_model_info(str(tmp_path / "model"))
    assert ("pytorch" in told.flavors, told.signature is None) == (True, example is None)
    opened = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    found = opened.predict(FRAME)
    with torch.no_grad():
        expected = model.eval()(torch.from_numpy(FRAME.to_numpy(np.float32))).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    if example is not None:
        assert told.signature.inputs.input_names() == ["a", "b"]


def test_another_kind_of_model_is_told(tmp_path):
    with pytest.raises(ValueError, match="MLflow has no flavour for dict"):
        write_model({}, tmp_path / "model")
