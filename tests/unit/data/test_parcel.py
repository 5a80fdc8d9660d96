"""Pickles whose large arrays lie beside them in shared memory."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dask_train.data.parcel import LARGE_BYTES, Parcel, PooledBytes, reachable
from dask_train.errors import LaunchError

VALUES = {"large": np.arange(LARGE_BYTES // 8 + 5), "small": np.arange(3.0), "turned": np.ones((3, LARGE_BYTES)).T}

OPENER = """
import pickle, sys
parcel = pickle.load(sys.stdin.buffer)
value = pickle.loads(parcel.pickle, buffers=parcel.mapped())
found = {name: (each.sum(), each.flags.writeable, each.strides) for name, each in value.items()}
for each in value.values():
    each[:] = 0
pickle.dump(found, sys.stdout.buffer)
"""


def parcel_of(value: Any) -> Parcel:
    buffers: list[pickle.PickleBuffer] = []
    return Parcel.of(pickle.dumps(value, protocol=5, buffer_callback=buffers.append), buffers)


def opened_elsewhere(parcel: Parcel) -> Any:
    """What another process finds in it, which then sets everything to 0."""
    opener = subprocess.run([sys.executable, "-c", OPENER], input=pickle.dumps(parcel), capture_output=True, check=True)
    return pickle.loads(opener.stdout)


def opened(parcel: Parcel) -> Any:
    return pickle.loads(parcel.pickle, buffers=parcel.mapped())


@pytest.mark.parametrize("lends", [True, False], ids=["lent", "sent along"])
def test_another_process_has_the_value_and_can_change_it_for_itself(lends):
    parcel = parcel_of(VALUES)
    found = opened_elsewhere(parcel.lent() if lends else parcel)
    assert found == {name: (each.sum(), True, each.strides) for name, each in VALUES.items()}
    assert all((one == VALUES[name]).all() for name, one in opened(parcel).items()), "nothing changes here"


def test_what_is_lent_is_small_whatever_it_holds():
    parcel = parcel_of(VALUES)
    assert len(pickle.dumps(parcel.lent())) < 10_000
    assert [type(buffer) for buffer in parcel.lent().buffers] == [PooledBytes, bytearray, PooledBytes]


def test_each_has_its_own_copy_once_it_writes():
    parcel = parcel_of(VALUES)
    one, other = opened(parcel), opened(parcel)
    one["large"][:] = 7
    assert (other["large"] == VALUES["large"]).all()


def test_memory_of_a_process_that_is_gone_is_told():
    maker = "import pickle, sys, numpy as np\nfrom dask_train.data.parcel import *\n"
    maker += "buffers = []; data = pickle.dumps(np.ones(LARGE_BYTES), protocol=5, buffer_callback=buffers.append)\n"
    maker += "parcel = Parcel.of(data, buffers); pickle.dump(parcel.lent(), sys.stdout.buffer)"
    made = subprocess.run([sys.executable, "-c", maker], capture_output=True, check=True)
    lent = pickle.loads(made.stdout)
    assert not reachable([lent])
    with pytest.raises(LaunchError, match=r"Process \d+ can't be reached any more"):
        opened(lent)


def test_reachable_is_what_can_be_mapped():
    parcel = parcel_of(VALUES)
    assert reachable([parcel.lent(), parcel_of(1)])
