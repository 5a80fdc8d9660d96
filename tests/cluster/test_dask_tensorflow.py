"""The tests of dask-tensorflow, the package that this one succeeds, with names changed alone.

From https://github.com/dask/dask-tensorflow (dask_tensorflow/tests/test_core.py, BSD-3-Clause, by its authors).
``tf.train.Server`` is ``tf.distribute.Server`` now, coroutines are awaited, and a network of Dask workers without
nannies is told to leave its servers.
"""

from __future__ import annotations

import pytest
import tensorflow as tf
from distributed import Client
from distributed.utils_test import cluster, gen_cluster
from toolz import valmap

from dask_train import start_tensorflow

pytestmark = pytest.mark.slow


# What other tests have left to the garbage collector may start a timer of this process's shared memory meanwhile.
OF_THIS_TEST = {"threads": False}


@gen_cluster(client=True, clean_kwargs=OF_THIS_TEST)
async def test_basic(c, s, a, b):
    net = await start_tensorflow(c, leave_servers=True)
    tf_spec, dask_spec = net
    assert isinstance(a.tensorflow_server, tf.distribute.Server)
    assert isinstance(b.tensorflow_server, tf.distribute.Server)
    assert isinstance(tf.train.ClusterSpec(tf_spec), tf.train.ClusterSpec)
    assert sum(map(len, tf_spec.as_dict().values())) == len(s.workers)
    assert valmap(len, tf_spec.as_dict()) == valmap(len, dask_spec)
    assert set(sum(dask_spec.values(), [])) == set(s.workers)
    await net.close()


def test_basic_sync():
    with cluster(nanny=True) as (s, _), Client(s["address"]) as c:
        tf_spec, _dask_spec = start_tensorflow(c)
        assert isinstance(tf.train.ClusterSpec(tf_spec), tf.train.ClusterSpec)


@gen_cluster(client=True, nthreads=[("127.0.0.1", 1)] * 10, clean_kwargs=OF_THIS_TEST)
async def test_user_defined_spec(c, s, *workers):
    net = await start_tensorflow(c, ps=2, worker=4, leave_servers=True)
    tf_spec, dask_spec = net
    assert sum(hasattr(w, "tensorflow_server") for w in workers) == 6
    tf_spec = tf_spec.as_dict()
    assert len(tf_spec["ps"]) == 2
    assert len(tf_spec["worker"]) == 4
    assert valmap(len, tf_spec) == valmap(len, dask_spec)
    await net.close()
