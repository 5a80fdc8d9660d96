"""Keras models as values of real Dask processes: each way on which they move, and what happens where they can't."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest
from dask.sizeof import sizeof
from dask.tokenize import tokenize
from distributed import Client, Future, LocalCluster

from dask_train.cluster import keras_values

pytestmark = pytest.mark.slow

keras_values.register()

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

TIMEOUT_S = 90
RNG = np.random.default_rng(5)
X = RNG.normal(size=(40, 4))
Y = X.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Dask workers can't import a test module
    settings: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "IS_A_DASK_WORKER": "1"}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, env=environment, **settings) as cluster,
        Client(cluster) as client,
    ):
        yield client
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def workers(client: Client) -> list[str]:
    client.run(keras_values.register)  # what `import dask_train` does
    return list(client.nthreads())


@pytest.fixture(autouse=True)
def _double_precision() -> Iterator[None]:
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx("float32")


def make_model(*layers: Any) -> Any:
    hidden = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dropout(0.25), *layers]
    model = keras.Sequential([keras.Input((4,)), *hidden, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.05), loss="mse")
    return model


def train(model: Any, epochs: int = 1) -> Any:
    import keras

    keras.config.set_floatx("float64")
    model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return model


def assert_same(one: Any, other: Any) -> None:
    pairs = zip([*one.variables, *one.optimizer.variables], [*other.variables, *other.optimizer.variables], strict=True)
    for a, b in pairs:
        assert a.dtype == b.dtype, (a.path, b.path)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), err_msg=a.path)


def test_training_goes_on_from_worker_to_worker_as_in_one_place(client: Client, workers: list[str]) -> None:
    model = make_model()
    halfway = client.submit(train, model, 2, workers=workers[0])
    moved = client.submit(train, halfway, 3, workers=workers[1])
    result = moved.result(timeout=TIMEOUT_S)

    stayed = client.submit(train, model, 5, workers=workers[0]).result(timeout=TIMEOUT_S)
    assert int(result.optimizer.iterations) == 25
    assert_same(result, stayed)
    assert_same(result, train(model, 5))
    assert_same(train(result), train(stayed))


def test_a_class_of_the_main_module_travels(
    client: Client, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = sys.modules["__main__"]
    code = """
        import keras

        class Shift(keras.layers.Layer):
            def __init__(self, by):
                super().__init__()
                self.by = [by]

            def call(self, x):
                return x + self.by[0] + OFFSET

        def penalty(truth, prediction):
            return keras.ops.mean(keras.ops.abs(truth - prediction)) + OFFSET
        """
    names = {"__name__": "__main__", "OFFSET": 0.5}
    exec(textwrap.dedent(code), names)  # noqa: S102 - as a notebook does
    monkeypatch.setattr(main, "Shift", names["Shift"], raising=False)
    model = make_model(names["Shift"](0.25))
    model.compile("adam", names["penalty"])

    result = client.submit(train, model, workers=workers[0]).result(timeout=TIMEOUT_S)
    assert type(result.layers[2]) is names["Shift"]
    assert_same(result, train(model))


def test_scattered_models_and_models_within_values(client: Client, workers: list[str]) -> None:
    model = train(make_model())
    scattered = client.scatter(model, broadcast=True)
    assert sizeof(model) == sum(np.asarray(v).nbytes for v in [*model.variables, *model.optimizer.variables])

    def step(where: dict[str, Any], more: tuple[Any, ...]) -> dict[str, Any]:
        return {"trained": train(where["model"]), "name": more[0].name, "more": more}

    for worker in workers:
        nested = client.submit(step, {"model": scattered}, ({"a": model}["a"], 1), workers=worker, pure=False)
        result = nested.result(timeout=TIMEOUT_S)
        assert result["name"] == model.name
        assert_same(result["more"][0], model)
        [elsewhere] = {*workers} - {worker}
        steps = client.submit(lambda r: int(r["trained"].optimizer.iterations), nested, workers=elsewhere)
        assert steps.result(timeout=TIMEOUT_S) in (10, 15)  # both workers train the value that they hold, as always
    assert int(model.optimizer.iterations) == 5


def test_what_a_model_holds_tells_its_token(client: Client, workers: list[str]) -> None:
    model = make_model()
    before = tokenize(model)
    assert tokenize(model) == before
    assert client.submit(train, model, workers=workers[0]).key == client.submit(train, model, workers=workers[0]).key
    train(model)
    assert tokenize(model) != before


def test_the_scheduler_passes_models_on_without_rebuilding_them(
    client: Client, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the scheduler, which runs in this process, rebuilds a model")

    monkeypatch.setattr("dask_train.keras_models.serialization.parts_to_model", refuse)
    future = client.submit(lambda model: model.count_params(), make_model(), workers=workers[0])
    assert future.result(timeout=TIMEOUT_S) == 4 * 8 + 8 + 8 + 1


class OnlyAtHome(keras.layers.Layer):
    """Can be made in the client, but on no Dask worker."""

    def __init__(self, **settings: Any) -> None:
        import os

        super().__init__(**settings)
        if "IS_A_DASK_WORKER" in os.environ:
            raise RuntimeError("this is not home")

    def call(self, x: Any) -> Any:
        return x

    def get_config(self) -> dict[str, Any]:
        return super().get_config()


@pytest.mark.parametrize("scatter", [False, True])
def test_a_model_that_a_worker_cannot_rebuild_is_an_error_and_no_hang(
    client: Client, workers: list[str], scatter: bool
) -> None:
    model: Any = make_model(OnlyAtHome())
    value = client.scatter(model, workers=workers[:1]) if scatter else model
    with pytest.raises(TypeError, match=rf"Keras model '{model.name}' .*OnlyAtHome can't be made: .*not home"):
        client.submit(lambda model: model.predict(X), value, workers=workers[0]).result(timeout=TIMEOUT_S)
    passed_on = client.submit(lambda model: model, value, workers=workers[0]).result(timeout=TIMEOUT_S)
    assert_same(passed_on, model)


def make_one_with_a_lock() -> Any:
    import threading

    import keras

    class Locked(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    return keras.Sequential([Locked()], name="net")


def test_a_model_that_cannot_be_sent_is_named(client: Client, workers: list[str]) -> None:
    message = r"Keras model 'net' of class \S+ can't be sent: locked\.lock, which is .* can't be pickled"
    with pytest.raises(TypeError, match=message):
        client.submit(make_one_with_a_lock, workers=workers[0]).result(timeout=TIMEOUT_S)
    with pytest.raises(TypeError, match=message):
        _: Future = client.submit(lambda model: model.name, make_one_with_a_lock())
    assert client.submit(int, "7", workers=workers[0]).result(timeout=TIMEOUT_S) == 7


def test_a_scheduler_without_keras_and_dask_train_passes_a_model_on() -> None:
    model = train(make_model())
    code = """
        import pickle, sys

        sys.modules["dask_train"] = sys.modules["keras"] = None  # as if they were not installed
        names = {"__name__": "distributed.scheduler", "pickle": pickle}
        exec("def update_graph(sent): return pickle.loads(sent)", names)
        value = names["update_graph"](sys.stdin.buffer.read())
        assert repr(value).startswith("<Keras model 'sequential"), value
        try:
            value.fit
        except TypeError as error:
            assert "the scheduler only passes it on" in str(error)
        else:
            raise AssertionError
        sys.stdout.buffer.write(pickle.dumps(value))
        """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    passed_on = subprocess.run(command, input=pickle.dumps(model), capture_output=True, check=False, timeout=TIMEOUT_S)
    assert passed_on.returncode == 0, passed_on.stderr.decode()
    assert_same(pickle.loads(passed_on.stdout), model)


@pytest.mark.parametrize("keras_first", [False, True])
def test_registration_wins_over_distributed_in_any_order(keras_first: bool) -> None:
    lines = [
        "from dask_train.cluster import keras_values; keras_values.register(); keras_values.register()",
        "import warnings; warnings.simplefilter('ignore'); import keras",
    ]
    if keras_first:  # and distributed's own has been there, and Dask has measured one
        lines[:1] = [
            lines.pop(),
            "from distributed.protocol import serialize; model = keras.Sequential([keras.layers.Dense(1)])",
            "from dask.sizeof import sizeof; sizeof(model)",
            "assert serialize(model)[0]['serializer'] == 'error', 'distributed can do it by itself now'",
            *lines,
        ]
    else:
        lines.insert(1, "import sys; assert not {'keras', 'tensorflow'} & sys.modules.keys()")
    code = """
        from dask.sizeof import sizeof
        from distributed.protocol import deserialize, serialize
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name='last')])
        model.compile('adam', 'mse')
        model.optimizer.build(model.weights)
        model.optimizer.iterations.assign(7)
        for value, find in ((model, lambda v: v), ([1, model], lambda v: v[1]), ({1: {2: model}}, lambda v: v[1][2])):
            header, frames = serialize(value)
            other = find(deserialize(header, frames))
            assert int(other.optimizer.iterations) == 7 and other.layers[0].name == 'last', header
            assert len(frames) > 8, 'arrays are frames of their own'
        assert sizeof(model) == 4 * 3 * 3 + 8 + 4, sizeof(model)
        import copy
        other = copy.deepcopy(model)
        assert int(other.optimizer.iterations.assign_add(1)) == 8 and int(model.optimizer.iterations) == 7
        """
    command = [sys.executable, "-c", "\n".join(lines) + textwrap.dedent(code)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert ended.returncode == 0, ended.stderr
