"""A folder of checkpoints, on any file system of fsspec. A checkpoint is complete if its manifest is there and fits."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dask_train.checkpoint.best import Best, check_best, is_better
from dask_train.checkpoint.claim import Claiming
from dask_train.checkpoint.listing import (
    Retention,
    is_of_run,
    known_checkpoints,
    next_name,
    number_of,
    refuse_old_format,
)
from dask_train.checkpoint.local_files import checkpoint_error, put_manifest, sync_files, write_locally
from dask_train.checkpoint.manifest import Cover, DamagedError, LoadedCheckpoint, Manifest
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import is_due
from dask_train.errors import CheckpointError


class CheckpointFolder:
    """The checkpoints of a run.

    Parameters
    ----------
    place
        Location of the folder, and settings of this run.
    attempt
        Number of the writing role's start, from 0.

    Attributes
    ----------
    run
        Name of this run.
    resume
        Whether this run begins with the last checkpoint of any run.
    policy
        How often a checkpoint is saved, and which ones are kept.
    best_of
        Name of the score that the best checkpoint is chosen by; None if there is none.
    best
        The best checkpoint so far: as the manifest loaded last has it, or among those saved since. None if none has a
        score, or ``best_of`` is None.

    Notes
    -----
    There is one writer at a time, the chief. Object stores have no rename, so the manifest marks a checkpoint as
    complete: it is written after all files, which on local disks are synced first.
    """

    def __init__(self, place: CheckpointPlace, attempt: int = 0) -> None:
        self.run, self.resume, self.policy, self.best_of = place.run, place.resume, place.policy, place.best
        self._place, self._attempt = place, attempt
        self._before: set[str] | None = None  # names of checkpoints that were there before this run
        self._damaged: dict[str, str] = {}  # name -> what is damaged
        self._begun = ""  # name of the one that others may still begin with
        self.best: Best | None = None
        self._retention = Retention(place.keep)
        self._claiming = Claiming(place)
        self._last_s, self._last_steps = time.monotonic(), 0

    @property
    def url(self) -> str:
        """Location of the folder: a path, or an fsspec URL."""
        return self._place.url

    @property
    def has_earlier(self) -> bool:
        """Return whether there were checkpoints before this run; False before :meth:`check`."""
        return bool(self._before)

    def due(self, steps: int) -> bool:
        """Return whether the next checkpoint is due, after that many steps in all."""
        place, seconds = self._place, time.monotonic() - self._last_s
        return is_due(place.every_steps, place.every_s, steps=steps, last_steps=self._last_steps, seconds=seconds)

    def was_kept(self, steps: int) -> None:
        """Record that a checkpoint was saved after that many steps in all, from which :meth:`due` counts."""
        self._last_s, self._last_steps = time.monotonic(), steps

    def claim(self) -> None:
        """Lock the folder for this run, until :meth:`release` or the end of this process; after :meth:`check`.

        Raises
        ------
        CheckpointError
            Another run has locked it.
        """
        try:
            self._claiming.begin()
        except CheckpointError:
            raise
        except Exception as error:
            raise checkpoint_error(self._place, "written", error) from error

    def release(self) -> None:
        """Unlock the folder for other runs; never raises."""
        self._claiming.end()

    def check(self) -> None:
        """Check that the folder can be written to, by writing and removing a small file.

        Raises
        ------
        CheckpointError
            It can't.
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
        """Save a checkpoint, and remove old ones, except for the best.

        Parameters
        ----------
        write
            Called with an empty local folder, into which it writes files.
        scratch
            Local folder in which that folder is made.
        covers
            See :class:`~dask_train.checkpoint.manifest.Manifest`.
        score
            Score of the checkpoint, by which it may be the best; None if it has none.
        mode
            "min" or "max", whichever is better. Default: the mode in the settings.
        is_held
            Whether to keep the checkpoint until :meth:`set_score` is called with its score. Default: false.

        Returns
        -------
        str
            Path or URL of the checkpoint.

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

    def set_score(self, name: str, score: float | None, mode: str) -> None:
        """Set the score of a checkpoint saved with ``held``; remove it if it is neither recent nor the best.

        Parameters
        ----------
        name
            Last part of the checkpoint's path.
        score, mode
            As in :meth:`save`; ``score`` is None if there will be none.

        Raises
        ------
        CheckpointError
            The folder can't be written to.
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

    def all_have_begun(self) -> None:
        """Let the checkpoint be removed that slower roles may begin with; after :meth:`save`."""
        if self._begun:
            self._retention.release(self._begun)
            self._begun = ""

    def _best_of(self, name: str, score: float | None, mode: str) -> Best | None:
        """Return the best of the checkpoints so far and a new one with this score."""
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

    def load(
        self,
        scratch: Path,
        *,
        own: bool = False,
        begins: bool = False,
        apart: bool = False,
        savers: Collection[str] = (),
    ) -> LoadedCheckpoint | None:
        """Copy the last complete checkpoint to a local folder, and return it; None if there is none.

        A role that was restarted prefers checkpoints of its own run to those of other runs.

        Parameters
        ----------
        scratch
            Local folder in which the copy is made.
        own
            Whether to consider checkpoints of this run only. Default: false.
        begins
            Whether to skip checkpoints that have batches of the current start. Otherwise a role that starts late would
            begin where a faster one is by now. Default: false.
        apart
            Whether to skip all others of the current start as well: rows that no batch has taken are in none's account.
            The checkpoint that is returned is kept until :meth:`all_have_begun`. Default: false.
        savers
            Roles whose checkpoints are skipped so; those of other roles are not. Default: all roles.

        Raises
        ------
        CheckpointError
            A checkpoint can't be read, all are damaged, or they have another format.
        """
        folder = scratch / "checkpoint-loaded"
        gone: set[str] = set()  # removed by the writer while they were read, so there is a newer one
        try:
            while (newest := self._newest(gone, own=own, begins=begins, apart=apart, savers=savers)) is not None:
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
                    if apart:
                        self._begun = name
                        self._retention.hold(name)
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
        """Copy the best checkpoint that the last manifest names to a local folder; return None if none has a score.

        Parameters
        ----------
        scratch
            Local folder in which the copy is made.
        own
            Whether to consider checkpoints of this run only. Default: false.

        Raises
        ------
        CheckpointError
            The best checkpoint is damaged, or can't be read.
        """
        folder = scratch / "checkpoint-loaded"
        try:
            best = self._best_now(own=own)
            while best is not None:
                try:
                    return LoadedCheckpoint(folder=folder, manifest=self._fetch_best(best, folder), notice="")
                except FileNotFoundError:  # removed by the writer meanwhile, if there is a better one
                    tried, best = best, self._best_now(own=own)
                    if best == tried:
                        raise
            return None
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

    def _best_now(self, *, own: bool) -> Best | None:
        """Return the best checkpoint; where another role saves, as the last manifest has it by now."""
        if self.best is None or not self._retention.has_saved:
            newest = self._newest(set(), own=own)
            self.best = None if newest is None else self._checked(newest[1].best)
        return self.best

    def _fetch_best(self, best: Best, folder: Path) -> Manifest:
        system, root = self._place.opened()
        manifest = Manifest.from_bytes(system.cat_file(f"{root}/{best.checkpoint}.json"))
        self._fetch(best.checkpoint, manifest, folder)
        manifest.check(folder)
        return manifest

    def _checked(self, best: Best | None) -> Best | None:
        return check_best(best, self._place.best, self._place.mode, self._place.url)

    def _newest(
        self, gone: set[str], *, own: bool, begins: bool = False, apart: bool = False, savers: Collection[str] = ()
    ) -> tuple[str, Manifest] | None:
        """Return name and manifest of the checkpoint to load, among those not known to be damaged or gone."""
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
                is_skipped = begins and (not savers or manifest.saver in savers)
                if not (is_skipped and self._is_of_this_start(manifest, apart=apart)):
                    return name, manifest
                newer.append((name, manifest))
            except DamagedError as damage:
                self._damaged[name] = str(damage)
            except FileNotFoundError:
                gone.add(name)
        # Of roles that have met, one without batches may come after the writer has removed what was before: what an
        # earlier start has saved, or another run, whose batches it has then.
        if newer and not apart and (self._attempt or any(run != self.run for run, _, _ in newer[0][1].covers)):
            return newer[0]
        return None

    def _is_of_this_start(self, manifest: Manifest, *, apart: bool) -> bool:
        """Return whether a checkpoint, with batches of this run unless ``apart``, was saved since all roles started."""
        has_batches = any(run == self.run and stretches for run, _, stretches in manifest.covers)
        return manifest.run == self.run and manifest.attempt >= self._attempt and (apart or has_batches)

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
        """Check that nobody else writes here: neither a run that began earlier, nor a later start of this role."""
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
        """Remove old checkpoints, of those that were there before and those of this run."""
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
