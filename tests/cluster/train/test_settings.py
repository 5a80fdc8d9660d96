"""What a script sets for its libraries holds wherever something is computed for it, and nowhere else."""

from __future__ import annotations

import gc
from contextlib import contextmanager

import dask
import dask.array as da
import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
import xgboost
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import dask_train as dt

_random = np.random.default_rng(0)
IMAGES = _random.normal(size=(60, 4, 4, 4)).astype("f4")
X = _random.normal(size=(60, 5))
Y = X[:, :1] * 2


@pytest.fixture(autouse=True)
def soon_gone(client, wait_for):
    """Model processes end soon after they are used, so that none is left."""

    def is_released():
        gc.collect()  # an error and the frames that it came through refer to each other, and to the collection
        return not client.sync(client.scheduler.who_has)

    with dask.config.set({"train.predict.idle": "100ms"}):
        yield
    wait_for(is_released, "the scheduler has no result")  # another thread may hold the error for a moment


@contextmanager
def put_back(read, write, value):
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


class Grey(keras.layers.Layer):
    """The mean over channels, wherever these are."""

    def call(self, x):
        return keras.ops.mean(x, axis=1 if keras.config.image_data_format() == "channels_first" else -1)


def grey():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4, 4, 4)), Grey(), keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_keras_trains_predicts_and_evaluates_as_here(client):
    config, y = keras.config, IMAGES[:, 0, 0, :1] * 2
    with put_back(config.image_data_format, config.set_image_data_format, "channels_first"):
        alone, sent = grey(), grey()
        alone.fit(IMAGES, y, batch_size=20, shuffle=False, verbose=0)
        dt.fit(sent, IMAGES, y, batch_size=20, shuffle=False, workers=1, client=client, verbose=0)
        for a, b in zip(alone.get_weights(), sent.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
        lazy = dt.predict(alone, IMAGES, client=client)
        np.testing.assert_allclose(lazy.compute(scheduler=client), alone.predict(IMAGES, verbose=0), atol=1e-6)
        scores = dt.evaluate(alone, IMAGES, y, batch_size=20, client=client, verbose=0)
        assert scores["loss"] == pytest.approx(alone.evaluate(IMAGES, y, batch_size=20, verbose=0), rel=1e-5)
    lazy = dt.predict(alone, IMAGES, client=client)  # of the same model, and not in the same process
    np.testing.assert_allclose(lazy.compute(scheduler=client), np.asarray(alone(IMAGES)), atol=1e-5)


class Epsilon(keras.layers.Layer):
    """The epsilon of the process that calls it, beside what it is given."""

    def call(self, x):
        return 0 * x + keras.config.epsilon()


def test_each_trial_has_what_its_function_sets(client):
    pytest.importorskip("optuna")

    def build(trial):
        keras.config.set_epsilon(trial.suggest_categorical("epsilon", [0.5, 3.0]))
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1), Epsilon()])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        return model

    with put_back(keras.config.epsilon, keras.config.set_epsilon, 1e-7):
        found = dt.search(
            build, X, np.zeros_like(Y), trials=4, concurrency=1, epochs=1, seed=0, metric="loss", direction="minimize",
            client=client, progress=False,
        )  # fmt: skip
    values = {(trial.params["epsilon"], round(trial.value, 4)) for trial in found.study.trials}
    assert values <= {(0.5, 0.25), (3.0, 9.0)}
    assert found.best_params == {"epsilon": 0.5}


class Recurrent(torch.nn.Module):
    """Begins with a state that is made where it is called."""

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRU(5, 4, batch_first=True)
        self.line = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.line(self.cell(x[:, None], torch.zeros(1, len(x), 4))[0][:, 0]) + torch.full((1,), 1 / 3)


def test_torch_computes_in_the_default_dtype_of_the_script(client):
    with put_back(torch.get_default_dtype, torch.set_default_dtype, torch.float64):
        torch.manual_seed(1)
        module = Recurrent()
        dt.fit(
            module, X, Y, loss=torch.nn.MSELoss(), optimizer=lambda given: torch.optim.SGD(given, 0.1), batch_size=20,
            shuffle=False, workers=1, client=client, verbose=0,
        )  # fmt: skip
        predicted = dt.predict(module, X, client=client).compute(scheduler=client)
        np.testing.assert_allclose(predicted, module(torch.from_numpy(X)).detach().numpy(), rtol=1e-13)


def of_role(session):
    import jax
    import tensorflow as tf

    return [
        str(jax.numpy.ones(1).dtype),
        tf.config.experimental.tensor_float_32_execution_enabled(),
        np.geterr()["over"],
        pd.get_option("mode.string_storage"),
    ]


def test_a_role_has_those_of_all_libraries_that_the_script_has_imported(client):
    import jax
    import tensorflow as tf

    experimental, x64 = tf.config.experimental, jax.config.jax_enable_x64
    tf32 = experimental.tensor_float_32_execution_enabled, experimental.enable_tensor_float_32_execution
    with (
        put_back(lambda: x64, lambda value: jax.config.update("jax_enable_x64", value), True),
        put_back(*tf32, False),
        np.errstate(over="raise"),
        pd.option_context("mode.string_storage", "python"),
    ):
        result = dt.train(of_role, roles={"worker": 1}, client=client, progress=False)
    assert result.results["worker"] == [["float64", False, "raise", "python"]]


def test_scikit_learn_searches_and_predicts_in_the_context_that_calls(client):
    frame = pd.DataFrame(_random.normal(size=(300, 3)), columns=list("abc"))
    frame["y"] = (frame.a > 0).astype(int)
    rows, names = dd.from_pandas(frame, npartitions=3), list("abc")
    # A lambda, since processes would import this module, and so all frameworks, for a function of it.
    steps = make_pipeline(StandardScaler(), FunctionTransformer(lambda x: x[["a", "c"]]), LogisticRegression())
    params = {"logisticregression__C": [0.1, 1]}
    with sklearn.config_context(transform_output="pandas"):
        wanted = GridSearchCV(steps, params, cv=3).fit(frame[names], frame.y)
        lazy = dt.predict(wanted.best_estimator_, rows, features=names, client=client)
        found = dt.search(steps, rows, params=params, cv=3, features=names, label="y", client=client, progress=False)
        accuracy = dt.evaluate(wanted.best_estimator_, rows, features=names, label="y", client=client, verbose=0)
        right = wanted.best_estimator_.predict(frame[names])
    assert (lazy.compute(scheduler=client) == right).all()  # computed outside the context, and made in it
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], wanted.cv_results_["mean_test_score"])
    assert accuracy["accuracy"] == pytest.approx((right == frame.y).mean())
    outputs = client.run(lambda: sklearn.get_config()["transform_output"])
    assert set(outputs.values()) == {"default"}


class Seen(xgboost.callback.TrainingCallback):
    """Keeps the configuration that it is trained with."""

    config = None

    def before_training(self, model):
        self.config = dict(xgboost.get_config())
        return model


def test_xgboost_trains_in_the_context_that_calls(client):
    seen = Seen()
    rows = da.from_array(X, chunks=(30, -1))
    with xgboost.config_context(verbosity=0):
        dt.fit(
            xgboost.XGBRegressor(n_estimators=2, callbacks=[seen]), rows, rows.sum(axis=1), workers=1, client=client,
            verbose=0,
        )  # fmt: skip
    assert seen.config["verbosity"] == 0


def test_what_tasks_of_others_would_see_is_not_set_but_refused(client):
    def storage(x):
        return np.full(len(x), pd.get_option("mode.string_storage") == "python")

    with pd.option_context("mode.string_storage", "python"):
        lazy = dt.predict(storage, da.from_array(X, chunks=(30, -1)), meta=np.empty(0, bool), client=client)
    with pytest.raises(ValueError, match=r"pandas's setting 'mode.string_storage' was 'python' .*client\.run"):
        lazy.compute(scheduler=client)
    del lazy
