"""``fit`` with Keras on the backend that this process has: the client's counts, and its promises hold on each."""

from __future__ import annotations

import copy
import gc
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import keras
import ml_dtypes
import numpy as np
import optuna
import psutil
import pytest
from distributed import Client
from keras import layers

import dask_train as dt
from dask_train.data.pool import process_pool

pytestmark = [pytest.mark.backends]

BACKEND = keras.backend.backend()
ROWS, BATCH_SIZE = 300, 30
_random = np.random.default_rng(0)
X = _random.normal(size=(ROWS, 8)).astype(np.float32)
Y = (X @ _random.normal(size=(8, 3))).argmax(1)


@pytest.fixture(scope="module")
def client(local_clusters):
    """Two Dask workers whose environment names another backend than the client's."""
    other = "tensorflow" if BACKEND != "tensorflow" else "torch"
    with local_clusters() as make, Client(make(n_workers=2, threads_per_worker=2, env={"KERAS_BACKEND": other})) as one:
        yield one


def network(*, by_chance: bool = False) -> Any:
    """A classifier; by chance with all that workers have to themselves: random numbers and moving averages."""
    keras.utils.set_random_seed(3)
    own = [layers.Dropout(0.2), layers.BatchNormalization()] if by_chance else []
    model = keras.Sequential([layers.Input((8,)), layers.Dense(16, activation="tanh"), *own, layers.Dense(3)])
    model.compile(
        keras.optimizers.Adam(1e-2, use_ema=True, ema_overwrite_frequency=7),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def torch_network(*, by_chance: bool = False) -> Any:
    """The same, half of it modules of torch."""
    import torch

    class Mixed(keras.Model):
        """Keras' layers and torch's."""

        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.nn.Linear(8, 16)
            self.spread = torch.nn.BatchNorm1d(16) if by_chance else torch.nn.Identity()
            self.dense = layers.Dense(3)

        def call(self, inputs: Any, training: Any = None) -> Any:
            return self.dense(torch.tanh(self.spread(self.hidden(inputs), training=training)))

    keras.utils.set_random_seed(3)
    model = Mixed()
    model(X[:2], training=False)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


NETWORKS = {"keras": network} | ({"torch": torch_network} if BACKEND == "torch" else {})


def build(trial: Any) -> Any:
    """A classifier of a search."""
    model = keras.Sequential([layers.Input((8,)), layers.Dense(trial.suggest_int("width", 4, 16)), layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    return model


def fitted(model: Any, **settings: Any) -> tuple[Any, Any]:
    """The model, and the result."""
    return model, dt.fit(model, X, Y, batch_size=BATCH_SIZE, verbose=0, **settings)


def state_of(model: Any) -> list[np.ndarray]:
    """Weights, and the buffers of modules of torch."""
    buffers = [np.array(one) for one in model.buffers()] if BACKEND == "torch" else []
    return [*model.get_weights(), *buffers]


def check_same(one: Any, other: Any, tolerance: float = 0.0) -> None:
    for some, others in zip(state_of(one), state_of(other), strict=True):
        np.testing.assert_allclose(some, others, rtol=tolerance, atol=tolerance)


class RefusesTensorFlow(keras.callbacks.Callback):
    """Raises where a worker with another backend has imported TensorFlow."""

    def on_train_end(self, logs: Any = None) -> None:
        assert "tensorflow" not in sys.modules


class KillsOnce(keras.callbacks.Callback):
    """Kills its process, once."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) == 13 and not self.mark.exists():
            with suppress(FileExistsError):  # the other worker has come first
                self.mark.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)


class CountingLoss(keras.losses.Loss):
    """Grows with its calls; so does the layer, which begins with its class's number."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def call(self, y_true: Any, y_pred: Any) -> Any:
        self.calls += 1
        return keras.ops.square(keras.ops.expand_dims(y_true, -1) - y_pred) * (1 + 0.1 * self.calls)


class CountingLayer(layers.Dense):
    """See :class:`CountingLoss`."""

    calls = 0

    def call(self, inputs: Any, training: Any = None) -> Any:
        self.calls += 1
        return super().call(inputs) * (1 + 0.01 * self.calls)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_losses_and_layers_count_begins_as_in_keras_own_fit(client, workers):
    def counting() -> Any:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([layers.Input((8,)), CountingLayer(3)])
        model.compile(keras.optimizers.SGD(1e-2), CountingLoss())
        return model

    by_keras = counting()
    y = Y.astype(np.float32)
    by_keras.fit(X, y, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    ours = counting()
    dt.fit(ours, X, y, batch_size=BATCH_SIZE, shuffle=False, verbose=0, workers=workers)
    check_same(ours, by_keras, 1e-6)
    if not workers:
        assert (ours.loss.calls, ours.layers[-1].calls) == (by_keras.loss.calls, by_keras.layers[-1].calls)


@pytest.mark.skipif(BACKEND == "tensorflow", reason="test_fit_equivalence.py and others show it")
def test_workers_have_the_backend_of_the_client_and_train_its_model(client):
    for make in NETWORKS.values():
        alone = make()
        history = alone.fit(X, Y, epochs=2, batch_size=BATCH_SIZE, shuffle=False, verbose=0).history
        model, result = fitted(make(), epochs=2, shuffle=False, workers=2, callbacks=[RefusesTensorFlow()])
        check_same(model, alone, 1e-5)
        assert {name: pytest.approx(values, rel=1e-5) for name, values in history.items()} == result.history


@pytest.mark.parametrize("workers", [0, 2])
def test_weights_and_rows_of_bfloat16_train_as_by_keras_own_fit(client, workers):
    def rounded() -> Any:
        keras.utils.set_random_seed(3)
        model = keras.Sequential([layers.Input((8,)), layers.Dense(16, "tanh"), layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("bfloat16")
    try:
        alone, ours, before = rounded(), rounded(), rounded()
        rows = X.astype(ml_dtypes.bfloat16)
        settings = {"epochs": 2, "batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0}
        alone.fit(rows.astype(np.float32), Y, **settings)
        dt.fit(ours, rows, Y, workers=workers, **settings)
        scores = dt.evaluate(ours, rows, Y, batch_size=BATCH_SIZE, verbose=0)
    finally:
        keras.config.set_dtype_policy(policy)
    assert {weight.dtype for weight in ours.get_weights()} == {np.dtype(ml_dtypes.bfloat16)}
    found, wanted, begun = (
        np.concatenate([one.ravel().astype("f8") for one in model.get_weights()]) for model in (ours, alone, before)
    )
    assert np.linalg.norm(found - wanted) <= (0.05 if workers else 0.0) * np.linalg.norm(wanted - begun)
    assert scores["loss"] == pytest.approx(alone.evaluate(rows.astype(np.float32), Y, verbose=0), rel=0.02)


@pytest.mark.skipif(BACKEND != "jax", reason="of JAX, which copies large rows in threads of its own")
def test_workers_with_a_thread_each_do_not_wait_for_themselves_with_wide_rows(client):
    rows = da.random.default_rng(0).integers(0, 2, size=(640, 3000), chunks=(160, 3000))
    for _ in range(3):
        model = keras.Sequential([layers.Input((3000,)), layers.Dense(64, "relu"), layers.Dense(1)])
        model.compile("adam", "mse")
        with dask.config.set({"train.progress.timeout": "15s"}):
            result = dt.fit(model, rows, rows[:, :1], workers=2, epochs=2, batch_size=32, verbose=0)
        assert result.ledger.trained == 2 * len(rows)


@pytest.mark.skipif(BACKEND == "tensorflow", reason="test_fit_inputs.py and others show it")
def test_streamed_rows_train_the_same_model_with_its_metrics(client):
    x, y = da.from_array(X, chunks=(30, 8)), da.from_array(Y, chunks=30)
    given = {
        "epochs": 2,
        "workers": 2,
        "shuffle": False,
        "batch_size": BATCH_SIZE,
        "validation_data": (X, Y),
        "verbose": 0,
    }
    one, other = network(), network()
    wanted = dt.fit(one, x, y, **given).history
    found = dt.fit(other, x, y, streaming=4, **given).history
    assert found == {name: pytest.approx(scores, rel=1e-6) for name, scores in wanted.items()}, "rows lie elsewhere"
    check_same(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("make", NETWORKS.values(), ids=list(NETWORKS))
def test_what_was_stopped_or_killed_ends_as_if_it_had_not_been(client, make, tmp_path):
    whole, result = fitted(make(by_chance=True), epochs=3, workers=2)
    fitted(make(by_chance=True), epochs=1, workers=2, checkpoint=tmp_path / "stopped")
    resumed, again = fitted(make(by_chance=True), epochs=3, workers=2, checkpoint=tmp_path / "stopped", resume=True)
    check_same(resumed, whole)
    assert again.history == {name: pytest.approx(values, rel=1e-6) for name, values in result.history.items()}
    kept = dt.Checkpoint(tmp_path / "killed", every_steps=4)
    killed, _ = fitted(
        make(by_chance=True), epochs=3, workers=2, checkpoint=kept, callbacks=[KillsOnce(tmp_path / "mark")]
    )
    assert (tmp_path / "mark").exists()
    check_same(killed, whole)


class Followed(keras.callbacks.Callback):
    """Looks from where it is called; can't be sent."""

    def __init__(self, raises_in: int | None = None) -> None:
        super().__init__()
        self.raises_in, self.lock, self.seen = raises_in, threading.Lock(), []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append((threading.current_thread(), self.model, dict(logs)))
        if epoch == self.raises_in:
            raise BrokenError(f"in epoch {epoch}")


class WaitsInEpoch(keras.callbacks.Callback):
    """Lets all workers wait in one epoch until a file is there."""

    def __init__(self, epoch: int, file: Path) -> None:
        super().__init__()
        self.epoch, self.file = epoch, file

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        deadline = time.monotonic() + 60.0
        while epoch == self.epoch and not self.file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)


class BrokenError(Exception):
    """The user's own."""


def belongings() -> tuple[Any, ...]:
    """What a run in this process might leave here: processes, its own threads, files in memory."""
    gc.collect()
    own = sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("dask-train"))
    files = [os.readlink(file.path) for file in os.scandir("/proc/self/fd") if os.path.lexists(file.path)]
    memory = sorted(file for file in files if "memfd:dask-train" in file)
    return len(psutil.Process().children()), own, memory


@pytest.mark.slow
@pytest.mark.parametrize("make", NETWORKS.values(), ids=list(NETWORKS))
def test_without_workers_this_process_trains_as_one_would(client, wait_for, make, tmp_path):
    process_pool().keep_warm_s = 0.05
    before = belongings()
    settings = {"validation_data": (X[:90], Y[:90]), "seed": 3}
    whole, followed = make(by_chance=True), Followed()
    _, result = fitted(whole, epochs=2, workers=0, callbacks=[followed], **settings)
    wait_for(lambda: belongings() == before, "nothing is left")
    assert [(one, other) for one, other, _ in followed.seen] == [(threading.current_thread(), whole)] * 2
    assert whole.history.history == result.history
    assert result.ledger.trained == 2 * ROWS
    # What another process has begun this one ends, and it is the same.
    fitted(make(by_chance=True), epochs=1, workers=1, checkpoint=tmp_path, **settings)
    resumed, again = fitted(make(by_chance=True), epochs=2, workers=0, checkpoint=tmp_path, resume=True, **settings)
    check_same(resumed, whole)
    assert again.history == result.history
    with pytest.raises(BrokenError, match="in epoch 1"):
        fitted(whole, epochs=3, workers=0, callbacks=[Followed(raises_in=1)], checkpoint=tmp_path / "broken")
    wait_for(lambda: belongings() == before, "nothing is left")
    assert np.isfinite(whole.evaluate(X, Y, verbose=0)).all(), "Keras goes on with it"


@pytest.mark.slow
def test_a_scorer_validates_beside_workers_that_train_together(client, tmp_path):
    epochs, validation = 6, (X[:95], Y[:95])
    alone = network()
    alone.fit(X, Y, epochs=epochs, batch_size=BATCH_SIZE, shuffle=False, validation_data=validation, verbose=0)
    expected = alone.history.history
    model, settings = network(), {"shuffle": False, "scorer": 1, "validation_data": validation}
    killed = tmp_path / "killed"
    waits = [WaitsInEpoch(2, killed)]
    kept = dt.Checkpoint(tmp_path / "kept", best="val_loss")
    _, run = fitted(model, epochs=epochs, workers=2, wait=False, callbacks=waits, checkpoint=kept, **settings)
    for score in run.scores():  # the first that it finds; its next attempt finds the last
        if score["role"] == "scorer" and not killed.exists():
            (pid,) = [role["pid"] for role in run.status()["roles"] if role["role"] == "scorer"]
            os.kill(pid, signal.SIGKILL)
            killed.touch()
    result = run.result()
    check_same(model, alone, 1e-5)
    found = [score for score in result.scores if score["role"] == "scorer"]
    assert [score["epoch"] for score in found] == sorted(score["epoch"] for score in found)
    assert [score["attempt"] for score in found][:: len(found) - 1] == [0, 1]
    for name in ("val_loss", "val_accuracy"):
        values = np.array(result.history[name])
        seen = ~np.isnan(values)
        assert (len(values), seen[-1]) == (epochs, True)
        np.testing.assert_allclose(values[seen], np.array(expected[name])[seen], rtol=1e-4)
        assert all(values[score["epoch"]] == score[name] for score in found)
    np.testing.assert_allclose(result.history["loss"], expected["loss"], rtol=1e-4)
    # Another call goes on with what was found, and stops by what is.
    stops, best = {"epochs": 100, "stop": "val_loss < 10"}, replace(kept, restore_best=True)
    model, again = fitted(network(), workers=1, resume=True, checkpoint=best, **stops, **settings)
    for one, other in zip(again.history["val_loss"], result.history["val_loss"], strict=False):
        assert np.isnan(one) or one == pytest.approx(other)
    assert "val_loss" in again.stop_reason
    # The best one has the very weights that the scorer has validated, while others were trained already.
    scores = np.array(again.history["val_loss"])
    # What was found after the last checkpoint of the first call is known of the best one alone.
    scores[:epochs] = np.where(np.isnan(scores[:epochs]), result.history["val_loss"], scores[:epochs])
    assert again.best_epoch == np.nanargmin(scores)
    assert model.evaluate(*validation, verbose=0)[0] == pytest.approx(np.nanmin(scores), rel=1e-5)
    with pytest.raises(ValueError, match="looks at 'val_loss' when an epoch ends, and a scorer finds it later"):
        fitted(network(), callbacks=[keras.callbacks.EarlyStopping()], **settings)


@pytest.mark.slow
@pytest.mark.parametrize("make", NETWORKS.values(), ids=list(NETWORKS))
def test_a_parameter_server_applies_what_one_process_would(client, make):
    alone = make()
    alone.fit(X, Y, epochs=2, batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    model, _ = fitted(make(), epochs=2, shuffle=False, workers=1, ps=1)
    check_same(model, alone, 1e-5 if BACKEND == "jax" else 0.0)  # JAX compiles gradients and apply in one there
    _, result = fitted(
        make(by_chance=True), epochs=6, workers=2, ps=2, scorer=1, validation_data=(X[:90], Y[:90]), stop="loss < 0.3"
    )
    assert result.history["loss"][-1] < result.history["loss"][0]
    validated = [scores for scores in result.scores if "val_accuracy" in scores]
    assert validated  # how good it is by then, one process does not know either: averages take the weights' place
    assert all(np.isfinite(scores["val_loss"]) for scores in validated)


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "tensorflow", reason="test_search.py and test_predict.py show it")
def test_the_best_of_a_search_predicts_and_is_evaluated(client):
    held_out = X[:90], Y[:90]
    settings = {"trials": 2, "epochs": 2, "batch_size": BATCH_SIZE, "concurrency": 2, "validation_data": held_out}
    found = dt.search(build, X, Y, sampler=optuna.samplers.GridSampler({"width": [4, 16]}), **settings)
    assert [trial.state.name for trial in found.trials] == ["COMPLETE"] * 2
    model = found.best_model
    assert model.evaluate(*held_out, verbose=0)[1] == pytest.approx(found.best_value, rel=1e-5)
    assert dt.evaluate(model, *held_out, verbose=0)["accuracy"] == pytest.approx(found.best_value, rel=1e-5)
    said = dt.predict(model, da.from_array(X, chunks=(100, 8))).compute()  # predict_to: test_predict_backends.py
    np.testing.assert_allclose(said, model.predict(X, verbose=0), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(BACKEND == "tensorflow", reason="test_two_hosts.py shows it")
def test_workers_of_two_hosts_train_the_model_of_one_process(hosts):
    settings = {"epochs": 2, "batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0}
    alone, model = network(), network()
    history = alone.fit(X, Y, **settings).history
    with hosts(2, threads=2) as cluster:
        data = da.from_array(X, chunks=(70, 8)), da.from_array(Y, chunks=70)
        result = dt.fit(model, *data, workers=2, client=cluster.client, **settings)
        check_same(model, alone, 1e-5)
        assert result.history == {name: pytest.approx(values, rel=1e-5) for name, values in history.items()}
        assert {cluster.host_of(place) for place in result.attempts[0].places.values()} == {0, 1}
        scores = dt.evaluate(model, *data, client=cluster.client, verbose=0)
        assert scores == pytest.approx(alone.evaluate(X, Y, verbose=0, return_dict=True), rel=1e-4)
        said = cluster.client.compute(dt.predict(model, data[0], client=cluster.client)).result(60)
        np.testing.assert_allclose(said, alone.predict(X, verbose=0), rtol=1e-4, atol=1e-5)
        if BACKEND == "torch":
            check_module_of_two_hosts(cluster, data, settings)


def check_module_of_two_hosts(cluster: Any, data: Any, settings: Any) -> None:
    """A plain module, whose outputs stay on their hosts, against the loop by hand."""
    import torch

    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).double()
    wanted, loss = copy.deepcopy(module), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(wanted.parameters())
    for at in 2 * list(range(0, ROWS, BATCH_SIZE)):
        optimizer.zero_grad()
        x, y = torch.from_numpy(X[at : at + BATCH_SIZE]).double(), torch.from_numpy(Y[at : at + BATCH_SIZE])
        loss(wanted(x), y).backward()
        optimizer.step()
    dt.fit(module, *data, loss=loss, optimizer=torch.optim.Adam, workers=2, client=cluster.client, **settings)
    for one, other in zip(module.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    scores = dt.evaluate(module, *data, loss=loss, client=cluster.client, verbose=0)
    with torch.no_grad():
        assert scores["loss"] == pytest.approx(loss(wanted(torch.from_numpy(X).double()), torch.from_numpy(Y)).item())
