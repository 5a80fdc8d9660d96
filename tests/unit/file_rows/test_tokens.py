"""Decoded rows of the same files are known again, in another process too, and others are not taken for them."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.bag as db
import numpy as np
import pytest

import dask_train as dt

# Functions of a script travel by value.
SCRIPT = """
import sys
import numpy as np
import dask_train as dt

SCALE = 2

def decode(content):
    return np.frombuffer(content, np.uint8) * SCALE

def label(sample):
    return len(sample) + SCALE

folder = sys.argv[1]
print(dt.files(f"{folder}/*.bin", decode=decode).to_dask().name)
for rows in dt.tars(f"{folder}/*.tar", features="bin", decode=decode, label=label).to_dask():
    print(rows.name)
for rows in dt.tfrecords(f"{folder}/*.tfrecord", features="x", label="y").to_dask():
    print(rows.name)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        (tmp_path / f"{number}.bin").write_bytes(bytes([number, 1]))
    with tarfile.open(tmp_path / "0.tar", "w") as archive:
        for number in range(3):
            archive.add(tmp_path / f"{number}.bin", f"{number}.bin")
    with dask.config.set(scheduler="synchronous"):
        dt.to_tfrecords(tmp_path, db.from_sequence([{"x": [1.0, 2.0], "y": 0}] * 3, npartitions=2))
    return tmp_path


def test_rows_have_the_same_names_in_another_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["script", str(folder)])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(SCRIPT, "script", "exec", dont_inherit=True), {"__name__": "__main__"})  # noqa: S102 - ours
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    elsewhere = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert elsewhere.stdout == printed.getvalue()
    assert len({*elsewhere.stdout.split()}) == 5


def times(factor: int, content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8) * factor


def name(rows: Any) -> str:
    several = rows.to_dask()
    return str(getattr(several, "name", None) or several[0].name)


def files(folder: Path, wildcard: str = "*.bin", factor: int = 2, **settings: Any) -> dt.FileRows:
    return dt.files(folder / wildcard, decode=partial(times, factor), **settings)


def archives(folder: Path, factor: int = 2, **settings: Any) -> dt.RecordRows:
    return dt.tars(folder / "*.tar", features="bin", decode=partial(times, factor), **settings)


def test_other_rows_have_other_names(folder: Path) -> None:
    rows = files(folder)
    several = [
        *(rows, rows[:2], rows[1:], rows[[1, 0, 2]], files(folder, "0*.bin"), files(folder, factor=3)),
        *(files(folder, label=len), files(folder, label=lambda path: len(path) + 1)),
        *(archives(folder), archives(folder, factor=3)),
        *(archives(folder, label=len), archives(folder, label=lambda sample: len(sample) + 1)),
    ]
    assert len({*map(name, several)}) == len(several)
    assert (name(files(folder)), name(archives(folder))) == (name(rows), name(several[8]))


@pytest.mark.parametrize(("list_rows", "changed"), [(files, "1.bin"), (archives, "0.tar")])
def test_rows_of_a_file_that_has_changed_are_others(folder: Path, list_rows: Callable[..., Any], changed: str) -> None:
    before = name(list_rows(folder))
    os.utime(folder / changed, (1, 1))  # of the same size
    assert name(list_rows(folder)) != before


class OpenedOnce:
    """A function that can be opened where it is called, and not be taken apart again."""

    def __reduce__(self) -> Any:
        return opened, ()

    def __call__(self, content: bytes) -> np.ndarray:
        return np.frombuffer(content, np.uint8)


def opened() -> Callable[[bytes], np.ndarray]:
    lock = threading.Lock()

    def decode(content: bytes) -> np.ndarray:
        with lock:
            return np.frombuffer(content, np.uint8)

    return decode


@pytest.mark.parametrize("list_rows", [dt.files, partial(dt.tars, features="bin")])
def test_what_can_not_be_known_again_is_taken_for_nothing_else(folder: Path, list_rows: Callable[..., Any]) -> None:
    rows = list_rows(folder / ("*.bin" if list_rows is dt.files else "*.tar"), decode=OpenedOnce())
    assert name(rows) != name(rows)
    assert rows.to_dask().compute(scheduler="synchronous").tolist() == [[0, 1], [1, 1], [2, 1]]


def test_training_reads_under_other_keys_each_time(folder: Path) -> None:
    for rows in (files(folder), archives(folder)):
        first, second = (rows.source().delayed_parts(None, list) for _ in range(2))
        assert not {part.key for part in first} & {part.key for part in second}
