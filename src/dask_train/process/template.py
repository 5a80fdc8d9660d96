"""A template: a process that has imported a framework and nothing else, and is forked for each child.

It has one thread, no context of the framework, no device and no code of users. What is forked of it begins where a new
interpreter would be after the same imports. So the messages between it and its Dask workers are defined here:
:mod:`dask_train.process.messages` would import more.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise
from dask_train.keras_models.imported_later import parts_imported_later
from dask_train.process.connections import Connections
from dask_train.process.guard import fork_guarded
from dask_train.transport.frames import encode

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
    module, arguments, num_threads, environment
        As :class:`~dask_train.process.launch.Launch` has them, the environment whole.
    path
        Where it looks for modules first: what its environment says.
    """

    module: str
    arguments: tuple[str, ...]
    num_threads: int
    environment: dict[str, str] = field(repr=False)
    path: tuple[str, ...]


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


def serve(lifeline: int, listener: int, modules: list[str]) -> Birth:
    """Import, then fork as often as Dask workers ask; returns in the forks only.

    Parameters
    ----------
    lifeline
        The reading end of a pipe. The kernel kills this process when no Dask worker has the other end any more.
    listener
        A socket with the address where Dask workers connect.
    modules
        What is imported.
    """
    connections = Connections(listener)
    printed = os.memfd_create("dask-train-template", os.MFD_CLOEXEC)
    for descriptor in (1, 2):
        os.dup2(printed, descriptor)
    os.close(printed)
    why = import_all(modules) or unfit()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards are not waited for
    packages = frozenset(module.partition(".")[0] for module in sys.modules)
    for connection, order, descriptors in connections.events():
        if order is None:
            _tell(connection.end, Unfit(why=why) if why else Imported(packages=packages))
            continue
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        leave, end, *others = descriptors
        why = why or unfit()
        if why:
            _tell(connection.end, Unfit(why=why))
        elif fork_guarded(end, connection.owner):
            os.close(lifeline)
            connections.close()
            return Birth(order=order, descriptors=[leave, *others], printed=os.pread(1, 1 << 20, 0))
        for descriptor in descriptors:
            os.close(descriptor)  # the caller sees that the fork alone has them, or no process
    raise AssertionError("a template ends with its last Dask worker")


def import_all(modules: list[str]) -> str:
    """Import these; return why that can't be, empty if it can."""
    gc.disable()  # an import makes little garbage, and collections of it are a quarter of TensorFlow's (1.2 of 5.0 s)
    try:
        with without_startup_noise(), parts_imported_later():
            for module in modules:
                importlib.import_module(module)
    except BaseException as error:
        return "".join(traceback.format_exception_only(error)).strip() or repr(error)
    gc.freeze()  # or each fork's first collection would copy the pages of all modules
    gc.enable()
    return ""


def _tell(end: socket.socket, message: Imported | Unfit) -> None:
    with suppress(OSError):  # it is gone
        end.sendall(encode(message))


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
