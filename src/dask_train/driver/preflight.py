"""What can be refused before a run starts: functions that don't travel, modules that the Dask workers lack."""

from __future__ import annotations

import asyncio
import importlib.util
import pickle
import pickletools
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from distributed.protocol.pickle import dumps

from dask_train.checkpoint.place import CheckpointPlace
from dask_train.cluster.by_value import ByValue
from dask_train.cluster.peer import Peer
from dask_train.data.parcel import Parcel
from dask_train.errors import LaunchError
from dask_train.identity.sources import file_digests
from dask_train.worker import checkpoints, modules

# How long Dask workers may take to say what they have.
PREFLIGHT_S = 10.0
# A module that a function by value uses is, in its pickle, a call of this function with the module's name.
_SUBIMPORT = "cloudpickle.cloudpickle.subimport"


def pickled(what: str, value: Any, **options: Any) -> bytes:
    """Pickle a role's function or an adapter; what is defined in ``__main__`` or a notebook goes by value.

    Raises
    ------
    TypeError
        It holds something that can't be pickled.
    """
    try:
        return bytes(dumps(value, **options))
    except Exception as error:
        raise TypeError(
            f"The {what} can't be pickled: {type(error).__name__}: {error}. It, or a value that it closes over, holds "
            "a lock, a file or a connection. Make that where it is used."
        ) from error


def packed(what: str, value: Any) -> Parcel:
    """Return a role's function as it travels, its large arrays in shared memory; as :func:`pickled`."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickled(what, value, buffer_callback=buffers.append)
    return Parcel.of(data, buffers)


def modules_of(data: bytes) -> set[str]:
    """Return the modules that a pickle of protocol 4 or 5 imports where it is read, found without reading it.

    Pickles within it, such as the classes of a model and the callbacks that a function of ours holds, are looked into.
    """
    module_names: set[str] = set()
    memo: list[str | None] = []
    strings: list[str] = []  # pushed one after the other; STACK_GLOBAL takes the last two
    top: str | None = None
    importing = False  # the next string is a module
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "MEMOIZE":
            memo.append(top)
            continue
        if opcode.name in ("BINGET", "LONG_BINGET"):
            top = memo[int(str(argument))]
        elif opcode.name == "STACK_GLOBAL":
            module_names.add(strings[-2])
            top = _SUBIMPORT if ".".join(strings[-2:]) == _SUBIMPORT else None
        else:
            top = argument if isinstance(argument, str) and "UNICODE" in opcode.name else None
            if isinstance(argument, bytes) and _is_pickle(argument):
                module_names |= modules_of(argument)
        if top is not None and top != _SUBIMPORT:
            strings.append(top)
            if importing:
                module_names.add(top)
        importing = top == _SUBIMPORT
    return module_names


def _is_pickle(data: bytes) -> bool:
    """Return whether bytes are a whole pickle of protocol 4 or 5, other than by chance."""
    if data[:1] != pickle.PROTO or data[-1:] != pickle.STOP or data[1] not in (4, 5):
        return False
    try:
        *_, (last, _, position) = pickletools.genops(data)
    except ValueError:
        return False
    return last.name == "STOP" and position == len(data) - 1


def how_to_send(module: str) -> str:
    """Return what to change so that Dask workers can import a module that they lack, as a sentence."""
    name = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    if origin is None:
        return f"Install it on every Dask worker, or send a file of your own with client.upload_file('{name}.py')."
    if _is_installed(origin):
        return f"Install {name!r} on every Dask worker, as it is installed here."
    if origin.name == "__init__.py":
        return (
            f"Install it on every Dask worker, or send the folder {str(origin.parent)!r}, zipped, with "
            f"client.upload_file('{name}.zip')."
        )
    return f"Install it on every Dask worker, or send the file with client.upload_file('{origin.name}')."


def _is_installed(origin: Path) -> bool:
    paths = sysconfig.get_paths()
    return any(origin.is_relative_to(paths[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib"))


async def check_modules(peer: Peer, functions: dict[str, Parcel], addresses: Iterable[str] | None) -> None:
    """Compare what the functions import with what the Dask workers have; quick, nothing is imported.

    Raises
    ------
    LaunchError
        A module is missing on one of them.
    """
    named = {name for function in functions.values() for name in modules_of(function.pickle)}
    # The agent reports when dask-train itself is missing, or is another version.
    others = {name for name in named if name.partition(".")[0] != "dask_train"}
    for address, missing in (await lacked_modules(peer, others, addresses)).items():
        if missing:
            raise LaunchError(
                f"The Dask worker {address} has no module {missing[0]!r}, which a role's function needs.",
                "It is on the client's import path only.",
                how_to_send(missing[0]),
            )
    if outdated := await outdated_module(peer, others, addresses):
        raise LaunchError(*outdated)


async def lacked_modules(peer: Peer, names: Iterable[str], addresses: Iterable[str] | None) -> dict[str, list[str]]:
    """Return which of the modules each Dask worker lacks, by address; nothing where they don't answer in time."""
    needed = sorted(name for name in names if name.partition(".")[0] != "__main__")
    return await _asked(peer, addresses, modules.missing_modules, needed) if needed else {}


async def outdated_module(peer: Peer, names: Iterable[str], addresses: Iterable[str] | None) -> list[str] | None:
    """Say which module of yours a Dask worker has with other code than this process; None if it is the same.

    Compared are these modules, and those of yours that they import.

    Returns
    -------
    list of str
        What is wrong, why, and what to change.
    """
    digests = file_digests(sorted(names))
    if not digests:
        return None
    answers = await _asked(peer, addresses, modules.other_modules, tuple(sys.version_info[:2]), digests)
    for address, (name, *_) in ((address, others) for address, others in answers.items() if others):
        return [
            f"The Dask worker {address} has another version of module {name!r} than this process: it would run other "
            "code.",
            "The file was changed here or there, and not sent again.",
            how_to_send(name),
        ]
    return None


async def _asked(peer: Peer, addresses: Iterable[str] | None, function: Any, *arguments: Any) -> dict[str, list[str]]:
    where = await _present(peer, addresses)
    try:
        asking = peer.on_workers(ByValue(function, modules), *arguments, workers=where, on_error="ignore")
        return await asyncio.wait_for(asking, PREFLIGHT_S)
    except TimeoutError:  # one of them is busy; what it lacks will be seen when it is needed
        return {}


async def _present(peer: Peer, addresses: Iterable[str] | None) -> list[str] | None:
    """Return those addresses at which there are Dask workers; None for all Dask workers.

    Dask would try for its connect timeout to reach any other; placement refuses these at once.
    """
    if addresses is None:
        return None
    workers = await peer.workers()
    return [address for address in addresses if address in workers]


async def check_checkpoints(peer: Peer, place: CheckpointPlace | None, addresses: Iterable[str] | None) -> None:
    """Check that checkpoints can be kept where they shall be, from the Dask workers: only they may see that place.

    If others can, and one that has to keep them can't, that is reported when its role starts.

    Raises
    ------
    ValueError
        None of them can.
    """
    if place is None:
        return
    where = await _present(peer, addresses)
    try:
        asking = peer.on_workers(checkpoints.why_none_are_kept, place, workers=where, on_error="ignore")
        answers = await asyncio.wait_for(asking, PREFLIGHT_S)
    except TimeoutError:  # a place that is slow, or a busy Dask worker: it will be seen when the role starts
        return
    if answers and all(answers.values()):
        address, why = next(iter(answers.items()))
        raise ValueError(
            f"checkpoint is {place.url!r}, where no Dask worker can keep checkpoints. On {address}: {why} Pass a "
            "folder that all hosts share and may write to, or a URL for fsspec whose package the Dask workers have, "
            "with valid credentials in their environment or in dt.Checkpoint(..., storage_options=...)."
        )
