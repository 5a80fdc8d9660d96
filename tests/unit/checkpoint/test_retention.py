"""Old checkpoints are removed; never one that may be needed: the last ones, the best, and those held."""

from __future__ import annotations

import fsspec
import pytest

from dask_train.checkpoint.best import Best
from dask_train.checkpoint.listing import Retention
from dask_train.checkpoint.manifest import Manifest


def best(name: str) -> Best:
    return Best(of="loss", mode="min", score=1.0, checkpoint=name)


class Folder:
    """Checkpoints by name as they lie in a file system, each kept with what was the best one then."""

    def __init__(self, root: str) -> None:
        self.system, self.root = fsspec.core.url_to_fs(root)

    def put(self, name: str, best: Best | None = None) -> None:
        self.system.makedirs(f"{self.root}/{name}", exist_ok=True)
        self.system.pipe_file(f"{self.root}/{name}/weights", name.encode())
        manifest = Manifest(run="a-run", began=0.0, attempt=0, files={}, best=best)
        self.system.pipe_file(f"{self.root}/{name}.json", manifest.to_bytes())

    def best_by(self, name: str) -> str:
        found = Manifest.from_bytes(self.system.cat_file(f"{self.root}/{name}.json")).best
        return found.checkpoint if found else ""

    def names(self) -> set[str]:
        """Those that are whole; nothing is left of any other."""
        found = {path.rpartition("/")[2] for path in self.system.ls(self.root, detail=False)}
        whole = {name for name in found if f"{name}.json" in found}
        assert found == whole | {f"{name}.json" for name in whole}
        return whole

    def keep_only(self, retention: Retention, new: str) -> set[str]:
        old = sorted(self.names() - {new})
        retention.remove(self.system, self.root, dict.fromkeys(old, True), old, new)
        return self.names()


@pytest.fixture
def folder(url: str) -> Folder:
    return Folder(url)


@pytest.mark.parametrize("keep", [1, 2, 4, 9])
def test_the_last_ones_stay(folder, keep):
    names = list("abcd")
    for name in names:
        folder.put(name)
    assert folder.keep_only(Retention(keep), "d") == set(names[-keep:])


def test_what_one_that_stays_calls_the_best_stays(folder):
    """Also by the manifests of an earlier run; it may be all that is left where later ones are damaged."""
    for name, of_it in [("a", best("a")), ("b", best("b")), ("c", best("a")), ("d", best("b"))]:
        folder.put(name, of_it)
    retention = Retention(2)
    retention.saved("d", best("b"), is_held=False)
    assert folder.keep_only(retention, "d") == {"a", "b", "c", "d"}
    folder.put("e", best("b"))
    assert folder.keep_only(Retention(2), "e") == {"b", "d", "e"}


def test_a_damaged_manifest_calls_none_the_best(folder):
    folder.put("a")
    folder.put("b", best("a"))
    folder.put("c")
    folder.system.pipe_file(f"{folder.root}/b.json", b"{")
    assert folder.keep_only(Retention(2), "c") == {"b", "c"}


def test_one_that_is_held_stays_until_it_is_released(folder):
    retention = Retention(1)
    for name, held in [("a", True), ("b", False)]:
        folder.put(name)
        retention.saved(name, None, is_held=held)
    assert folder.keep_only(retention, "b") == {"a", "b"}
    assert retention.release("a") == "b"
    assert folder.keep_only(retention, "b") == {"b"}


def test_a_score_that_comes_late_is_told_by_all_since(folder):
    retention = Retention(1)
    for name in "abc":
        folder.put(name)
        retention.saved(name, None, is_held=name != "c")
    folder.system.rm_file(f"{folder.root}/b.json")
    folder.system.rm(f"{folder.root}/b", recursive=True)
    retention.tell(folder.system, folder.root, "a", best("a"))
    assert [folder.best_by(name) for name in "ac"] == ["a", "a"]
    retention.release("a")
    assert folder.keep_only(retention, "c") == {"a", "c"}, "the last one calls it the best now"
