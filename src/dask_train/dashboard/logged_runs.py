"""Runs that are over and that no scheduler knows any more, from folders of ``dt.logging.TensorBoard``.

The folders are named in the scheduler's configuration, by its operator: readers of the page choose none. They are
read in a thread, so the scheduler's loop never waits for a file system.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import dask

from .event_files import LoggedValue, logged_values
from .traces import Trace

logger = logging.getLogger("distributed.scheduler.train")
# Of the scheduler's configuration: a folder, or a list of them.
SETTING = "train.dashboard.logs"
# How often the folders are listed while the page is open.
LOOK_S = 10.0
# The newest runs that are read, and the bytes of each of their files.
MOST_RUNS, MOST_BYTES = 50, 64 << 20
# A run that grows is read again after this many times as long as it took: reading is Python, beside the scheduler.
PAUSE_FACTOR = 30.0


class LoggedRun:
    """A run in a folder, with what the page needs of one that the scheduler knows.

    Attributes
    ----------
    id, started, ended, info, summary
        As of a run of the scheduler; its roles are not known.
    trace
        Its curves.
    """

    def __init__(self, name: str) -> None:
        self.id = name
        self.started = self.ended = 0.0
        self.info: dict[str, Any] = {"settings": {}}
        self.summary: dict[str, Any] = {"outcome": "in a log"}
        self.trace = Trace()


class _Known(NamedTuple):
    """A folder of a run as it was when it was read."""

    state: tuple[Any, ...]
    run: LoggedRun
    next_at: float  # by time.monotonic(): not before that it is read again


class LoggedRuns:
    """The runs in the folders of the configuration.

    Attributes
    ----------
    runs
        The newest first, as they were found last.
    """

    def __init__(self) -> None:
        self.runs: list[LoggedRun] = []
        self._known: dict[Path, _Known] = {}
        self._looked_at = -LOOK_S
        self._thread: threading.Thread | None = None

    def look(self, known: Collection[str] = ()) -> None:
        """Begin to look for new ones, unless that was done just now; returns at once.

        Parameters
        ----------
        known
            Names of runs that the scheduler knows, which are not read.
        """
        folders = folders_of_setting()
        busy = self._thread is not None and self._thread.is_alive()
        if not folders or busy or time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        self._thread = threading.Thread(target=self._look, args=(folders, known), name="dask-train-logs", daemon=True)
        self._thread.start()

    def _look(self, folders: Sequence[Path], known: Collection[str]) -> None:
        try:
            self.read(folders, known)
        except Exception:  # whatever lies there: the page shows the runs that the scheduler knows
            logger.exception("The folders of %s could not be read.", SETTING)

    def read(self, folders: Sequence[Path], known: Collection[str] = ()) -> None:
        """Read what is new in the folders, but of runs with other names; takes as long as the file system does."""
        there = [(at, path) for folder in folders for at, path in _folders_in(folder) if path.name not in known]
        found: dict[Path, _Known] = {}
        for _, path in sorted(there, reverse=True)[:MOST_RUNS]:
            state = _state_of(path)
            before, began = self._known.get(path), time.monotonic()
            if before is not None and (before.state == state or began < before.next_at):
                found[path] = before
                continue
            try:
                run = read_run(path)
                ended = time.monotonic()
                found[path] = _Known(state, run, ended + PAUSE_FACTOR * (ended - began))
            except (OSError, ValueError) as error:
                logger.warning("The log of the run in %s can't be read: %s", path, error)
        self._known = found
        self.runs = sorted((each.run for each in found.values()), key=lambda run: -run.started)


def folders_of_setting() -> list[Path]:
    """Return the folders that the scheduler's configuration names."""
    setting = dask.config.get(SETTING, default=None)
    named = [setting] if isinstance(setting, str) else setting if isinstance(setting, list | tuple) else []
    return [Path(each) for each in named if isinstance(each, str) and each]


def _folders_in(folder: Path) -> list[tuple[float, Path]]:
    """Return the folders with event files in a folder, with when each was changed."""
    folders = []
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                if path.is_dir() and _event_files(path):
                    folders.append((path.stat().st_mtime, path))
    return folders


def _event_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("events.out.tfevents.*.dask_train"))


def _state_of(folder: Path) -> tuple[Any, ...]:
    files = [*_event_files(folder), folder / "ledger.json"]
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists())


def read_run(folder: Path) -> LoggedRun:
    """Read a run from its folder.

    Raises
    ------
    OSError, ValueError
        It can't be read, or its event file is none.
    """
    run = LoggedRun(folder.name)
    values: list[LoggedValue] = []
    for file in _event_files(folder):
        with file.open("rb") as opened:
            values += logged_values(opened.read(MOST_BYTES))
    texts = {each.tag: each for each in values if isinstance(each.value, str)}
    settings = settings_in(str(texts["parameters"].value)) if "parameters" in texts else {}
    run.info["settings"] = settings
    run.started = min((each.time for each in values), default=folder.stat().st_mtime)
    run.ended = max((each.time for each in values), default=run.started)
    if "ended" in texts:
        run.summary["outcome"] = str(texts["ended"].value)
    _draw(run, [each for each in values if not isinstance(each.value, str)], settings)
    with suppress(OSError, ValueError):
        ledger = json.loads((folder / "ledger.json").read_text())
        run.summary["rows"] = {"trained": int(ledger["trained"])} if isinstance(ledger, dict) else {}
    return run


def _draw(run: LoggedRun, numbers: Sequence[Any], settings: Mapping[str, str]) -> None:
    """Add the curves of the first role; those of scores within epochs stay out, as their steps count otherwise."""
    run.trace.running_since = run.started
    is_fit = "epochs" in settings  # where a score of an epoch is drawn at its end, the first at 1
    for tag, value, step, at in numbers:
        if _is_of_first_role(tag, settings):
            place = {"epoch": step + 1} if is_fit else {"step": step}
            run.trace.score({tag: value, **place, "role": "worker", "rank": 0, "attempt": 0}, at)


def _is_of_first_role(tag: str, settings: Mapping[str, str]) -> bool:
    """Return whether a curve has no prefix of another role, or of scores within epochs: ``logging.points`` has them."""
    prefix, slash, _ = tag.partition("/")
    is_role = prefix in ("chief", "ps") or settings.get(prefix, "").isdecimal()  # the settings of a run name its roles
    return not slash or not (is_role or re.fullmatch(r"step|rank \d+", prefix))


def settings_in(table: str) -> dict[str, str]:
    """Return the parameters of a run from the table that ``dt.logging.TensorBoard`` writes."""
    rows = [line.strip("| ").split(" | ", 1) for line in table.splitlines()[2:]]
    return {row[0].strip(): row[1].strip() for row in rows if len(row) == 2}
