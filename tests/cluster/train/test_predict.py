"""Prediction on real Dask workers, in real model processes; nothing of which is there afterwards."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from distributed.comm.tcp import TCP
from sklearn.linear_model import LinearRegression

import dask_train as dt
from dask_train.predicting.model_pool import ModelProcesses

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what frameworks warn of when they are imported
    import keras

pytestmark = pytest.mark.slow  # many TensorFlow processes

RNG = np.random.default_rng(11)
SPRUNG = 1e6  # a row with this springs a trap


@pytest.fixture(autouse=True)
def _few_seconds(client: Client) -> Iterator[None]:
    """Processes end soon after use, so that each test can see that they do."""
    with dask.config.set({"train.predict.idle": "100ms"}):
        yield
    gc.collect()  # an error and the frames that it came through refer to each other, and to the collection


class Trap(keras.layers.Layer):
    """Does something to its process when a row has :data:`SPRUNG`; unless it has done so before, where told."""

    def __init__(self, what: str, once: str = "", **others: Any) -> None:
        super().__init__(**others)
        self.what, self.once = what, once

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "what": self.what, "once": self.once}

    def call(self, x: Any) -> Any:
        if hasattr(x, "numpy") and (x.numpy() == SPRUNG).any() and not (self.once and os.path.exists(self.once)):
            if self.once:
                Path(self.once).touch()
            print(f"last words of {self.what}", flush=True)
            if self.what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.what == "hang":
                time.sleep(1000)
            else:
                raise ZeroDivisionError("no such row")
        return x


def trapped(what: str, once: Any = "") -> Any:
    """A model that is run row by row in Python, so that traps can spring."""
    model = keras.Sequential([keras.Input((3,)), Trap(what, str(once)), keras.layers.Dense(2)])
    model.compile(run_eagerly=True)
    return model


def rows(num: int, *sprung: int) -> tuple[np.ndarray, da.Array]:
    """Rows in chunks of 10, some of which spring traps."""
    x = RNG.normal(size=(num, 3)).astype("f4")
    x[list(sprung), 0] = SPRUNG
    return x, da.from_array(x, chunks=(10, 3))


def by_hand(model: Any, x: np.ndarray) -> np.ndarray:
    """What a dense layer behind a trap makes of rows."""
    weights, bias = model.layers[-1].get_weights()
    return x @ weights + bias


def failure(kind: type[Exception], lazy: Any) -> str:
    """What computing raises; without the frames that it came through, which would keep the collection."""
    with pytest.raises(kind) as caught:
        lazy.compute()
    error = caught.value.with_traceback(None)
    return str(error)


def test_several_inputs_and_outputs_as_keras_has_them_between_other_work_of_dask(client: Client) -> None:
    pictures, numbers = keras.Input((6, 5), name="pictures"), keras.Input((2,), name="numbers")
    hidden = keras.layers.Dropout(0.5)(keras.layers.Flatten()(pictures))
    sums = keras.layers.Dense(1, name="sum")(keras.layers.Concatenate()([hidden, numbers]))
    model = keras.Model({"pictures": pictures, "numbers": numbers}, {"hidden": hidden, "sum": sums})
    a, b = RNG.normal(size=(50, 6, 5)), RNG.normal(size=(50, 2)).astype("f4")
    x = {"pictures": da.from_array(a, chunks=(20, 3, 2)) * 2, "numbers": da.from_array(b, chunks=(7, 1))}
    before = client.run(lambda: "tensorflow" in sys.modules)  # other tests may send functions that import it
    found = dt.predict(model, x, batch_size=8)
    assert (found["sum"].shape, found["sum"].dtype, found["sum"].chunks) == ((50, 1), "f4", ((20, 20, 10), (1,)))
    expected = model.predict({"pictures": a * 2, "numbers": b}, verbose=0)
    hidden_sum, sums_of = dask.compute(found["hidden"].sum(axis=1), found["sum"])
    np.testing.assert_allclose(sums_of, expected["sum"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(hidden_sum, expected["hidden"].sum(axis=1), rtol=1e-4, atol=1e-4)
    after = client.run(lambda: "tensorflow" in sys.modules)
    assert after == before, "a Dask worker itself loads no framework"


def test_a_column_of_a_frame_with_its_index_and_divisions(client: Client, tmp_path: Path) -> None:
    table = pd.DataFrame({"a": np.arange(40.0), "b": np.arange(40), "c": list("xy") * 20}, index=np.arange(40) * 3)
    frame = dd.from_pandas(table, npartitions=4)
    frame = frame[frame.a != 25].query("a < 8 or a > 12")  # the second partition loses most rows
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    outcome = dt.predict(model, frame, features=["b", "a"])
    assert outcome.divisions == frame.divisions
    frame["outcome"] = outcome
    frame.to_parquet(tmp_path / "out")
    read = pd.read_parquet(tmp_path / "out")
    expected = table[(table.a != 25) & ((table.a < 8) | (table.a > 12))]
    assert read.index.tolist() == expected.index.tolist()
    made = model.predict(expected[["b", "a"]].to_numpy("f4"), verbose=0)[:, 0]
    np.testing.assert_allclose(read.outcome, made, rtol=1e-4, atol=1e-5)


def test_frames_of_arrays_and_arrays_of_frames_keep_the_model(client: Client) -> None:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    x = np.arange(20.0, dtype="f4").reshape(10, 2)
    with Client(client.scheduler.address) as other:  # Dask keeps futures of such a graph while it has a client
        outcome = dt.predict(model, da.from_array(x, chunks=(4, 2)), client=other)
        frame = dd.from_dask_array(outcome, columns=["outcome"])
        del outcome
        gc.collect()
        table = dd.from_pandas(pd.DataFrame(x, columns=["a", "b"]), npartitions=2)
        array = dt.predict(model, table, client=other).to_dask_array()
        gc.collect()
        expected = model.predict(x, verbose=0)
        np.testing.assert_allclose(other.compute(frame).result(), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(other.compute(array).result(), expected[:, 0], rtol=1e-4, atol=1e-5)


def test_text_reaches_a_model_process(client: Client) -> None:
    lookup = keras.layers.StringLookup(vocabulary=["dog", "café"], output_mode="one_hot")
    model = keras.Sequential([keras.Input((1,), dtype="string"), lookup, keras.layers.Dense(2)])
    words = np.array(["dog", "café", "", "a long text " * 50] * 10)
    expected = model.predict(keras.ops.convert_to_tensor(words[:, None].tolist()), verbose=0)
    found = dt.predict(model, da.from_array(words, chunks=7), batch_size=4).compute()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_process_that_dies_is_replaced(client: Client, tmp_path: Path) -> None:
    model = trapped("die", tmp_path / "sprung")
    x, lazy = rows(200, 55)
    np.testing.assert_allclose(dt.predict(model, lazy).compute(), by_hand(model, x), rtol=1e-3, atol=1e-4)
    assert (tmp_path / "sprung").exists()


def test_a_block_with_which_processes_die_each_time_is_named(client: Client) -> None:
    _, lazy = rows(40, 25)
    told = failure(dt.PredictionError, dt.predict(trapped("die"), lazy))
    assert "predict-" in told
    assert ", 2, 0) was tried 3 times, and each time the process died" in told
    assert "was killed by SIGKILL" in told
    assert "last words of die" in told


def test_a_process_that_hangs_is_ended_and_told(client: Client) -> None:
    _, lazy = rows(20, 5)
    with dask.config.set({"train.predict.timeout": "1s"}):
        told = failure(dt.StalledError, dt.predict(trapped("hang"), lazy))
    assert re.search(r"(?s)did nothing for 1 s, a batch of block .*last words.* in call", told)


def test_an_error_of_the_model_is_told(client: Client) -> None:
    _, lazy = rows(20, 5)
    told = failure(dt.PredictionError, dt.predict(trapped("raise"), lazy))
    assert re.search(r"(?s)failed on block .*ZeroDivisionError.*no such row", told)


def test_a_lost_dask_worker_loses_its_own_part_only_and_takes_its_process_with_it(
    client: Client, wait_for: Callable[..., Any], is_alive: Callable[[int], bool]
) -> None:
    model = trapped("raise")
    x, lazy = rows(300)

    def slowly(block: np.ndarray) -> np.ndarray:
        time.sleep(0.1)
        return block

    def with_processes() -> list[tuple[int, list[int]]]:
        found = client.run(lambda dask_worker: (os.getpid(), list(ModelProcesses.of(dask_worker).pids().values())))
        return [pair for pair in found.values() if pair[1]]

    future = client.compute(dt.predict(model, lazy.map_blocks(slowly)))
    victim, processes = wait_for(with_processes, "a model process")[0]
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, processes)), "the end of its model process")
    np.testing.assert_allclose(future.result(timeout=120), by_hand(model, x), rtol=1e-3, atol=1e-4)


def test_only_as_many_processes_as_are_let(client: Client) -> None:
    _, lazy = rows(40)
    models = [trapped("raise") for _ in range(3)]
    seen: list[int] = []
    with dask.config.set({"train.predict.processes": 1, "train.predict.idle": "5s"}):
        for model in models:
            dt.predict(model, lazy).compute()
            seen.append(max(client.run(lambda dask_worker: len(ModelProcesses.of(dask_worker).pids())).values()))
    assert seen == [1, 1, 1]


def test_no_process_without_memory_for_it(client: Client) -> None:
    def limit(dask_worker: Any, size: int) -> int:
        before = dask_worker.memory_manager.memory_limit
        dask_worker.memory_manager.memory_limit = size
        return int(before)

    before = client.run(limit, size=400 << 20)
    try:
        told = failure(dt.PredictionError, dt.predict(trapped("raise"), rows(20)[1]))
    finally:
        client.run(limit, size=max(before.values()))
    assert re.search(r"takes [24]\d\d\.\d\d MiB, and Dask worker .* has .* left; its other", told)


def test_what_a_large_model_and_many_partitions_send_to_the_scheduler(
    client: Client, wait_for: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = 0
    write = TCP.write

    async def counting(comm: TCP, *args: Any, **kwargs: Any) -> int:
        nonlocal sent
        size = await write(comm, *args, **kwargs)
        if comm.peer_address == client.scheduler.address:
            sent += size
        return size

    monkeypatch.setattr(TCP, "write", counting)
    model = keras.Sequential([keras.Input((4096,)), keras.layers.Dense(4096)])  # 64 MB
    future = client.persist(dt.predict(model, da.zeros((10_000, 4096), chunks=(1, 4096), dtype="f4")).sum())
    client.sync(client.scheduler.identity)  # comes after the graph
    assert 1000 < sent < 5e6
    # Dask keeps for good what is released before the scheduler has unpacked its graph.
    (key,) = future.__dask_keys__()
    wait_for(lambda: client.run_on_scheduler(lambda dask_scheduler: key in dask_scheduler.tasks), "the graph is there")
    del future


def test_evaluation_is_exact_over_uneven_partitions(client: Client) -> None:
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(1, activation="sigmoid")]
    )
    model.compile("adam", "binary_crossentropy", metrics=["accuracy", "auc"], weighted_metrics=["mae"])
    x = RNG.normal(size=(503, 4))
    y, weights = (x.sum(axis=1) > 0).astype("i4"), RNG.random(503)
    expected = model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    chunks = (3, 200, 1, 299)
    data = [da.from_array(array, chunks=(chunks, *array.shape[1:])) for array in (x, y, weights)]
    for batch_size in (256, 32):
        found = dt.evaluate(model, data[0], data[1], sample_weight=data[2], batch_size=batch_size)
        assert list(found) == list(expected)
        assert found == pytest.approx(expected, abs=1e-6)


def test_a_module_that_dask_workers_lack_is_told_before_anything_starts(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_script.py").write_text("def doubled(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("beside_the_script").doubled
    told = r"has no module 'beside_the_script', which model 'doubled' needs.*upload_file\('beside_the_script\.py'\)"
    with pytest.raises(dt.PredictionError, match=told):
        dt.predict(function, np.ones((3, 2)))


def test_written_partitions_are_counted_on_a_cluster(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, where = da.from_array(RNG.normal(size=(40, 3)), chunks=(15, 3)), tmp_path / "out"
    dt.predict_to(where, np.negative, x)
    (where / "_dask_train" / "done").joinpath(next(iter(os.listdir(where / "_dask_train" / "done")))).unlink()
    capsys.readouterr()
    assert dt.predict_to(where, np.negative, x, progress=True).num_written == 1
    first, *_, last = capsys.readouterr().err.splitlines()
    assert "2 of 3 partitions" in first
    assert "3 of 3 partitions" in last


def test_an_asynchronous_client(client: Client, tmp_path: Path) -> None:
    x = RNG.normal(size=(40, 3))
    regression = LinearRegression().fit(x, x.sum(axis=1))

    async def use(address: str) -> tuple[Any, ...]:
        async with Client(address, asynchronous=True) as own:
            lazy = await dt.predict(regression, da.from_array(x, chunks=(15, 3)), client=own)
            files = await dt.predict_to(str(tmp_path / "out"), regression, x, client=own)
            score = await dt.evaluate(regression, x, x.sum(axis=1), client=own)
            return await own.compute(lazy), files, score

    found, files, score = asyncio.run(use(client.scheduler.address))
    np.testing.assert_allclose(found, x.sum(axis=1))
    assert (files.num_rows, score) == (40, {"r2": pytest.approx(1.0)})


def test_one_prediction_after_another_by_the_same_model(client: Client) -> None:
    """The scheduler hears late that the last one was given up, which is not taken for the next."""
    x = da.from_array(RNG.normal(size=(40, 3)), chunks=(15, 3))
    for _ in range(20):
        np.testing.assert_array_equal(dt.predict(np.negative, x).compute(), -x.compute())


LATER = """
import sys
import numpy as np, pandas as pd
import dask_train as dt

folder, rows, out = sys.argv[1:]
np.save(out, dt.predict(folder, pd.read_pickle(rows)).compute(scheduler="threads").to_numpy())
"""


def test_a_model_of_categories_predicts_in_a_later_process_on_fewer_of_them(
    train_client: Client, tmp_path: Path
) -> None:
    codes = np.arange(400) % 5
    frame = pd.DataFrame(
        {
            "carrier": pd.Categorical.from_codes(codes, ["AA", "B6", "DL", "UA", "WN"]),
            "distance": np.linspace(0, 1, 400),
            "late": codes * 0.5,
        }
    )
    carrier, distance = keras.Input((), name="carrier"), keras.Input((), name="distance")
    known = keras.layers.Embedding(5, 3)(carrier)
    hidden = keras.layers.Concatenate()([known, keras.layers.Reshape((1,))(distance)])
    model = keras.Model({"carrier": carrier, "distance": distance}, keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    columns = {"features": {"carrier": "carrier", "distance": "distance"}, "label": "late"}
    result = dt.fit(model, dd.from_pandas(frame, npartitions=3), **columns, workers=2, verbose=0)
    result.save(tmp_path / "model")
    later = frame[frame["carrier"].isin(["UA", "B6"])][["distance", "carrier"]]
    later = later.assign(carrier=later["carrier"].cat.remove_unused_categories().cat.reorder_categories(["UA", "B6"]))
    later.to_pickle(tmp_path / "rows")
    program = [sys.executable, "-c", LATER, tmp_path / "model", tmp_path / "rows", tmp_path / "found.npy"]
    subprocess.run(program, check=True, timeout=120)
    right = dt.predict(model, frame).compute().loc[later.index]
    np.testing.assert_allclose(np.load(tmp_path / "found.npy").ravel(), right.to_numpy().ravel(), rtol=1e-5)
