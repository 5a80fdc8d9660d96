"""Doors in a torch module, where the workers that train it wait, or end, while the number of workers changes."""

from __future__ import annotations

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from loading import loaded

resizing = loaded(__file__, "resizing")
WAIT_S = resizing.WAIT_S


def whereabouts():
    """Rank and step of the worker in which this is called; None in the client, which tries a module before."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "fit_module_synchronously":
        frame = frame.f_back
    if frame is None or "worker" not in frame.f_locals:
        return None
    return frame.f_locals["session"].rank, frame.f_locals["worker"].loop.position.steps


class Doors:
    """Where workers wait while a file is there, and end where one is.

    Parameters
    ----------
    folder
        ``closed training 4`` holds the first worker up in its step 4; ``kill 1 training`` ends the second one.
    """

    def __init__(self, folder, *closed):
        self.folder = Path(folder)
        for name in closed:
            (self.folder / f"closed {name}").touch()

    def pass_by(self, point):
        if (where := whereabouts()) is None:
            return
        rank, step = where
        deadline = time.monotonic() + WAIT_S
        while rank == 0 and (self.folder / f"closed {point} {step}").exists() and time.monotonic() < deadline:
            (self.folder / f"waits {point} {step}").touch()
            time.sleep(0.01)
        kill = self.folder / f"kill {rank} {point}"
        if kill.exists():
            kill.rename(self.folder / f"killed {rank} {point}")
            os.kill(os.getpid(), signal.SIGKILL)

    def opened(self, name):
        (self.folder / f"closed {name}").unlink()

    def kills(self, *names):
        for name in names:
            (self.folder / f"kill {name}").touch()

    def waits(self, name):
        return (self.folder / f"waits {name}").exists()


class Door(torch.nn.Module):
    def __init__(self, doors):
        super().__init__()
        self.doors = doors

    def forward(self, x):
        if len(x) > 3:  # a trial is of less rows
            self.doors.pass_by("training" if self.training else "validation")
        return x


def resized(run, doors, door, workers, wait_for, *kills):
    """Ask for so many workers while the first one waits at a door, which opens once it is told and some are to die."""
    wait_for(lambda: doors.waits(door), "the first worker waits", timeout_s=WAIT_S)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(run.resize, workers)
        resizing.wait_until_told(run, workers, wait_for)
        doors.kills(*kills)
        killed = {int(kill.split()[0]): resizing.attempts(run) for kill in kills if kill.endswith("now")}
        for rank in killed:
            os.kill(resizing.pids(run)[rank], signal.SIGKILL)
        # Before all meet; test_in_place.py has a loss in that very moment.
        wait_for(
            lambda: all(resizing.attempts(run)[rank] > before[rank] for rank, before in killed.items()),
            "the loss is known",
        )
        doors.opened(door)
        asking.result(WAIT_S)
