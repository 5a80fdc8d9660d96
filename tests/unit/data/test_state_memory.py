"""The last states in memory: one is whole at any moment, wherever a writer is killed."""

from __future__ import annotations

import os

import pytest

from dask_train.data.state_memory import StateMemory, new_files


class KilledError(BaseException):
    """A process is killed here."""


@pytest.fixture
def files():
    descriptors = new_files()
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.fixture
def killed(monkeypatch):
    """Kills the writer in that one of its system calls, of which half is done; before the first one with 0."""

    def kill_in(number, error=KilledError):
        left = [number]

        def counted(call, half):
            def called(*arguments):
                left[0] -= 1
                if left[0] >= 0:
                    return call(*arguments)
                if left[0] == -1:
                    half(*arguments)
                raise error

            return called

        monkeypatch.setattr(os, "pwrite", counted(os.pwrite, lambda f, data, at: pwrite(f, data[: len(data) // 2], at)))
        monkeypatch.setattr(os, "ftruncate", counted(os.ftruncate, lambda f, size: ftruncate(f, size // 2)))

    pwrite, ftruncate = os.pwrite, os.ftruncate
    yield kill_in
    monkeypatch.undo()


def test_the_last_one_is_read_by_whoever_has_the_files(files):
    mine, other = StateMemory(files), StateMemory([os.dup(file) for file in files])
    assert other.read() == (0, b"")
    for steps in (1, 4, 9):
        mine.write(steps, b"x" * 10_000 * steps)
        assert other.read() == (steps, b"x" * 10_000 * steps)
    other.write(10, b"short")
    assert mine.read() == (10, b"short")
    assert mine.holder == other.holder
    for file in other._files:
        os.close(file)


def test_each_holder_has_a_name_of_its_own(files):
    others = new_files()
    assert StateMemory(files).holder != StateMemory(others).holder
    for file in others:
        os.close(file)


@pytest.mark.parametrize("number", range(5))
def test_where_a_writer_is_killed_the_one_before_is_whole(files, killed, monkeypatch, number):
    StateMemory(files).write(1, b"a" * 5000)
    StateMemory(files).write(2, b"b" * 5000)
    killed(number)
    done = False
    with pytest.raises(KilledError) if number < 4 else open(os.devnull):
        StateMemory(files).write(3, b"c" * 9000)
        done = True
    monkeypatch.undo()
    again = StateMemory(files)
    assert again.read() == ((3, b"c" * 9000) if done else (2, b"b" * 5000))
    again.write(4, b"d")
    assert again.read() == (4, b"d")


def test_the_whole_one_is_never_overwritten(files, killed, monkeypatch):
    StateMemory(files).write(1, b"a")
    for steps in (2, 3):  # both attempts are killed
        killed(2)
        with pytest.raises(KilledError):
            StateMemory(files).write(steps, b"b" * 100)
        monkeypatch.undo()
        assert StateMemory(files).read() == (1, b"a")


@pytest.mark.parametrize("place", [70, 20], ids=["content", "header"])
def test_what_is_damaged_is_passed_over(files, place):
    mine = StateMemory(files)
    mine.write(1, b"a" * 100)
    mine.write(2, b"b" * 100)
    os.pwrite(files[1], b"!", place)
    assert mine.read() == (1, b"a" * 100)


def test_without_memory_the_one_before_stays(files, killed, monkeypatch):
    mine = StateMemory(files)
    mine.write(1, b"a")
    killed(2, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        mine.write(2, b"b")
    monkeypatch.undo()
    assert mine.read() == (1, b"a")
