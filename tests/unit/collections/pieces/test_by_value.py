"""What runs on Dask workers travels by value: no dask-train is needed there."""

from __future__ import annotations

import pickle
import subprocess
import sys

import cloudpickle
import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed

from dask_train.collections import check_data, pieces

TABLE = pd.DataFrame(
    {"a": [1.0, 2.0, 3.0], "b": [1, 2, 3], "o": [np.ones(2)] * 3, "y": pd.array([1, None, 3], "Int64")}
)
with dask.config.set({"dataframe.convert-string": False}):
    FRAME = dd.from_map(lambda number: TABLE, [0], meta=TABLE.iloc[:0])


@pytest.mark.parametrize(
    ("data", "picked", "result"),
    [
        ((np.ones((3, 2)), np.ones(3)), {}, [(3, 2), (3,)]),
        (FRAME, {"features": ["a", "b"], "label": "y"}, [(3, 2), (3,)]),
        (FRAME, {"features": "o", "label": "y"}, [(3, 2), (3,)]),
        ((FRAME[["a", "y"]], FRAME["o"]), {}, [(3, 2), (3, 2)]),
        ({"x": FRAME[["a", "y"]], "o": FRAME["o"]}, {}, [(3, 2), (3, 2)]),
        ([delayed(TABLE)], {"features": "o", "label": "y"}, [(3, 2), (3,)]),
        ([delayed(dict)(x=np.ones((2, 2)))], {}, [(2, 2)]),
    ],
)
def test_partitions_without_dask_train(tmp_path, data, picked, result):
    source = check_data("data", data, **picked)

    def shapes(columns):
        return [array.shape for array in columns]

    cloudpickle.register_pickle_by_value(pieces)
    try:
        part = cloudpickle.loads(cloudpickle.dumps(pieces.part))  # as it would be there
        graph = cloudpickle.dumps(source.delayed_parts(part, shapes))
    finally:
        cloudpickle.unregister_pickle_by_value(pieces)
    (tmp_path / "graph").write_bytes(graph)
    code = (
        "import sys, pickle, dask; sys.modules['dask_train'] = None\n"
        f"parts = pickle.load(open({str(tmp_path / 'graph')!r}, 'rb'))\n"
        "found = dask.compute(*parts, scheduler='synchronous')\n"
        f"pickle.dump(found, open({str(tmp_path / 'found')!r}, 'wb'))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert pickle.loads((tmp_path / "found").read_bytes())[0] == result


def test_it_is_small():
    cloudpickle.register_pickle_by_value(pieces)
    try:
        assert len(cloudpickle.dumps(pieces.part)) < 40_000, "it is in each task"
    finally:
        cloudpickle.unregister_pickle_by_value(pieces)
