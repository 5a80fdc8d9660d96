"""How partitions become segments, and what only a partition can tell of the form of batches."""

from __future__ import annotations

import pickle
import sys

import dask
import dask.array as da
import numpy as np
import pytest
from dask import delayed
from distributed import wait

from dask_train.collections import check_data
from dask_train.data.columns import column_of
from dask_train.errors import DataError
from dask_train.shared_data.parts import FINISH_COUNT, PART, BatchForm, finish_segment

Y = np.arange(6)
COLUMNS = (column_of(Y),)


def fails():
    raise RuntimeError("no such file.")


def form(peer, *parts):
    """The form of batches of delayed partitions."""
    return BatchForm(peer, check_data("data", [delayed(part) for part in parts]))


def test_an_array_tells_it_at_once(peer):
    for data, names, is_tuple in (
        (da.arange(6, chunks=3), None, False),
        ((da.arange(6, chunks=3),), None, True),
        ({"y": Y}, ("y",), False),
    ):
        known = BatchForm(peer, check_data("data", data))
        schema = known.known(COLUMNS)
        assert (schema.columns, schema.names, schema.is_tuple) == (COLUMNS, names, is_tuple)
        assert peer.run(known.schema, COLUMNS) == schema


@pytest.mark.parametrize(
    ("part", "names", "is_tuple"), [(Y, None, False), ((Y, Y), None, True), ({"a": Y, "b": Y}, ("a", "b"), False)]
)
def test_delayed_partitions_tell_it_when_they_are_computed(peer, part, names, is_tuple):
    told = form(peer, part, part)
    schema = peer.run(told.schema, COLUMNS)
    assert (schema.columns, schema.names, schema.is_tuple) == (COLUMNS, names, is_tuple)
    assert peer.run(told.schema, ()).names == names, "it is known from then on"
    assert told.known(()).is_tuple == is_tuple


def test_a_partition_that_can_not_be_computed(peer):
    told = BatchForm(peer, check_data("data", [delayed(fails)()]))
    with pytest.raises(DataError, match=r"A partition can't be computed: RuntimeError: no such file\.$") as error:
        peer.run(told.schema, COLUMNS)
    assert isinstance(error.value.__cause__, RuntimeError)


def test_what_was_asked_is_forgotten_where_nobody_wants_it_any_more(peer, client):
    told = form(peer, Y)
    future = told._future
    wait([future])
    peer.run(told.cancel)
    assert future.cancelled()
    peer.run(told.cancel)
    peer.run(BatchForm(peer, check_data("data", Y)).cancel)


def test_the_memory_that_dask_config_allows_when_a_run_begins(client):
    with dask.config.set({"train.memory.limit": "1 kiB"}):
        little = finish_segment()
    much = finish_segment()
    with pytest.raises(MemoryError, match=r"train\.memory\.limit is 1,024"):
        client.submit(little, [np.zeros(1000)], pure=False).result(60)
    assert client.submit(lambda make: make([np.zeros(1000)]).num_rows, much, pure=False).result(60) == 1000


def test_they_arrive_where_dask_train_is_missing(monkeypatch):
    sent = pickle.dumps((FINISH_COUNT, PART, finish_segment()))
    for module in [name for name in sys.modules if name.partition(".")[0] == "dask_train"]:
        monkeypatch.setitem(sys.modules, module, None)
    count, _, _ = pickle.loads(sent)
    assert count([np.zeros((5, 2)), np.zeros(5)]) == 5
