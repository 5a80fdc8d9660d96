"""A template: a process that has imported a framework and nothing else, and is forked for each child.

It has one thread, no context of the framework, no device and no code of users. What is forked of it begins where a new
interpreter would be after the same imports. So the messages between it and its Dask worker are defined here:
:mod:`dask_train.process.messages` would import more.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import socket
import sys
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise
from dask_train.keras_models.imported_later import parts_imported_later
from dask_train.transport.frames import FrameReader, encode

# Threads that a fork does not need: jemalloc, which comes with Arrow, starts its own again after a fork.
HARMLESS_THREADS = frozenset({"jemalloc_bg_thd"})
# Devices that are open in a process can't be used in a fork of it.
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel", "/dev/dxg")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """The template may be forked; it has imported these packages."""

    packages: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Unfit:
    """The template must not be forked, and why."""

    why: str


@dataclass(frozen=True, kw_only=True)
class ForkOrder:
    """What a fork is to become; its descriptors come with it.

    Attributes
    ----------
    parent
        The Dask worker's process id.
    module, arguments, num_threads, environment
        As :class:`~dask_train.process.launch.Launch` has them, the environment whole.
    """

    parent: int
    module: str
    arguments: tuple[str, ...]
    num_threads: int
    environment: dict[str, str] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Birth:
    """A fork that has just begun.

    Attributes
    ----------
    order
        What it is to become.
    descriptors
        Where it asks for leave to begin, its output, and its own.
    printed
        What its template has printed.
    """

    order: ForkOrder
    descriptors: list[int]
    printed: bytes


def serve(end: int, modules: list[str]) -> Birth:
    """Import, then fork as often as the Dask worker asks; returns in the forks only."""
    talk = _Talk(end)
    printed = os.memfd_create("dask-train-template", os.MFD_CLOEXEC)
    for descriptor in (1, 2):
        os.dup2(printed, descriptor)
    os.close(printed)
    gc.disable()  # an import makes little garbage, and collections of it are a quarter of TensorFlow's (1.2 of 5.0 s)
    try:
        with without_startup_noise(), parts_imported_later():
            for module in modules:
                importlib.import_module(module)
    except BaseException as error:
        talk.say(Unfit(why="".join(traceback.format_exception_only(error)).strip()))
        os._exit(1)
    gc.freeze()  # or each fork's first collection would copy the pages of all modules
    gc.enable()
    packages = frozenset(module.partition(".")[0] for module in sys.modules)
    talk.say(Unfit(why=why) if (why := unfit()) else Imported(packages=packages))
    while True:
        order, descriptors = talk.next()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if why := unfit():
            talk.say(Unfit(why=why))
        elif fork_orphan():
            talk.close()
            return Birth(order=order, descriptors=descriptors, printed=os.pread(1, 1 << 20, 0))
        for descriptor in descriptors:
            os.close(descriptor)  # the caller sees that the fork alone has them, or no process


def unfit() -> str:
    """Return why this process must not be forked; empty if it may."""
    if others := sorted(set(other_threads()) - HARMLESS_THREADS):
        return f"it has other threads: {', '.join(others)}"
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the listing's own
            continue
        if target.startswith(DEVICES):
            return f"it has opened {target}"
    return ""


def other_threads() -> list[str]:
    """Return the names that the kernel has of this process's threads but the first."""
    names = []
    for number in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if int(number) != os.getpid():
                names.append(Path(f"/proc/self/task/{number}/comm").read_text().strip())
    return names


def fork_orphan() -> bool:
    """Fork a process in a session of its own whose parent is not this one; True in it.

    A process in between ends at once. The caller adopts what it leaves: :mod:`dask_train.process.forked`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of any second thread
        middle = os.fork()
        if middle:
            os.waitpid(middle, 0)
            return False
        try:
            waits_for = os.pidfd_open(os.getpid())
            if os.fork():
                os._exit(0)
            os.setsid()  # a Ctrl-C in the terminal is the client's to handle, and its group is killed with it
            select.select([waits_for], [], [])  # then the parent has changed
            os.close(waits_for)
        except BaseException:  # there was no room for a process
            os._exit(1)
        return True


class _Talk:
    """This process's end of the socket."""

    def __init__(self, end: int) -> None:
        self._end = socket.socket(fileno=end)
        self._reader = FrameReader()

    def say(self, message: Imported | Unfit) -> None:
        try:
            self._end.sendall(encode(message))
        except OSError:
            os._exit(0)  # the Dask worker is gone, or needs this template no more

    def next(self) -> tuple[ForkOrder, list[int]]:
        """Return the next order; descriptors come with its first byte."""
        came: list[int] = []
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._end, 1 << 16, 16)
            if not data:
                os._exit(0)
            came += descriptors
            for order in self._reader.feed(data):
                return order, came

    def close(self) -> None:
        self._end.close()
