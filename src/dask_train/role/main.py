"""What a role process does from its first message to its last word."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.data.account import Account
from dask_train.data.letterbox import LetterboxPlace, leave
from dask_train.data.parcel import LARGE_BYTES
from dask_train.data.state_memory import StateMemory
from dask_train.errors import LaunchError, StalledError
from dask_train.frameworks.base import Framework
from dask_train.process.messages import BeginRole, CallFunction
from dask_train.role.equipment import Equipment
from dask_train.role.link import SocketLink
from dask_train.role.meeting import Meeting
from dask_train.role.session import Session, is_chief
from dask_train.roles import AddressBook
from dask_train.run.messages import Ended, Failed, Message, Ready, Started

# Frames of ours at the top of a user's traceback, which say nothing to them.
_OURS = str(Path(__file__).parent)
# How many letters of an error travel; of longer ones the middle is left out.
_MOST_LETTERS = 4000
# Packages that are never sent as files.
_INSTALLED = {
    *("dask_train", "jax", "keras", "lightgbm", "numpy", "pandas", "sklearn", "tensorflow", "tf_keras", "torch"),
    "xgboost",
}


def run_role(end: int, account: int) -> None:
    """Serve as one role over the socket ``end``, its batches noted in ``account``, and leave; never returns."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    link = SocketLink(socket.socket(fileno=end))
    start = link.expect(BeginRole)
    batches = Account(account)
    errors = _Errors(link, batches)
    with suppress(BaseException), errors.reported():
        me = start.me
        start.settings.apply()  # before code of the user's is imported
        framework = errors.framework = pickle.loads(start.framework)  # noqa: S301 - sent by the client, as all Dask tasks are
        address = framework.prepare(me)  # before arrays of the framework's, which the function may hold, are made
        function = pickle.loads(start.function.pickle, buffers=start.function.mapped())  # noqa: S301
        checkpoints = errors.checkpoints = _checkpoints(start)
        link.tell(Ready(peer=address, pid=os.getpid()))
        enter = link.expect(CallFunction)
        link.wait_at_most(enter.data_timeout_s)
        data = None if enter.data is None else (enter.data.table, link.mapped(enter.data))
        peers = AddressBook({role: list(addresses) for role, addresses in enter.peers.items()})
        # Leaving the others may take seconds, and end them: the error is reported first.
        with framework.rendezvous(me, peers, enter.timeout_s) as extras, errors.reported():
            if start.needs_device:
                _check_device(framework)
            errors.launching = False
            link.pulse = framework.pulse
            link.tell(Started())
            equipment = Equipment(
                attempt=start.attempt,
                alone=start.alone,
                joins=start.joins,
                framework=framework,
                peers=peers,
                extras=extras,
                data=data,
                account=batches,
                checkpoint=checkpoints,
                scratch=Path(start.scratch),
                meeting=Meeting(link, me, enter.timeout_s, enter.data_timeout_s, joins=start.joins),
                state_memory=None if start.data is None else StateMemory(start.data.descriptors),
            )
            session = Session(link, me, equipment)
            link.spent.begin()
            result = function(session)
            batches.settle()
            for remark in () if equipment.meeting.has_met else framework.remarks(me):
                session.notice(remark)
            equipment.meeting.close()
            last_word: Message = last_word_of(result, start.letterbox)
            if checkpoints is not None:
                checkpoints.release()
            if framework.stays_until_the_end(me.counts):
                _flush()
                link.tell(last_word)
                link.stay()
    if not errors.are_reported:
        link.tell(last_word)
    link.close()
    _flush()
    os._exit(1 if errors.are_reported else 0)  # the framework is not taken apart: TensorFlow takes a second, or hangs


class _Errors:
    """Reports the first error of a role, and frees what the role held.

    Attributes
    ----------
    framework, checkpoints
        Those of the role, once it has them.
    launching
        Whether the user's function was not called yet.
    are_reported
        Whether there was an error.
    """

    def __init__(self, link: SocketLink, batches: Account) -> None:
        self._link, self._batches = link, batches
        self.framework = Framework()
        self.checkpoints: CheckpointFolder | None = None
        self.launching, self.are_reported = True, False

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Report an error that ends what is inside, unless one was reported before."""
        try:
            yield
        except BaseException as error:  # also SystemExit: a role that gives up has not returned
            if not self.are_reported:
                self._report(error)
            raise

    def _report(self, error: BaseException) -> None:
        self.are_reported = True
        self._batches.seal()
        if self.checkpoints is not None:
            self.checkpoints.release()
        words = error_fields(error, self.framework.hint(error))
        unanswered = isinstance(error, StalledError)
        self._link.tell(Failed(launching=self.launching, unanswered=unanswered, **words))


def _checkpoints(start: BeginRole) -> CheckpointFolder | None:
    """Return where the run keeps them; a role that keeps them checks at once that it can."""
    if start.checkpoint is None:
        return None
    folder = CheckpointFolder(start.checkpoint, start.attempt)
    if is_chief(start.me):
        folder.check()
        folder.claim()
    return folder


def _check_device(framework: Framework) -> None:
    if lack := framework.lack_of_device():
        raise LaunchError(
            f"gpus=1 has given this process a GPU, and it would compute on CPUs: {lack} there.",
            change="Install the framework with CUDA where Dask workers run, and let their environment not hide devices "
            "from it; or pass gpus=0.",
        )


def last_word_of(result: Any, letterbox: LetterboxPlace | None) -> Ended:
    """Return the message about a result; its large arrays are left with the client, where it is on this host."""
    large: list[pickle.PickleBuffer] = []
    if letterbox is not None:
        data = _pickled(result, buffer_callback=partial(_stays_in, large))
        if (left := leave(letterbox, large)) is not None:
            return Ended(result=data, left=left)
    return Ended(result=_pickled(result))


def _stays_in(large: list[pickle.PickleBuffer], buffer: pickle.PickleBuffer) -> bool:
    if is_small := buffer.raw().nbytes < LARGE_BYTES:
        return is_small
    large.append(buffer)
    return False


def _pickled(result: Any, **options: Any) -> bytes:
    try:
        return bytes(cloudpickle.dumps(result, protocol=5, **options))
    except Exception as error:
        raise TypeError(
            f"it returned a {type(result).__name__}, which can't be pickled ({type(error).__name__}: {error}). "
            "Return arrays, numbers or state dicts, or write the object to a file and return its path"
        ) from error


def error_fields(error: BaseException, hint: str = "") -> dict[str, Any]:
    """Return an exception for the client: pickled where that works, and in words in any case."""
    hint = f" {hint}" if hint else _missing(error)
    lines = traceback.TracebackException.from_exception(error)
    while len(lines.stack) > 1 and lines.stack[0].filename.startswith(_OURS):
        del lines.stack[0]
    try:
        pickled = cloudpickle.dumps(error.with_traceback(None))
        pickle.loads(pickled)  # noqa: S301 - some exceptions can't be made again: better seen here
    except Exception:
        pickled = b""
    return {
        "error": _shortened(f"{type(error).__name__}: {str(error).rstrip('.')}.{hint}"),
        "traceback": "".join(lines.format())[-20_000:],
        "exception": pickled,
    }


def _shortened(text: str) -> str:
    """Return a text without its middle where it is long: Keras and TensorFlow say at its end what is wrong."""
    if len(text) <= _MOST_LETTERS:
        return text
    first = _MOST_LETTERS // 4
    return f"{text[:first]} [...] {text[first - _MOST_LETTERS :]}"


def _missing(error: BaseException | None) -> str:
    """Return what to do where a module is missing, if that is what an error, or its cause, says."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, ModuleNotFoundError) and error.name:
            package = error.name.partition(".")[0]
            if package in _INSTALLED:
                return f" The Dask workers have no {package}: install it there, in the environment of {sys.executable}."
            return (
                f" The Dask workers have no module {error.name!r}: install it there, or send a file of your own "
                f"with client.upload_file('{package}.py')."
            )
        error = error.__cause__ or error.__context__
    return ""


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # closed by the user's function
            continue
