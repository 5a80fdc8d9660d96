"""What is said of a process that has ended."""

from __future__ import annotations

import pytest

from dask_train.process.child import how_it_ended


@pytest.mark.parametrize(
    ("status", "num_oom_kills", "said"),
    [
        (0, 0, "process 7 exited with status 0"),
        (3, 1, "process 7 exited with status 3"),
        (-9, 0, "process 7 was killed by SIGKILL"),
        (-9, 2, "process 7 was killed by the kernel because the container's memory limit was reached"),
        (-11, 1, "process 7 was killed by SIGSEGV"),
        (-40, 0, "process 7 was killed by signal 40"),
    ],
)
def test_how_it_ended(status: int, num_oom_kills: int, said: str) -> None:
    assert how_it_ended(7, status, num_oom_kills=num_oom_kills) == said
