"""The template processes of one Dask worker: started when first needed, asked for forks, ended when idle.

Everything here runs on the event loop of the Dask worker; only :meth:`ProcessStart.give_up` may be called from others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from contextlib import ExitStack, suppress
from typing import Any

from dask_train.process.fingerprint import Fingerprint
from dask_train.process.forked import Forked
from dask_train.process.launch import Launch, Preload, Process, child_environment, spawn
from dask_train.process.template import ForkOrder, Unfit
from dask_train.process.template_connection import NotConnectedError, TemplateConnection
from dask_train.transport.frames import FrameReader, encode

# Time limit of a fork, which takes 10 ms for a process of 400 MB; a template that is stopped never answers.
FORK_S = 10.0
# Time limit of the imports. After it, the next process starts without a template.
IMPORT_S = 60.0
# Templates of one Dask worker at once; the least recently used one is ended for another.
MAX_TEMPLATES = 4

logger = logging.getLogger(__name__)


class TemplateError(Exception):
    """Raised if a template can't be used."""


class GivenUpError(Exception):
    """Raised if a process was given up before it was started."""


class ProcessStart:
    """The start of one process, which may be given up while it waits for its template.

    Attributes
    ----------
    launch
        Command and environment of the process.
    template
        Template that this start waits for; None if it waits for none.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.template: Template | None = None
        self._is_given_up = False
        self._giving_up = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def give_up(self) -> None:
        """Cancel the start, unless the process is started already; from any thread."""
        self._is_given_up = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._giving_up.set)

    def check(self) -> None:
        """Check that the start was not given up.

        Raises
        ------
        GivenUpError
            It was.
        """
        if self._is_given_up:
            raise GivenUpError

    async def wait_for(self, ready: asyncio.Future[None]) -> None:
        """Wait until a template is ready, or has failed.

        Raises
        ------
        GivenUpError
            The start was given up.
        """
        self._loop = asyncio.get_running_loop()
        giving_up = asyncio.create_task(self._giving_up.wait())
        if not self._is_given_up:
            waits_for: list[asyncio.Future[Any]] = [ready, giving_up]
            await asyncio.wait(waits_for, return_when=asyncio.FIRST_COMPLETED)
        giving_up.cancel()
        self.check()


def name_of(modules: tuple[str, ...]) -> str:
    """Return a template's name for users: its imports, without modules of dask-train."""
    return "+".join(module for module in modules if not module.startswith("dask_train."))


class Templates:
    """The templates of one Dask worker, by their imports and environment.

    Parameters
    ----------
    cluster
        Dask workers with the same value share templates, if they run on one host with the same environment and import
        path. Default: empty, not shared.
    own_folder
        Entry of the import path that only this Dask worker has.
    """

    def __init__(self, cluster: str = "", own_folder: str = "") -> None:
        self._cluster, self._own_folder = cluster, own_folder
        self._templates: dict[Any, Template] = {}
        self._closed = False
        self._warned_of: set[str] = set()

    async def start(self, start: ProcessStart) -> Process:
        """Start a process as a fork of its template, or from scratch if that fails.

        Raises
        ------
        GivenUpError
            The start was given up.
        OSError
            The system can't start a process, or the Dask worker closes.
        """
        preload = start.launch.preload
        if preload is not None and preload.idle_s:
            try:
                return await self._forked(start, preload)
            except (TemplateError, OSError) as error:
                self._tell_once(f"Processes with {name_of(preload.modules)} start without a template: {error}")
        if self._closed:
            raise OSError("the Dask worker closes")
        start.check()
        return spawn(start.launch)

    def _tell_once(self, message: str) -> None:
        if message not in self._warned_of:
            self._warned_of.add(message)
            logger.warning(message)

    async def _forked(self, start: ProcessStart, preload: Preload) -> Process:
        template = await self._template(preload)
        start.template = template
        try:
            return await template.fork(start, preload.idle_s)
        finally:
            start.template = None

    async def _template(self, preload: Preload) -> Template:
        environment = {**child_environment(os.environ, 1, sys.path), **preload.environment}
        fingerprint = await asyncio.to_thread(Fingerprint.now)
        if self._closed:
            raise TemplateError("the Dask worker closes")
        key = (preload.modules, *sorted(preload.environment.items()))
        template = self._templates.get(key)
        if template is not None and (template.is_over or template.is_outdated(environment, fingerprint)):
            self._templates.pop(key).end("what it had imported has changed")
            template = None
        if template is None:
            while len(self._templates) >= MAX_TEMPLATES:
                oldest = min(self._templates, key=lambda other: self._templates[other].used_at)
                self._templates.pop(oldest).end("its place was needed for another")
            template = self._templates[key] = Template(preload.modules, environment, fingerprint)
            template.begin(fingerprint.without(self._own_folder), self._cluster)
        return template

    def pids(self) -> dict[int, str]:
        """Return the process ids of running templates, and their names; from any thread."""
        return {template.pid: name_of(template.modules) for template in self._there()}

    def idle_s(self) -> dict[int, float]:
        """Return for how long each running template has been unused, in seconds, by process id."""
        return {template.pid: template.idle_s for template in self._there()}

    def _there(self) -> list[Template]:
        return [template for template in list(self._templates.values()) if template.is_alive and template.pid]

    def close(self) -> None:
        """End all templates, and start no more processes."""
        self._closed = True
        for template in self._templates.values():
            template.end("the Dask worker closes")
        self._templates.clear()


class Template:
    """A template: a process that has imported modules, and is forked for processes that need them.

    Parameters
    ----------
    modules
        Modules that it imports.
    environment, fingerprint
        Environment and fingerprint of installed code at its start. A change of either that concerns its imports makes
        the template outdated.

    Attributes
    ----------
    ready
        Done when the template can be forked, or has failed.
    used_at
        Time of its last use, by the event loop's clock.
    why
        Why it can't be used; empty if it can.
    is_alive
        Whether it is starting or can be forked.
    """

    def __init__(self, modules: tuple[str, ...], environment: dict[str, str], fingerprint: Fingerprint) -> None:
        self.modules, self._environment, self._fingerprint = modules, environment, fingerprint
        self._packages: frozenset[str] | None = None  # names of packages that the template has imported
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._began_at = self.used_at = self._loop.time()
        self.why = ""
        self._is_unfit = False
        self._reader = FrameReader()
        self._turn = asyncio.Lock()
        self._num_users = 0
        self._timer: asyncio.TimerHandle | None = None
        self._connection = TemplateConnection(modules, environment)
        self._connecting: asyncio.Task[None] | None = None
        self.is_alive = True

    def begin(self, fingerprint: Fingerprint, cluster: str) -> None:
        """Connect to the template that Dask workers share, or start it; without a cluster, start an own one."""
        path = os.pathsep.join(entry for entry, _ in fingerprint.path if entry)
        self._connection = TemplateConnection(self.modules, {**self._environment, "PYTHONPATH": path})
        name = fingerprint.name(cluster, self.modules, *sorted(self._connection.environment.items())) if cluster else ""
        self._connecting = asyncio.create_task(self._connect(name))

    async def _connect(self, name: str) -> None:
        try:
            try:
                await self._connection.connect(name)
            except NotConnectedError:
                if self._connection.has_started:
                    raise
                self._connection.close()
                self._connection = TemplateConnection(self.modules, self._connection.environment)
                await self._connection.connect("")
        except Exception as error:  # starts wait for it
            self._refuse(str(error) or repr(error), is_unfit=isinstance(error, NotConnectedError))
        else:
            assert self._connection.end is not None
            self._loop.add_reader(self._connection.end, self._read)

    @property
    def pid(self) -> int:
        """Process id; 0 before it is known."""
        return self._connection.pid

    @property
    def is_over(self) -> bool:
        """Whether a new template may replace this one.

        An unfit template blocks its slot until its idle timeout, so that its imports are not retried at once.
        """
        return not self.is_alive and not (self._is_unfit and self._timer is not None)

    @property
    def idle_s(self) -> float:
        """Seconds since its last use; 0 while it imports or forks."""
        return 0.0 if self._num_users or not self.ready.done() else self._loop.time() - self.used_at

    def is_outdated(self, environment: dict[str, str], fingerprint: Fingerprint) -> bool:
        """Return whether a process that is started now would import other code, or have another environment."""
        if (own := self._packages) is not None:
            return (self._environment, self._fingerprint.only(own)) != (environment, fingerprint.only(own))
        return (self._environment, self._fingerprint) != (environment, fingerprint)

    def _read(self) -> None:
        assert self._connection.end is not None
        try:
            data = self._connection.end.recv(1 << 16)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        for message in self._reader.feed(data):
            if isinstance(message, Unfit):
                self._refuse(message.why)
                return
            self._packages = message.packages
            self.ready.set_result(None)
        if not data:
            # If another Dask worker has started it, nobody here knows whether its import has failed.
            self._refuse("", is_unfit=self._connection.has_started and not self.ready.done())

    def _refuse(self, why: str, *, is_unfit: bool = True) -> None:
        """Stop using the template; ``is_unfit``: a new template with the same imports would fail, too."""
        self._is_unfit = is_unfit
        self.end(why)

    def end(self, why: str, *, hangs: bool = False) -> None:
        """Disconnect from the template; its forks continue. May be called twice.

        The kernel kills the process when its last Dask worker disconnects; with ``hangs`` it is killed at once.
        """
        if not self.is_alive:
            return
        self.is_alive = False
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
        if self._connection.end is not None:
            self._loop.remove_reader(self._connection.end)
        if not why:  # the template has closed its end, so it exits
            status = self._connection.status()
            why = f"its process {self.pid} ended" + ("" if status is None else f" with status {status}")
        if hangs:
            self._connection.kill()
        self._connection.close()
        self.why = why
        if not self.ready.done():
            self.ready.set_result(None)

    async def fork(self, start: ProcessStart, idle_s: float) -> Process:
        """Fork the template, once it is ready.

        Raises
        ------
        TemplateError
            The template can't be forked.
        GivenUpError
            The start was given up.
        """
        self.used_at = self._loop.time()
        if not self.ready.done() and self.used_at - self._began_at > IMPORT_S:
            self._is_unfit = True
            self.end(f"it has been importing for {self.used_at - self._began_at:.0f} s", hangs=True)
        self._num_users += 1
        try:
            await start.wait_for(self.ready)
            async with self._turn:
                start.check()  # what it inherits may be closed by now
                if self.why:
                    raise TemplateError(self.why)
                return await self._forked(start.launch)
        finally:
            self._num_users -= 1
            self._end_when_idle(idle_s)

    def _end_when_idle(self, idle_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(idle_s, self._idle, idle_s)

    def _idle(self, idle_s: float) -> None:
        if self._num_users:
            self._end_when_idle(idle_s)
        else:
            self._timer = None
            self.end("it was unused")

    async def _forked(self, launch: Launch) -> Process:
        environment = launch.whole_environment()
        order = ForkOrder(
            module=launch.module,
            arguments=launch.arguments,
            num_threads=launch.num_threads,
            environment=environment,
            path=tuple(os.path.abspath(entry) for entry in environment["PYTHONPATH"].split(os.pathsep) if entry),
        )
        with ExitStack() as stack:
            asking, leave = map(stack.enter_context, socket.socketpair())
            end, guards = map(stack.enter_context, socket.socketpair())
            asking.setblocking(False)
            pid = b""
            try:
                async with asyncio.timeout(FORK_S):
                    await self._send(order, [leave.fileno(), guards.fileno(), launch.output, *launch.descriptors])
                    leave.close()
                    guards.close()
                    pid = await self._loop.sock_recv(asking, 64)
            except TimeoutError:
                self.end(f"it forked no process within {FORK_S:g} s", hangs=True)
            if self.is_alive and not pid:
                self._read()  # why
            if not pid:
                raise TemplateError(self.why or "it could not fork")
            process = Forked(int(pid), end)
            with suppress(OSError):  # it has just been killed
                asking.send(b"1")
            stack.pop_all()
            asking.close()
            return process

    async def _send(self, order: ForkOrder, descriptors: list[int]) -> None:
        assert self._connection.end is not None
        data = encode(order)
        socket.send_fds(self._connection.end, [data[:1]], descriptors)
        await self._loop.sock_sendall(self._connection.end, data[1:])
