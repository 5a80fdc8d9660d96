"""One role process as its agent sees it: started, spoken to, looked into, ended."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dask_train.cluster.on_worker.memory_limit import num_oom_kills
from dask_train.cluster.on_worker.output import Output
from dask_train.data.account import read_account
from dask_train.role_process.frames import MAX_DESCRIPTORS, FrameReader, encode
from dask_train.role_process.life import STACKS_SIGNAL

# Libraries read their number of threads from these when they are first used. A Dask worker has them at 1, because it
# runs tasks side by side; a role process has its share of the host for itself.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)
# How long faulthandler is given to write its stacks; it takes milliseconds, unless the process is stopped.
STACKS_S = 0.5
# Between two attempts to hand descriptors over to a process that does not read just now.
ROOM_S = 0.01

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible sleep",
    "T": "stopped by a signal (SIGSTOP or a debugger)",
    "t": "stopped by a debugger",
    "Z": "dead",
}


def role_environment(inherited: Mapping[str, str], num_threads: int, path: list[str]) -> dict[str, str]:
    """The environment of a role process: its Dask worker's, with its share of the cores and the same import path."""
    share = dict.fromkeys(_THREAD_VARIABLES, str(num_threads))
    return {**inherited, **share, "PYTHONPATH": os.pathsep.join(entry for entry in path if entry)}


class Child:
    """A role process.

    Parameters
    ----------
    role, rank, attempt
        Which role, and which start of it.
    on_message
        Called on the agent's event loop with each message of the process.
    on_exit
        Called there once when the process is gone, after its last message, with how it ended.
    """

    def __init__(
        self,
        role: str,
        rank: int,
        attempt: int,
        *,
        on_message: Callable[[Child, dict[str, Any]], None],
        on_exit: Callable[[Child, str], None],
    ) -> None:
        self.role, self.rank, self.attempt = role, rank, attempt
        self.output = Output(f"dask-train-{role}-{rank}")
        self.doing = "starting"
        self.doing_since = asyncio.get_running_loop().time()
        self.steps = 0
        self.scratch = ""
        self.done = asyncio.Event()
        self._on_message, self._on_exit = on_message, on_exit
        self._reader = FrameReader()
        self._stacks = os.memfd_create("dask-train-stacks", os.MFD_CLOEXEC)
        self._account = os.memfd_create("dask-train-account", os.MFD_CLOEXEC)
        self._lifeline, self._lifeline_end = -1, -1
        self._end: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._letters: asyncio.Queue[tuple[bytes, list[int]]] = asyncio.Queue()
        self._posting: asyncio.Task[None] | None = None
        self._oom_kills = num_oom_kills()
        self._final_account: list[list[int]] | None = None
        self._reading = False
        self._doomed = False

    # Start

    async def start(self, run: str, num_threads: int, folder: str, worker_loop: asyncio.AbstractEventLoop) -> None:
        """Start the process.

        It is forked by the Dask worker's event loop, because its parent-death signal comes with the end of the thread
        that forked it, and the agent's thread ends before the Dask worker does.
        """
        self.scratch = tempfile.mkdtemp(prefix=f"{run}-{self.role}-{self.rank}-", dir=folder)
        self._end, theirs = socket.socketpair()
        self._lifeline_end, self._lifeline = os.pipe()
        numbers = [os.getpid(), self._lifeline_end, self._stacks, self._account, theirs.fileno()]
        command = [sys.executable, "-P", "-m", "dask_train.role_process", self.role, str(self.rank), run]

        async def fork() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [*command, *map(str, numbers)],
                stdin=subprocess.DEVNULL,
                stdout=self.output.descriptor,
                stderr=self.output.descriptor,
                pass_fds=numbers[1:],
                env=role_environment(os.environ, num_threads, sys.path),
                start_new_session=True,  # a Ctrl-C in the terminal is the client's to handle
            )

        try:
            self._process = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(fork(), worker_loop))
        finally:
            theirs.close()
            os.close(self._lifeline_end)
        loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(self._process.pid)
        loop.add_reader(self._pidfd, self._exited)
        self._end.setblocking(False)
        self.resume()
        self._posting = asyncio.create_task(self._post())
        if self._doomed:
            self.kill()

    @property
    def pid(self) -> int:
        """The process; 0 before it is started."""
        return self._process.pid if self._process is not None else 0

    # Messages

    def tell(self, kind: str, *, descriptors: list[int] | None = None, **message: Any) -> None:
        """Send a message after those before; descriptors are duplicated for the process."""
        duplicates = [os.dup(descriptor) for descriptor in descriptors or ()]
        if descriptors is not None:
            message["num_descriptors"] = len(duplicates)
        self._letters.put_nowait((encode({"kind": kind, **message}), duplicates))

    async def _post(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # the process is gone, which its pidfd tells
            while self._end is not None:
                data, descriptors = await self._letters.get()
                try:
                    for start in range(0, len(descriptors), MAX_DESCRIPTORS):
                        await _hand_over(self._end, data[:1], descriptors[start : start + MAX_DESCRIPTORS])
                        data = data[1:]
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
                await loop.sock_sendall(self._end, data)

    def pause(self) -> None:
        """Read no more messages for now; the process keeps them."""
        if self._reading and self._end is not None:
            self._reading = False
            asyncio.get_running_loop().remove_reader(self._end)

    def resume(self) -> None:
        """Read messages again."""
        if not self._reading and self._end is not None:
            self._reading = True
            asyncio.get_running_loop().add_reader(self._end, self._read)

    def _read(self) -> bool:
        assert self._end is not None
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
            if message["kind"] == "progress":
                self.steps, self.doing = message["steps"], message["doing"]
                self.doing_since = asyncio.get_running_loop().time()
            self._on_message(self, message)
        return True

    # End

    def batches(self) -> list[list[int]]:
        """Which batches the process has taken so far; see :mod:`dask_train.data.account`."""
        return self._final_account if self._final_account is not None else read_account(self._account)

    def kill(self) -> None:
        """Kill the process, and all that it has started; also one that is just being started."""
        self._doomed = True
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _exited(self) -> None:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        while self._read():  # its last words may still be in the socket
            continue
        with suppress(ProcessLookupError):  # what it started and left behind
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()
        self._on_exit(self, self._cause(self._process.returncode))
        self.done.set()

    def _close(self) -> None:
        self.pause()
        if self._posting is not None:
            self._posting.cancel()
        while not self._letters.empty():
            for descriptor in self._letters.get_nowait()[1]:
                os.close(descriptor)
        if self._end is not None:
            self._end.close()
        os.close(self._lifeline)
        os.close(self._stacks)
        self._final_account = read_account(self._account)
        os.close(self._account)
        self.output.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def discard(self) -> None:
        """Close what a start that failed has opened."""
        if self._process is None:
            for descriptor in {self._lifeline, self._stacks, self._account} - {-1}:
                os.close(descriptor)
            if self._end is not None:
                self._end.close()
            self.output.close()
            if self.scratch:
                shutil.rmtree(self.scratch, ignore_errors=True)

    def _cause(self, status: int) -> str:
        pid = self.pid
        if status >= 0:
            return f"its process {pid} exited with status {status} before its function returned."
        name = signal.Signals(-status).name
        if status == -signal.SIGKILL and num_oom_kills() > self._oom_kills:
            return (
                f"its process {pid} was killed by the kernel because the container's memory limit was reached. "
                "Give the container more memory, or the run fewer roles on this host."
            )
        return f"its process {pid} was killed by {name}."

    # Looking into it

    async def picture(self) -> dict[str, Any]:
        """What the process is doing: its state, its last word, the Python stacks of its threads.

        The stacks are written by the process in C on a signal, also while user code holds the GIL; a process that is
        stopped writes none.
        """
        before = os.fstat(self._stacks).st_size if not self.done.is_set() else 0
        stacks = ""
        with suppress(ProcessLookupError, OSError):
            os.kill(self.pid, STACKS_SIGNAL)
            await asyncio.sleep(STACKS_S)
            stacks = os.pread(self._stacks, 1 << 16, before).decode(errors="replace")
        return {
            "pid": self.pid,
            "state": _process_state(self.pid),
            "doing": self.doing or "in its function",
            "for_s": round(asyncio.get_running_loop().time() - self.doing_since, 1),
            "steps": self.steps,
            "stacks": stacks,
        }


async def _hand_over(end: socket.socket, byte: bytes, descriptors: list[int]) -> None:
    """Send descriptors; a process that holds the GIL for long leaves no room in the socket's buffer."""
    while True:
        try:
            socket.send_fds(end, [byte], descriptors)
        except BlockingIOError:
            await asyncio.sleep(ROOM_S)
        else:
            return


def _process_state(pid: int) -> str:
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"
    return _STATES.get(letter, letter)
