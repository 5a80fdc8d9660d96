"""The place where a search is kept: claimed while it goes on, and refused to one that was begun with something else."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.errors import CheckpointError

# Raised when what is stored means something else than before.
FORMAT = 1


class KeptPlace:
    """A folder of checkpoints, of which each is the whole state of a search; for one client.

    Parameters
    ----------
    place
        Where.
    arguments
        What fixes the search.
    file
        What a checkpoint's state is called; that of another kind of search has another name.

    Attributes
    ----------
    place, url
        Where.
    """

    def __init__(self, place: CheckpointPlace, arguments: Mapping[str, Any], file: str) -> None:
        self.place, self.url, self._file = place, place.url, file
        self._arguments = _plain(arguments)
        self._then: Mapping[str, Any] = {}
        self._folder = CheckpointFolder(place)
        self._scratch = tempfile.TemporaryDirectory(prefix="dask-train-search-")

    @property
    def scratch(self) -> Path:
        """For local copies."""
        return Path(self._scratch.name)

    def load(self) -> tuple[dict[str, Any], Path] | None:
        """Claim the place, and read what there is to go on with: a state, and the folder of its checkpoint.

        Raises
        ------
        CheckpointError
            It can't be written or read from here; another search keeps its checkpoints there; or what is there is no
            search, or one with other arguments.
        """
        self._folder.check()
        self._folder.claim()
        loaded = self._folder.load(self.scratch) if self._folder.resume else None
        if loaded is None:
            return None
        told = self._opened(loaded.folder)
        self._then = told["arguments"]
        self.check_same(dict(self._arguments))
        return told, loaded.folder

    def check_same(self, arguments: Mapping[str, Any]) -> None:
        """See that what is gone on with was begun with the same; and note it for what is kept from now on.

        Raises
        ------
        CheckpointError
            It was not.
        """
        now, then = _plain(arguments), self._then
        self._arguments.update(now)
        found = [
            f"{name} was {then[name]!r}, and is {now[name]!r}" for name in now if then.get(name, now[name]) != now[name]
        ]
        if found:
            raise CheckpointError(
                f"The search at {self.url} was begun with something else: {'; '.join(found)}.",
                "Its trials can't be compared with those that were to come.",
                "Pass the data and arguments of then, or checkpoint= another folder to begin anew.",
            )

    def store(
        self, state: Mapping[str, Any], more: Callable[[Path], None] | None = None, *, score: float | None = None
    ) -> None:
        """Keep a state, and perhaps more files beside it.

        Raises
        ------
        CheckpointError
            It can't be written.
        """

        def write(folder: Path) -> None:
            told = {"format": FORMAT, **state, "arguments": self._arguments}
            (folder / self._file).write_bytes(cloudpickle.dumps(told))
            if more is not None:
                more(folder)

        self._folder.save(write, self.scratch, score=score)

    def close(self) -> None:
        """Let others have the place."""
        self._folder.release()
        self._scratch.cleanup()

    def _opened(self, folder: Path) -> dict[str, Any]:
        try:
            told: dict[str, Any] = cloudpickle.loads((folder / self._file).read_bytes())
            version = told.pop("format")
        except Exception as error:  # whatever Optuna's objects raise when they are made again
            names = ", ".join(sorted(file.name for file in folder.rglob("*") if file.is_file()))
            raise CheckpointError(
                f"The checkpoint, which has the files {names}, is none of dt.search, or can't be read here.",
                "It was made with another verb, by another kind of search, or with another version of Optuna.",
                "Pass checkpoint= another folder.",
            ) from error
        if version > FORMAT:
            raise CheckpointError(
                f"The search has format {version}, and this dask-train reads up to {FORMAT}.",
                "A later version has written it.",
                "Install that version, or pass checkpoint= another folder.",
            )
        return told


def _plain(value: Any) -> Any:
    """As it comes back from JSON, which makes lists of tuples, and text of what it doesn't know."""
    return json.loads(json.dumps(value, default=str))
