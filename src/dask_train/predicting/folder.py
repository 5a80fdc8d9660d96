"""A folder of predictions: what it is of, which parts are complete, and how one is written; on any file system."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dask_train.errors import PredictionError
from dask_train.masking import shows_no_secrets
from dask_train.spelling import passed
from dask_train.stores import is_local, open_store, trouble_of

RECORD_FORMAT = 3

# Not read by readers of the folder: those of Parquet leave out what begins with "_".
_OURS = "_dask_train"
# What a file is called that tells that a part is complete, and under which claim it was written.
_DONE = re.compile(r"(?P<number>\d+)-(?P<rows>\d+)(-(?P<claim>[0-9a-f]+))?")
# A file of ours on its way, which a process that was killed has left.
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{32}\.partial")


@shows_no_secrets
@dataclass(frozen=True)
class Folder:
    """A folder of predictions, written part by part.

    Parameters
    ----------
    path
        A path or URL.
    storage_options
        For its file system; not in the ``repr``.
    claim_id
        Distinguishes the predictions that are written now from any that were before; of :meth:`claim`.
    """

    path: str
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    claim_id: str = ""

    def _opened(self) -> tuple[Any, str]:
        fs, path = open_store(self.path, self.storage_options)
        fs.invalidate_cache()
        return fs, path.rstrip("/")

    def claim(self, record: dict[str, Any], *, overwrite: bool) -> Folder:
        """Write down what is to be here, or find that it is: the folder for its parts.

        Parameters
        ----------
        record
            What the predictions are of: ``kind``, ``data``, and more.
        overwrite
            Begin anew in any case; parts that are there are removed, and no other file.

        Raises
        ------
        ValueError
            There is something else, or it can't be written to.
        """
        with self._reached():
            fs, path = self._opened()
        before = self._before(fs, path)
        wanted = json.loads(json.dumps(record))
        if before is not None and not overwrite:
            self._check_same(before, wanted)
            if wanted["kind"] != "zarr" or fs.exists(f"{path}/zarr.json"):
                return replace(self, claim_id=before["claim"])
        claimed = replace(self, claim_id=uuid.uuid4().hex)
        with self._reached():
            if before is not None:
                _remove_parts(fs, path, before)
            fs.makedirs(f"{path}/{_OURS}/done", exist_ok=True)
            content = json.dumps({**wanted, "claim": claimed.claim_id}, indent=1)
            put(fs, f"{path}/{_OURS}/record.json", content.encode())
            if wanted["kind"] == "zarr":
                self._make_zarr(wanted["data"])
        return claimed

    def _before(self, fs: Any, path: str) -> Any:
        """Return the record that is there; None for a folder that is empty, or not there yet."""
        place = f"{path}/{_OURS}/record.json"
        with self._reached():
            is_file = fs.isfile(path)
            others = set() if is_file else _names(fs, path) - {_OURS}
            data = fs.cat_file(place) if fs.exists(place) else None
        if is_file:
            raise ValueError(f"{passed('path', self.path)} is a file. Name a folder, or one that is not there yet.")
        if data is None and others:
            # Also if it may overwrite: what has no record must not be removed.
            raise ValueError(
                f"{self.path} has files, and no record of predictions. Take another path, or remove them first."
            )
        try:
            return None if data is None else json.loads(data)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"The record of predictions in {self.path} can't be read ({error}), so what is there is not known. "
                "Take another path, or remove the folder."
            ) from error

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Say of errors of file systems, which are of many kinds, what could not be reached."""
        try:
            yield
        except Exception as error:
            trouble = trouble_of(error, self.path, self.storage_options)
            explanation = " ".join(filter(None, [f"{trouble.why}.", trouble.cause, trouble.change]))
            raise ValueError(f"{passed('path', self.path)} can't be written to from here: {explanation}") from error

    def _check_same(self, before: dict[str, Any], wanted: dict[str, Any]) -> None:
        differing = [name for name in wanted if before.get(name) != wanted[name]]
        if not differing:
            return
        each = (f"{name} {_short(before.get(name))} there, {_short(wanted[name])} here" for name in differing)
        unnamed = (
            " The token says how the data is made; that of generators without a seed, and of delayed functions that "
            "are not pure=True, is another in each session."
            if "token" in differing
            else ""
        )
        raise ValueError(
            f"{self.path} has predictions of something else ({'; '.join(each)}).{unnamed} Pass model and data as "
            f"before, take another path, or pass {passed('overwrite', True)} to remove them."
        )

    def done(self, kind: str) -> dict[int, int]:
        """Return rows of the parts that are complete, by the part's number."""
        fs, path = self._opened()
        matches = filter(None, map(_DONE.fullmatch, _names(fs, f"{path}/{_OURS}/done")))  # none that is being written
        rows = {int(each["number"]): int(each["rows"]) for each in matches if each["claim"] == self.claim_id}
        there = _names(fs, path)
        fs.invalidate_cache()  # others write now, and later reads here get the same file system of fsspec
        if kind == "zarr":  # which keeps no chunk of zeros
            return rows
        return {number: num_rows for number, num_rows in rows.items() if part_name(number, kind) in there}

    def _make_zarr(self, layout: dict[str, Any]) -> None:
        """Make an array of Zarr's without values yet, a chunk for each partition."""
        import zarr

        ((dtype, row_shape),) = layout["outputs"]
        rows = layout["rows"]
        zarr.create_array(
            self._store(),
            shape=(sum(rows), *row_shape),
            chunks=(max(1, rows[0]), *(max(1, size) for size in row_shape)),
            dtype=np.dtype(dtype),
            zarr_format=3,
            storage_options=self._store_options(),
        )

    def _store(self) -> str:
        fs, path = self._opened()
        return path if is_local(fs) else self.path

    def _store_options(self) -> dict[str, Any] | None:
        fs, _ = self._opened()
        return None if is_local(fs) else self.storage_options or {}

    def write(self, kind: str, number: int, start: int, names: list[str] | None, values: tuple[Any, ...]) -> int:
        """Write a part, and then that it is complete; the number of its rows.

        Raises
        ------
        PredictionError
            The folder is not what was claimed, or can't be written to from here.
        """
        data = b"" if kind == "zarr" else _encoded(kind, names, values)
        num_rows = len(values[0])
        try:
            fs, path = self._opened()
            self._check_claim(fs, path)
            if kind == "zarr":
                self._write_rows(start, values[0])
            else:
                put(fs, f"{path}/{part_name(number, kind)}", data)
            put(fs, f"{path}/{_OURS}/done/{number:05}-{num_rows}-{self.claim_id}", b"")
        except PredictionError:
            raise
        except Exception as error:  # whatever the store's package raises
            trouble = trouble_of(error, self.path, self.storage_options)
            raise PredictionError(
                f"Part {number} can't be written to {self.path} on host {socket.gethostname()}: {trouble.why}.",
                trouble.cause,
                f"{trouble.change} Then call it again: parts that are complete stay.",
            ) from error
        return num_rows

    def _check_claim(self, fs: Any, path: str) -> None:
        """Check that no other call has begun here since, and that this process sees the folder that the client sees."""
        place = f"{path}/{_OURS}/record.json"
        current_claim = json.loads(fs.cat_file(place)).get("claim") if fs.exists(place) else None
        if current_claim == self.claim_id:
            return
        if current_claim is None:
            raise PredictionError(
                f"{self.path} on host {socket.gethostname()} is not the folder that the client has made.",
                "It is of that host, or of that process, alone.",
                "Name a folder on a shared file system, or a URL.",
            )
        raise PredictionError(
            f"{self.path} is being written by another call of dask_train.predict_to, which began after this one.",
            change="Let one of them write there; take another path for the other.",
        )

    def _write_rows(self, start: int, rows: Any) -> None:
        import zarr

        array = zarr.open_array(self._store(), mode="r+", storage_options=self._store_options())
        array[start : start + len(rows)] = rows


def write_part(folder: Folder, kind: str, names: list[str] | None, number: int, start: int, *values: Any) -> int:
    """Return the task that writes a part; see :meth:`Folder.write`."""
    return folder.write(kind, number, start, names, values)


def part_name(number: int, kind: str) -> str:
    """Return what the file of a part is called."""
    return f"part-{number:05}.{kind}"


def _remove_parts(fs: Any, path: str, record: dict[str, Any]) -> None:
    """Remove what was written for a record; marks first, so that a part without its mark is all that may stay."""
    marks = f"{path}/{_OURS}/done"
    numbers = range(int(record["data"]["partitions"]))
    if record["kind"] == "zarr":
        axes = "/0" * len(record["data"]["outputs"][0][1])
        ours = {"zarr.json", *(f"c/{number}{axes}" for number in numbers)}
        there = {name[len(path) + 1 :] for name in fs.find(path)} if fs.exists(path) else set()
    else:
        ours = {part_name(number, record["kind"]) for number in numbers}
        there = _names(fs, path)
    partial = {name for name in there if _PARTIAL.fullmatch(name)}
    for folder, names in (
        (marks, {name for name in _names(fs, marks) if _DONE.fullmatch(name) or _PARTIAL.fullmatch(name)}),
        (path, there & ours | partial),
    ):
        if names:
            fs.rm([f"{folder}/{name}" for name in sorted(names)])


def _names(fs: Any, path: str) -> set[str]:
    """Return what lies in a folder; nothing if there is none."""
    if not fs.exists(path):
        return set()
    return {name.rstrip("/").rpartition("/")[2] for name in fs.ls(path, detail=False)}


def put(fs: Any, path: str, data: bytes) -> None:
    """Write a file so that it is there as a whole or not at all, also after a power cut."""
    if not is_local(fs):
        fs.pipe_file(path, data)  # one object, or one file of a file system in memory
        return
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.partial"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # that of the write is the one to tell
            os.remove(temporary)
        raise
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encoded(kind: str, names: list[str] | None, values: tuple[Any, ...]) -> bytes:
    data = io.BytesIO()
    if kind == "parquet":
        (table,) = values
        # Parquet has no columns that are called by numbers.
        table = table.to_frame() if table.ndim == 1 else table.rename(columns=str)
        table.to_parquet(data, index=True)  # pandas would put a range into metadata alone, which Dask does not read
    elif names is None:
        np.save(data, values[0], allow_pickle=False)
    else:
        with zipfile.ZipFile(data, "w") as parts:  # np.savez has arguments of its own, which outputs may be called like
            for name, value in zip(names, values, strict=True):
                with parts.open(f"{name}.npy", "w", force_zip64=True) as part:
                    np.lib.format.write_array(part, np.asanyarray(value), allow_pickle=False)
    return data.getvalue()


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:120]}..."
