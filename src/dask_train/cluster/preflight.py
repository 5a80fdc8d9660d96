"""What can be refused before a run starts: functions that don't travel, modules that the Dask workers lack."""

from __future__ import annotations

import asyncio
import pickletools
from collections.abc import Iterable
from typing import Any

from distributed.protocol.pickle import dumps

from dask_train.cluster.extension import ByValue
from dask_train.cluster.on_worker import modules
from dask_train.cluster.peer import Peer
from dask_train.errors import LaunchError

# How long Dask workers may take to say what they have.
PREFLIGHT_S = 10.0
# A module that a function by value uses is, in its pickle, a call of this function with the module's name.
_SUBIMPORT = "cloudpickle.cloudpickle.subimport"


def pickled(what: str, value: Any) -> bytes:
    """A role's function, or an adapter, as it travels; what is defined in ``__main__`` or a notebook goes by value.

    Raises
    ------
    TypeError
        It holds something that can't be pickled.
    """
    try:
        return bytes(dumps(value))
    except Exception as error:
        raise TypeError(
            f"The {what} can't be pickled: {type(error).__name__}: {error}. It, or a value that it closes over, holds "
            "a lock, a file or a connection. Make that where it is used."
        ) from error


def modules_of(data: bytes) -> set[str]:
    """The modules that a pickle of protocol 4 or 5 imports where it is read, found without reading it."""
    found: set[str] = set()
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
            found.add(strings[-2])
            top = _SUBIMPORT if ".".join(strings[-2:]) == _SUBIMPORT else None
        else:
            top = argument if isinstance(argument, str) and "UNICODE" in opcode.name else None
        if top is not None and top != _SUBIMPORT:
            strings.append(top)
            if importing:
                found.add(top)
        importing = top == _SUBIMPORT
    return found


async def check_modules(peer: Peer, functions: dict[str, bytes], addresses: Iterable[str] | None) -> None:
    """Compare what the functions import with what the Dask workers have; quick, nothing is imported.

    Raises
    ------
    LaunchError
        A module is missing on one of them.
    """
    named = {name for data in functions.values() for name in modules_of(data)}
    # That dask-train itself is missing, or is another version, is told by the agent.
    needed = sorted(name for name in named if name.partition(".")[0] not in ("__main__", "dask_train"))
    if not needed:
        return
    probe = ByValue(modules.missing_modules, modules)
    where = None if addresses is None else list(addresses)
    try:
        asking = peer.on_workers(probe, needed, workers=where, on_error="ignore")
        answers = await asyncio.wait_for(asking, PREFLIGHT_S)
    except TimeoutError:  # one of them is busy; what it lacks will be seen when its role starts
        return
    for address, missing in answers.items():
        if missing:
            name = missing[0]
            raise LaunchError(
                f"The Dask worker {address} has no module {name!r}, which a role's function needs.",
                "It is on the client's import path only.",
                f"Install it on every Dask worker, or send a file of your own with "
                f"client.upload_file('{name.partition('.')[0]}.py').",
            )
