"""Every verb that reads or writes a URL takes ``storage_options=``; a store that fails is told of, and no secret is."""

from __future__ import annotations

import os
import re
import signal
import traceback
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import torch
from distributed import Client
from zarr.core.sync import cleanup_resources

import dask_train as dt
from dask_train.errors import PredictionError

X = np.arange(60.0, dtype="f4").reshape(20, 3)
ALL = ["GET", "HEAD", "PUT", "POST"]
XML = {"Content-Type": "application/xml"}
JSON = {"Content-Type": "application/json"}
# What the stores' documentation says that they answer.
BUSY = {
    "s3": {"status": 503, "headers": XML, "body": "<Error><Code>SlowDown</Code><Message>slow</Message></Error>"},
    "gs": {"status": 503, "headers": JSON, "body": '{"error": {"code": 503, "message": "Try again."}}'},
    "abfs": {
        "status": 503,
        "headers": {**XML, "x-ms-error-code": "ServerBusy"},
        "body": "<?xml version='1.0'?><Error><Code>ServerBusy</Code><Message>The server is busy.</Message></Error>",
    },
}
REFUSED = {
    "s3": {"status": 403, "headers": XML, "body": "<Error><Code>ExpiredToken</Code><Message>old</Message></Error>"},
    "gs": {"status": 403, "headers": JSON, "body": '{"error": {"code": 403, "message": "no access"}}'},
    "abfs": {
        "status": 403,
        "headers": {**XML, "x-ms-error-code": "AuthenticationFailed"},
        "body": "<?xml version='1.0'?><Error><Code>AuthenticationFailed</Code><Message>old</Message></Error>",
    },
}


@pytest.fixture(scope="module")
def client(store, local_clusters):
    """Of Dask workers that, as this process, know nothing of the store from their environment."""
    with local_clusters() as make, Client(make(n_workers=2, threads_per_worker=1)) as client:
        yield client


def doubled(x):
    return 2 * x


def lazy():
    return da.from_array(X, chunks=(6, 3))


def shown(error):
    return "".join(traceback.format_exception(error)) + repr(error)


def test_a_model_is_saved_and_predicts_and_is_evaluated_from_there(store, client):
    torch.manual_seed(0)
    options, module = store.options, torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=X.sum(axis=1))
    loss = torch.nn.MSELoss()
    result = dt.fit(
        module,
        frame,
        features=["a", "b", "c"],
        label="y",
        loss=loss,
        optimizer=torch.optim.SGD(module.parameters(), 1e-6),
        epochs=1,
        workers=0,
    )
    url = f"{store.url}/model"
    result.save(url, storage_options=options)
    assert store.files(url) == ["model.pt", "schema.json"]
    found = dt.predict(url, frame, storage_options=options, client=client).compute()
    wanted = dt.predict(module, frame, client=client).compute()
    np.testing.assert_array_equal(found, wanted)
    schema = dt.predict(module, frame[["c", "b", "a"]], schema=url, storage_options=options, client=client).compute()
    np.testing.assert_array_equal(schema, wanted)
    scores = dt.evaluate(url, frame, label="y", loss=loss, workers=1, storage_options=options, verbose=0, client=client)
    assert scores == dt.evaluate(module, frame, label="y", loss=loss, workers=1, verbose=0, client=client)
    loaded = dt.FrameSchema.load(url, storage_options=options)
    assert loaded == result.schema
    by_schema = dt.predict(module, frame[["c", "b", "a"]], schema=loaded, client=client).compute()
    np.testing.assert_array_equal(by_schema, wanted)
    page = f"{store.url}/run.html"
    assert result.report(page, storage_options=options) == page
    content = store.system.cat_file(page)
    assert b"<html" in content
    assert [secret for secret in store.secrets if secret.encode() in content] == []


def test_a_schema_is_loaded_with_credentials_that_are_passed_and_errors_show_none(store):
    options, schema = store.options, dt.FrameSchema.of(pd.DataFrame({"kind": pd.Categorical(["u", "v"])}))
    url = f"{store.url}/alone/schema.json"
    schema.save(url, storage_options=options)
    for place in (url, f"{store.url}/alone"):  # a file, and a folder with that file
        assert dt.FrameSchema.load(place, storage_options=options) == schema
    store.system.pipe_file(f"{store.url}/table.json", b'{"columns": ["a"], "data": [[1]]}')
    store.system.pipe_file(f"{store.url}/plain/schema.json", b'{"format": 1, "columns": null}')
    errors = []
    for name, why in (
        ("gone.json", "does not exist"),
        ("table.json", "holds no schema"),
        ("plain", "is of a model that was saved without a schema"),
    ):
        with pytest.raises(ValueError, match=rf"^path='{store.url}/{name}' {why}\. Pass") as caught:
            dt.FrameSchema.load(f"{store.url}/{name}", storage_options=options)
        errors.append(caught.value)
    store.fails({"methods": ALL, "times": 1000, **REFUSED[store.name]})
    with pytest.raises(ValueError, match=r"(?s)^path='.*can't be reached.*have expired.*storage_options=") as caught:
        dt.FrameSchema.load(url, storage_options=options)
    store.fails()
    errors.append(caught.value)
    assert [secret for secret in store.secrets if any(secret in shown(error) for error in errors)] == []


@pytest.mark.slow
def test_the_program_of_the_page_runs(store, client):
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    page = Path(__file__).parents[3] / "docs" / "object_stores.md"
    program, of_schema = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    given = re.compile(r"options = \{.*?\n\}\n", re.DOTALL)
    assert given.search(program)
    program = given.sub(lambda _: f"options = {store.options!r}\n", program).replace("s3://bucket", store.url)
    names = {"dt": dt, "model": model, "X": X / 60, "y": X[:, :1] / 60}
    exec(program, names)  # noqa: S102 - our own page
    trained = names["result"].model.predict(X / 60, verbose=0)
    np.testing.assert_allclose(names["scores"].compute(), trained, rtol=1e-6)
    assert any(name.endswith(".json") for name in store.files(f"{store.url}/run"))
    names["frame"] = pd.DataFrame(X / 60, columns=["a", "b", "c"]).assign(late=X[:, 0] / 60)
    schema = dt.FrameSchema.of(names["frame"], ["a", "b", "c"], "late")
    schema.save(f"{store.url}/flights", storage_options=store.options)
    exec(of_schema.replace("s3://bucket", store.url), names)  # noqa: S102 - our own page
    assert names["result"].schema == schema


def test_a_keras_file_is_read_by_each_process_with_its_options(store, client):
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    result = dt.fit(model, X, X[:, :1], epochs=1, batch_size=5, workers=0, verbose=0)
    url = f"{store.url}/deeper/model.keras"
    result.save(url, storage_options=store.options)
    found = dt.predict(url, lazy(), storage_options=store.options, client=client)
    np.testing.assert_array_equal(found.compute(), dt.predict(model, lazy(), client=client).compute())
    assert [secret for secret in store.secrets if secret in f"{found!r} {dict(found.dask)!r}"] == []


@pytest.mark.parametrize("name", ["passed", "passed.zarr"])
def test_what_is_busy_for_a_while_is_written_all_the_same(store, client, name):
    url = f"{store.url}/{name}"
    store.fails({"methods": ["PUT", "POST"], "told": "part-0|%2Fc%2F|/c/", "times": 1, **BUSY[store.name]})
    result = dt.predict_to(url, doubled, lazy(), storage_options=store.options, client=client)
    assert store.failed() == [1]
    assert (result.num_parts, result.num_written) == (4, 4)
    assert [secret for secret in store.secrets if secret in repr(result)] == []
    if name.endswith(".zarr"):
        cleanup_resources()  # Zarr's threads would stay until the end


@pytest.mark.nightly
def test_a_store_that_stays_busy_is_told_of_after_some_tries(store, client):
    url = f"{store.url}/busy"
    store.fails({"methods": ["PUT", "POST"], "told": "part-00002", "times": 1000, **BUSY[store.name]})
    with pytest.raises(dt.PredictionError, match=r"(?s)Part 2 can't be written.*The store is busy or limits requests"):
        dt.predict_to(url, doubled, lazy(), storage_options=store.options, client=client)
    (tries,) = store.failed()
    assert 1 < tries < 50
    store.fails()
    assert dt.predict_to(url, doubled, lazy(), storage_options=store.options, client=client).num_parts == 4


def test_credentials_that_expire_are_told_and_what_is_written_stays(store, client):
    url, refused = f"{store.url}/expired", {"methods": ALL, "times": 1000, **REFUSED[store.name]}
    store.fails({**refused, "told": "part-00002"})
    with pytest.raises(
        PredictionError, match=r"(?s)Part 2 can't be written .*have expired.*storage_options="
    ) as caught:
        dt.predict_to(url, doubled, lazy(), storage_options=store.options, client=client)
    assert [secret for secret in store.secrets if secret in shown(caught.value)] == []
    store.fails(refused)
    with pytest.raises(ValueError, match=r"(?s)can't be written to from here.*have expired") as early:
        dt.predict_to(url, doubled, lazy(), storage_options=store.options, client=client)
    assert [secret for secret in store.secrets if secret in shown(early.value)] == []
    with pytest.raises(ValueError, match=r"(?s)model='.*have expired"):
        dt.predict(f"{store.url}/gone", lazy(), storage_options=store.options, client=client)
    store.fails()
    left = dt.predict_to(url, doubled, lazy(), storage_options=store.options, client=client)
    assert 1 <= left.num_written < left.num_parts
    parts = [np.load(store.system.open(f"{url}/part-{number:05}.npy")) for number in range(4)]
    np.testing.assert_array_equal(np.concatenate(parts), 2 * X)


def test_a_checkpoint_that_was_being_uploaded_at_a_kill_does_not_count(store, client, wait_for):
    def worker(session):
        kept = session.load_checkpoint()
        found = None if kept is None else float(np.load(kept / "state.npy")[0])
        session.report(pid=os.getpid())
        if found is None:
            session.save_checkpoint(lambda folder: np.save(folder / "state.npy", np.array([1.0])))
        session.save_checkpoint(lambda folder: np.save(folder / "state.npy", np.full(200_000, 2.0)))
        return found

    store.fails({"methods": ["PUT", "POST"], "min_bytes": 1_000_000, "hold": True})
    place = dt.Checkpoint(f"{store.url}/torn", storage_options=store.options)
    run = dt.train(worker, roles={"worker": 1}, checkpoint=place, client=client, wait=False)
    wait_for(lambda: store.failed() == [1], "an upload")
    os.kill(next(iter(run.scores()))["pid"], signal.SIGKILL)
    result = run.result()
    assert (len(result.attempts), result.results["worker"]) == (2, [1.0])
    again = dt.train(worker, roles={"worker": 1}, checkpoint=place, resume=True, client=client)
    assert again.results["worker"] == [2.0]
    assert again.notices == []
