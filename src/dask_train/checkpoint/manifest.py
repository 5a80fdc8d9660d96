"""The manifest of a checkpoint: its files with checksums, and the run that saved it. It is written after the files."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dask_train.checkpoint.best import Best
from dask_train.errors import CheckpointError

# Version of names, manifests and checksums in a folder; increased when older versions can't read them.
FORMAT = 2

# Batches that were trained on before a checkpoint: run, role, and the fields of each
# :class:`~dask_train.data.account.BatchRange`.
Cover = tuple[str, str, list[list[int]]]


class DamagedError(Exception):
    """Raised if a checkpoint is damaged; the text names the damage, without a full stop."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest of one checkpoint.

    Attributes
    ----------
    run, began, attempt
        Name of the run that saved it, time of the run's start, and number of the writing role's start.
    files
        Path in the checkpoint -> size in bytes and SHA-256.
    covers
        Batches that were trained on before; last those of this attempt of the role that saved it.
    saved
        Time of writing, in seconds since the epoch.
    best
        Best checkpoint at that time, perhaps this one; None if none has a score.
    """

    run: str
    began: float
    attempt: int
    files: dict[str, tuple[int, str]]
    covers: Sequence[Cover] = ()
    saved: float = field(default_factory=time.time)
    best: Best | None = None

    @property
    def saver(self) -> str:
        """Return the role that saved it, whose batches are the last that it covers; empty if it covers none."""
        return self.covers[-1][1] if self.covers else ""

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON with a checksum of its own."""
        contents = {"format": FORMAT, **asdict(self)}
        return json.dumps({**contents, "sha256": _checksum(contents)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Return the manifest of :meth:`to_bytes`.

        Raises
        ------
        DamagedError
            The data is not what was written.
        CheckpointError
            The manifest has a later format.
        """
        try:
            contents = json.loads(data)
            checksum, version = contents.pop("sha256"), contents["format"]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise DamagedError(f"its manifest of {len(data)} bytes can't be read") from None
        if checksum != _checksum(contents):
            raise DamagedError("its manifest has other contents than were written")
        if version > FORMAT:
            raise CheckpointError(
                f"The checkpoint of run {contents['run']} has format {version}, "
                f"and this dask-train reads up to {FORMAT}.",
                "A later version has written it.",
                "Install that version where the roles run, or pass checkpoint= another folder.",
            )
        del contents["format"]
        files = {name: (size, digest) for name, (size, digest) in contents.pop("files").items()}
        covers = [(run, role, stretches) for run, role, stretches in contents.pop("covers")]
        best = contents.pop("best", None)  # not in format 1
        return cls(files=files, covers=covers, best=None if best is None else Best(**best), **contents)

    def check(self, folder: Path) -> None:
        """Check that the files in a local folder are those of the checkpoint.

        Raises
        ------
        DamagedError
            One is not.
        """
        for name, (size, digest) in self.files.items():
            path = folder / name
            if not path.is_file():
                raise DamagedError(f"its file {name} is missing")
            if (has := path.stat().st_size) != size:
                raise DamagedError(f"its file {name} has {has} of {size} bytes")
            if sha256_of(path) != digest:
                raise DamagedError(f"its file {name} has other contents than were written")


def files_of(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and checksum of all files below a local folder, by their paths in it."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): (file.stat().st_size, sha256_of(file)) for file in files}


@dataclass(frozen=True, kw_only=True)
class LoadedCheckpoint:
    """A checkpoint that was read, and is whole.

    Attributes
    ----------
    folder
        A local one with its files.
    manifest
        What was to be in it.
    notice
        Which newer ones are damaged and were passed over, as a text; empty if there are none.
    """

    folder: Path
    manifest: Manifest
    notice: str


def sha256_of(file: Path) -> str:
    """Return the checksum of a local file; it is read once."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _checksum(contents: dict[str, Any]) -> str:
    plain = json.loads(json.dumps(contents))  # tuples are lists, as they will be when it is read
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
