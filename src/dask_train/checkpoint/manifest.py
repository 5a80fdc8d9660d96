"""What belongs to a checkpoint: its files with their checksums, and which run has kept it. Written last."""

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

# Of what lies in a folder of checkpoints: names, manifests, checksums. Raised when an older version can't read it.
FORMAT = 2

# Batches that have gone into a checkpoint: of which run, of which role, and the fields of each
# :class:`~dask_train.data.account.BatchRange`.
Cover = tuple[str, str, list[list[int]]]


class DamagedError(Exception):
    """A checkpoint is not what was written; the text says what of it, without a full stop."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest of one checkpoint.

    Attributes
    ----------
    run, began, attempt
        Which run has kept it, when that began, and which start of the role that wrote it.
    files
        Size in bytes and SHA-256 of each, by its path in the checkpoint.
    covers
        Which batches have gone into it.
    saved
        When it was written, in seconds since the epoch.
    best
        The best checkpoint then, perhaps this one; None if none has a score.
    """

    run: str
    began: float
    attempt: int
    files: dict[str, tuple[int, str]]
    covers: Sequence[Cover] = ()
    saved: float = field(default_factory=time.time)
    best: Best | None = None

    def to_bytes(self) -> bytes:
        """Give what is stored: JSON, with a checksum of its own."""
        contents = {"format": FORMAT, **asdict(self)}
        return json.dumps({**contents, "sha256": _checksum(contents)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Return the manifest that was stored so.

        Raises
        ------
        DamagedError
            It was not.
        CheckpointError
            It is of a later format.
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
