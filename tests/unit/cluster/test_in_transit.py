"""A Keras model on its way: put together where it is wanted, passed on elsewhere, and explained where it is missed."""

from __future__ import annotations

import copy
import pickle
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from dask.sizeof import sizeof
from dask.tokenize import tokenize
from distributed import Worker

from dask_train.cluster import in_transit
from dask_train.cluster.by_value import ByValue
from dask_train.cluster.in_transit import ModelInTransit, open_model, reduce_parts

HEADER = {"name": "net", "class": "Sequential"}
ARRAYS = [np.arange(3.0), np.zeros((2, 2), "f4")]
_, (CODE,) = ByValue(open_model, in_transit).__reduce__()


class Sent:
    """Pickles as a model does."""

    def __reduce__(self) -> Any:
        return reduce_parts(CODE, HEADER, ARRAYS)


@pytest.fixture
def rebuilds(monkeypatch):
    """Lets models be rebuilt by a function, which stands for Keras."""

    def by(function: Any) -> None:
        module = ModuleType("dask_train.keras_models.serialization")
        module.parts_to_model = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return by


def fails(header, arrays):
    raise TypeError("there is no module 'mine' here")


def on_scheduler(sent):
    """What unpickling gives while the scheduler reads a graph."""
    names: dict[str, Any] = {"__name__": "distributed.scheduler", "loads": pickle.loads}
    exec("def update_graph(sent): return loads(sent)", names)  # noqa: S102 - a frame of that name
    return names["update_graph"](sent)


@pytest.fixture
def on_worker(monkeypatch):
    """This is the process of a Dask worker."""
    monkeypatch.setattr(Worker, "_instances", {object()})


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch):
    monkeypatch.setattr(Worker, "_instances", set())


def test_it_is_rebuilt_where_it_arrives(rebuilds):
    rebuilds(lambda header, arrays: (header, [array.tolist() for array in arrays]))
    assert pickle.loads(pickle.dumps(Sent())) == (HEADER, [array.tolist() for array in ARRAYS])


def test_arrays_travel_as_buffers_of_their_own(rebuilds):
    rebuilds(lambda header, arrays: arrays)
    buffers: list[pickle.PickleBuffer] = []
    sent = pickle.dumps(Sent(), protocol=5, buffer_callback=buffers.append)
    assert [buffer.raw().nbytes for buffer in buffers] == [array.nbytes for array in ARRAYS]
    found = pickle.loads(sent, buffers=buffers)
    assert np.shares_memory(found[0], ARRAYS[0])


def test_a_scheduler_passes_it_on_as_it_came(rebuilds):
    rebuilds(fails)
    passed = on_scheduler(pickle.dumps(Sent()))
    assert repr(passed) == "<Keras model 'net' of class Sequential, not rebuilt here>"
    rebuilds(lambda header, arrays: (header, [array.tolist() for array in arrays]))
    assert pickle.loads(pickle.dumps(passed)) == (HEADER, [array.tolist() for array in ARRAYS])


def test_a_function_of_that_name_elsewhere_is_no_scheduler(rebuilds):
    rebuilds(lambda header, arrays: "rebuilt")

    def update_graph(sent):
        return pickle.loads(sent)

    assert update_graph(pickle.dumps(Sent())) == "rebuilt"


def test_a_client_that_can_not_rebuild_it_is_told_why(rebuilds):
    rebuilds(fails)
    with pytest.raises(TypeError, match="there is no module 'mine' here"):
        pickle.loads(pickle.dumps(Sent()))


def test_a_dask_worker_that_can_not_keeps_the_reason_until_it_is_used(rebuilds, on_worker):
    rebuilds(fails)
    kept = pickle.loads(pickle.dumps(Sent()))
    with pytest.raises(
        TypeError, match=r"<Keras model 'net' .*not rebuilt here>: there is no module 'mine' here"
    ) as error:
        kept.predict(1)
    assert isinstance(error.value.__cause__, TypeError)


def test_a_dask_worker_in_the_process_of_the_scheduler_rebuilds_it(rebuilds, on_worker):
    rebuilds(lambda header, arrays: "rebuilt")
    assert on_scheduler(pickle.dumps(Sent())) == "rebuilt"


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model(1),
        lambda model: model.fit,
        lambda model: getattr(model, "name", None),
        lambda model: setattr(model, "trainable", False),
    ],
    ids=["call", "method", "attribute", "setting"],
)
def test_every_use_tells_that_it_is_not_here(use):
    model = ModelInTransit(CODE, HEADER, ARRAYS)
    with pytest.raises(
        TypeError, match=r"'net' of class Sequential, not rebuilt here>: the scheduler only passes it on"
    ):
        use(model)


def test_what_dask_asks_of_any_value():
    model = ModelInTransit(CODE, HEADER, ARRAYS)
    assert not hasattr(model, "__dask_graph__")
    assert sizeof(model) >= sum(array.nbytes for array in ARRAYS)
    same, other = ModelInTransit(CODE, dict(HEADER), copy.deepcopy(ARRAYS)), ModelInTransit(CODE, HEADER, ARRAYS[:1])
    assert tokenize(model) == tokenize(same) != tokenize(other)
