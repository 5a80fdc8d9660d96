"""What a function writes as a checkpoint, and why one can't be kept."""

from __future__ import annotations

import errno
import hashlib

import pytest

from dask_train.checkpoint.local_files import checkpoint_error, write_locally
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.errors import CheckpointError

THERE = CheckpointPlace(url="s3://there")


def raising(error):
    def write(_folder):
        raise error

    return write


def test_all_files_have_their_checksums_and_nothing_of_an_earlier_one_is_among_them(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / "left-behind").write_text("by a save that was killed")

    def write(into):
        (into / "inner").mkdir()
        (into / "inner" / "weights").write_bytes(b"values")

    digest = hashlib.sha256(b"values").hexdigest()
    assert write_locally(write, folder) == {"inner/weights": (6, digest)}


def test_nothing_written_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="has written no file"):
        write_locally(lambda folder: (folder / "empty").mkdir(), tmp_path / "scratch")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_of(tmp_path, number):
    with pytest.raises(CheckpointError, match="no space is left at /there") as caught:
        write_locally(raising(OSError(number, "full", "/there")), tmp_path / "scratch")
    assert isinstance(caught.value.__cause__, OSError)
    assert "no space is left there" in str(checkpoint_error(THERE, "written", OSError(number, "full")))


def test_other_errors_stay_what_they_are(tmp_path):
    for error in (PermissionError(errno.EACCES, "no"), ZeroDivisionError()):
        with pytest.raises(type(error)):
            write_locally(raising(error), tmp_path / "scratch")
    assert "can't be read at s3://there: KeyError: 'x'" in str(checkpoint_error(THERE, "read", KeyError("x")))


def test_refused_credentials_are_told_and_not_shown():
    place = CheckpointPlace(url="s3://there", storage_options={"key": "user-1234", "client_kwargs": {"x": "hidden"}})
    told = str(checkpoint_error(place, "written", PermissionError("user-1234 with hidden has expired")))
    assert "*** with *** has expired" in told
    assert "have expired" in told
    assert "storage_options=" in told
    assert "user-1234" not in repr(place)
