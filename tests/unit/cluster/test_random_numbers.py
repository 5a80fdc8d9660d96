"""Dask's threads leave the random numbers alone that a program has seeded."""

from __future__ import annotations

import asyncio
import random
import sys

import dask.sizeof
import pytest
from distributed.comm import connect
from distributed.protocol import compression

from dask_train.cluster.random_numbers import leave_to_program


def sizes_a_message():
    dask.sizeof.sizeof({number: f"{number}" for number in range(1000)})


def fails_to_connect():
    with pytest.raises(OSError, match="Timed out"):
        asyncio.run(connect("tcp://127.0.0.1:1", timeout=0.02))


def samples_a_payload():
    compression.maybe_compress(b"a" * 100_000, compression="zlib")


@pytest.fixture(autouse=True)
def dask_as_it_was(monkeypatch):
    """What is set for the process is undone."""
    for name in ("dask.sizeof", "distributed.comm.core", "distributed.utils_comm", "distributed.scheduler"):
        monkeypatch.setattr(sys.modules[name], "random", random)
    monkeypatch.setattr(compression, "randint", random.randint)


@pytest.mark.parametrize("draw", [sizes_a_message, fails_to_connect, samples_a_payload])
def test_what_dask_draws_changes_no_number_of_the_program(draw):
    leave_to_program()
    leave_to_program()
    random.seed(3)
    expected = random.getrandbits(64)
    random.seed(3)
    draw()
    assert random.getrandbits(64) == expected


def test_dask_does_draw_from_the_numbers_of_the_program_by_itself():
    """Else there were nothing to do."""
    for draw in (sizes_a_message, fails_to_connect, samples_a_payload):
        random.seed(3)
        before = random.getstate()
        draw()
        assert random.getstate() != before
