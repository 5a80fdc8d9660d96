"""What is added to a model that MLflow has saved."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from dask_train.compat.mlflow import add_example

mlflow = pytest.importorskip("mlflow")


@pytest.mark.filterwarnings("ignore:.*inferred as AnyType:UserWarning")
def test_an_example_comes_back(tmp_path):
    import mlflow.sklearn

    model = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    mlflow.sklearn.save_model(model, str(tmp_path / "m"), serialization_format="cloudpickle", pip_requirements=[])
    add_example(tmp_path / "m", np.zeros((1, 1)))
    assert mlflow.pyfunc.load_model(str(tmp_path / "m")).input_example.shape == (1, 1)
