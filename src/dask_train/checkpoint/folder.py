"""A folder of checkpoints, on anything that fsspec can write to. Each counts when its manifest is there, and fits."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dask_train.checkpoint.best import Best, check_best, is_better
from dask_train.checkpoint.claim import Claiming
from dask_train.checkpoint.listing import is_of_run, known_checkpoints, next_name, number_of, refuse_old_format
from dask_train.checkpoint.local_files import checkpoint_error, put_manifest, sync_files, write_locally
from dask_train.checkpoint.manifest import Cover, DamagedError, LoadedCheckpoint, Manifest
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import is_due
from dask_train.checkpoint.retention import Retention
from dask_train.errors import CheckpointError


class CheckpointFolder:
    """The checkpoints of a run.

    Parameters
    ----------
    place
        Where, and which run this is.
    attempt
        Which start of the role that writes.

    Attributes
    ----------
    run
        The name of this run.
    resume
        Whether this run begins with the last checkpoint of any.
    policy
        How often it keeps one, and which of them stay.
    best_of
        The score by which the best one is known; None if none is.
    best
        The best checkpoint of this training, as the one that was loaded last tells, or those that were saved since;
        None if none has a score, or the place keeps none.

    Notes
    -----
    There is one writer at a time, the chief. Object stores have no rename, so what makes a checkpoint complete is its
    manifest, which is written when all of it is there, and on local disks has been synced.
    """

    def __init__(self, place: CheckpointPlace, attempt: int = 0) -> None:
        self.run, self.resume, self.policy, self.best_of = place.run, place.resume, place.policy, place.best
        self._place, self._attempt = place, attempt
        self._before: set[str] | None = None  # what was there when this run came
        self._damaged: dict[str, str] = {}  # and why
        self.best: Best | None = None
        self._retention = Retention(place.keep)
        self._claiming = Claiming(place)
        self._last_s, self._last_steps = time.monotonic(), 0

    @property
    def url(self) -> str:
        """Where it is: a path, or an fsspec URL."""
        return self._place.url

    @property
    def has_earlier(self) -> bool:
        """Return whether there were checkpoints when this run came; none before :meth:`check`."""
        return bool(self._before)

    def due(self, steps: int) -> bool:
        """Return whether it is time for the next one, after that many steps in all."""
        place, seconds = self._place, time.monotonic() - self._last_s
        return is_due(place.every_steps, place.every_s, steps=steps, last_steps=self._last_steps, seconds=seconds)

    def was_kept(self, steps: int) -> None:
        """Note that one was kept after that many steps in all: the next one's time counts from now on."""
        self._last_s, self._last_steps = time.monotonic(), steps

    def claim(self) -> None:
        """Keep other runs off, until :meth:`release` or the end of this process; after :meth:`check`.

        Raises
        ------
        CheckpointError
            Another run keeps its checkpoints there now.
        """
        try:
            self._claiming.begin()
        except CheckpointError:
            raise
        except Exception as error:
            raise checkpoint_error(self._place, "written", error) from error

    def release(self) -> None:
        """Let other runs have the place; never an error."""
        self._claiming.end()

    def check(self) -> None:
        """Check that checkpoints can be written there, by writing a small file and removing it.

        Raises
        ------
        CheckpointError
            They can't.
        """
        try:
            system, root = self._place.opened()
            if system.isfile(root):
                raise NotADirectoryError(f"{root} is a file")
            system.makedirs(root, exist_ok=True)
            trial = f"{root}/.dask-train-{secrets.token_hex(4)}"
            system.pipe_file(trial, b"can be written")
            system.rm_file(trial)
            self._before = set(known_checkpoints(system, root))
        except Exception as error:
            raise checkpoint_error(self._place, "written", error) from error

    def save(
        self,
        write: Callable[[Path], Any],
        scratch: Path,
        covers: Sequence[Cover] = (),
        *,
        score: float | None = None,
        mode: str | None = None,
        is_held: bool = False,
    ) -> str:
        """Keep one more checkpoint, and remove old ones, except for the best.

        Parameters
        ----------
        write
            Called with an empty local folder, into which it writes files.
        scratch
            Where that folder is made.
        covers
            See :class:`~dask_train.checkpoint.manifest.Manifest`.
        score
            What is in it has this score, by which it may be the best; None if it has none.
        mode
            Whether less or more of it is better; the place's own where it is None.
        is_held
            Whether it stays until :meth:`settle` tells its score.

        Returns
        -------
        str
            Where the checkpoint lies.

        Raises
        ------
        CheckpointError
            It can't be written there, ``write`` has written nothing, or another run keeps its checkpoints there.
        """
        folder = scratch / "checkpoint-being-written"
        try:
            files = write_locally(write, folder)
            place = self._place
            manifest = Manifest(run=place.run, began=place.began, attempt=self._attempt, files=files, covers=covers)
            try:
                return self._put(folder, manifest, score, mode or place.mode, is_held=is_held)
            except CheckpointError:
                raise
            except Exception as error:  # whatever the store's package raises
                raise checkpoint_error(self._place, "written", error) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def settle(self, name: str, score: float | None, mode: str) -> None:
        """Let a checkpoint that was held stay only where it is the best, as those that were saved since tell then.

        Parameters
        ----------
        name
            The last part of where it lies.
        score, mode
            As of :meth:`save`; None for one that will have no score.

        Raises
        ------
        CheckpointError
            What lies there can't be changed.
        """
        try:
            system, root = self._place.opened()
            best = self._best_of(name, score, mode)
            if best is not None and best is not self.best:
                self._retention.tell(system, root, name, best)
                self.best = best
            last, known = self._retention.release(name), known_checkpoints(system, root)
            known.pop(last, None)
            self._remove_old(system, root, known, last)
        except Exception as error:
            raise checkpoint_error(self._place, "written", error) from error

    def _best_of(self, name: str, score: float | None, mode: str) -> Best | None:
        """Return the best one, with one of that score."""
        of, than = self._place.best, None if self.best is None else self.best.score
        if of is None or score is None or not is_better(score, than, mode=mode):
            return self.best
        return Best(of=of, mode=mode, score=score, checkpoint=name)

    def _put(self, folder: Path, manifest: Manifest, score: float | None, mode: str, *, is_held: bool) -> str:
        system, root = self._place.opened()
        known = known_checkpoints(system, root)
        self._check_alone(system, root, known)
        name = next_name(known, self.run)
        target, best = f"{root}/{name}", self._best_of(name, score, mode)
        manifest = replace(manifest, best=best)
        for file in manifest.files:
            there = f"{target}/{file}"
            system.makedirs(there.rpartition("/")[0], exist_ok=True)
            system.put_file(str(folder / file), there)
        sync_files(system, root, [f"{target}/{file}" for file in manifest.files])
        put_manifest(system, root, name, manifest.to_bytes())
        self.best = best
        self._retention.saved(name, best, is_held=is_held)
        self._remove_old(system, root, known, name)
        return str(system.unstrip_protocol(target))

    def load(self, scratch: Path, *, own: bool = False, begins: bool = False) -> LoadedCheckpoint | None:
        """Return the last whole checkpoint, its files in a local folder; None if there is none.

        A role that starts again takes one of its own run before one that another run has left there.

        Parameters
        ----------
        scratch
            Where the folder is made.
        own
            Whether only those of this run count.
        begins
            Whether the role has yet to begin with its rows: then what others have trained since they all were started
            does not count. A role that was started late would else begin where a faster one is by then.

        Raises
        ------
        CheckpointError
            It can't be read, all of them are damaged, or they are of another format.
        """
        folder = scratch / "checkpoint-loaded"
        gone: set[str] = set()  # removed by their writer while they were read, so there is a later one
        try:
            while (newest := self._newest(gone, own=own, begins=begins)) is not None:
                name, manifest = newest
                try:
                    self._fetch(name, manifest, folder)
                    manifest.check(folder)
                except DamagedError as damage:
                    self._damaged[name] = str(damage)
                except FileNotFoundError:
                    gone.add(name)
                else:
                    self.best = self._checked(manifest.best)
                    return LoadedCheckpoint(folder=folder, manifest=manifest, notice=self._passed_over(name, manifest))
        except CheckpointError:
            raise
        except Exception as error:
            raise checkpoint_error(self._place, "read", error) from error
        if self._damaged:
            raise CheckpointError(
                f"No checkpoint at {self._place.url} is whole: {self._damages()}.",
                "Something else than dask-train has changed or removed what lies there, or the disk is failing.",
                "Restore them from a copy, or begin anew in another folder.",
            )
        return None

    def load_best(self, scratch: Path, *, own: bool = False) -> LoadedCheckpoint | None:
        """Load the best checkpoint that the last one knows of, into a local folder; None if none has a score.

        Parameters
        ----------
        scratch
            Where the folder is made.
        own
            Whether only those of this run count.

        Raises
        ------
        CheckpointError
            It is damaged, or can't be read.
        """
        folder, best = scratch / "checkpoint-loaded", self.best
        try:
            if best is None and (newest := self._newest(set(), own=own, begins=False)) is not None:
                best = self.best = self._checked(newest[1].best)
            if best is None:
                return None
            system, root = self._place.opened()
            manifest = Manifest.from_bytes(system.cat_file(f"{root}/{best.checkpoint}.json"))
            self._fetch(best.checkpoint, manifest, folder)
            manifest.check(folder)
        except CheckpointError:
            raise
        except (DamagedError, FileNotFoundError) as error:
            why = error if isinstance(error, DamagedError) else "it is missing"
            raise CheckpointError(
                f"The best checkpoint at {self._place.url} can't be taken: {why}.",
                "Something else than dask-train has changed or removed what lies there, or the disk is failing.",
                "Restore it from a copy, or resume from the last one, without the best.",
            ) from error
        except Exception as error:
            raise checkpoint_error(self._place, "read", error) from error
        return LoadedCheckpoint(folder=folder, manifest=manifest, notice="")

    def _checked(self, best: Best | None) -> Best | None:
        return check_best(best, self._place.best, self._place.mode, self._place.url)

    def _newest(self, gone: set[str], *, own: bool, begins: bool) -> tuple[str, Manifest] | None:
        """Return the checkpoint to take, of those that are not known to be damaged."""
        system, root = self._place.opened()
        known = known_checkpoints(system, root)
        names = sorted((name for name, whole in known.items() if whole and name not in gone), key=number_of)
        mine = [name for name in names if is_of_run(name, self.run)]
        if own or self._attempt:
            names = mine if own else [*(name for name in names if name not in mine), *mine]
        if not names and not own:
            refuse_old_format(system, root, self._place.url)
        newer: list[tuple[str, Manifest]] = []
        while names:
            name = names.pop()
            if name in self._damaged:
                continue
            try:
                manifest = Manifest.from_bytes(system.cat_file(f"{root}/{name}.json"))
                if not (begins and self._is_of_this_start(manifest)):
                    return name, manifest
                newer.append((name, manifest))
            except DamagedError as damage:
                self._damaged[name] = str(damage)
            except FileNotFoundError:
                gone.add(name)
        # Of a run whose roles are replaced one by one it may be that of another one's start, of as many as this one's.
        return newer[0] if newer and self._attempt else None

    def _is_of_this_start(self, manifest: Manifest) -> bool:
        """Return whether batches of this run are in it that were taken after the start of the role that begins."""
        has_batches = any(run == self.run and stretches for run, _, stretches in manifest.covers)
        return manifest.run == self.run and manifest.attempt >= self._attempt and has_batches

    def _fetch(self, name: str, manifest: Manifest, folder: Path) -> None:
        system, root = self._place.opened()
        shutil.rmtree(folder, ignore_errors=True)
        for file in manifest.files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            try:
                system.get_file(f"{root}/{name}/{file}", str(folder / file))
            except FileNotFoundError:
                system.invalidate_cache()
                if system.exists(f"{root}/{name}.json"):
                    raise DamagedError(f"its file {file} is missing") from None
                raise

    def _check_alone(self, system: Any, root: str, known: dict[str, bool]) -> None:
        """Check that no other run or role writes here: no run that began earlier, no later start of this role."""
        if self._before is None:
            self._before = set(known)
        for name in set(known) - self._before:
            try:
                other = Manifest.from_bytes(system.cat_file(f"{root}/{name}.json"))
            except (DamagedError, FileNotFoundError):  # being written, or removed again
                continue
            if other.run != self._place.run and other.began < self._place.began:
                since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(other.began))
                raise CheckpointError(
                    f"Run {other.run}, which has been running since {since}, keeps its checkpoints at "
                    f"{self._place.url}, too: it has written {name} after run {self._place.run} came.",
                    "Two runs in one folder remove each other's checkpoints, and resume from each other's.",
                    "Pass each run another folder.",
                )
            if is_of_run(name, self.run) and other.attempt > self._attempt:
                raise CheckpointError(f"This role has been started again elsewhere, and has written {name} there.")

    def _remove_old(self, system: Any, root: str, known: dict[str, bool], new: str) -> None:
        """Remove old ones of those that were there, or are this run's own."""
        assert self._before is not None
        old = {name: whole for name, whole in known.items() if name in self._before or is_of_run(name, self.run)}
        whole = sorted((name for name in old if old[name] and name not in self._damaged), key=number_of)
        self._retention.remove(system, root, old, whole, new)

    def _damages(self) -> str:
        return "; ".join(f"of {name}, {damage}" for name, damage in sorted(self._damaged.items()))

    def _passed_over(self, chosen: str, manifest: Manifest) -> str:
        if not any(number_of(name) > number_of(chosen) for name in self._damaged):
            return ""
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.saved))
        return (
            f"A checkpoint at {self._place.url} is damaged ({self._damages()}). Training resumes from the whole one "
            f"before it, {chosen} of {at}."
        )
