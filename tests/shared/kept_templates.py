"""Templates that outlive the cluster that has made them: each takes seconds of a core to import a framework."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import psutil

# Of a template's arguments: what begins them, and the number of the pipe that it lives by.
COMMAND = [sys.executable, "-P", "-m", "dask_train.process"]
LIFELINE_AT = len(COMMAND)
# There are fewer kinds that tests use again and again; those of one test alone are to make room.
MAX_KEPT = 8


class KeptTemplates:
    """What this process holds of templates, as a Dask worker that shares them does; they end with it.

    Attributes
    ----------
    lifelines
        By the number of the open file here, the template's process.
    """

    def __init__(self) -> None:
        self.lifelines: dict[int, int] = {}

    def keep(self) -> None:
        """Keep those that Dask workers below this process have started, for those of the next cluster."""
        for template in _templates():
            if template.pid not in self.lifelines.values():
                with suppress(OSError):  # it has just ended
                    path = f"/proc/{template.pid}/fd/{template.cmdline()[LIFELINE_AT]}"
                    self.lifelines[os.open(path, os.O_WRONLY | os.O_CLOEXEC)] = template.pid
        for number in [*self.lifelines][:-MAX_KEPT]:
            os.close(number)
            del self.lifelines[number]


def _templates() -> list[psutil.Process]:
    found = {}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.cmdline()[:LIFELINE_AT] == COMMAND:
                found[process.pid] = process
    return [process for process in found.values() if process.ppid() not in found]  # those are guards of its forks
