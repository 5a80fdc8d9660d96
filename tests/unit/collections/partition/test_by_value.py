"""What runs on Dask workers travels by value: no dask-train is needed there."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import cloudpickle
import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed

import dask_train
from dask_train.collections import check_data, partition

TABLE = pd.DataFrame(
    {"a": [1.0, 2.0, 3.0], "b": [1, 2, 3], "o": [np.ones(2)] * 3, "y": pd.array([1, None, 3], "Int64")}
)
with dask.config.set({"dataframe.convert-string": False}):
    FRAME = dd.from_map(lambda number: TABLE, [0], meta=TABLE.iloc[:0])

SOURCES = Path(dask_train.__file__).parents[1]

CASES = [
    ((np.ones((3, 2)), np.ones(3)), {}, [(3, 2), (3,)]),
    (FRAME, {"features": ["a", "b"], "label": "y"}, [(3, 2), (3,)]),
    (FRAME, {"features": "o", "label": "y"}, [(3, 2), (3,)]),
    ((FRAME[["a", "y"]], FRAME["o"]), {}, [(3, 2), (3, 2)]),
    ({"x": FRAME[["a", "y"]], "o": FRAME["o"]}, {}, [(3, 2), (3, 2)]),
    ([delayed(TABLE)], {"features": "o", "label": "y"}, [(3, 2), (3,)]),
    ([delayed(dict)(x=np.ones((2, 2)))], {}, [(2, 2)]),
]


def graph_of(data, picked):
    """The pickled graph of the partitions, as Dask workers get it."""
    source = check_data("data", data, **picked)

    def shapes(columns):
        return [array.shape for array in columns]

    cloudpickle.register_pickle_by_value(partition)
    try:
        part = cloudpickle.loads(cloudpickle.dumps(partition.part))  # as it would be there
        return cloudpickle.dumps(source.delayed_parts(part, shapes))
    finally:
        cloudpickle.unregister_pickle_by_value(partition)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each graph gives in a process that can't import dask-train; one for all, which imports pandas once."""
    folder = tmp_path_factory.mktemp("graphs")
    (folder / "graphs").write_bytes(pickle.dumps([graph_of(data, picked) for data, picked, _ in CASES]))
    code = (
        "import sys, pickle, dask; sys.modules['dask_train'] = None\n"
        f"graphs = pickle.load(open({str(folder / 'graphs')!r}, 'rb'))\n"
        "found = [dask.compute(*pickle.loads(graph), scheduler='synchronous')[0] for graph in graphs]\n"
        f"pickle.dump(found, open({str(folder / 'found')!r}, 'wb'))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    return pickle.loads((folder / "found").read_bytes())


@pytest.mark.parametrize("number", range(len(CASES)))
def test_partitions_without_dask_train(found, number):
    assert found[number] == CASES[number][2]


def test_it_is_small():
    cloudpickle.register_pickle_by_value(partition)
    try:
        code = cloudpickle.dumps(partition.part).replace(str(SOURCES).encode(), b"")  # which differ by machine
        assert len(code) < 40_000, "it is in each task"
    finally:
        cloudpickle.unregister_pickle_by_value(partition)
