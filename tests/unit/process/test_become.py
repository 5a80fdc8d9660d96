"""A fork begins only if the Dask worker still wants it."""

from __future__ import annotations

import os
import socket
import warnings

import pytest

from dask_train.process.become import _ask_leave


@pytest.mark.parametrize("wanted", [True, False])
def test_a_fork_asks_before_it_begins(wanted: bool) -> None:
    ours, theirs = socket.socketpair()
    with warnings.catch_warnings():  # of JAX, where an earlier test has computed with it
        warnings.simplefilter("ignore", RuntimeWarning)
        pid = os.fork()
    if not pid:
        ours.close()
        try:
            _ask_leave(theirs.detach())
            os._exit(7)
        finally:
            os._exit(8)
    theirs.close()
    with ours:
        assert int(ours.recv(64)) == pid
        if wanted:
            ours.send(b"1")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (7 if wanted else 1)
