"""A child process of a Dask worker, whatever it does: started, looked into, killed, waited for; and how it ended.

Roles (:mod:`dask_train.process.role_child`) and models (:mod:`dask_train.predicting.model_process`) have one each, and
speak with it in their own way.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial

from dask_train.process.forked import LOOK_S, is_readable
from dask_train.process.launch import Launch, Process
from dask_train.process.life import STACKS_SIGNAL, writes_stacks
from dask_train.process.memory_limit import num_oom_kills
from dask_train.process.output import Output
from dask_train.process.templates import ProcessStart

# How long faulthandler is given to write its stacks; it takes milliseconds, unless the process is stopped.
STACKS_S = 0.5
# A killed process is gone in milliseconds, unless the kernel writes its core.
GONE_S = 10.0
# What is shown of its stacks, in bytes.
_STACKS_BYTES = 1 << 16

# See :meth:`TemplateProcesses.start <dask_train.worker.templates.TemplateProcesses.start>`.
Starting = Callable[[ProcessStart], Future[Process]]


class Child:
    """A child process, and all that this process has open for it until :meth:`close`; for any thread.

    Parameters
    ----------
    name
        How its output is called in ``/proc``.

    Attributes
    ----------
    output
        What it prints.
    end
        This side of a socket pair with it.
    """

    def __init__(self, name: str) -> None:
        self.output = Output(name)
        self.end, self._theirs = socket.socketpair()
        self._stacks = os.memfd_create("dask-train-stacks", os.MFD_CLOEXEC)
        self._lifeline_end, self._lifeline = os.pipe()
        self._oom_kills = num_oom_kills()
        self._lock = threading.Lock()
        self._start: ProcessStart | None = None
        self._process: Process | None = None
        self._pidfd = -1
        self._is_starting = False
        self._is_doomed = False
        self._is_closing = False
        self._is_closed = False

    # Start

    @property
    def inherited(self) -> tuple[int, ...]:
        """The descriptors that every child is started with: :func:`dask_train.process.life.begin` takes them."""
        return self._lifeline_end, self._stacks, self._theirs.fileno()

    def start(self, launch: Launch, starting: Starting) -> Future[None]:
        """Start it, unless it is killed before; returns at once.

        Parameters
        ----------
        launch
            With this child's ``output`` and, first, ``inherited``.
        starting
            Starts processes of the Dask worker.

        Returns
        -------
        Future
            Done when there is a process. Its exception is a
            :exc:`~dask_train.process.templates.GivenUpError` where it was killed before, or an :exc:`OSError` where
            the system has no room for it or the Dask worker closes. To cancel it does nothing: no process starts
            unseen.
        """
        started: Future[None] = Future()
        started.set_running_or_notify_cancel()
        with self._lock:
            self._start = ProcessStart(launch)
            self._is_starting = True
        if self._is_doomed:
            self._start.give_up()
        try:
            awaited = starting(self._start)
        except RuntimeError as error:  # its event loop is closed
            self._begun(None)
            raise OSError("the Dask worker closes") from error
        awaited.add_done_callback(partial(self._started, started))
        return started

    def _started(self, started: Future[None], awaited: Future[Process]) -> None:
        try:
            process = awaited.result()
            pidfd = os.pidfd_open(process.pid)
        except CancelledError:
            self._begun(None)
            started.set_exception(OSError("the Dask worker closes"))
        except BaseException as error:
            self._begun(None)
            started.set_exception(error)
        else:
            self._begun(process, pidfd)
            started.set_result(None)

    def _begun(self, process: Process | None, pidfd: int = -1) -> None:
        """Note that the start is through: it has its own descriptors, or no one needs them."""
        with self._lock:
            self._is_starting = False
            self._process, self._pidfd = process, pidfd
            self._close_theirs()
            is_closing = self._is_closing
        if self._is_doomed:
            self.kill()
        if is_closing:
            self.reap(GONE_S)
            self._close()

    def _close_theirs(self) -> None:
        self._theirs.close()
        if self._lifeline_end != -1:
            os.close(self._lifeline_end)
            self._lifeline_end = -1

    @property
    def pid(self) -> int:
        """The process; 0 before it is started."""
        return self._process.pid if self._process is not None else 0

    @property
    def template_pid(self) -> int:
        """The template that its start waits for; 0 for none."""
        template = self._start.template if self._start is not None else None
        return template.pid if template is not None else 0

    # End

    @property
    def pidfd(self) -> int:
        """A descriptor that is readable once the process is gone; -1 if there is none."""
        return self._pidfd

    def kill(self) -> None:
        """Kill the process, and all that it has started; also one that is just being started."""
        self._is_doomed = True
        with self._lock:
            if self._process is not None and self._process.returncode is None:
                self._kill_group()
            start = self._start if self._is_starting else None
        if start is not None:
            start.give_up()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self, timeout_s: float = 0.0) -> int | None:
        """Wait until it is gone, kill what it has left behind, and tell its status; None if it is not gone."""
        with self._lock:
            if self._process is None or self._process.returncode is not None or self._is_closed:
                return self._process.returncode if self._process is not None else None
        if not self._is_gone(timeout_s):
            return self._process.returncode  # another thread may have closed it
        with self._lock:
            if self._process.returncode is None:
                self._kill_group()  # before it is waited for: until then no other process gets its number
                self._process.wait()
            return self._process.returncode

    def _is_gone(self, timeout_s: float) -> bool:
        """Wait until it is gone, without a descriptor of this call's own: this process may have as many as it may."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:  # another thread may close it
                if self._is_closed or is_readable(self._pidfd):
                    return not self._is_closed
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_S)

    @property
    def num_oom_kills(self) -> int:
        """How many processes the kernel has killed for the container's memory limit since this one was made."""
        return max(0, num_oom_kills() - self._oom_kills)  # one that can't be read counts as 0

    def how_it_ended(self, status: int) -> str:
        """Return a clause about its end, without its end of sentence."""
        return how_it_ended(self.pid, status, num_oom_kills=self.num_oom_kills)

    def close(self) -> None:
        """Kill it if it still runs, and close what is open here; if it is just being started, as soon as it is."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            is_starting = self._is_starting
        self.kill()
        if not is_starting:
            self.reap(GONE_S)
            self._close()

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._close_theirs()
            with suppress(OSError):
                self.end.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
            self.end.close()
            for descriptor in {self._lifeline, self._stacks, self._pidfd} - {-1}:
                os.close(descriptor)
            self._pidfd = -1
        self.output.close()

    # Looking into it

    def ask_for_stacks(self) -> int:
        """Let it write the Python stacks of its threads, for :meth:`stacks_since` in :data:`STACKS_S`; from where on.

        It does so in C on a signal, also while its code holds the GIL; a process that is stopped writes none.
        """
        with self._lock:
            if self._is_closed:
                return 0
            before = os.fstat(self._stacks).st_size
            if self._process is not None and self._process.returncode is None and writes_stacks(self.pid):
                with suppress(ProcessLookupError):
                    os.kill(self.pid, STACKS_SIGNAL)
            return before

    def stacks_since(self, before: int) -> str:
        """Return what it has written of its stacks by now."""
        with self._lock:
            if self._is_closed:
                return ""
            return os.pread(self._stacks, _STACKS_BYTES, before).decode(errors="replace")


def how_it_ended(pid: int, status: int, *, num_oom_kills: int) -> str:
    """Return a clause about a process, without its end of sentence.

    Parameters
    ----------
    pid
        The process.
    status
        As :attr:`subprocess.Popen.returncode` has it: a signal is a negative number.
    num_oom_kills
        How many processes the kernel has killed for the container's memory limit since it started.
    """
    if status >= 0:
        return f"process {pid} exited with status {status}"
    if status == -signal.SIGKILL and num_oom_kills:
        return f"process {pid} was killed by the kernel because the container's memory limit was reached"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # most real-time signals have no name there
        name = f"signal {-status}"
    return f"process {pid} was killed by {name}"
