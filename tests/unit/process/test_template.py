"""When a process may be forked, and what a template says and does on its own; what it forks is in test_templates."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dask_train.process import template
from dask_train.process.template import Imported, Unfit, other_threads, unfit
from dask_train.transport.frames import messages_from

SERVE = "import sys; from dask_train.process.template import serve; serve(int(sys.argv[1]), sys.argv[2:])"


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
def served(*modules: str, path: str = "") -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """A template with these imports, and this side of its socket."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20.0)
    command = [sys.executable, "-c", SERVE, str(theirs.fileno()), *modules]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, *sys.path]))}
    with ours, subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment) as process:
        theirs.close()
        try:
            yield ours, process
        finally:
            process.kill()


def test_it_tells_what_it_has_imported_and_ends_with_its_dask_worker(no_leaks):
    with no_leaks(), served("colorsys") as (end, process):
        imported = next(messages_from(end))
        assert isinstance(imported, Imported)
        assert {"colorsys", "dask_train", "sys"} <= imported.packages
        assert not {"distributed", "keras", "tensorflow", "torch"} & imported.packages, "it has nothing else"
        end.close()
        assert process.wait(60) == 0


def test_an_import_that_fails_is_told_with_its_reason(no_leaks, tmp_path):
    (tmp_path / "raises_at_import.py").write_text("raise SystemExit('not here')")
    with no_leaks(), served("raises_at_import", path=str(tmp_path)) as (end, process):
        assert next(messages_from(end)) == Unfit(why="SystemExit: not here")
        assert process.wait(60) == 1
