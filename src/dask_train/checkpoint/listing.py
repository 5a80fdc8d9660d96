"""The checkpoints that lie in a folder, by their names."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from typing import Any

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
