"""What MLflow takes: names of some letters, and a server that is there; on a cluster it is used whole."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from mlflow import MlflowClient, pyfunc
from mlflow.utils.validation import _validate_metric_name
from sklearn.linear_model import LinearRegression

from dask_train.logging import mlflow
from dask_train.logging.base import Ending, Start


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("val_loss", "val_loss"),
        ("lr: a/b-c.d e", "lr: a/b-c.d e"),
        ("f(x)=[1,2]", "f_x___1_2_"),
        ("x" * 300, "x" * 250),
        ("a//b", "a/_/b"),
        ("/x", "_/x"),
        ("x/", "x/_"),
        ("a/../b", "a/_/b"),
        ("..", "_"),
        ("..x", "_.x"),
        ("", "_"),
        ("acc.", "acc."),
        ("x" * 249 + "/y", "x" * 249),
        ("x" * 248 + "/.y", "x" * 248),
    ],
)
def test_names(name, taken):
    assert mlflow._name(name) == taken
    _validate_metric_name(taken)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_server_that_is_not_there_is_seen_at_once(no_leaks):
    with no_leaks(), socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(OSError, match="refused"):
            mlflow._check_reached(uri)
        bound.listen()
        mlflow._check_reached(f"{uri}/below")


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "all_proxy"])
def test_a_server_behind_a_proxy_is_not_looked_for(name, monkeypatch):
    asked = []
    monkeypatch.setenv(name, "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example.org")
    monkeypatch.setattr(socket, "create_connection", lambda address, timeout: asked.append(address) or socket.socket())
    mlflow._check_reached("https://user:word@mlflow.example.org/below")
    assert asked == []
    mlflow._check_reached("https://user:word@inside.example.org/below")
    assert asked == [("inside.example.org", 443)]


@pytest.mark.parametrize("uri", ["file:///tmp/runs", "sqlite:///runs.db", "databricks", "/runs"])
def test_what_is_no_server_is_not_asked(uri, monkeypatch):
    monkeypatch.setattr(socket, "create_connection", None)
    mlflow._check_reached(uri)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A tracking store in a folder, which needs no server."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return f"file://{tmp_path}/runs"


def log(store, name, checkpoint="", *, resumes=False, status="finished", **params):
    """A run that tells one score, and ends."""
    start = Start(run=name, params=params, time=1000.0 + int(name[1:]), checkpoint=checkpoint, resumes=resumes)
    sink = mlflow.MLflow(store, "flights").open(start, None)
    sink.write([{"epoch": int(name[1:]), "num_steps": 1, "loss": 0.5, "time": 1.0}])
    sink.end(Ending(status=status, reason="the end", time=2.0))


def runs_in(store):
    client = MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("flights").experiment_id
    return client, client.search_runs([experiment], order_by=["attributes.start_time"])


def test_a_run_that_resumes_continues_the_one_with_the_same_checkpoints(store):
    log(store, "r0", "/ck's", status="failed", epochs=3, seed=7)
    log(store, "r1", "/other", epochs=3)
    log(store, "r2", "/ck's", resumes=True, epochs=5, seed=7, batch_size=32)
    client, (first, other) = runs_in(store)
    assert (first.info.status, other.info.status) == ("FINISHED", "FINISHED")
    assert [point.step for point in client.get_metric_history(first.info.run_id, "loss")] == [0, 2]
    assert [point.step for point in client.get_metric_history(other.info.run_id, "loss")] == [1]
    assert first.data.params == {"epochs": "3", "seed": "7", "batch_size": "32"}
    assert first.data.tags["dask_train.changed"] == "epochs: 5"
    assert (first.info.run_name, first.data.tags["dask_train.run"]) == ("r0", "r2")


def test_reports_that_are_counted_go_on_where_the_run_that_is_continued_ended(store, monkeypatch):
    start = Start(run="r0", params={}, time=1000.0, checkpoint="/ck", resumes=True)
    for _ in range(2):
        sink = mlflow.MLflow(store, "flights").open(start, None)
        with monkeypatch.context() as patched:
            patched.setattr(mlflow, "_check_reached", lambda uri: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                sink.write([{"reward": 0.5, "time": 1.0}])
        sink.write([{"reward": 0.5, "time": 1.0}])
    client, (run,) = runs_in(store)
    assert [point.step for point in client.get_metric_history(run.info.run_id, "reward")] == [0, 1, 2, 3]


def test_a_run_that_starts_anew_or_finds_none_is_one_of_its_own(store):
    log(store, "r0", "/ck", epochs=3)
    log(store, "r1", "/ck", epochs=3)
    log(store, "r2", "/new", resumes=True)
    log(store, "r3")
    client, runs = runs_in(store)
    assert [run.info.run_name for run in runs] == ["r0", "r1", "r2", "r3"]
    log(store, "r4", "/ck", resumes=True)
    assert [len(client.get_metric_history(run.info.run_id, "loss")) for run in runs] == [1, 2, 1, 1], "the last one"


def test_no_secret_of_a_checkpoint_goes_to_mlflow(store):
    log(store, "r0", "s3://key:secret@host/ck")
    _, (run,) = runs_in(store)
    assert "secret" not in str(run.data.tags)


@pytest.mark.filterwarnings("ignore:.*inferred as AnyType:UserWarning")
def test_an_estimator_is_an_artifact_that_mlflow_opens(store, monkeypatch):
    sink = mlflow.MLflow(store, "flights").open(Start(run="r", params={}, time=1.0), None)
    sink.keep_model(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), None)
    client, (run,) = runs_in(store)
    folder = client.download_artifacts(run.info.run_id, "model")
    assert pyfunc.load_model(folder).predict(np.array([[0.5]])) == pytest.approx([0.5])
    sink.keep_model(object(), None)  # of no flavour: its file is there

    def fails(model, folder, example):
        raise ValueError("no skops")

    monkeypatch.setattr(mlflow, "write_model", fails)
    sink.keep_model(LinearRegression(), None)
    _, (run,) = runs_in(store)
    assert run.data.tags["dask_train.model"] == "not in MLflow's format: ValueError: no skops"
