"""What is written to standard error by native code, while TensorFlow starts."""

from __future__ import annotations

import os

import pytest

from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise

NOISE = b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
NEWS = b"I0000 oneDNN is off\n"


def test_all_but_the_noise_is_written_in_the_end(capfd):
    with without_startup_noise():
        for line in (NEWS, NOISE, b"I0000 00:00 oneDNN custom operations are on. You may see\n", b"\xff no end"):
            os.write(2, line)
        assert capfd.readouterr().err == ""
    os.write(2, b"\n")
    assert capfd.readouterr().err.splitlines() == [NEWS.decode().strip(), "\ufffd no end"]


def test_an_error_hides_nothing_and_no_file_stays_open(capfd):
    before = len(os.listdir("/proc/self/fd"))

    def fails():
        with without_startup_noise():
            os.write(2, NOISE + NEWS)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert capfd.readouterr().err == NEWS.decode()
    assert len(os.listdir("/proc/self/fd")) == before
