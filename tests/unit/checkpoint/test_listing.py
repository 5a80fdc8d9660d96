"""Checkpoints by their names; what has other names is somebody else's."""

from __future__ import annotations

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dask_train.checkpoint.listing import is_of_run, known_checkpoints, next_name, number_of, refuse_old_format
from dask_train.errors import CheckpointError


@pytest.fixture
def system():
    return fsspec.filesystem("file")


def test_names_count_on_and_tell_their_run():
    first = next_name([], "a-run")
    assert (number_of(first), is_of_run(first, "a-run"), is_of_run(first, "another")) == (0, True, False)
    second = next_name([first], "another")
    assert (number_of(second), is_of_run(second, "another")) == (1, True)
    late = "checkpoint-123456789-0123abcd-4567"  # more digits than they have at first
    assert number_of(next_name([second, late, first], "a-run")) == 123456790


def test_two_writers_never_have_the_same_name():
    assert len({next_name([], "a-run") for _ in range(8)}) > 1


def test_what_is_there_is_told_with_whether_it_counts(system, tmp_path):
    whole, torn, bare = (next_name([], run) for run in "abc")
    for name in (whole, torn, "checkpoint-7", f"{whole}.json.tmp", "0000001", f"x{torn}"):
        (tmp_path / name).mkdir()
    for name in (whole, bare):
        (tmp_path / f"{name}.json").touch()
    assert known_checkpoints(system, str(tmp_path)) == {whole: True, torn: False, bare: True}
    assert known_checkpoints(system, str(tmp_path / "none")) == {}


class Remembering(MemoryFileSystem):
    """Gives listings again that it has given before, as object stores do."""

    protocol = "remembering"

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.given, self.store, self.pseudo_dirs = {}, {}, [""]

    def ls(self, path, detail=True, **settings):
        return self.given.setdefault(path, super().ls(path, detail, **settings))

    def invalidate_cache(self, path=None):
        self.given.clear()


def test_a_listing_is_never_old():
    system = Remembering(skip_instance_cache=True)
    name = next_name([], "run")
    system.mkdir("/listed")
    assert known_checkpoints(system, "/listed") == {}
    system.pipe_file(f"/listed/{name}.json", b"{}")
    assert known_checkpoints(system, "/listed") == {name: True}


def test_checkpoints_without_manifests_are_refused(system, tmp_path):
    (tmp_path / "00000001").mkdir()
    refuse_old_format(system, str(tmp_path), "there")  # somebody's folder of that name
    (tmp_path / "00000001" / "complete").touch()
    with pytest.raises(CheckpointError, match="at there have the format of dask-train before checksums"):
        refuse_old_format(system, str(tmp_path), "there")
