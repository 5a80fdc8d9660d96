"""Lines for whoever watches: they never fail, and show no secrets."""

from __future__ import annotations

import io
import logging
import os
import sys
from contextlib import suppress

import pytest

from dask_train.printing import SafeFile, logger, say


@pytest.fixture
def closed_pipe():
    """Standard error whose reader has gone."""
    read, write = os.pipe()
    os.close(read)
    file = open(write, "w", buffering=1)  # noqa: SIM115 - its buffer can't be written, so it is closed below
    yield file
    with suppress(BrokenPipeError):
        file.close()


def closed():
    file = io.StringIO()
    file.close()
    return file


def test_a_line_goes_to_the_standard_error_of_the_moment(monkeypatch):
    for _ in range(2):
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        say("one role is slow at http://u:hunter2@h")
        assert sys.stderr.getvalue() == "dask_train: one role is slow at http://***@h\n"


def test_nothing_that_is_wrong_with_standard_error_is_raised(monkeypatch, closed_pipe):
    for file in (closed_pipe, closed(), None):
        monkeypatch.setattr(sys, "stderr", file)
        say("told")
        safe = SafeFile()
        assert safe.write("told\n") == 5
        safe.flush()
        assert not safe.isatty()


def test_letters_that_a_file_lacks_are_escaped():
    data = io.BytesIO()
    file = SafeFile(io.TextIOWrapper(data, encoding="ascii"))
    file.write("ä \udcff")
    file.flush()
    assert data.getvalue() == b"\\xe4 \\udcff"


def test_programs_may_take_the_lines_or_leave_them(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    records = []

    class Fails(logging.Handler):
        def emit(self, record):
            records.append(record.getMessage())
            raise OSError

    handler = Fails()
    logger.addHandler(handler)
    try:
        say("told")
    finally:
        logger.removeHandler(handler)
    assert records == ["told"]
    logger.setLevel(logging.ERROR)
    say("not told")
    assert "not told" not in sys.stderr.getvalue()
    logger.setLevel(logging.INFO)
