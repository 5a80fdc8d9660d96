"""How a Dask worker reaches a template: one that another Dask worker of its host has started, or one that it starts.

A template has an abstract address (unix(7)) whose name says what it is. The kernel gives an address to one process:
who gets it starts the template, all others connect. If that can't be, a Dask worker starts one at another address.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from dask_train.process.connections import SECRET, SECRET_BYTES, peer_of
from dask_train.process.fingerprint import place_of

# How long a template may take to listen, which it does first: a new interpreter takes 0.1 s, more on a busy host.
LISTEN_S = 20.0
# Between two attempts to connect until it listens.
_AGAIN_S = 0.02
# A killed process is gone in milliseconds.
GONE_S = 2.0
# What a template is started with; the number of its lifeline follows.
_COMMAND = (sys.executable, "-P", "-m", "dask_train.process")
_LIFELINE_AT = len(_COMMAND)
# Bytes of a template's arguments that are left for what its forks show there.
_ROOM_FOR_ARGUMENTS = " " * 160


class NotConnectedError(Exception):
    """There is no template at an address that may be used."""


class TemplateConnection:
    """A connection with one template.

    Parameters
    ----------
    modules
        What it imports.
    environment
        Its variables.

    Attributes
    ----------
    end
        This end of the socket; None before.
    pid
        The process; 0 before it is known.
    """

    def __init__(self, modules: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.modules, self.environment = modules, environment
        self.end: socket.socket | None = None
        self.pid, self._pidfd = 0, -1
        self._lifeline = -1  # the writing end of a pipe: the kernel kills the template when no process has one
        self._process: subprocess.Popen[bytes] | None = None
        self._secret = ""

    @property
    def has_started(self) -> bool:
        """Return whether the template is a child of this process."""
        return self._process is not None

    async def connect(self, name: str) -> None:
        """Connect to the template, or start it where there is none.

        Parameters
        ----------
        name
            Of the template, the same for all that may share it; empty for one of its own.

        Raises
        ------
        NotConnectedError
            There is none, or none that may be used.
        OSError
            The system has no room for a process.
        """
        loop = asyncio.get_running_loop()
        address = f"\0dask-train-{name}" if name else ""
        deadline = loop.time() + LISTEN_S
        while True:
            if self._process is None:
                address = self._start(address) or address
            if (end := _connected(address)) is not None:
                with ExitStack() as stack:
                    stack.enter_context(end)
                    self._check(end)
                    end.sendall(self._secret.encode())
                    stack.pop_all()
                self.end = end
                return
            if self._process is not None and (status := self._process.poll()) is not None:
                raise NotConnectedError(f"its process {self.pid} ended with status {status}")
            if loop.time() > deadline:
                raise NotConnectedError(f"it did not listen within {LISTEN_S:g} s")
            await asyncio.sleep(_AGAIN_S)

    def _start(self, address: str) -> str:
        """Start the template if no process has its address; return the address."""
        with socket.socket(socket.AF_UNIX) as listener, ExitStack() as stack:
            try:
                listener.bind(address)
            except OSError:
                return ""
            reading, writing = os.pipe()
            stack.callback(os.close, reading)
            self._lifeline = writing
            stacks = os.memfd_create("dask-train-stacks", os.MFD_CLOEXEC)
            stack.callback(os.close, stacks)
            self._secret = secrets.token_hex(SECRET_BYTES // 2)
            numbers = (reading, listener.fileno(), stacks)
            arguments = [*map(str, numbers), ",".join(self.modules), _ROOM_FOR_ARGUMENTS]
            self._process = subprocess.Popen(
                [*_COMMAND, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=numbers,
                env={**self.environment, SECRET: self._secret},
                start_new_session=True,
            )
            # Others may keep it after this Dask worker has left it, so somebody else has to wait for its end.
            threading.Thread(target=self._process.wait, name="dask-train-template", daemon=True).start()
            self.pid, self._pidfd = self._process.pid, os.pidfd_open(self._process.pid)
            bound = listener.getsockname()
            return bound.decode() if isinstance(bound, bytes) else str(bound)

    def _check(self, end: socket.socket) -> None:
        """Check that a template of this very place listens there, which an address alone does not say.

        A process in another container with the same network could have taken the address: it would get the variables
        of this process, and be the parent of what is started here.
        """
        pid, user = peer_of(end)
        if self._process is not None:
            if pid != self.pid:
                raise NotConnectedError("another process listens at its address")
            return
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            raise NotConnectedError(f"its process {pid} is not to be seen from here") from error
        self.pid, self._pidfd = pid, pidfd
        secret = f"{SECRET}=".encode()
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            variables, arguments = [], []
        secret_variables = [variable for variable in variables if variable.startswith(secret)]
        if user != os.geteuid() or not secret_variables or place_of(pid) != place_of(os.getpid()):
            raise NotConnectedError(f"process {pid}, which listens at its address, is of another user or place")
        self._secret = secret_variables[0][len(secret) :].decode()
        number = int(arguments[_LIFELINE_AT])
        try:
            self._lifeline = os.open(f"/proc/{pid}/fd/{number}", os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:  # the last Dask worker that had it has just gone
            raise NotConnectedError(f"its process {pid} has just ended") from error

    def status(self) -> int | None:
        """Return its exit status, which the kernel tells its parent alone; None elsewhere, or while it runs."""
        if self._process is None:
            return None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GONE_S)
        return self._process.returncode

    def kill(self) -> None:
        """Kill it, also if others share it; what it has forked continues."""
        if self._pidfd != -1:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Leave it. The kernel kills it if no other Dask worker shares it."""
        if self.end is not None:
            self.end.close()
        for number in {self._lifeline, self._pidfd} - {-1}:
            os.close(number)
        self._lifeline = self._pidfd = -1


def _connected(address: str) -> socket.socket | None:
    end = socket.socket(socket.AF_UNIX)
    end.setblocking(False)
    try:
        end.connect(address)
    except OSError:  # it does not listen yet
        end.close()
        return None
    return end
