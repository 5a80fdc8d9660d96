"""What a role process does from its first message to its last word."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.data.account import Account
from dask_train.frameworks.base import Framework, Me
from dask_train.role_process.link import SocketLink
from dask_train.session import Equipment, Session

# Frames of ours at the top of a user's traceback, which say nothing to them.
_OURS = str(Path(__file__).parent)


def run_role(end: int, account: int) -> None:
    """Serve as one role over the socket ``end``, its batches noted in ``account``, and leave; never returns."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    link = SocketLink(socket.socket(fileno=end))
    start = link.expect("start")
    batches = Account(account)
    launching = True
    status = 0
    try:
        me: Me = start["me"]
        framework: Framework = pickle.loads(start["framework"])  # noqa: S301 - sent by the client, as all Dask tasks are
        function = pickle.loads(start["function"])  # noqa: S301
        link.tell("ready", peer=framework.prepare(me), pid=os.getpid())
        go = link.expect("go")
        link.wait_at_most(go["patience_s"])
        data = None if go["table"] is None else (go["table"], link.mapped(go))
        with framework.rendezvous(me, go["peers"], go["timeout_s"]) as extras:
            launching = False
            link.tell("started")
            equipment = Equipment(
                attempt=start["attempt"],
                framework=framework,
                peers=go["peers"],
                extras=extras,
                data=data,
                account=batches,
                checkpoint=start["checkpoint"],
                scratch=Path(start["scratch"]),
            )
            session = Session(link, me, equipment)
            result = function(session)
            last_word: dict[str, Any] = {"kind": "ended", "result": _pickled(result)}
            if framework.stays_until_the_end(me.counts):
                link.tell(**last_word)
                link.stay()
    except BaseException as error:  # also SystemExit: a role that gives up has not returned
        batches.seal()
        last_word = {"kind": "failed", "launching": launching, **told(error)}
        status = 1
    link.tell(**last_word)
    link.close()
    _leave(status)


def _pickled(result: Any) -> bytes:
    try:
        return bytes(cloudpickle.dumps(result))
    except Exception as error:
        raise TypeError(
            f"it returned a {type(result).__name__}, which can't be pickled ({type(error).__name__}: {error}). "
            "Return arrays, numbers or state dicts, or write the object to a file and return its path"
        ) from error


def told(error: BaseException) -> dict[str, Any]:
    """An exception for the client: pickled where that works, and in words in any case."""
    hint = ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = (
            f" The Dask workers have no module {error.name!r}: install it there, or send a file of your own "
            f"with client.upload_file('{error.name.partition('.')[0]}.py')."
        )
    lines = traceback.TracebackException.from_exception(error)
    while len(lines.stack) > 1 and lines.stack[0].filename.startswith(_OURS):
        del lines.stack[0]
    try:
        pickled = cloudpickle.dumps(error.with_traceback(None))
        pickle.loads(pickled)  # noqa: S301 - some exceptions can't be made again: better seen here
    except Exception:
        pickled = b""
    return {
        "error": f"{type(error).__name__}: {str(error).rstrip('.')}.{hint}"[:4000],
        "traceback": "".join(lines.format())[-20_000:],
        "exception": pickled,
    }


def _leave(status: int) -> None:
    """End without taking the framework apart, which takes TensorFlow a second and may hang on a peer."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # closed by the user's function
            continue
    os._exit(status)
