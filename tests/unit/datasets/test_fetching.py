"""Programs that fetch: their words in errors, their ends, and what they leave."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dask_train.datasets.fetching import TEMPORARY, run_program, sweep
from dask_train.errors import DataError


def test_a_program_that_fails_is_quoted_from_both_outputs_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"fetcher ended with code 3: one two\."):
        run_program(["sh", "-c", "echo one; echo two >&2; exit 3"], tmp_path, timeout_s=60, called="fetcher")


def test_bytes_that_are_no_text_do_not_hide_how_a_program_ended(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"fetcher ended with code 3: .*end"):
        run_program(["sh", "-c", r"printf '\377\376 end'; exit 3"], tmp_path, timeout_s=60, called="fetcher")
    run_program(["sh", "-c", r"printf '\377'"], tmp_path, timeout_s=60, called="fetcher")


def test_what_takes_too_long_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="fetcher took longer than 1 s"):
        run_program(["sh", "-c", "sleep 600 & echo $! > child; wait"], tmp_path, timeout_s=1.0, called="fetcher")
    stat = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    ended = time.monotonic() + 30
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < ended
        time.sleep(0.01)


def test_only_old_temporary_folders_are_swept(tmp_path: Path) -> None:
    for name in (f"{TEMPORARY}old", f"{TEMPORARY}new", "other"):
        (tmp_path / name).mkdir()
    for name in (f"{TEMPORARY}old", "other"):
        os.utime(tmp_path / name, (1, 1))
    sweep(tmp_path)
    sweep(tmp_path / "nowhere")
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"{TEMPORARY}new", "other"]
