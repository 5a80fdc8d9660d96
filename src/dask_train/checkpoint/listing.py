"""The checkpoints that lie in a folder, by their names; and which of them stay: the last ones, and the best."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dask_train.checkpoint.best import Best
from dask_train.checkpoint.local_files import put_manifest
from dask_train.checkpoint.manifest import DamagedError, Manifest
from dask_train.errors import CheckpointError

# A checkpoint's files lie in a folder of this name, its manifest next to it: number, which run, and what is drawn anew
# for each, so that two writers never mix their files. Files with other names belong to others, and are left alone.
_NAME = re.compile(r"(checkpoint-\d{8,}-[0-9a-f]{8}-[0-9a-f]{4})(\.json)?")
# How checkpoints were named before they had manifests.
_OLD_NAME, _OLD_MARK = re.compile(r"\d{8}"), "complete"


def known_checkpoints(system: Any, root: str) -> dict[str, bool]:
    """Return the checkpoints that are there, and whether each has a manifest; never from a cache of the listing."""
    known: dict[str, bool] = {}
    for match in filter(None, map(_NAME.fullmatch, _names(system, root))):
        known[match[1]] = known.get(match[1], False) or match[2] is not None
    return known


def next_name(known: Iterable[str], run: str) -> str:
    """Return the name of a run's next checkpoint, after those that are known."""
    number = max(map(number_of, known), default=-1) + 1
    return f"checkpoint-{number:08d}-{_tag(run)}-{secrets.token_hex(2)}"


def number_of(name: str) -> int:
    """Return the number of a checkpoint; later ones have larger numbers."""
    return int(name.split("-")[1])


def is_of_run(name: str, run: str) -> bool:
    """Return whether a run has written a checkpoint, in any attempt."""
    return name.split("-")[2] == _tag(run)


def refuse_old_format(system: Any, root: str, url: str) -> None:
    """Check that there are no checkpoints without manifests.

    Raises
    ------
    CheckpointError
        There are.
    """
    for name in filter(_OLD_NAME.fullmatch, _names(system, root)):
        if system.exists(f"{root}/{name}/{_OLD_MARK}"):
            raise CheckpointError(
                f"The checkpoints at {url} have the format of dask-train before checksums, which is not read any more.",
                change="Go on with the version that has written them, or begin anew in another folder.",
            )


def _tag(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:8]


def _names(system: Any, root: str) -> list[str]:
    system.invalidate_cache()
    if not system.exists(root):
        return []
    return [str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in system.ls(root, detail=True)]


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

    @property
    def has_saved(self) -> bool:
        """Return whether a checkpoint was saved here."""
        return bool(self._saved)

    def saved(self, name: str, best: Best | None, *, is_held: bool) -> None:
        """Record that a checkpoint was saved, and the best one now; with ``held`` keep it until :meth:`release`."""
        self._saved.append(name)
        self._note(name, best)
        if is_held:
            self._held.add(name)

    def hold(self, name: str) -> None:
        """Keep a checkpoint until :meth:`release`."""
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
