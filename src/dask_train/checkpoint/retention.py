"""Which checkpoints stay when a new one has been kept: the last ones, and the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dask_train.checkpoint.best import Best
from dask_train.checkpoint.local_files import put_manifest
from dask_train.checkpoint.manifest import DamagedError, Manifest


class Retention:
    """Removes what does not stay.

    Parameters
    ----------
    keep
        How many of the last ones stay.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._bests: dict[str, str] = {}  # which one was the best, by what each manifest tells
        self._held: set[str] = set()  # which may yet turn out to be the best
        self._saved: list[str] = []  # by this run, in their order

    def saved(self, name: str, best: Best | None, *, is_held: bool) -> None:
        """Note that a checkpoint of that name was kept, and which is the best one now; one that is held stays."""
        self._saved.append(name)
        self._note(name, best)
        if is_held:
            self._held.add(name)

    def release(self, name: str) -> str:
        """Hold one no more; which one was saved last."""
        self._held.discard(name)
        return self._saved[-1]

    def tell(self, system: Any, root: str, name: str, best: Best) -> None:
        """Let the manifests of a checkpoint, and of those that were saved since, name another best one."""
        for each in reversed(self._saved[self._saved.index(name) :]):  # the last one first: it counts
            file = f"{root}/{each}.json"
            if system.exists(file):  # else it was removed, as an old one
                manifest = replace(Manifest.from_bytes(system.cat_file(file)), best=best)
                put_manifest(system, root, each, manifest.to_bytes())
                self._note(each, best)

    def _note(self, name: str, best: Best | None) -> None:
        self._bests[name] = "" if best is None else best.checkpoint

    def remove(self, system: Any, root: str, old: dict[str, bool], whole: Sequence[str], new: str) -> None:
        """Remove old ones; first the manifest, then the files.

        Those stay that one which stays calls the best: training may resume from it if later ones are damaged.
        Those that are held stay, too.

        Parameters
        ----------
        system, root
            The file system and the path there.
        old
            Those that may be removed, and whether each has a manifest.
        whole
            Of these the ones that count, by their numbers.
        new
            The one that has just been kept.
        """
        last = whole[max(0, len(whole) - (self._keep - 1)) :]
        best = {self._best_by(system, root, name) for name in (*last, new)}
        for name in set(old) - {*last, *best, *self._held}:
            if old[name]:
                system.rm_file(f"{root}/{name}.json")
            if system.exists(f"{root}/{name}"):
                system.rm(f"{root}/{name}", recursive=True)

    def _best_by(self, system: Any, root: str, name: str) -> str:
        """Return which checkpoint was the best one when that was kept; empty if none was."""
        if name not in self._bests:
            try:
                self._note(name, Manifest.from_bytes(system.cat_file(f"{root}/{name}.json")).best)
            except (DamagedError, FileNotFoundError):
                self._note(name, None)
        return self._bests[name]
