"""``predict_to``: predictions written partition by partition, so that an interrupted call can be resumed."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import dask
import numpy as np
from dask import delayed
from dask.tokenize import tokenize

from dask_train.arguments import check_flags
from dask_train.cards import Card, CardMixin
from dask_train.cluster.gathered import counting, gathered, gathered_later
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.cluster.sealed import Sealed
from dask_train.collections.frames import delayed_partitions
from dask_train.collections.identity import identity
from dask_train.collections.partition.form import is_name
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.compat.dask import meta_of
from dask_train.data.structure import leaves
from dask_train.driver.result import leave_result
from dask_train.input_errors import raises_at_the_call
from dask_train.predicting.api import PredictSettings, Prepared, prepared
from dask_train.predicting.folder import RECORD_FORMAT, Folder, write_part
from dask_train.predicting.sent_models import until_kept
from dask_train.report.parts_progress import PartsDisplay
from dask_train.report.progress import check_progress
from dask_train.spelling import named
from dask_train.stores import checked_options, place_anywhere

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


@dataclass(frozen=True, kw_only=True, repr=False)
class PredictedFiles(CardMixin):
    """Result of :func:`predict_to`: the files that hold the predictions.

    Attributes
    ----------
    path
        The absolute path or the URL of the folder.
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

    def _card(self) -> Card:
        facts = [
            ("kind", self.kind),
            ("rows", f"{self.num_rows:,}"),
            ("parts", f"{self.num_parts:,}"),
            ("written", f"{self.num_written:,} by this call"),
        ]
        return Card(kind="PredictedFiles", name=self.path, facts=facts, one_line=True)


@raises_at_the_call
@frees_its_thread
def predict_to(  # noqa: PLR0913 - what predict takes, and ours
    path: str | os.PathLike[str],
    model: Any,
    x: Any,
    *,
    batch_size: int = 256,
    features: Any = None,
    method: str | None = None,
    columns: Sequence[str] | str | None = None,
    meta: Any = None,
    schema: FrameSchema | str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | None = None,
    progress: bool | None = None,
) -> PredictedFiles:
    """Write predictions of all rows, one file per partition; called again, write the files that are missing.

    Parameters
    ----------
    path
        A folder or URL that all Dask workers can write to, of any file system of fsspec. A relative path is below the
        working directory of this process. A frame gives Parquet files ``part-00000.parquet`` with its index, which
        ``dask.dataframe.read_parquet(path)`` reads. Arrays give one Zarr array where the path ends with ``.zarr``, for
        which rows are cut evenly; else files ``part-00000.npy``, or ``.npz`` of models with several outputs.
    model, x, batch_size, features, method, columns, meta, schema, client
        As :func:`~dask_train.predict` takes them, with the same defaults: 256 rows per batch, and what the model knows.
    overwrite
        Begin anew: predictions that are there are removed first, of whatever they are, and no other file. A folder
        with files and without predictions raises an error in any case. Default: False.
    storage_options
        Keywords for the file system of fsspec, such as credentials, as Dask's ``read_parquet`` takes them: for
        ``path``, and for the model and the schema where these are URLs of the same store. Never shown. Default: what
        the environment of each process says.
    progress
        Show how many partitions are written, those of earlier calls among them. Default: in terminals and
        notebooks; elsewhere, as in a log file, a line after 10 seconds and then one a minute. True writes one every 10
        seconds there.

    Returns
    -------
    PredictedFiles
        An awaitable of it with an asynchronous client.

    Raises
    ------
    TypeError, ValueError
        The model, the data or an argument is invalid; or the folder has predictions of another model, of other data or
        of other arguments, or other files; or it can't be written to. Nothing has been computed.
    PredictionError, StalledError
        A partition can't be predicted or written. The others that were written by then stay, and count when it is
        called again.
    KeyboardInterrupt
        Ctrl-C: parts that are written stay as well. What there is then is the exception's attribute ``result``.

    Notes
    -----
    A part is there as a whole or not at all: on local file systems it is renamed into place, elsewhere it is put as one
    object. ``_dask_train/record.json`` describes the predictions, and ``_dask_train/done`` has a file for each
    part that is complete, with the number of its rows in its name. The data is known by its layout (numbers of
    partitions and rows, dtypes, divisions) and its Dask token, which identifies how it is made: contents of NumPy
    arrays and frames of pandas, times and sizes of Parquet files and of those that :func:`~dask_train.files` and the
    like have listed, but only the path of any other file. Data that is made of generators without a seed, or of delayed
    functions that are not ``pure=True``, has another token each time, so it can be resumed only in the session where it
    was begun. Where files have changed under the same path, pass ``overwrite=True``.

    Examples
    --------
    >>> dt.predict_to("s3://bucket/scores", model, frame)
    >>> dask.dataframe.read_parquet("s3://bucket/scores")
    """
    settings = PredictSettings.of(dict(locals()))
    path, client = _checked_path(path), settings.client
    check_flags(overwrite=overwrite)
    check_progress(progress, waits=client is None or not client.asynchronous)
    options = checked_options(storage_options, path=path, model=model, schema=schema)
    ready = prepared(model, x, settings, options, compiled=False)
    arguments = {
        "batch_size": batch_size,
        "features": _plain(features),
        "method": method,
        "columns": columns if columns is None or isinstance(columns, str) else list(columns),
    }
    kind, layout = _kind(path, ready), _layout(ready)
    record = {
        "format": RECORD_FORMAT,
        "kind": kind,
        "model": ready.value.token,
        "arguments": arguments,
        "data": layout,
        "token": _token(ready),
        "schema": None if ready.schema is None or ready.inputs.frame is None else ready.schema.digest,
    }
    if differences := ready.value.settings.differences():  # the model's token has them, and names none
        record["settings"] = [list(each) for each in differences]
    folder = Folder(path, options).claim(record, overwrite=overwrite)
    target, there = Target(folder=folder, kind=kind, layout=layout), folder.done(kind)
    if client is not None and client.asynchronous:
        later: Any = _later(client, ready.lazy(client), target, there)
        return cast(PredictedFiles, later)  # an awaitable, as of Dask's own verbs with such a client

    def written() -> Sequence[int]:
        done = folder.done(kind)  # also what was written before a model was lost
        todo = target.todo(ready.lazy(client), done)
        new = _written(client, todo, target.rows_left(done), len(done), progress)
        return [*(done[number] for number in done if number not in there), *new]

    try:
        rows = until_kept(written)
    except BaseException as error:
        with suppress(Exception):  # where even that can't be read, the first error counts
            now = target.folder.done(kind)
            leave_result(error, target.finish(there, [now[number] for number in now if number not in there]))
        raise
    return target.finish(there, rows)


def _written(
    client: Client | None, todo: list[Any], left: list[int] | None, num_there: int, progress: bool | None
) -> Sequence[int]:
    """Write the parts that are left, and show how many there are; the numbers of their rows."""
    with PartsDisplay(progress, what="predicting", rows=left, num_there=num_there) as display:

        def show(written: Collection[int]) -> None:
            display.done(written, len(todo))

        show(())
        if client is None:
            with counting([part.key for part in todo], show):
                rows: Sequence[int] = dask.compute(*todo, scheduler="threads")
            return rows
        if not display.shown:
            return cast(Sequence[int], gathered(client, todo))
        return cast(Sequence[int], gathered(client, delayed(todo), parts=todo, watch=show))


async def _later(client: Client, lazy: Any, target: Target, there: dict[int, int]) -> PredictedFiles:
    return target.finish(there, await gathered_later(client, target.todo(await lazy, there)))


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where predictions go, and what they are.

    Attributes
    ----------
    folder
        The place, claimed.
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

    def todo(self, lazy: Any, there: Mapping[int, int]) -> list[Any]:
        """Return a delayed number of rows for each part that is still to be written."""
        outputs = [lazy] if hasattr(lazy, "to_delayed") else leaves(lazy)
        missing = [number for number in range(self.num_parts) if number not in there]
        blocks = [_blocks(output) for output in outputs]
        starts = np.cumsum([0, *self.layout["rows"]]) if self.layout["rows"] else None
        write = delayed(Sealed(partial(write_part, self.folder, self.kind, names_of(lazy))), pure=False)
        return [
            write(
                number,
                int(starts[number]) if starts is not None else 0,
                *(block[number] for block in blocks),
            )
            for number in missing
        ]

    def rows_left(self, there: Mapping[int, int]) -> list[int] | None:
        """Return rows of each part that is still to be written, where they are known."""
        rows = self.layout["rows"]
        return None if rows is None else [count for number, count in enumerate(rows) if number not in there]

    def finish(self, there: dict[int, int], rows: Sequence[int]) -> PredictedFiles:
        """Return what there is now."""
        return PredictedFiles(
            path=self.folder.path,
            kind=self.kind,
            num_parts=self.num_parts,
            num_rows=sum(there.values()) + sum(rows),
            num_written=len(rows),
        )


def _blocks(output: Any) -> Any:
    """Return one delayed block per partition."""
    return delayed_partitions(output) if hasattr(output, "simplify") else np.ravel(output.to_delayed())


def names_of(lazy: Any) -> list[str] | None:
    """Return the names of several outputs in a file; None for one."""
    if hasattr(lazy, "to_delayed"):
        return None
    several = leaves(lazy)
    if isinstance(lazy, Mapping) and len(lazy) == len(several):
        return list(map(str, lazy))
    return [f"output_{number}" for number in range(len(several))]


def _plain(features: Any) -> Any:
    if isinstance(features, Mapping):
        return {str(name): _plain(below) for name, below in features.items()}
    return features if features is None or is_name(features) else list(features)


def _checked_path(path: Any) -> str:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{named('path')} is {path!r}; pass the path or URL of a folder.")
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise ValueError(f"{named('path')} is {text!r}; pass the path or URL of a folder.")
    return place_anywhere(text)


def _kind(path: str, ready: Prepared) -> str:
    zarr = path.rstrip("/").endswith(".zarr")
    if ready.inputs.frame is not None:
        if zarr:
            raise ValueError(f"{path} would be a Zarr array, and a frame's predictions are Parquet. Take another name.")
        return "parquet"
    if any(np.dtype(column.dtype).hasobject for column in ready.call.outputs):
        raise ValueError(
            f"The model makes objects, or text of a length that sample rows don't tell, which {path} has no place for. "
            "Pass meta= with the dtype, such as np.empty(0, '<U20'); or a frame for x, which gives Parquet."
        )
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
    layout: dict[str, Any] = {"outputs": [[column.dtype, list(column.row_shape)] for column in ready.call.outputs]}
    if frame is not None:
        divisions = list(map(str, frame.divisions)) if frame.known_divisions else None
        columns = [[str(name), str(dtype)] for name, dtype in _dtypes(frame)]
        return {**layout, "partitions": frame.npartitions, "rows": None, "divisions": divisions, "columns": columns}
    rows = inputs.arrays[0].chunks[0]
    known = None if any(np.isnan(rows)) else list(map(int, rows))
    arrays = [[column.dtype, list(column.row_shape)] for column in inputs.columns]
    inputs_by_place = ready.call.columns.features  # which array is which input
    return {**layout, "partitions": len(rows), "rows": known, "columns": arrays, "inputs": inputs_by_place}


def _token(ready: Prepared) -> str:
    inputs = ready.inputs
    return tokenize([identity(each) for each in ([inputs.frame] if inputs.frame is not None else inputs.arrays)])


def _dtypes(frame: Any) -> list[tuple[Any, Any]]:
    meta = meta_of(frame)
    return list(meta.dtypes.items()) if meta.ndim == 2 else [(meta.name, meta.dtype)]
