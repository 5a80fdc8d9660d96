"""What a role process prints."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dask_train.process import output as output_module
from dask_train.process.output import Output

KEPT, UNREAD = 100, 1000


@pytest.fixture
def output(monkeypatch) -> Iterator[Output]:
    """An output that keeps 100 bytes, and of which 1,000 may be unread."""
    monkeypatch.setattr(output_module, "KEPT_BYTES", KEPT)
    monkeypatch.setattr(output_module, "MAX_UNREAD_BYTES", UNREAD)
    output = Output("test")
    yield output
    output.close()


def write(output: Output, text: str) -> None:
    os.write(output.descriptor, text.encode())


def test_what_is_new_since_a_position(output):
    assert output.since(0) == (0, "")
    write(output, "one\n")
    position, text = output.since(0)
    assert (position, text) == (4, "one\n")
    write(output, "two\n")
    assert output.since(position) == (8, "two\n")
    assert output.since(0) == (8, "one\ntwo\n"), "for another reader"
    assert output.since(8) == (8, "")


def test_the_end_is_kept(output):
    for number in range(50):
        write(output, f"{number:09}\n")
        output.collect()
    position, text = output.since(0, KEPT)
    assert position == 500
    assert text == "".join(f"{number:09}\n" for number in range(40, 50))
    assert output.since(480)[1] == "000000048\n000000049\n"


def test_no_more_than_was_asked_for(output):
    write(output, "0123456789")
    assert output.since(0, most=3) == (10, "789")
    assert output.since(5, most=3) == (10, "789")
    assert output.since(9, most=3) == (10, "9")


def test_a_flood_loses_what_is_in_between(output):
    write(output, "start\n")
    output.collect()
    write(output, "x" * UNREAD + "end\n")
    position, text = output.since(0, KEPT)
    assert position == 6 + UNREAD + 4
    assert (len(text), text[-5:]) == (KEPT, "xend\n")
    write(output, "more")
    assert output.since(position) == (position + 4, "more")


def test_what_may_be_unread_is_not_lost(output):
    write(output, "x" * UNREAD)
    output.collect()
    position, text = output.since(0, KEPT)
    assert (position, len(text)) == (UNREAD, KEPT)


def test_what_was_read_gives_its_memory_back():
    output = Output("test")
    size = 8 << 20
    os.write(output.descriptor, b"x" * size)
    assert os.fstat(output.descriptor).st_blocks * 512 >= size
    output.collect()
    found = os.fstat(output.descriptor)
    assert (found.st_size, found.st_blocks) == (size, 0)
    output.close()


def test_bytes_that_are_no_text(output):
    os.write(output.descriptor, b"caf\xe9\n")
    assert output.since(0) == (5, "caf\ufffd\n")


def test_what_there_was_stays_when_it_is_closed(output):
    write(output, "last words\n")
    output.close()
    output.close()
    output.collect()
    assert output.since(0) == (11, "last words\n")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(output.descriptor)
