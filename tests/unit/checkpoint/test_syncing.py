"""What is on disk when a checkpoint is said to be kept."""

from __future__ import annotations

import errno
import os

import fsspec
import pytest

from dask_train.checkpoint import local_files
from dask_train.checkpoint.local_files import put_manifest, sync_files

LOCAL = fsspec.filesystem("file")


@pytest.fixture
def synced(monkeypatch):
    """The paths that were really synced, in their order."""
    paths, fsync = [], os.fsync

    def noted(number):
        paths.append(os.readlink(f"/proc/self/fd/{number}"))
        fsync(number)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


def test_files_and_all_folders_that_name_them_are_synced(tmp_path, synced):
    root = tmp_path / "run"
    file = root / "one" / "inner" / "weights"
    file.parent.mkdir(parents=True)
    file.write_text("values")
    sync_files(LOCAL, str(root), [str(file)])
    assert synced == [str(path) for path in (file, file.parent, file.parent.parent, root, tmp_path)]


def test_a_parent_that_may_not_be_listed_ends_nothing_and_a_folder_of_the_run_does(tmp_path, synced, monkeypatch):
    opened, closed = os.open, {str(tmp_path)}  # for this test's user, who may be root, all are open

    def checked(path, *args, **kwargs):
        if str(path) in closed:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", checked)
    root = tmp_path / "run"
    root.mkdir()
    (root / "weights").write_text("values")
    sync_files(LOCAL, str(root), [str(root / "weights")])
    assert synced == [str(root / "weights"), str(root)]
    closed.add(str(root))
    with pytest.raises(PermissionError):
        sync_files(LOCAL, str(root), [str(root / "weights")])


def test_a_store_is_not_asked(synced):
    sync_files(fsspec.filesystem("memory"), "/run", ["/run/not-there"])
    assert synced == []


def test_contents_are_replaced_in_one_step(url, synced):
    system, root = fsspec.core.url_to_fs(url)
    system.pipe_file(f"{root}/one/weights", b"values") if "memory" in url else system.makedirs(f"{root}/one")
    for content in (b"old" * 1000, b"new"):
        put_manifest(system, root, "one", content)
        assert system.cat_file(f"{root}/one.json") == content
        assert sorted(path.rpartition("/")[2] for path in system.ls(root, detail=False)) == ["one", "one.json"]
    if "memory" not in url:
        assert [os.path.splitext(path)[1] for path in synced[:2]] == [".partial", ".json"], "contents, then their name"


def test_no_file_of_the_checkpoint_is_taken_for_it(tmp_path, synced):
    (tmp_path / "one").mkdir()
    put_manifest(LOCAL, str(tmp_path), "one", b"old")
    of_user = tmp_path / "one" / os.path.basename(synced[0])
    of_user.write_bytes(b"values")
    put_manifest(LOCAL, str(tmp_path), "one", b"new")
    assert of_user.read_bytes() == b"values"


def test_a_write_that_fails_leaves_the_old_contents(tmp_path, monkeypatch):
    file = tmp_path / "one.json"
    (tmp_path / "one").mkdir()
    file.write_bytes(b"old")
    monkeypatch.setattr(local_files.os, "fsync", _failing(errno.EIO))
    with pytest.raises(OSError, match="here"):
        put_manifest(LOCAL, str(tmp_path), "one", b"new")
    assert file.read_bytes() == b"old"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_without_sync_will_do(tmp_path, monkeypatch, number):
    monkeypatch.setattr(local_files.os, "fsync", _failing(number))
    (tmp_path / "one").mkdir()
    put_manifest(LOCAL, str(tmp_path), "one", b"new")
    assert (tmp_path / "one.json").read_bytes() == b"new"


def test_no_file_stays_open(tmp_path, monkeypatch):
    monkeypatch.setattr(local_files.os, "fsync", _failing(errno.EIO))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="here"):
        sync_files(LOCAL, str(tmp_path), [str(tmp_path)])
    assert len(os.listdir("/proc/self/fd")) == before


def _failing(number):
    def fail(_opened):
        raise OSError(number, "here")

    return fail
