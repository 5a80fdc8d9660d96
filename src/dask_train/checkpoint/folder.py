"""A folder of checkpoints, on anything that fsspec can write to. Numbered; each is complete when its mark is there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dask_train.errors import CheckpointError

# Written last. A writer that is killed leaves a folder without it, which is never read, and removed by the next one.
COMPLETE = "complete"
# The last one may be read by a role that starts again while the next one is written.
KEPT = 2


class CheckpointFolder:
    """The checkpoints of a run.

    Parameters
    ----------
    url
        A path that all hosts share, or an fsspec URL such as ``s3://bucket/run``.

    Notes
    -----
    There is one writer at a time, the chief. Object stores have no rename, so what makes a checkpoint complete is a
    mark that is written when all of it is there.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def _opened(self) -> tuple[Any, str]:
        """The file system, and the path there."""
        import fsspec.core  # type: ignore[import-untyped]  # a third of a role's start, and few keep checkpoints

        system, root = fsspec.core.url_to_fs(self.url)
        return system, root

    def save(self, write: Callable[[Path], Any], scratch: Path) -> str:
        """Keep one more checkpoint, and remove old ones.

        Parameters
        ----------
        write
            Called with an empty local folder, into which it writes files.
        scratch
            Where that folder is made.

        Returns
        -------
        str
            Where the checkpoint lies.

        Raises
        ------
        CheckpointError
            It can't be written there, or ``write`` has written nothing.
        """
        folder = scratch / "checkpoint-being-written"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write(folder)
        files = [file for file in folder.rglob("*") if file.is_file()]
        if not files:
            raise CheckpointError(
                "The function that was given to save_checkpoint has written no file.",
                change="Write into the folder that it is called with.",
            )
        try:
            system, root = self._opened()
            known = self._known(system, root)
            target = f"{root}/{max(known, default=-1) + 1:08d}"
            for file in files:
                there = f"{target}/{file.relative_to(folder).as_posix()}"
                system.makedirs(there.rpartition("/")[0], exist_ok=True)
                system.put_file(str(file), there)
            system.pipe_file(f"{target}/{COMPLETE}", str(len(files)).encode())
            self._remove_old(system, root, known)
        except (OSError, ValueError, ImportError) as error:
            raise self._refused("written", error) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return str(system.unstrip_protocol(target))

    def load(self, scratch: Path) -> Path | None:
        """The files of the last complete checkpoint in a local folder, None where there is none.

        Raises
        ------
        CheckpointError
            It can't be read.
        """
        try:
            system, root = self._opened()
            complete = [number for number, done in self._known(system, root).items() if done]
            if not complete:
                return None
            source = f"{root}/{max(complete):08d}"
            folder = scratch / "checkpoint-loaded"
            shutil.rmtree(folder, ignore_errors=True)
            for there in system.find(source):
                name = str(there)[len(source) :].lstrip("/")
                if name != COMPLETE:
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    system.get_file(there, str(folder / name))
        except (OSError, ValueError, ImportError) as error:
            raise self._refused("read", error) from error
        return folder

    def _known(self, system: Any, root: str) -> dict[int, bool]:
        """The numbers that are there, and whether each is complete; never from a cache of the listing."""
        system.invalidate_cache()
        if not system.exists(root):
            return {}
        names = [str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in system.ls(root, detail=True)]
        numbers = [name for name in names if name.isdigit()]
        return {int(name): system.exists(f"{root}/{name}/{COMPLETE}") for name in numbers}

    def _remove_old(self, system: Any, root: str, known: dict[int, bool]) -> None:
        kept = sorted(number for number, done in known.items() if done)[-(KEPT - 1) :]
        for number in set(known) - set(kept):
            system.rm(f"{root}/{number:08d}", recursive=True)

    def _refused(self, done: str, error: Exception) -> CheckpointError:
        return CheckpointError(
            f"A checkpoint can't be {done} at {self.url}: {type(error).__name__}: {error}.",
            "Every host with a training role has to reach it.",
            "Pass checkpoint= a folder on a shared file system, or a URL for fsspec with its package installed.",
        )
