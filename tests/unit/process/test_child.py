"""A child process from its start to its end, whatever it does; real ones, which are started anew."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from dask_train.process.child import GONE_S, Child
from dask_train.process.launch import Launch, Process, spawn
from dask_train.process.templates import GivenUpError, ProcessStart

# Says that it is there, and does as it is told.
OBEDIENT = """
import os, subprocess, sys
from dask_train.process.life import begin
end, own = begin(1)
helper = subprocess.Popen(["sleep", "1000"])
os.write(end, f"{helper.pid} {os.readlink(f'/proc/self/fd/{own}')}".encode())
def waiting():
    return os.read(end, 100)
print("its last words", flush=True)
sys.exit(int(waiting()))
"""
# Has not guarded its life yet.
YOUNG = """
import os, sys
os.write(int(sys.argv[-1]), b"here")
os.read(int(sys.argv[-1]), 1)
os._exit(7)
"""

Made = Callable[..., Child]


def started_now(start: ProcessStart) -> Future[Process]:
    """Start a process as a Dask worker would whose event loop is free."""
    done: Future[Process] = Future()
    done.set_result(spawn(start.launch))
    return done


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_leaks: Any) -> Iterator[Made]:
    """Makes children, which leave nothing when they are closed."""
    (tmp_path / "obedient_child.py").write_text(OBEDIENT)
    (tmp_path / "young_child.py").write_text(YOUNG)
    monkeypatch.syspath_prepend(str(tmp_path))
    with no_leaks(), ExitStack() as stack:

        def made() -> Child:
            child = stack.enter_context(closing(Child("dask-train-test")))
            child.end.settimeout(20)
            return child

        yield made


def launch(child: Child, own: tuple[int, ...] = (), module: str = "obedient_child") -> Launch:
    descriptors = (*child.inherited, *own)
    return Launch(
        module=module, arguments=("a name",), descriptors=descriptors, output=child.output.descriptor, num_threads=1
    )


def begun(child: Child) -> int:
    """Start it; the process that it starts itself."""
    own = os.memfd_create("its own")
    try:
        child.start(launch(child, (own,)), started_now).result(60)
    finally:
        os.close(own)
    helper, file = child.end.recv(100).decode().split(maxsplit=1)
    assert "its own" in file
    return int(helper)


def test_how_it_ended_and_what_it_left_behind(make: Made, wait_for: Any) -> None:
    child = make()
    helper = begun(child)
    assert child.reap() is None, "it goes on"
    child.end.send(b"3")
    assert child.reap(20) == child.reap() == 3
    wait_for(lambda: not psutil.pid_exists(helper), "what it has started ends with it")
    assert child.how_it_ended(3) == f"process {child.pid} exited with status 3"
    child.close()
    child.close()
    assert child.output.since(0)[1] == "its last words\n"
    assert child.reap(20) == 3


def test_a_kill_takes_what_it_has_started(make: Made, wait_for: Any) -> None:
    child = make()
    helper = begun(child)
    child.kill()
    assert child.reap(20) == -signal.SIGKILL
    wait_for(lambda: not psutil.pid_exists(helper), "it is gone")
    child.kill()
    assert child.how_it_ended(-signal.SIGKILL) == f"process {child.pid} was killed by SIGKILL"


def test_closing_ends_it(make: Made) -> None:
    child = make()
    begun(child)
    child.close()
    assert not psutil.pid_exists(child.pid)


def test_its_stacks(make: Made, wait_for: Any) -> None:
    child = make()
    begun(child)
    for _ in range(2):
        before = child.ask_for_stacks()
        wait_for(lambda before=before: "obedient_child.py" in child.stacks_since(before), "its stacks")
    child.close()
    assert child.stacks_since(child.ask_for_stacks()) == ""


def test_stacks_that_are_asked_for_too_early_end_nothing(make: Made) -> None:
    child = make()
    child.start(launch(child, module="young_child"), started_now).result(60)
    assert child.end.recv(10) == b"here"
    child.ask_for_stacks()
    child.end.send(b"1")
    assert child.reap(20) == 7, "the signal for stacks has not ended it"


def test_one_that_is_closed_while_it_starts_is_ended_as_soon_as_it_has(make: Made) -> None:
    child, awaited = make(), Future[Process]()
    orders: list[ProcessStart] = []

    def later(start: ProcessStart) -> Future[Process]:
        orders.append(start)
        return awaited

    started = child.start(launch(child), later)
    assert not started.cancel()
    child.close()
    with pytest.raises(GivenUpError):
        orders[0].check()
    process = spawn(orders[0].launch)  # what it inherits is still open
    awaited.set_result(process)
    assert started.done()
    assert process.returncode == -signal.SIGKILL, "it is killed, and waited for"


@pytest.mark.parametrize("what", ["no room", "cancelled", "no loop"])
def test_a_start_that_fails(what: str, make: Made) -> None:
    def failing(_: ProcessStart) -> Future[Process]:
        if what == "no loop":
            raise RuntimeError("Event loop is closed")
        awaited: Future[Process] = Future()
        if what == "cancelled":
            awaited.cancel()
            awaited.set_running_or_notify_cancel()
        else:
            awaited.set_exception(OSError(11, "Resource temporarily unavailable"))
        return awaited

    child = make()
    with pytest.raises(OSError, match="Resource temporarily" if what == "no room" else "the Dask worker closes"):
        child.start(launch(child), failing).result(0)
    assert child.pid == 0
    assert child.reap(GONE_S) is None


def test_one_that_was_killed_before_its_start(make: Made) -> None:
    child = make()
    child.kill()

    def checked(start: ProcessStart) -> Future[Process]:
        awaited: Future[Process] = Future()
        with pytest.raises(GivenUpError) as given_up:
            start.check()
        awaited.set_exception(given_up.value)
        return awaited

    with pytest.raises(GivenUpError):
        child.start(launch(child), checked).result(0)


def test_a_thread_that_reads_wakes_when_it_is_closed(make: Made) -> None:
    child = make()
    begun(child)
    child.end.settimeout(60)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(child.end.recv, 1)
        child.close()
        try:
            assert reading.result(60) == b""
        except OSError:  # closed before it began
            assert child.end.fileno() == -1
