"""How letters with descriptors get to a role process."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
from concurrent.futures import Future
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.process import role_child
from dask_train.process.messages import Answer, CallFunction, Mapped
from dask_train.process.role_child import RoleChild
from dask_train.process.templates import GivenUpError, ProcessStart
from dask_train.run.messages import Message, Stop
from dask_train.transport.frames import MAX_DESCRIPTORS, descriptors_of, encode, messages_from

# Letters with descriptors


def posted(test: Any) -> None:
    """Run ``test(child, its end)`` with a child whose process is this one, and which is read when the test does."""

    async def run() -> None:
        child = RoleChild("worker", 0, 0, on_message=print, on_exit=print)
        end = child._child._theirs.dup()
        child._posting = asyncio.create_task(child._post())
        try:
            await test(child, end)
        finally:
            if not child._is_closed:
                child._close()
            end.close()
            await asyncio.wait([child._posting])

    asyncio.run(run())


def test_a_letter_to_a_process_that_is_gone_keeps_no_descriptor_open(no_leaks):
    """As the answer to what a process had asked for before it was killed."""

    async def tell(child: RoleChild, end: socket.socket) -> None:
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        child._close()
        child.tell(Answer(question=0, data=data([ours, theirs])))
        os.close(theirs)
        assert os.read(ours, 1) == b""  # nobody can write any more
        os.close(ours)

    with no_leaks():
        posted(tell)


async def read_messages(end: socket.socket, num: int) -> list[Message]:
    """So many messages, with their descriptors as they are on this side."""
    came = messages_from(end)
    return [await asyncio.to_thread(next, came) for _ in range(num)]


def data(descriptors: list[int]) -> Mapped:
    return Mapped(table=None, held=None, descriptors=descriptors)


def test_a_letter_may_have_more_descriptors_than_a_message(no_leaks):
    async def tell(child: RoleChild, end: socket.socket) -> None:
        pipes = [os.pipe() for _ in range(3)]
        told = [pipes[number % 3][number % 2] for number in range(2 * MAX_DESCRIPTORS + 1)]
        inodes = [os.fstat(each).st_ino for each in told]
        child.tell(CallFunction(peers={}, timeout_s=1.0, data_timeout_s=2.0, data=data(told)))
        child.tell(Answer(question=7, data=data(told[:2])))
        for descriptor in sum(pipes, ()):
            os.close(descriptor)  # the letters have their own
        enter, answer = await read_messages(end, 2)
        assert (enter.timeout_s, answer.question) == (1.0, 7)
        for message, expected in ((enter, inodes), (answer, inodes[:2])):
            assert [os.fstat(each).st_ino for each in descriptors_of(message)] == expected
            for descriptor in descriptors_of(message):
                os.close(descriptor)

    with no_leaks():
        posted(tell)


def test_descriptors_wait_for_room_in_the_socket(no_leaks):
    async def tell(child: RoleChild, end: socket.socket) -> None:
        filled = 0
        with suppress(BlockingIOError):
            while True:
                filled += child._end.send(b"x" * 100)
        child.tell(Answer(question=0, data=data([0])))
        await asyncio.sleep(0.05)
        while filled:
            filled -= len(await asyncio.to_thread(end.recv, filled))
        (message,) = await read_messages(end, 1)
        os.close(*descriptors_of(message))

    with no_leaks():
        posted(tell)


def test_descriptors_wait_for_room_in_the_system(no_leaks, monkeypatch):
    send_fds, refusals = socket.send_fds, [errno.ETOOMANYREFS, errno.ENOBUFS]

    def refuse(*args: Any) -> int:
        if refusals:
            raise OSError(refusals.pop(), "no room")
        return send_fds(*args)

    monkeypatch.setattr(socket, "send_fds", refuse)

    async def tell(child: RoleChild, end: socket.socket) -> None:
        end.settimeout(20)
        child.tell(Answer(question=0, data=data([0])))
        (message,) = await read_messages(end, 1)
        os.close(*descriptors_of(message))

    with no_leaks():
        posted(tell)


def test_letters_that_were_not_sent_leave_nothing(no_leaks):
    async def tell(child: RoleChild, end: socket.socket) -> None:
        for _ in range(3):
            child.tell(Answer(question=0, data=data([0, 1, 2])))

    with no_leaks():
        posted(tell)


# Its end


@pytest.mark.parametrize("signal_number", [40, signal.SIGTERM])
def test_its_end_is_told_whatever_fails(no_leaks, no_descriptors, signal_number):
    """An agent that has as many descriptors as it may, and a last message that can't be taken."""
    ended, errors = [], []

    def refuse(*_: Any) -> None:
        raise ValueError("an error of ours")

    async def run() -> int:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        child = RoleChild("worker", 0, 0, on_message=refuse, on_exit=lambda _, cause: ended.append(cause))
        child._child._theirs.send(encode(Stop(reason="")))
        process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        child._child._begun(process, os.pidfd_open(process.pid))
        asyncio.get_running_loop().add_reader(child._child.pidfd, child._exited)
        with no_descriptors():
            os.kill(process.pid, signal_number)
            await asyncio.wait_for(child.done.wait(), 60)
        return process.pid

    with no_leaks():
        pid = asyncio.run(run())
    name = {40: "signal 40", signal.SIGTERM: "SIGTERM"}[signal_number]
    assert ended == [f"its process {pid} was killed by {name}."]
    assert list(map(str, errors)) == ["an error of ours"]


def test_one_that_can_not_be_sent_its_data_is_ended_with_why(no_leaks, monkeypatch):
    ended = []

    def refuse(*_: Any) -> int:
        raise OSError(errno.ETOOMANYREFS, "Too many references")

    monkeypatch.setattr(socket, "send_fds", refuse)
    monkeypatch.setattr(role_child, "NO_ROOM_S", 0.05)

    async def run() -> None:
        child = RoleChild("worker", 0, 0, on_message=print, on_exit=lambda _, cause: ended.append(cause))
        process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        child._child._begun(process, os.pidfd_open(process.pid))
        asyncio.get_running_loop().add_reader(child._child.pidfd, child._exited)
        child._posting = asyncio.create_task(child._post())
        child.tell(Answer(question=0, data=data([0])))
        await asyncio.wait_for(child.done.wait(), 60)

    with no_leaks():
        asyncio.run(run())
    (cause,) = ended
    assert cause.startswith("its process was ended, as the system had no room to send it its data: ")
    assert "Too many references" in cause


# A start that is given up


def test_a_child_that_is_killed_before_it_has_a_process_has_ended(no_leaks, tmp_path):
    ended = []
    awaited: Future[Any] = Future()

    def starting(start: ProcessStart) -> Future[Any]:
        start.give_up = lambda: awaited.set_exception(GivenUpError())  # type: ignore[method-assign]
        start.template = SimpleNamespace(pid=os.getpid())  # type: ignore[assignment]
        return awaited

    async def run() -> None:
        child = RoleChild("worker", 0, 0, on_message=print, on_exit=lambda _, cause: ended.append(cause))
        task = asyncio.create_task(child.start("run", 1, str(tmp_path), starting, None))
        await asyncio.sleep(0)
        picture = await child.picture()
        assert (picture.pid, picture.doing) == (
            os.getpid(),
            "waiting for the template that it is forked of, which imports",
        )
        child.kill()
        await task
        assert child.done.is_set()
        assert child.batches() == []

    with no_leaks():
        asyncio.run(run())
    assert ended == ["it was ended before its process had started."]
    assert not list(tmp_path.iterdir()), "its scratch folder is gone"


def test_a_start_that_is_cut_short_leaves_nothing(no_leaks, tmp_path):
    """As where an agent ends that has waited long enough for a template that imports."""
    awaited: Future[Any] = Future()

    def starting(start: ProcessStart) -> Future[Any]:
        start.give_up = lambda: awaited.set_exception(GivenUpError())  # type: ignore[method-assign]
        return awaited

    async def run() -> None:
        child = RoleChild("worker", 0, 0, on_message=print, on_exit=print)
        task = asyncio.create_task(child.start("run", 1, str(tmp_path), starting, None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert child.done.is_set()
        assert awaited.done(), "it is given up"

    with no_leaks():
        asyncio.run(run())
    assert not list(tmp_path.iterdir()), "its scratch folder is gone"


def test_what_a_process_inherits_stays_open_until_it_has_started(no_leaks, tmp_path):
    """A start that is cut short may be on its way to a template, which takes a while to look at it."""
    awaited: Future[Any] = Future()
    launches = []

    def starting(start: ProcessStart) -> Future[Any]:
        launches.append(start.launch)
        return awaited

    def inherited() -> list[str]:
        (launch,) = launches
        return [os.readlink(f"/proc/self/fd/{number}") for number in launch.descriptors]

    async def run() -> None:
        child = RoleChild("worker", 0, 0, on_message=print, on_exit=print)
        task = asyncio.create_task(child.start("run", 1, str(tmp_path), starting, None))
        await asyncio.sleep(0)
        before = inherited()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert inherited() == before
        awaited.set_exception(GivenUpError())

    with no_leaks():
        asyncio.run(run())


def test_a_letter_whose_descriptors_can_not_be_duplicated_keeps_none(no_leaks):
    async def tell(child: RoleChild, end: socket.socket) -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            child.tell(Answer(question=0, data=data([0, 1, -1])))

    with no_leaks():
        posted(tell)
