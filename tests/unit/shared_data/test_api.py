"""Named data sets, and arrays in shared memory, as a user asks for them: what is refused, and what comes of it."""

from __future__ import annotations

import asyncio

import dask.array as da
import dask.bag
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import dask_train as dt
from dask_train.collections.schema.conformer import Conformer
from dask_train.errors import DataError
from dask_train.inputs.making import input_data
from dask_train.shared_data import api
from dask_train.shared_data.segments import segments_in

Y = da.arange(10, chunks=4)
X = da.stack([Y, 2 * Y], axis=1)
FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4, 5, 6]})


@pytest.fixture
def names(client):
    """What is published in a test; taken back in the end."""
    yield client
    for name in client.list_datasets():
        client.unpublish_dataset(name)


def keys(data):
    return segments_in(data).keys


# What is refused before anything starts


def no_cluster(*_, **__):
    pytest.fail("it looks for a cluster before it has looked at its arguments")


@pytest.fixture
def unasked(monkeypatch):
    """Nobody looks for a client."""
    for name in ("client_here", "client_or_local"):
        monkeypatch.setattr(api, name, no_cluster)


@pytest.mark.parametrize("name", ["", None, 3, b"a"])
@pytest.mark.parametrize(
    "call",
    [
        lambda name: dt.publish_dataset(X, name=name),
        dt.get_dataset,
        dt.unpublish_dataset,
    ],
    ids=["publish", "get", "unpublish"],
)
def test_a_name_is_a_string(unasked, call, name):
    with pytest.raises(ValueError, match=f"name is {name!r}; a data set's name is a string that is not empty"):
        call(name)


@pytest.mark.parametrize("call", [dt.persist, lambda: dt.publish_dataset(name="x")])
def test_no_data(unasked, call):
    with pytest.raises(ValueError, match="was given no data; pass"):
        call()


@pytest.mark.parametrize("data", [FRAME, FRAME["a"], [1, 2], "text", {"x": X, "a": FRAME["a"]}, (X, None)])
def test_persist_takes_arrays(unasked, data):
    with pytest.raises(TypeError, match=r"persist was given a \w+; it takes Dask or NumPy arrays"):
        dt.persist(data)


def test_other_wrong_data_is_named(unasked):
    with pytest.raises(ValueError, match="data set 'x'"):
        dt.publish_dataset(X, Y[:3], name="x")
    with pytest.raises(ValueError, match="what is to be persisted"):
        dt.persist(np.zeros(3), np.zeros(4))


def test_columns_of_one_name_are_told_before_anything_starts(unasked):
    with pytest.raises(ValueError, match="data set 'd' names 'a' more than once"):
        dt.publish_dataset(FRAME.set_axis(["a", "a"], axis=1), name="d")


def test_progress_that_is_none(client):
    for call in (lambda **more: dt.persist(X, **more), lambda **more: dt.publish_dataset(X, name="x", **more)):
        with pytest.raises(TypeError, match="progress is 'yes'"):
            call(progress="yes", client=client)
    assert dt.list_datasets(client=client) == ()


# What comes of it


def test_what_is_published_is_found_by_its_name_until_it_is_taken_back(names):
    dt.publish_dataset(X, Y, name="one", client=names)
    dt.publish_dataset(np.arange(3), name="other")
    assert dt.list_datasets(client=names) == ("one", "other")
    found = dt.get_dataset("one", client=names)
    assert (found.name, found.num_rows, found.num_partitions) == ("one", 10, 3)
    x, y = found.to_numpy()
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)
    assert dt.unpublish_dataset("one") is None
    assert dt.list_datasets() == ("other",)
    for call in (dt.get_dataset, dt.unpublish_dataset):
        with pytest.raises(DataError, match=r"No data set 'one' is published; there are other\."):
            call("one")


def test_a_name_that_is_taken(names):
    dt.publish_dataset(Y, name="taken")
    with pytest.raises(DataError, match=r"A data set 'taken' is published already.*override=True"):
        dt.publish_dataset(Y.map_blocks(lambda block: 1 // 0, dtype=Y.dtype, meta=np.arange(0)), name="taken")
    assert dt.get_dataset("taken").to_numpy().tolist() == list(range(10)), "it is refused before it is computed"
    dt.publish_dataset(Y + 1, name="taken", override=True)
    assert dt.get_dataset("taken").to_numpy().tolist() == list(range(1, 11))


def test_a_frame_keeps_its_columns_by_name_or_is_made_into_features_and_label(names):
    dt.publish_dataset(FRAME, name="columns")
    assert {name: column.dtype for name, column in dt.get_dataset("columns").columns.items()} == {
        "a": "<f8",
        "b": "<i8",
    }
    dt.publish_dataset(FRAME, name="pair", features=["b"], label="a")
    x, y = dt.get_dataset("pair").to_numpy()
    assert (x.tolist(), y.tolist()) == ([[4], [5], [6]], [1.0, 2.0, 3.0])


def test_a_bag_is_computed_by_dask_and_its_columns_are_named(names, monkeypatch):
    rows = dask.bag.from_sequence([{"a": n, "b": n / 2, "y": n % 2} for n in range(5)], npartitions=2)
    monkeypatch.setattr(type(rows), "__iter__", lambda _: pytest.fail("the client computes the bag"))
    dt.publish_dataset(rows, name="bag", features=["a", "b"], label="y")
    x, y = dt.get_dataset("bag").to_numpy()
    np.testing.assert_array_equal(x, [[n, n / 2] for n in range(5)])
    assert y.tolist() == [0, 1, 0, 1, 0]


def test_categories_are_kept_with_the_codes_that_lie_in_shared_memory(names):
    """Whoever opens the data set fits a model that knows them, and a model that knows others is refused."""
    frame = FRAME.assign(kind=pd.Categorical(["u", "v", "w"]))
    turned = frame.assign(kind=frame["kind"].cat.reorder_categories(["w", "v", "u"]))
    dt.publish_dataset(frame, name="columns")
    dt.publish_dataset(frame, name="pair", features=["a", "kind"], label="b")
    dt.publish_dataset(dt.get_dataset("pair"), name="again")
    found = input_data("data", dt.get_dataset("again"), None, None)
    assert found.schema == dt.FrameSchema.of(frame, ["a", "kind"], "b")
    inputs = {"k": "kind", "a": "a"}
    assert (
        input_data("data", dt.get_dataset("columns"), None, None, features=inputs, label="b").schema.features == inputs
    )
    with pytest.raises(ValueError, match=r"lies in shared memory as codes of 'u', 'v', 'w', and .*'w', 'v', 'u'"):
        input_data("data", dt.get_dataset("pair"), None, None, like=Conformer(dt.FrameSchema.of(turned, ["a", "kind"])))
    assert input_data("data", dt.get_dataset("pair").to_dask(), None, None).schema is None, "arrays mean their numbers"
    with pytest.raises(ValueError, match="1 values of column 'kind' of data set 'torn' are missing"):
        dt.publish_dataset(frame.assign(kind=pd.Categorical(["u", None, "v"])), name="torn", label="b")


def test_after_its_client_was_closed_a_data_set_has_what_was_opened(names):
    dt.publish_dataset(Y, name="numbers")
    with Client(names.scheduler.address, set_as_default=False) as other:
        opened, found = (dt.get_dataset("numbers", client=other) for _ in range(2))
        opened.to_numpy()
    assert opened.to_numpy().tolist() == list(range(10))
    with pytest.raises(
        DataError, match=r"Data set 'numbers' can't be opened: its Dask client is closed\. Connect again"
    ):
        found.to_numpy()


def test_what_dask_has_published_is_no_data_set_in_shared_memory(names):
    names.publish_dataset(Y, name="dask's")
    assert dt.list_datasets() == ("dask's",)
    with pytest.raises(DataError, match=r"is a Array that was published with Dask's own verb: it is not in shared"):
        dt.get_dataset("dask's")
    dt.unpublish_dataset("dask's")
    assert dt.list_datasets() == ()


def test_arrays_are_persisted_in_the_shape_that_they_have(client):
    one = dt.persist(X, client=client)
    x, y = dt.persist(X, Y)
    named = dt.persist({"x": X, "y": np.asarray(Y)})
    assert list(named) == ["x", "y"]
    for found in (one, x, named["x"]):
        np.testing.assert_array_equal(found.compute(), X)
    assert x.chunks == ((4, 4, 2), (2,))
    np.testing.assert_array_equal(y.compute(), Y)
    assert isinstance(dt.persist((X,)), tuple)


def test_rows_that_were_not_known_are_known_afterwards(client):
    (x,) = dt.persist((X[X[:, 0] > 4],))
    assert x.shape == (5, 2)


def test_what_lies_in_shared_memory_is_not_copied_again(names):
    x, y = dt.persist(X, Y)
    again = dt.persist(x, y)
    assert keys(again) == keys((x, y))
    dt.publish_dataset(x, y, name="one")
    assert keys(dt.get_dataset("one")) == keys((x, y))
    dt.publish_dataset(dt.get_dataset("one"), name="other")
    assert keys(dt.get_dataset("other")) == keys((x, y))
    assert keys((dt.persist(x),)) != keys((x, y)), "one of them alone is other data"


def test_progress_is_shown_where_it_is_asked_for(names, capsys):
    dt.persist(X, progress=True)
    dt.publish_dataset(X, name="one", progress=True)
    shown = capsys.readouterr().err
    assert "persisting" in shown
    assert "publishing" in shown
    dt.persist(X, progress=False)
    assert capsys.readouterr().err == ""


def test_a_task_waits_without_its_thread(names):
    def task():
        dt.publish_dataset(da.arange(6, chunks=2), name="from a task")
        return dt.persist(da.arange(3)).sum().compute()

    assert names.submit(task, pure=False).result(60) == 3
    assert dt.get_dataset("from a task").num_rows == 6


def test_an_asynchronous_client_awaits_all_of_it(client):
    async def story():
        settings = {"processes": False, "n_workers": 1, "dashboard_address": ":0", "set_as_default": False}
        async with Client(asynchronous=True, **settings) as client:
            x, y = await dt.persist(X, Y, client=client)
            await dt.publish_dataset(x, y, name="one", client=client)
            found = await dt.get_dataset("one", client=client)
            told = await dt.list_datasets(client=client), found.num_rows
            with pytest.raises(DataError, match="is published already"):
                await dt.publish_dataset(X, name="one", client=client)
            await dt.unpublish_dataset("one", client=client)
            return told, await dt.list_datasets(client=client)

    assert asyncio.run(story()) == ((("one",), 10), ())


def test_without_a_client_there_are_no_names(monkeypatch):
    monkeypatch.setattr("dask_train.cluster.clients.get_client", raises)
    for call in (dt.list_datasets, lambda: dt.get_dataset("one"), lambda: dt.unpublish_dataset("one")):
        with pytest.raises(ValueError, match="There is no Dask client here"):
            call()


def raises():
    raise ValueError("No clients found")
