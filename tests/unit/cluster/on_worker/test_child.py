"""What a role process inherits, and how letters with descriptors get to it."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any

from dask_train.cluster.on_worker.child import Child, role_environment
from dask_train.role_process.frames import MAX_DESCRIPTORS, FrameReader

INHERITED = {
    "PATH": "/bin",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONPATH": "old",
    "CUDA_VISIBLE_DEVICES": "0",
}


def test_a_role_has_its_share_of_the_cores():
    found = role_environment(INHERITED, 4, [])
    names = [name for name in found if name.endswith("_THREADS")]
    assert {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"} <= set(names)
    assert {found[name] for name in names} == {"4"}
    assert INHERITED["OMP_NUM_THREADS"] == "1", "the Dask worker's own stays"


def test_it_imports_from_where_its_dask_worker_does():
    found = role_environment(INHERITED, 1, ["", "/one", "/two"])
    assert found["PYTHONPATH"] == "/one:/two", "an empty entry would be the current folder"


def test_all_else_is_inherited():
    found = role_environment(INHERITED, 1, [])
    assert (found["PATH"], found["CUDA_VISIBLE_DEVICES"]) == ("/bin", "0")


# Letters with descriptors


def posted(test: Any) -> None:
    """Run ``test(child, its end)`` with a child whose process is this one, and which is read when the test does."""

    async def run() -> None:
        child = Child("worker", 0, 0, on_message=print, on_exit=print)
        child._end, end = socket.socketpair()
        child._lifeline_end, child._lifeline = os.pipe()
        child._end.setblocking(False)
        child._posting = asyncio.create_task(child._post())
        try:
            await test(child, end)
        finally:
            child._close()
            end.close()
            os.close(child._lifeline_end)
            await asyncio.wait([child._posting])

    asyncio.run(run())


async def read_letters(end: socket.socket, num: int) -> list[dict[str, Any]]:
    """So many letters, with their descriptors in the place of their number."""
    reader, letters, came = FrameReader(), [], []
    while len(letters) < num:
        data, descriptors, _, _ = await asyncio.to_thread(socket.recv_fds, end, 1 << 16, MAX_DESCRIPTORS)
        came += descriptors
        for letter in reader.feed(data):
            count = letter.pop("num_descriptors", 0)
            letters.append(letter | {"descriptors": came[:count]})
            came = came[count:]
    return letters


def test_a_letter_may_have_more_descriptors_than_a_message(no_leaks):
    async def tell(child: Child, end: socket.socket) -> None:
        pipes = [os.pipe() for _ in range(3)]
        told = [pipes[number % 3][number % 2] for number in range(2 * MAX_DESCRIPTORS + 1)]
        inodes = [os.fstat(each).st_ino for each in told]
        child.tell("go", descriptors=told, table="t")
        child.tell("dataset", descriptors=told[:2])
        for descriptor in sum(pipes, ()):
            os.close(descriptor)  # the letters have their own
        go, dataset = await read_letters(end, 2)
        assert (go["kind"], go["table"], dataset["kind"]) == ("go", "t", "dataset")
        for letter, expected in ((go, inodes), (dataset, inodes[:2])):
            assert [os.fstat(each).st_ino for each in letter["descriptors"]] == expected
            for descriptor in letter["descriptors"]:
                os.close(descriptor)

    with no_leaks():
        posted(tell)


def test_descriptors_wait_for_room_in_the_socket(no_leaks):
    async def tell(child: Child, end: socket.socket) -> None:
        assert child._end is not None
        filled = 0
        with suppress(BlockingIOError):
            while True:
                filled += child._end.send(b"x" * 100)
        child.tell("go", descriptors=[0])
        await asyncio.sleep(0.05)
        while filled:
            filled -= len(await asyncio.to_thread(end.recv, filled))
        (letter,) = await read_letters(end, 1)
        os.close(*letter["descriptors"])

    with no_leaks():
        posted(tell)


def test_letters_that_were_not_sent_leave_nothing(no_leaks):
    async def tell(child: Child, end: socket.socket) -> None:
        for _ in range(3):
            child.tell("go", descriptors=[0, 1, 2])

    with no_leaks():
        posted(tell)
