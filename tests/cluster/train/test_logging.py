"""Runs, trainings and searches in MLflow, on a server of its own with SQLite, and in TensorBoard's files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client

import dask_train as dt
from dask_train.report import Score
from dask_train.report.curves import accuracy_curve, loss_curve

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bar for files that are fetched here: it would leave a thread of tqdm's behind."""
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")


@pytest.fixture(scope="module", autouse=True)
def fonts(fresh_cluster: None) -> None:
    """What matplotlib keeps open from its first figure on is there before the cluster, which looks for such."""
    scores = [Score(time_s=at, loss=1.0, accuracy=0.5, step=None, rows_trained=None) for at in (0.0, 1.0)]
    loss_curve(scores, None, None)
    accuracy_curve(scores)


@pytest.fixture(scope="module")
def server(
    train_client: Client,  # ends after the server
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The address of MLflow's own server."""
    pytest.importorskip("mlflow")
    folder = tmp_path_factory.mktemp("mlflow")
    port = free_port()
    where = ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", f"{folder}/artifacts"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *where, "--port", str(port), "--workers", "1"],
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_until_up(process, f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        from mlflow.utils import request_utils

        request_utils._cached_get_request_session.cache_clear()  # keeps connections for good


def _wait_until_up(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "MLflow's server has ended"
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own server
            assert answer.read() == b"OK"
            return
        time.sleep(0.2)
    raise AssertionError("MLflow's server does not answer")


def runs_of(uri: str, experiment: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    return client.search_runs([client.get_experiment_by_name(experiment).experiment_id], order_by=["start_time"])


def history(uri: str, run: Any, metric: str) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    found = MlflowClient(tracking_uri=uri).get_metric_history(run.info.run_id, metric)
    return [(each.step, each.value) for each in found]


def artifact(uri: str, run: Any, name: str, folder: Path) -> Path:
    from mlflow import MlflowClient

    return Path(MlflowClient(tracking_uri=uri).download_artifacts(run.info.run_id, name, str(folder)))


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard's own reader finds in a folder's event file."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    (path,) = folder.glob("events.out.tfevents.*")
    from tensorboard.compat.tensorflow_stub.errors import OutOfRangeError

    reader, found = PyRecordReader_New(str(path)), {}
    while True:
        try:
            reader.GetNext()
        except OutOfRangeError:
            return found
        event = Event.FromString(reader.record())
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                found.setdefault(value.tag, []).append((event.step, value.simple_value))


def test_a_run_in_all_places_at_once(client: Client, server: str, tmp_path: Path) -> None:
    def worker(session: Any) -> None:
        for step in range(5):
            session.report(step=step, loss=1 / (1 + step) + session.rank)

    seen: list[dict[str, Any]] = []
    log = [dt.logging.MLflow(server, "any loop"), dt.logging.TensorBoard(tmp_path), seen.append]
    result = dt.train(worker, roles={"worker": 2}, log=log)
    assert result.notices == []
    assert seen == result.scores
    (run,) = runs_of(server, "any loop")
    assert (run.info.run_name, run.info.status) == (result.run_id, "FINISHED")
    assert run.data.params["worker"] == "2"
    curve = [(step, 1 / (1 + step)) for step in range(5)]
    assert history(server, run, "loss") == curve
    assert history(server, run, "rank 1/loss") == [(step, value + 1) for step, value in curve]
    ledger = json.loads(artifact(server, run, "ledger.json", tmp_path).read_text())
    assert ledger["read"] == 0
    written = scalars(tmp_path / result.run_id)
    assert written["loss"] == [(step, pytest.approx(value)) for step, value in curve]
    assert (tmp_path / result.run_id / "ledger.json").exists()


def test_a_server_that_is_not_there_is_said_and_the_run_goes_on(client: Client) -> None:
    def worker(session: Any) -> int:
        session.report(loss=1.0)
        return 5

    with dask.config.set({"train.logging.timeout": "0.2s"}):
        result = dt.train(worker, roles={"worker": 1}, log=dt.logging.MLflow("http://127.0.0.1:1"))
    assert result.results == {"worker": [5]}
    first, last = result.notices[0], result.notices[-1]
    assert "MLflow at http://127.0.0.1:1 takes nothing now: ConnectionRefusedError" in first
    assert "never took" in last


def test_a_training_and_a_search_with_its_trials(client: Client, server: str, tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    x = np.random.default_rng(0).random((256, 4), np.float32)

    def build(trial: Any) -> Any:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(trial.suggest_int("units", 1, 4))])
        model.add(keras.layers.Dense(1))
        model.compile(keras.optimizers.SGD(0.05), "mse")
        return model

    log = [dt.logging.MLflow(server, "keras"), dt.logging.TensorBoard(tmp_path / "ours")]
    optuna = pytest.importorskip("optuna")
    model = build(optuna.trial.FixedTrial({"units": 2}))
    own = keras.callbacks.TensorBoard(str(tmp_path / "keras"))
    result = dt.fit(model, x, x.sum(1), epochs=3, workers=2, callbacks=[own], validation_split=0.25, log=log)
    (run,) = runs_of(server, "keras")
    assert {name: run.data.params[name] for name in ("epochs", "batch_size", "optimizer", "loss")} == {
        "epochs": "3",
        "batch_size": "32",
        "optimizer": "SGD",
        "loss": "mse",
    }
    assert float(run.data.params["learning_rate"]) == pytest.approx(0.05)
    for name in ("loss", "val_loss"):
        assert history(server, run, name) == [(n, pytest.approx(value)) for n, value in enumerate(result.history[name])]
    kept = keras.saving.load_model(artifact(server, run, "model.keras", tmp_path))
    np.testing.assert_array_equal(kept.get_weights()[0], model.get_weights()[0])
    assert "<svg" in artifact(server, run, "report.html", tmp_path).read_text()
    assert len(scalars(tmp_path / "ours" / result.run_id)["val_loss"]) == 3
    assert list((tmp_path / "keras").rglob("events.out.tfevents.*")), "Keras' own callback writes as ever"

    found = dt.search(
        build, x, x.sum(1), validation_split=0.25, metric="val_loss", direction="minimize", trials=2, epochs=2, log=log
    )
    search, *trials = runs_of(server, "keras")[1:]
    assert search.info.run_name == found.study.study_name
    assert search.data.metrics["best_value"] == pytest.approx(found.best_value)
    assert artifact(server, search, "best_model.keras", tmp_path).exists()
    assert len(trials) == 2
    for trial in trials:
        assert trial.data.tags["mlflow.parentRunId"] == search.info.run_id
        number = int(trial.info.run_name.partition("-")[2])
        assert trial.data.params["units"] == str(found.trials[number].params["units"])
        assert trial.data.metrics["value"] == pytest.approx(found.trials[number].value)
        assert [step for step, _ in history(server, trial, "val_loss")] == [0, 1]
    assert (tmp_path / "ours" / found.study.study_name / "trial-1").is_dir()


def test_modules_of_torch_and_boosted_trees(client: Client, server: str, tmp_path: Path) -> None:
    torch, xgboost, lightgbm = (pytest.importorskip(name) for name in ("torch", "xgboost", "lightgbm"))
    x = np.random.default_rng(0).random((256, 4), np.float32)
    y = (x[:, 0] > 0.5).astype(np.int64)
    log = [dt.logging.MLflow(server, "others"), dt.logging.TensorBoard(tmp_path / "ours")]
    module = torch.nn.Linear(4, 2)
    how = {"validation_data": (x[:64], y[:64]), "workers": 2, "log": log}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    trained = [dt.fit(module, x, y, loss=torch.nn.CrossEntropyLoss(), optimizer=optimizer, epochs=3, **how)]
    boosted = xgboost.XGBClassifier(n_estimators=4, max_depth=2, learning_rate=0.5)
    forest = lightgbm.LGBMClassifier(n_estimators=4, max_depth=2, verbose=-1)
    trained += [dt.fit(estimator, x, y, **how) for estimator in (boosted, forest)]

    runs = runs_of(server, "others")
    assert [run.info.run_name for run in runs] == [result.run_id for result in trained]
    by_model = {run.data.params["model"]: run for run in runs}
    assert by_model["Linear"].data.params["optimizer/lr"] == "0.05"
    assert by_model["XGBClassifier"].data.params["max_depth"] == "2"
    assert "subsample" not in by_model["XGBClassifier"].data.params, "what the library chooses"
    scores = {"Linear": "val_loss", "XGBClassifier": "val_logloss", "LGBMClassifier": "val_binary_logloss"}
    files = {"Linear": "state_dict.pt", "XGBClassifier": "model.ubj", "LGBMClassifier": "model.txt"}
    for result, (model, name) in zip(trained, scores.items(), strict=True):
        first = 0 if model == "Linear" else 1  # epochs are counted from 0, rounds from 1
        points = [(n, pytest.approx(value)) for n, value in enumerate(result.history[name], first)]
        assert history(server, by_model[model], name) == points
        assert len(scalars(tmp_path / "ours" / result.run_id)[name]) == len(points)
        assert json.loads(artifact(server, by_model[model], "ledger.json", tmp_path).read_text())["trained"] > 0
        assert name in artifact(server, by_model[model], "report.html", tmp_path).read_text()
        assert (tmp_path / "ours" / result.run_id / files[model]).exists()
    again = xgboost.XGBClassifier()
    again.load_model(artifact(server, by_model["XGBClassifier"], "model.ubj", tmp_path))
    np.testing.assert_array_equal(again.predict(x), boosted.predict(x))
