"""A framework that is imported at once, and children that tell what they are."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dask_train.process.launch import Launch, Preload, Process
from dask_train.process.templates import ProcessStart, Templates

# Its value says which process has imported it.
FRAMEWORK = """
import gc
import os
import random
IMPORTED_BY, COLLECTS = os.getpid(), gc.isenabled()
print("the framework says hello", flush=True)
"""

# Tells what it is, then does as it is told until its end of the socket is closed.
CHILD = """
import gc, json, os, random, socket, sys
from dask_train.process.life import die_with, write_stacks_on_signal
parent, lifeline, end = map(int, sys.argv[-3:])
die_with(parent, lifeline)
write_stacks_on_signal(2)
import numpy as np
told = {
    "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "folder": os.getcwd(), "path": sys.path,
    "arguments": sys.argv[1:-3], "imported_by": getattr(sys.modules.get("cheap_framework"), "IMPORTED_BY", None),
    "collects": gc.isenabled(), "num_kept": gc.get_freeze_count(),
    "import_collects": getattr(sys.modules.get("cheap_framework"), "COLLECTS", None),
    "environment": dict(os.environ), "main": sys.modules["__main__"].__name__, "name": __name__,
    "random": random.random(), "numpy": float(np.random.rand()),
    "descriptors": sorted(map(int, set(os.listdir("/proc/self/fd")) - {str(os.open(".", os.O_RDONLY))})),
    "shown": open("/proc/self/cmdline", "rb").read().decode(),
    "signals": [line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn", "SigCgt"))],
}
print("the child says hello", flush=True)
talk = socket.socket(fileno=end)
talk.sendall(json.dumps(told).encode() + b"\\n")
order = talk.recv(100).decode()
if order == "raise":
    raise ValueError("as it was told")
if order == "kill":
    os.kill(os.getpid(), 9)
if order.startswith("exit"):
    sys.exit(int(order.split()[1]))
os._exit(0)
"""


class Talking:
    """A child that was started, and this process's end of its descriptors."""

    def __init__(self) -> None:
        import socket

        self.end, self._theirs = socket.socketpair()
        self._lifeline_end, self.lifeline = os.pipe()
        self.output = os.memfd_create("output")
        self.process: Process | None = None

    def launch(self, preload: Preload | None, **settings: Any) -> Launch:
        return Launch(
            module="telling_child",
            arguments=("worker", "0"),
            descriptors=(self._lifeline_end, self._theirs.fileno()),
            output=self.output,
            num_threads=settings.pop("num_threads", 2),
            preload=preload,
            **settings,
        )

    def started(self, process: Process) -> dict[str, Any]:
        """What it says first."""
        self.process = process
        self._theirs.close()
        os.close(self._lifeline_end)
        self._lifeline_end = -1
        self.end.settimeout(20)
        said = b""
        while not said.endswith(b"\n"):
            data = self.end.recv(1 << 16)
            assert data, self.printed()
            said += data
        return dict(json.loads(said))

    def tell(self, order: str) -> int:
        """How it ends once it was told so."""
        assert self.process is not None
        self.end.send(order.encode())
        return self.process.wait(60)

    def printed(self) -> str:
        return os.pread(self.output, 1 << 16, 0).decode()

    def close(self) -> None:
        if self.output == -1:
            return
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait(60)
        self.end.close()
        self._theirs.close()
        for descriptor in {self.lifeline, self.output, self._lifeline_end} - {-1}:
            os.close(descriptor)
        self.output = -1


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path with the framework and the child."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "cheap_framework.py").write_text(FRAMEWORK)
    (folder / "telling_child.py").write_text(CHILD)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def preload(modules: Path) -> Preload:
    return Preload(modules=("cheap_framework",), idle_s=60.0)


@pytest.fixture
def made() -> list[Talking]:
    """The children of the test."""
    return []


@pytest.fixture
def children(made: list[Talking]) -> Callable[[], Talking]:
    """Makes children that are ended with the test."""

    def make() -> Talking:
        made.append(Talking())
        return made[-1]

    return make


@pytest.fixture
def with_templates(no_leaks: Any, made: list[Talking]) -> Callable[[Callable[[Templates], Any]], None]:
    """Runs a test on an event loop of its own, with templates that are closed in the end, as the children are."""

    def run(test: Callable[[Templates], Any]) -> None:
        async def on_loop() -> None:
            templates = Templates()
            try:
                await asyncio.wait_for(test(templates), 60)
            finally:
                templates.close()
                for child in made:
                    child.close()

        with no_leaks():
            asyncio.run(on_loop())

    return run


@pytest.fixture
def begin() -> Callable[..., Any]:
    """Starts a child, and says what it said."""

    async def start(templates: Templates, child: Talking, preload: Preload | None, **settings: Any) -> dict[str, Any]:
        process = await templates.start(ProcessStart(child.launch(preload, **settings)))
        return await asyncio.to_thread(child.started, process)

    return start
