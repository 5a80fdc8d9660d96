"""A file in memory of one process, in which others leave arrays for it."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import numpy as np

from dask_train.data import letterbox as letterbox_module
from dask_train.data.letterbox import Letterbox, leave

LEAVER = """
import pickle, sys
import numpy as np
from dask_train.data.letterbox import leave
place, number = pickle.load(sys.stdin.buffer)
arrays = [np.full(5000, number), np.full(3, number + 0.5)]
pickle.dump(leave(place, [pickle.PickleBuffer(each) for each in arrays]), sys.stdout.buffer)
"""


def left_by_another(letterbox: Letterbox, number: int):
    given = pickle.dumps((letterbox.place, number))
    leaver = subprocess.run([sys.executable, "-c", LEAVER], input=given, capture_output=True, check=True)
    return pickle.loads(leaver.stdout)


def test_processes_leave_arrays_which_stay_when_they_are_gone():
    letterbox = Letterbox()
    left = [left_by_another(letterbox, number) for number in (1, 2)]
    for number, ranges in enumerate(left, 1):
        large, small = letterbox.views(ranges)
        assert np.frombuffer(large, int).tolist() == [number] * 5000
        assert np.frombuffer(small).tolist() == [number + 0.5] * 3
    large, _ = letterbox.views(left[0])
    large[:8] = bytes(8)
    assert np.frombuffer(letterbox.views(left[0])[0], int)[0] == 1, "each has them for itself"
    letterbox.close()
    assert np.frombuffer(large, int)[1] == 1, "what is mapped stays"


def test_nothing_is_left_in_another_file():
    letterbox = Letterbox()
    buffers = [pickle.PickleBuffer(np.ones(4))]
    assert leave(replace(letterbox.place, secret=bytes(32)), buffers) is None
    assert leave(replace(letterbox.place, descriptor=12345), buffers) is None
    assert leave(replace(letterbox.place, pid=2**22), buffers) is None
    assert os.fstat(letterbox.place.descriptor).st_size == 32


def test_without_room_nothing_is_left(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    letterbox = Letterbox()
    monkeypatch.setattr(letterbox_module, "_write", full)
    before = os.listdir("/proc/self/fd")
    assert leave(letterbox.place, [pickle.PickleBuffer(np.ones(4))]) is None
    assert os.listdir("/proc/self/fd") == before


def test_its_memory_goes_with_it():
    letterbox = Letterbox()
    descriptor = letterbox.place.descriptor
    assert "letterbox" in os.readlink(f"/proc/self/fd/{descriptor}")
    del letterbox
    gc.collect()
    assert not os.path.exists(f"/proc/self/fd/{descriptor}")
