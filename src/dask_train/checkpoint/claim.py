"""Locks a folder of checkpoints for one run, by a small file that is renewed while the run lasts.

The file of a run that was killed need not be removed: a claim that is no longer renewed does not count.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from dask_train.checkpoint.place import CheckpointPlace
from dask_train.errors import CheckpointError

# Seconds between renewals of a claim, each of which writes one small object.
BEAT_S = 5.0
# Seconds to wait until another run ends or renews its claim: three times as long, as a renewal may be late.
WATCH_S = 15.0
LOOK_S = 0.5
# Age in seconds from which a claim is not waited for: clocks of hosts differ by less.
OLD_S = 600.0
# Seconds to wait for the removal of the claim at the end.
_END_S = 5.0
_NAME = re.compile(r"run-[0-9a-f]{8}\.json")
# How each begins: other files may have such a name, as run-20260131.json. One that is just being written may be empty.
_BEGINNING = b'{"run": '


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Contents of the file.

    Attributes
    ----------
    run, began
        Name of the run, and the time of its start.
    process
        Identity of its chief's process; empty if unknown.
    settled
        Whether the run has checked that no other run is there.
    beat, at
        Number of renewals, and the time of the last one, in seconds since the epoch.
    """

    run: str
    began: float
    process: str
    settled: bool = False
    beat: int = 0
    at: float = 0.0


class Claiming:
    """Claims a folder for a run as long as this process saves checkpoints there.

    Parameters
    ----------
    place
        Location of the folder, and settings of this run.
    """

    def __init__(self, place: CheckpointPlace) -> None:
        self._place = place
        self._claim = Claim(run=place.run, began=place.began, process=_process(os.getpid()))
        self._name = f"run-{hashlib.sha256(place.run.encode()).hexdigest()[:8]}.json"
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._renewing: threading.Thread | None = None

    def begin(self) -> None:
        """Claim the folder.

        Raises
        ------
        CheckpointError
            Another run has claimed it, and still runs.
        """
        self._renew()
        self._renewing = threading.Thread(target=self._go_on, name="dask-train-claim", daemon=True)
        self._renewing.start()
        try:
            for name, other in self._others().items():
                self._wait_for(name, other)
        except BaseException:
            self.end()
            raise
        self._renew(settled=True)

    def end(self) -> None:
        """Release the folder; within seconds, also if the store does not answer."""
        self._over.set()
        if self._renewing is not None:
            self._renewing.join(_END_S)

    def _go_on(self) -> None:
        while not self._over.wait(BEAT_S):
            try:
                self._renew()
            except Exception:  # noqa: S112 - a store that fails for a while; keeping a checkpoint reports it
                continue
        try:
            system, root = self._place.opened()
            system.rm_file(f"{root}/{self._name}")
        except Exception:  # noqa: S110 - it is not renewed any more
            pass

    def _renew(self, *, settled: bool = False) -> None:
        with self._lock:
            claim = self._claim = replace(
                self._claim, beat=self._claim.beat + 1, at=time.time(), settled=settled or self._claim.settled
            )
            system, root = self._place.opened()
            system.pipe_file(f"{root}/{self._name}", json.dumps(asdict(claim)).encode())

    def _others(self) -> dict[str, Claim | None]:
        system, root = self._place.opened()
        system.invalidate_cache()
        names = [str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in system.ls(root, detail=True)]
        contents = {name: self._content(name) for name in names if _NAME.fullmatch(name) and name != self._name}
        claims = {
            name: _claim_in(content)
            for name, content in contents.items()
            if _BEGINNING.startswith(content[: len(_BEGINNING)])
        }
        return {name: each for name, each in claims.items() if each is not None or not self._is_old(name)}

    def _is_old(self, name: str) -> bool:
        """Return whether no run still writes that file, such as one that was killed before a word was in it."""
        system, root = self._place.opened()
        try:
            return abs(time.time() - system.modified(f"{root}/{name}").timestamp()) > OLD_S
        except (OSError, NotImplementedError):  # it is gone, or a store that does not tell
            return False

    def _content(self, name: str) -> bytes:
        """Return what is in a file; nothing if it is gone."""
        system, root = self._place.opened()
        try:
            return bytes(system.cat_file(f"{root}/{name}"))
        except FileNotFoundError:
            return b""

    def _wait_for(self, name: str, first: Claim | None) -> None:
        """Wait until another run ends, or no longer renews its claim; then remove the claim."""
        system, root = self._place.opened()
        ends, last = time.monotonic() + WATCH_S, first
        while last is None or not _is_over(last):
            if last is not None and not last.settled and self._came_after(last):
                raise self._taken(last)  # both have just come: the other one waits for this to give way
            if time.monotonic() > ends:
                if last is None:
                    return  # it may be anyone's file: only what was once read as a claim is removed
                if _is_seen(last.process) or first is None or last.beat != first.beat:
                    raise self._taken(last)
                break
            time.sleep(LOOK_S)
            system.invalidate_cache()
            if not system.exists(f"{root}/{name}"):
                return
            last = _claim_in(self._content(name)) or last
        with contextlib.suppress(FileNotFoundError):
            system.rm_file(f"{root}/{name}")

    def _came_after(self, other: Claim) -> bool:
        return (self._claim.began, self._claim.run) > (other.began, other.run)

    def _taken(self, other: Claim) -> CheckpointError:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(other.began))
        return CheckpointError(
            f"Run {other.run}, which has been running since {since}, keeps its checkpoints at {self._place.url}; run "
            f"{self._place.run} was to keep its own there, too.",
            "Two runs in one folder would remove each other's checkpoints, and resume from each other's.",
            "Pass each run another folder, or let the other one end first.",
        )


def _claim_in(content: bytes) -> Claim | None:
    """Return the claim in a file, without what other versions have in it besides; None if it is no whole claim."""
    try:
        values = json.loads(content)
        return Claim(**{each.name: values[each.name] for each in fields(Claim) if each.name in values})
    except (ValueError, TypeError):
        return None


def _is_over(claim: Claim) -> bool:
    """Return whether a run has left its claim behind, as far as that can be seen at once."""
    if _is_seen(claim.process):
        return _process(int(claim.process.split()[2])) != claim.process
    return abs(time.time() - claim.at) > OLD_S


def _is_seen(process: str) -> bool:
    """Return whether it is, or was, a process that this one could see."""
    return bool(process) and process.split()[:2] == _process(os.getpid()).split()[:2]


def _process(pid: int) -> str:
    """Return what no other process has: boot, namespace, number and start; empty if there is none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]
    return "" if state in "ZX" else f"{boot} {namespace} {pid} {started}"
