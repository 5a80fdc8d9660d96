"""A role process as its agent sees it: messages to it and from it, its steps, and its account of batches."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from dask_train.data.account import read_account
from dask_train.masking import masked
from dask_train.process.child import STACKS_S, Child, Starting
from dask_train.process.launch import Launch, Preload
from dask_train.process.messages import STOPPED, Pictured, Progress
from dask_train.process.output import Output
from dask_train.process.templates import GivenUpError
from dask_train.run.messages import Message
from dask_train.transport.frames import MAX_DESCRIPTORS, NO_ROOM, ROOM_S, FrameReader, descriptors_of, encode

# How much of what a role printed last a picture of it has, in bytes.
PRINTED_BYTES = 4096
# For how long descriptors are tried to be sent where the system has no room for them.
NO_ROOM_S = 10.0

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible sleep",
    "T": STOPPED,
    "t": "stopped by a debugger",
    "Z": "dead",
}


class RoleChild:
    """A role process.

    Parameters
    ----------
    role, rank, attempt
        Which role, and which start of it.
    on_message
        Called on the agent's event loop with each message of the process.
    on_exit
        Called there once when the process is gone, after its last message, with how it ended.
    joins
        Whether the others train already.
    """

    def __init__(
        self,
        role: str,
        rank: int,
        attempt: int,
        *,
        on_message: Callable[[RoleChild, Message], None],
        on_exit: Callable[[RoleChild, str], None],
        joins: bool = False,
    ) -> None:
        self.role, self.rank, self.attempt, self.joins = role, rank, attempt, joins
        self._child = Child(f"dask-train-{role}-{rank}")
        self._end = self._child.end
        self._end.setblocking(False)
        self.doing = "starting"
        self.doing_since = asyncio.get_running_loop().time()
        self.steps = 0
        self.scratch = ""
        self.done = asyncio.Event()
        self._on_message, self._on_exit = on_message, on_exit
        self._reader = FrameReader()
        self._account = os.memfd_create("dask-train-account", os.MFD_CLOEXEC)
        self._outgoing: asyncio.Queue[tuple[bytes, list[int]]] = asyncio.Queue()
        self._posting: asyncio.Task[None] | None = None
        self._final_account: list[list[int]] | None = None
        self._reading = False
        self._is_closed = False
        self._undelivered = ""  # why it can't be sent what it waits for

    # Start

    async def start(
        self,
        run: str,
        num_threads: int,
        folder: str,
        starting: Starting,
        preload: Preload | None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process, unless it is killed before there is one.

        Parameters
        ----------
        run
            The name of the run, just so that ``ps`` shows it.
        num_threads
            Its share of the host's cores.
        folder
            Where its scratch folder is made.
        starting
            Starts processes of the Dask worker.
        preload
            What its template imports, if it has one.
        environment
            Variables that it has besides those of the Dask worker.

        Raises
        ------
        OSError
            The system has no room for it, or the Dask worker closes.
        """
        try:
            self.scratch = tempfile.mkdtemp(prefix=f"{run}-{self.role}-{self.rank}-", dir=folder)
            # The start may outlast this call, and would take whatever has this number then: it has one of its own.
            account = os.dup(self._account)
            try:
                launch = Launch(
                    module="dask_train.role",
                    arguments=(self.role, str(self.rank), run),
                    descriptors=(*self._child.inherited, account),
                    output=self.output.descriptor,
                    num_threads=num_threads,
                    preload=preload,
                ).with_environment(environment or {})
                started = self._child.start(launch, starting)
            except BaseException:
                os.close(account)
                raise
            started.add_done_callback(lambda _: os.close(account))
            await asyncio.wrap_future(started)
        except GivenUpError:
            self._close()
            self._on_exit(self, "it was ended before its process had started.")
            self.done.set()
            return
        except BaseException:  # also where the agent ends meanwhile
            self._close()
            self.done.set()
            raise
        asyncio.get_running_loop().add_reader(self._child.pidfd, self._exited)
        self.resume()
        self._posting = asyncio.create_task(self._post())

    @property
    def pid(self) -> int:
        """The process; 0 before it is started."""
        return self._child.pid

    @property
    def output(self) -> Output:
        """What it prints."""
        return self._child.output

    # Messages

    def tell(self, message: Message) -> None:
        """Send a message after those before, unless the process is gone; descriptors are duplicated for it."""
        if self._is_closed:
            return  # they would not be closed
        duplicates: list[int] = []
        try:
            for descriptor in descriptors_of(message):
                duplicates.append(os.dup(descriptor))
            self._outgoing.put_nowait((encode(message), duplicates))
        except BaseException:
            for descriptor in duplicates:
                os.close(descriptor)
            raise

    async def _post(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # the process is gone, which its pidfd tells
            while True:
                data, descriptors = await self._outgoing.get()
                try:
                    for start in range(0, len(descriptors), MAX_DESCRIPTORS):
                        await _hand_over(self._end, data[:1], descriptors[start : start + MAX_DESCRIPTORS])
                        data = data[1:]
                except OSError as error:
                    if error.errno in NO_ROOM:
                        self._undelivered = str(error)
                        self.kill()
                    raise
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
                await loop.sock_sendall(self._end, data)

    def pause(self) -> None:
        """Read no more messages for now; the process keeps them."""
        if self._reading:
            self._reading = False
            asyncio.get_running_loop().remove_reader(self._end)

    def resume(self) -> None:
        """Read messages of the process again."""
        if not self._reading and self._end.fileno() != -1:
            self._reading = True
            asyncio.get_running_loop().add_reader(self._end, self._read)

    def _read(self) -> bool:
        try:
            data = self._end.recv(1 << 18)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        if not data:
            self.pause()  # the end; the pidfd tells the rest
            return False
        for message in self._reader.feed(data):
            if isinstance(message, Progress):
                self.steps, self.doing = message.steps, message.doing
                self.doing_since = asyncio.get_running_loop().time()
            self._on_message(self, message)
        return True

    # End

    def batches(self) -> list[list[int]]:
        """Return which batches the process has taken so far; see :mod:`dask_train.data.account`."""
        return self._final_account if self._final_account is not None else read_account(self._account)

    def kill(self) -> None:
        """Kill the process, and all that it has started; also one that is just being started."""
        self._child.kill()

    def _exited(self) -> None:
        asyncio.get_running_loop().remove_reader(self._child.pidfd)
        with ExitStack() as stack:  # whatever fails, the agent learns that it is gone
            stack.callback(self.done.set)
            stack.callback(self._tell_end)
            stack.callback(self._close)
            while self._read():  # its last words may still be in the socket
                continue
            self._child.reap()

    def _tell_end(self) -> None:
        status = self._child.reap()
        self._on_exit(self, "it is not known how its process ended." if status is None else self._cause(status))

    def _close(self) -> None:
        self._is_closed = True
        self.pause()
        if self._posting is not None:
            self._posting.cancel()
        while not self._outgoing.empty():
            for descriptor in self._outgoing.get_nowait()[1]:
                os.close(descriptor)
        self._child.close()
        self._final_account = read_account(self._account)
        os.close(self._account)
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _cause(self, status: int) -> str:
        if self._undelivered:
            return f"its process was ended, as the system had no room to send it its data: {self._undelivered}."
        how = f"its {self._child.how_it_ended(status)}"
        if status >= 0:
            return f"{how} before its function returned."
        if status == -signal.SIGKILL and self._child.num_oom_kills:
            return f"{how}. Give the container more memory, or the run fewer roles on this host."
        return f"{how}."

    # Looking into it

    async def picture(self) -> Pictured:
        """Return what the process is doing: its state, its last word, its threads' stacks, what it printed last."""
        pid, doing, stacks = self.pid, self.doing or "in its function", ""
        if pid:
            before = self._child.ask_for_stacks()
            await asyncio.sleep(STACKS_S)
            stacks = self._child.stacks_since(before)
        elif pid := self._child.template_pid:
            doing = "waiting for the template that it is forked of, which imports"
        return Pictured(
            pid=pid,
            state=_process_state(pid),
            doing=doing,
            for_s=round(asyncio.get_running_loop().time() - self.doing_since, 1),
            steps=self.steps,
            stacks=stacks,
            printed=masked(self.output.since(0, PRINTED_BYTES)[1]),
        )


async def _hand_over(end: socket.socket, byte: bytes, descriptors: list[int]) -> None:
    """Send descriptors; a process that holds the GIL for long leaves no room in the socket's buffer until it ends.

    Raises
    ------
    OSError
        The process is gone, or the system has no room for them for too long.
    """
    ends = time.monotonic() + NO_ROOM_S
    while True:
        try:
            socket.send_fds(end, [byte], descriptors)
        except BlockingIOError:
            await asyncio.sleep(ROOM_S)
        except OSError as error:
            if error.errno not in NO_ROOM or time.monotonic() > ends:
                raise
            await asyncio.sleep(ROOM_S)
        else:
            return


def _process_state(pid: int) -> str:
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    return _STATES.get(letter, letter)
