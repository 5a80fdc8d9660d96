"""``predict_to``: predictions written partition by partition, so that what was interrupted goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
from dask import delayed

from dask_train.cluster.models import client_or_none
from dask_train.fit_roles.layout import leaves
from dask_train.predicting import Prepared, prepared
from dask_train.prediction.folder import RECORD_FORMAT, Folder, write_part

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, kw_only=True)
class PredictedFiles:
    """What :func:`predict_to` has written.

    Attributes
    ----------
    path
        The folder.
    kind
        ``"parquet"``, ``"zarr"``, ``"npy"``, or ``"npz"`` of several outputs.
    num_parts, num_rows
        Of the whole.
    num_written
        Parts that this call has computed; the others were there.
    """

    path: str
    kind: str
    num_parts: int
    num_rows: int
    num_written: int


def predict_to(  # noqa: PLR0913 - what predict takes, and ours
    path: str,
    model: Any,
    x: Any,
    *,
    batch_size: int = 256,
    features: str | Sequence[str] | None = None,
    method: str | None = None,
    columns: Sequence[str] | str | None = None,
    meta: Any = None,
    overwrite: bool = False,
    storage_options: dict[str, Any] | None = None,
    client: Client | None = None,
) -> Any:
    """Write what a model says of each row, one file a partition; called again, go on with those that are missing.

    Parameters
    ----------
    path
        A folder or URL that all Dask workers can write to, of any file system of fsspec. A frame gives Parquet files
        ``part-00000.parquet`` with its index, which ``dask.dataframe.read_parquet(path)`` reads. Arrays give one Zarr
        array where the path ends with ``.zarr``, for which rows are cut evenly; else files ``part-00000.npy``, or
        ``.npz`` of models with several outputs.
    model, x, batch_size, features, method, columns, meta, client
        As :func:`~dask_train.predict` takes them.
    overwrite
        Begin anew where there are predictions of something else, which are removed first. A folder with files and
        without predictions is refused in any case.
    storage_options
        For the file system.

    Returns
    -------
    PredictedFiles
        An awaitable of it with an asynchronous client.

    Raises
    ------
    TypeError, ValueError
        The model, the data or an argument can't be; or the folder has predictions of another model, of data of another
        layout, or of other arguments, or files of somebody else. Nothing has been computed.
    PredictionError, StalledError
        A partition can't be predicted. The others that were written by then stay, and count when it is called again.

    Notes
    -----
    A part is there as a whole or not at all: on local file systems it is renamed into place, elsewhere it is put as
    one object. ``_dask_train/record.json`` tells what the predictions are of, and ``_dask_train/done`` has a file for
    each part that is complete, with the number of its rows in its name. The data is known by its layout (numbers of
    partitions and rows, dtypes, divisions), not by its content.
    """
    client = client_or_none(client)
    ready = prepared(
        model,
        x,
        batch_size=batch_size,
        features=features,
        method=method,
        columns=columns,
        meta=meta,
        client=client,
    )
    arguments = {
        "batch_size": batch_size,
        "features": features if features is None or isinstance(features, str) else list(features),
        "method": method,
        "columns": columns if columns is None or isinstance(columns, str) else list(columns),
    }
    target = Target(folder=Folder(path, storage_options), kind=_kind(path, ready), layout=_layout(ready))
    there = target.begin({"model": ready.value.token, "arguments": arguments}, overwrite=overwrite)
    lazy = ready.lazy(client)
    if client is None:
        return target.finish(there, dask.compute(*target.todo(lazy, there), scheduler="threads"))
    if client.asynchronous:
        return _later(client, lazy, target, there)
    return target.finish(there, client.gather(client.compute(target.todo(lazy, there))))


async def _later(client: Client, lazy: Any, target: Target, there: dict[int, int]) -> PredictedFiles:
    futures = client.compute(target.todo(await lazy, there))
    return target.finish(there, await client.gather(futures))


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where predictions go, and what they are.

    Attributes
    ----------
    folder
        The place.
    kind
        As :class:`PredictedFiles` has it.
    layout
        What tells the data, as JSON holds it.
    """

    folder: Folder
    kind: str
    layout: dict[str, Any]

    @property
    def num_parts(self) -> int:
        """Partitions of the data."""
        return int(self.layout["partitions"])

    def begin(self, told: dict[str, Any], *, overwrite: bool) -> dict[int, int]:
        """See that what is there is of the same prediction, or begin; rows of the parts that are complete, by number.

        Raises
        ------
        ValueError
            There is something else.
        """
        record = {"format": RECORD_FORMAT, "kind": self.kind, **told, "data": self.layout}
        if self.folder.claim(record, overwrite=overwrite) and self.kind == "zarr":
            self.folder.make_zarr(self.layout)
        return self.folder.done()

    def todo(self, lazy: Any, there: Mapping[int, int]) -> list[Any]:
        """A delayed number of rows for each part that is still to be written."""
        outputs = [lazy] if hasattr(lazy, "to_delayed") else leaves(lazy)
        missing = [number for number in range(self.num_parts) if number not in there]
        blocks = [np.ravel(output.to_delayed()) for output in outputs]
        starts = np.cumsum([0, *self.layout["rows"]]) if self.layout["rows"] else None
        write = delayed(write_part, pure=False)
        return [
            write(
                self.folder,
                self.kind,
                number,
                int(starts[number]) if starts is not None else 0,
                names_of(lazy),
                *(block[number] for block in blocks),
            )
            for number in missing
        ]

    def finish(self, there: dict[int, int], rows: Sequence[int]) -> PredictedFiles:
        """What there is now."""
        return PredictedFiles(
            path=self.folder.path,
            kind=self.kind,
            num_parts=self.num_parts,
            num_rows=sum(there.values()) + sum(rows),
            num_written=len(rows),
        )


def names_of(lazy: Any) -> list[str] | None:
    """The names of several outputs in a file; None for one."""
    if hasattr(lazy, "to_delayed"):
        return None
    several = leaves(lazy)
    if isinstance(lazy, Mapping) and len(lazy) == len(several):
        return list(map(str, lazy))
    return [f"output_{number}" for number in range(len(several))]


def _kind(path: str, ready: Prepared) -> str:
    zarr = path.rstrip("/").endswith(".zarr")
    if ready.inputs.frame is not None:
        if zarr:
            raise ValueError(f"{path} would be a Zarr array, and a frame's predictions are Parquet. Take another name.")
        return "parquet"
    if len(ready.call.outputs) > 1:
        if zarr:
            raise ValueError(
                f"{path} would be one Zarr array, and the model makes {len(ready.call.outputs)} of each row. Take "
                "another name, and get .npz files; or use dt.predict and to_zarr of each."
            )
        return "npz"
    if not zarr:
        return "npy"
    rows = ready.inputs.arrays[0].chunks[0]
    if any(np.isnan(rows)) or len({*rows[:-1]}) > 1 or rows[-1] > rows[0]:
        raise ValueError(
            f"{path} would be a Zarr array, which is cut evenly, and the rows are cut into "
            f"{', '.join(map(str, rows[:6]))}{', ...' if len(rows) > 6 else ''}. Call compute_chunk_sizes() where they "
            "are not known and x.rechunk({0: n}); or take a name without .zarr, and get .npy files."
        )
    return "zarr"


def _layout(ready: Prepared) -> dict[str, Any]:
    inputs, frame = ready.inputs, ready.inputs.frame
    found: dict[str, Any] = {"outputs": [[column.dtype, list(column.row_shape)] for column in ready.call.outputs]}
    if frame is not None:
        divisions = list(map(str, frame.divisions)) if frame.known_divisions else None
        columns = [[str(name), str(dtype)] for name, dtype in _dtypes(frame)]
        return {**found, "partitions": frame.npartitions, "rows": None, "divisions": divisions, "columns": columns}
    rows = inputs.arrays[0].chunks[0]
    known = None if any(np.isnan(rows)) else list(map(int, rows))
    arrays = [[column.dtype, list(column.row_shape)] for column in inputs.columns]
    return {**found, "partitions": len(rows), "rows": known, "columns": arrays}


def _dtypes(frame: Any) -> list[tuple[Any, Any]]:
    meta = frame._meta
    return list(meta.dtypes.items()) if meta.ndim == 2 else [(meta.name, meta.dtype)]
