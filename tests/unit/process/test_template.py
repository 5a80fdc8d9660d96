"""When a process may be forked, and what a template says and does on its own; what it forks is in test_templates."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dask_train.process import template
from dask_train.process.connections import SECRET
from dask_train.process.template import Imported, Unfit, other_threads, unfit
from dask_train.transport.frames import FrameReader

SERVE = """
import sys
from dask_train.process.life import die_with_end
from dask_train.process.template import serve
die_with_end(int(sys.argv[1]))
serve(*map(int, sys.argv[1:3]), sys.argv[3:])
"""


@pytest.fixture
def alone(monkeypatch):
    """No other thread counts: tests have some."""
    monkeypatch.setattr(template, "other_threads", lambda: ["jemalloc_bg_thd"])


def test_threads_but_the_first_are_seen_by_the_kernels_names():
    goes_on = threading.Event()
    before = len(other_threads())
    thread = threading.Thread(target=goes_on.wait)
    thread.start()
    try:
        assert len(other_threads()) == before + 1
        assert unfit().startswith("it has other threads: ")
    finally:
        goes_on.set()
        thread.join()


def test_threads_that_do_no_harm_are_no_reason(alone):
    assert unfit() == ""


def test_a_device_that_is_open_is_named(alone, monkeypatch):
    monkeypatch.setattr(template, "DEVICES", ("/dev/zero",))
    assert unfit() == ""
    descriptor = os.open("/dev/zero", os.O_RDONLY)
    try:
        assert unfit() == "it has opened /dev/zero"
    finally:
        os.close(descriptor)


@contextmanager
def served(*modules: str, path: str = "") -> Iterator[tuple[socket.socket, int, subprocess.Popen[bytes]]]:
    """A template with these imports, this side of a socket with it, and of its lifeline."""
    reading, writing = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as end:
        listener.bind("")
        listener.listen()  # so that nobody is turned away; the template does it again
        command = [sys.executable, "-c", SERVE, str(reading), str(listener.fileno()), *modules]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, *sys.path])), SECRET: "s" * 64}
        with subprocess.Popen(command, pass_fds=[reading, listener.fileno()], env=environment) as process:
            os.close(reading)
            try:
                end.settimeout(20.0)
                end.connect(listener.getsockname())
                listener.close()
                yield end, writing, process
            finally:
                process.kill()
                os.close(writing)


def greeting(end: socket.socket, secret: bytes = b"s" * 64) -> Any:
    """What it says to who knows its secret."""
    for part in (secret[:10], secret[10:]):
        end.sendall(part)
    return next(iter(FrameReader().feed(end.recv(1 << 16))), None)


def test_it_tells_what_it_has_imported_and_ends_with_its_last_dask_worker(no_leaks):
    with no_leaks(), served("colorsys") as (end, _, process):
        imported = greeting(end)
        assert isinstance(imported, Imported)
        assert {"colorsys", "dask_train", "sys"} <= imported.packages
        assert not {"distributed", "keras", "tensorflow", "torch"} & imported.packages, "it has nothing else"
        end.close()
        assert process.wait(60) == 0, "also while someone has its lifeline"


def test_an_import_that_fails_is_told_with_its_reason(no_leaks, tmp_path):
    (tmp_path / "raises_at_import.py").write_text("raise SystemExit('not here')")
    with no_leaks(), served("raises_at_import", path=str(tmp_path)) as (end, _, process):
        assert greeting(end) == Unfit(why="SystemExit: not here")
        end.close()
        assert process.wait(60) == 0


def test_who_does_not_know_the_secret_is_told_nothing(no_leaks):
    with no_leaks(), served("colorsys") as (end, _, process):
        assert greeting(end, b"S" * 64) is None
        assert process.poll() is None


@pytest.mark.parametrize("stopped", [False, True])
def test_it_is_killed_when_nobody_has_its_lifeline(no_leaks, stopped):
    with no_leaks(), served("colorsys") as (end, own, process):
        greeting(end)
        if stopped:
            process.send_signal(signal.SIGSTOP)
        others = os.open(f"/proc/self/fd/{own}", os.O_WRONLY)  # as another Dask worker has it
        os.dup2(others, own)
        os.close(others)
        assert process.poll() is None, "somebody has it"
        with open(os.devnull) as other:
            os.dup2(other.fileno(), own)
        assert process.wait(60) == -signal.SIGKILL
