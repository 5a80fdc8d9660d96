"""A child dies with its parent, whatever it is doing, and can be looked into."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dask_train.process.life import STACKS_SIGNAL, writes_stacks

# Guards its life, says so, and keeps the GIL in C for a minute.
CHILD = """
import ctypes, sys
from dask_train.process.life import begin
print(*begin(1), flush=True)
def holds_the_gil():
    while True:  # a signal ends a sleep
        ctypes.PyDLL(None).sleep(60)
holds_the_gil()
"""


class Child:
    """One, and this process's ends of its descriptors."""

    def __init__(self, folder: Path, parent: int | None = None) -> None:
        theirs, self.lifeline = os.pipe()
        self.stacks = folder / "stacks"
        with self.stacks.open("w") as file:
            numbers = (os.getpid() if parent is None else parent, theirs, file.fileno(), 7, 8)
            self.process = subprocess.Popen(
                [sys.executable, "-c", CHILD, "worker", "0", *map(str, numbers)],
                stdout=subprocess.PIPE,
                pass_fds=(theirs, file.fileno()),
                text=True,
            )
        os.close(theirs)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        if self.lifeline != -1:
            os.close(self.lifeline)


@pytest.fixture
def child(tmp_path, no_leaks):
    with no_leaks():
        made = Child(tmp_path)
        yield made
        made.close()


def test_it_is_told_its_own_descriptors_and_ends_with_its_lifeline(child):
    assert child.said == "7 8\n"
    assert child.process.poll() is None
    os.close(child.lifeline)
    child.lifeline = -1
    assert child.process.wait(60) == -signal.SIGKILL


def test_its_stacks_are_written_while_it_holds_the_gil(child, wait_for):
    assert writes_stacks(child.process.pid)

    def written():
        child.process.send_signal(STACKS_SIGNAL)
        return "holds_the_gil" in child.stacks.read_text()

    wait_for(written, "its stacks")
    assert child.process.poll() is None


def test_one_whose_parent_is_gone_already_does_not_begin(tmp_path, no_leaks):
    with no_leaks():
        made = Child(tmp_path, parent=1 if os.getpid() != 1 else 2)
        assert (made.said, made.process.wait(60)) == ("", 1)
        made.close()


def test_who_writes_no_stacks():
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not writes_stacks(process.pid)
        process.kill()
    assert not writes_stacks(process.pid), "it is gone"
