"""Removes old checkpoints after a new one was saved; the last ones and the best are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dask_train.checkpoint.best import Best
from dask_train.checkpoint.local_files import put_manifest
from dask_train.checkpoint.manifest import DamagedError, Manifest


class Retention:
    """Removes the checkpoints of a run that need not be kept.

    Parameters
    ----------
    keep
        Number of the last checkpoints to keep.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._bests: dict[str, str] = {}  # name -> name of the best checkpoint, as its manifest has it
        self._held: set[str] = set()  # names of checkpoints whose scores are still to come
        self._saved: list[str] = []  # names of this run's checkpoints, in the order they were saved

    def saved(self, name: str, best: Best | None, *, is_held: bool) -> None:
        """Record that a checkpoint was saved, and the best one now; with ``held`` keep it until :meth:`release`."""
        self._saved.append(name)
        self._note(name, best)
        if is_held:
            self._held.add(name)

    def release(self, name: str) -> str:
        """Stop holding a checkpoint; return the name of the one that was saved last."""
        self._held.discard(name)
        return self._saved[-1]

    def tell(self, system: Any, root: str, name: str, best: Best) -> None:
        """Write another best checkpoint into the manifests of a checkpoint and of those that were saved since."""
        # The last one first, as training resumes from it.
        for each in reversed(self._saved[self._saved.index(name) :]):
            file = f"{root}/{each}.json"
            if system.exists(file):  # else it was removed as an old one
                manifest = replace(Manifest.from_bytes(system.cat_file(file)), best=best)
                put_manifest(system, root, each, manifest.to_bytes())
                self._note(each, best)

    def _note(self, name: str, best: Best | None) -> None:
        self._bests[name] = "" if best is None else best.checkpoint

    def remove(self, system: Any, root: str, old: dict[str, bool], whole: Sequence[str], new: str) -> None:
        """Remove old checkpoints; of each, first the manifest, then the files.

        A checkpoint is kept if the manifest of a kept one names it as the best: training may resume from that one if
        later ones are damaged. Held checkpoints are kept, too.

        Parameters
        ----------
        system, root
            File system, and the path of the folder.
        old
            Names of checkpoints that may be removed, and whether each has a manifest.
        whole
            Names of the complete ones among these, ascending by number.
        new
            Name of the checkpoint that was saved last.
        """
        last = whole[max(0, len(whole) - (self._keep - 1)) :]
        best = {self._best_by(system, root, name) for name in (*last, new)}
        for name in set(old) - {*last, *best, *self._held}:
            if old[name]:
                system.rm_file(f"{root}/{name}.json")
            if system.exists(f"{root}/{name}"):
                system.rm(f"{root}/{name}", recursive=True)

    def _best_by(self, system: Any, root: str, name: str) -> str:
        """Return the name of the best checkpoint in a checkpoint's manifest; empty if there is none."""
        if name not in self._bests:
            try:
                self._note(name, Manifest.from_bytes(system.cat_file(f"{root}/{name}.json")).best)
            except (DamagedError, FileNotFoundError):
                self._note(name, None)
        return self._bests[name]
