"""A folder of predictions: what it is of, which parts are complete, and how one is written; on any file system."""

from __future__ import annotations

import io
import json
import os
import re
import uuid
from dataclasses import dataclass
from typing import Any

import fsspec  # type: ignore[import-untyped]
import numpy as np

RECORD_FORMAT = 1

# Not read by those who read the folder: readers of Parquet leave out what begins with "_".
_OURS = "_dask_train"
# What a file is called that tells that a part is complete.
_DONE = re.compile(r"(?P<number>\d+)-(?P<rows>\d+)")


@dataclass(frozen=True)
class Folder:
    """See the module.

    Parameters
    ----------
    path
        A path or URL.
    storage_options
        For its file system.
    """

    path: str
    storage_options: dict[str, Any] | None = None

    def _opened(self) -> tuple[Any, str]:
        fs, path = fsspec.core.url_to_fs(self.path, **self.storage_options or {})
        return fs, path.rstrip("/")

    def claim(self, record: dict[str, Any], *, overwrite: bool) -> bool:
        """Write down what is to be here; whether it is new.

        Raises
        ------
        ValueError
            There is something else.
        """
        fs, path = self._opened()
        place = f"{path}/{_OURS}/record.json"
        before = json.loads(fs.cat_file(place)) if fs.exists(place) else None
        wanted = json.loads(json.dumps(record))
        if before == wanted:
            return False
        if before is None:
            self._refuse_files_of_others(fs, path)
        elif not overwrite:
            self._refuse(before, wanted)
        else:
            fs.rm(path, recursive=True)
        fs.makedirs(f"{path}/{_OURS}/done", exist_ok=True)
        put(fs, place, json.dumps(record, indent=1).encode())
        return True

    def _refuse(self, before: Any, wanted: dict[str, Any]) -> None:
        differing = "; ".join(
            f"{name} {_short(before.get(name))} there, {_short(wanted[name])} here"
            for name in wanted
            if before.get(name) != wanted[name]
        )
        raise ValueError(
            f"{self.path} has predictions of something else ({differing}). Go on with what they are of, take "
            "another path, or pass overwrite=True to remove them."
        )

    def _refuse_files_of_others(self, fs: Any, path: str) -> None:
        """Also where it may overwrite: what has no record is nobody's to remove."""
        names = [name.rstrip("/").rpartition("/")[2] for name in (fs.ls(path, detail=False) if fs.exists(path) else [])]
        if set(names) - {_OURS}:
            raise ValueError(
                f"{self.path} has files, and no record of predictions. Take another path, or remove them first."
            )

    def done(self) -> dict[int, int]:
        """Rows of the parts that are complete, by the part's number."""
        fs, path = self._opened()
        place = f"{path}/{_OURS}/done"
        fs.invalidate_cache()
        names = [name.rpartition("/")[2] for name in fs.ls(place, detail=False)] if fs.exists(place) else []
        complete = filter(None, map(_DONE.fullmatch, names))  # not a file that is being written
        return {int(match["number"]): int(match["rows"]) for match in complete}

    def make_zarr(self, layout: dict[str, Any]) -> None:
        """An array of Zarr's without values yet, a chunk for each partition."""
        import zarr

        ((dtype, row_shape),) = layout["outputs"]
        rows = layout["rows"]
        zarr.create_array(
            self._store(),
            shape=(sum(rows), *row_shape),
            chunks=(max(1, rows[0]), *(max(1, size) for size in row_shape)),
            dtype=np.dtype(dtype),
            storage_options=self._store_options(),
        )

    def _store(self) -> str:
        fs, path = self._opened()
        return path if _is_local(fs) else self.path

    def _store_options(self) -> dict[str, Any] | None:
        fs, _ = self._opened()
        return None if _is_local(fs) else self.storage_options or {}

    def write(self, kind: str, number: int, start: int, names: list[str] | None, values: tuple[Any, ...]) -> int:
        """Write a part, and then that it is complete; the number of its rows."""
        fs, path = self._opened()
        num_rows = len(values[0])
        if kind == "zarr":
            import zarr

            array = zarr.open_array(self._store(), mode="r+", storage_options=self._store_options())
            array[start : start + num_rows] = values[0]
        else:
            put(fs, f"{path}/part-{number:05}.{kind}", _encoded(kind, names, values))
        put(fs, f"{path}/{_OURS}/done/{number:05}-{num_rows}", b"")
        return num_rows


def write_part(folder: Folder, kind: str, number: int, start: int, names: list[str] | None, *values: Any) -> int:
    """The task that writes a part; see :meth:`Folder.write`."""
    return folder.write(kind, number, start, names, values)


def put(fs: Any, path: str, data: bytes) -> None:
    """Write a file so that it is there as a whole or not at all."""
    if not _is_local(fs):
        fs.pipe_file(path, data)  # one object, or one file of a file system in memory
        return
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise


def _is_local(fs: Any) -> bool:
    return "file" in (fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,))


def _encoded(kind: str, names: list[str] | None, values: tuple[Any, ...]) -> bytes:
    data = io.BytesIO()
    if kind == "parquet":
        (table,) = values
        (table.to_frame() if table.ndim == 1 else _with_text_names(table)).to_parquet(data)
    elif names is None:
        np.save(data, values[0], allow_pickle=False)
    else:
        np.savez(data, **dict(zip(names, values, strict=True)))
    return data.getvalue()


def _with_text_names(table: Any) -> Any:
    """Parquet has no columns that are called by numbers."""
    return table.rename(columns=str)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:120]}..."
