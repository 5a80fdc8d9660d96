"""Words in shared memory that are waited for."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dask_train.collectives import futex as futex_module


@pytest.mark.parametrize("with_futex", [True, False])
def test_a_word_is_changed_by_one_and_wakes_who_waits(with_futex, monkeypatch):
    """By the kernel, in order with what was written before: a store of Python's would not be on every processor."""
    if not with_futex:
        monkeypatch.setattr(futex_module, "_futex", None)
    monkeypatch.setattr(futex_module.platform, "machine", lambda: "aarch64")
    words = np.array([2**32 - 1, 5], np.uint32)
    seen = []

    def wait():
        while words[0] != 0:
            futex_module.wait_while(words.ctypes.data, 2**32 - 1, 5.0)
        futex_module.see_all(words.ctypes.data + 4)
        seen.append(words.tolist())

    waiting = threading.Thread(target=wait)
    waiting.start()
    futex_module.add_one(words.ctypes.data)
    waiting.join(60)
    assert not waiting.is_alive()
    assert seen == [[0, 5]]
