"""Files that hold many rows each, such as tars and TFRecords: a file is a partition, and batches are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO, Self

import numpy as np
from dask import delayed

from dask_train.collections.pickled import carried
from dask_train.collections.source import OwnRows, Source
from dask_train.data.columns import TEXT, Column
from dask_train.data.file_decoder import FILE_SHAPE, FileDecoder
from dask_train.errors import DataError, in_words
from dask_train.file_rows.first_row import augmented, first_row
from dask_train.file_rows.labels import RecordError
from dask_train.file_rows.reading import decodable, shown, unreadable
from dask_train.file_rows.tokens import rows_token


@dataclass(frozen=True, kw_only=True)
class RecordFiles:
    """Files of records, and how they are read; travels to the readers.

    Attributes
    ----------
    fs
        The fsspec file system.
    paths, stamps, nbytes
        Of each file, and what changes with it; and the bytes of all.
    read
        Given a file that is open, yields the name of each record within it, and the record.
    content
        Given a record, returns the bytes that are decoded for each batch.
    label
        Given a record, returns its label, a number or an array of numbers; None without labels.
    """

    fs: Any = field(repr=False)
    paths: tuple[str, ...] = field(repr=False)
    stamps: tuple[str, ...] = field(repr=False)
    nbytes: int
    read: Callable[[BinaryIO], Iterator[tuple[str, Any]]] = field(repr=False)
    content: Callable[[Any], bytes] = field(repr=False)
    label: Callable[[Any], Any] | None = field(repr=False)

    def rows(self, path: str) -> Iterator[tuple[str, bytes, np.ndarray | None]]:
        """Read a file: the name, the content and the label of each row.

        Raises
        ------
        DataError
            The file can't be read, is damaged, or a record lacks its content or label.
        """
        name = ""
        try:
            with self.fs.open(path, "rb") as file:
                for name, record in self.read(file):
                    label = None if self.label is None else as_label(self.label(record))
                    yield shown(f"{path}/{name}"), self.content(record), label
        except RecordError as error:
            raise DataError(f"Record {name!r} of {path!r} {error}.", change=error.change) from error.__cause__
        except DataError:
            raise
        except OSError as error:
            raise unreadable(self.fs, path, error) from error
        except Exception as error:
            after = f" after record {name!r}" if name else ""
            raise DataError(
                f"File {path!r} can't be read{after}: {in_words(error).rstrip('.')}.",
                "It is damaged, or of another format.",
                "Write it again, or leave it out.",
            ) from error


def as_label(value: Any) -> np.ndarray:
    """Return a label as an array of numbers; whole numbers are int64.

    Raises
    ------
    RecordError
        It is not one.
    """
    try:
        label = np.asarray(value)
    except ValueError:
        label = np.empty(0, object)
    if label.dtype.kind not in "biuf":
        raise RecordError(f"has the label {value!r}, which is no number", "Let label= return a number, or an array.")
    return label.astype(np.int64) if label.dtype.kind in "iu" else label


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordRows(OwnRows):
    """Rows of files that hold many each, made by :func:`dask_train.tars` and :func:`dask_train.tfrecords`.

    The number of rows is known once all files are read, which training and prediction do.

    Attributes
    ----------
    classes : tuple of str or None
        Names of the classes that labels number.
    """

    files: RecordFiles = field(repr=False)
    decoder: FileDecoder
    augmented: FileDecoder | None
    classes: tuple[str, ...] | None
    label: Column | None
    num_listed: int | None

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the path of each file, in the order of their rows."""
        return self.files.paths

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Return the shape of a decoded row."""
        return self.decoder.row_shape

    @property
    def dtype(self) -> np.dtype:
        """Return the dtype of decoded rows."""
        return np.dtype(self.decoder.dtype)

    def __repr__(self) -> str:
        """Return what the rows are, in a line."""
        description = f"<RecordRows: {len(self.paths):,} files, rows of {self.dtype} {self.row_shape}"
        return f"{description}, {len(self.classes)} classes>" if self.classes else f"{description}>"

    def to_dask(self) -> Any:
        """Return decoded rows as Dask arrays of unknown length, a block a file; nothing is read.

        Returns
        -------
        dask.array.Array, or a tuple of two
            Rows ``(n, *row_shape)``, and labels where there are some.

        Raises
        ------
        ValueError
            Records that can't be decoded are left out.
        """
        import dask.array as da

        if self.num_listed is not None:
            raise ValueError("Arrays of records with on_error='skip' would lack rows. Leave on_error out.")
        columns = [Column(dtype=self.decoder.dtype, row_shape=self.row_shape)]
        columns += [] if self.label is None else [self.label]
        task = partial(_decoded, self.files, self.decoder, columns)
        files = self.files
        # Of the same files and functions the same keys: dt.predict_to knows the rows again by them.
        how = (files.read, files.content, files.label, columns)
        parts = self._parts(task, rows_token(files.fs, self.decoder, files.paths, files.stamps, how))
        arrays = []
        for place, column in enumerate(columns):
            blocks = [
                da.from_delayed(part[place], (np.nan, *column.row_shape), np.dtype(column.dtype)) for part in parts
            ]
            arrays.append(da.concatenate(blocks, allow_unknown_chunksizes=True))
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    def _parts(self, task: Callable[[str], Any], token: str | None = None) -> list[Any]:
        make = delayed(carried(task), pure=False)
        keys = [None if token is None else f"decoded-rows-{token}-{number}" for number in range(len(self.paths))]
        return [make(path, dask_key_name=key) for path, key in zip(self.paths, keys, strict=True)]

    def source(self) -> Any:
        """Return the rows as processes of a run read them.

        Returns
        -------
        dask_train.collections.source.Source
            For dask-train's own use.
        """
        columns = [Column(dtype=TEXT, row_shape=FILE_SHAPE, decoder=self.augmented or self.decoder)]
        columns += [] if self.label is None else [self.label]
        return RecordsSource(
            names=None,
            is_tuple=self.label is not None,
            nbytes=self.files.nbytes,
            columns=tuple(columns),
            num_listed=self.num_listed,
            rows=self,
        )

    def not_augmented(self) -> Self:
        """Return the same rows without ``augment``.

        Returns
        -------
        RecordRows
            The same, where there is no ``augment``.
        """
        return replace(self, augmented=None)


@dataclass(frozen=True, kw_only=True)
class RecordsSource(Source):
    """Records whose rows are names and contents, with their labels; a file is a partition."""

    rows: RecordRows

    @property
    def persisted_nbytes(self) -> int | None:
        return 0

    def delayed_parts(self, part: Callable[..., Any], finish: Callable[[list[Any]], Any]) -> list[Any]:
        _ = part  # rows are what the records are: there is nothing to be picked
        skips = None if self.num_listed is None else self.rows.decoder
        task = partial(_stored, finish, self.rows.files, self.rows.label, skips)
        return self.rows._parts(task)


def _stored(
    finish: Callable[[list[Any]], Any], files: RecordFiles, label: Column | None, skips: FileDecoder | None, path: str
) -> Any:
    """Read a file, as rows lie in shared memory."""
    records = list(files.rows(path))
    rows = np.empty((len(records), *FILE_SHAPE), object)
    for number, (name, content, _) in enumerate(records):
        rows[number] = name, content
    labels = None if label is None else _labels(label, records)
    if skips is not None:
        good = decodable(skips, rows)
        rows, labels = rows[good], None if labels is None else labels[good]
    return finish([rows] if labels is None else [rows, labels])


def _decoded(files: RecordFiles, decoder: FileDecoder, columns: Sequence[Column], path: str) -> list[np.ndarray]:
    """Read a file, and decode its rows."""
    records, decode = list(files.rows(path)), decoder.opened()
    rows = np.empty((len(records), *decoder.row_shape), decoder.dtype)
    for number, (name, content, _) in enumerate(records):
        decode.into(rows[number, ...], name, content, np.random.default_rng)
    return [rows, *(_labels(column, records) for column in columns[1:])]


def _labels(column: Column, records: Sequence[tuple[str, bytes, np.ndarray | None]]) -> np.ndarray:
    labels = np.empty((len(records), *column.row_shape), column.dtype)
    for number, (name, _, label) in enumerate(records):
        assert label is not None
        if (label.dtype.str, label.shape) != (column.dtype, column.row_shape):
            raise DataError(
                f"The label of record {name!r} is {label.dtype} {label.shape}, and that of the first one is "
                f"{np.dtype(column.dtype)} {column.row_shape}.",
                "Labels of a batch need one shape and dtype.",
                "Let label= return the same of each.",
            )
        labels[number] = label
    return labels


def record_rows(
    files: RecordFiles,
    *,
    decode: Callable[[Any], Any],
    augment: Callable[..., Any] | None,
    classes: tuple[str, ...] | None,
    on_error: str,
) -> RecordRows:
    """Return the rows of files of records; the first record is decoded here, to know what rows are.

    Raises
    ------
    DataError
        There is no record, or the first one can't be read or decoded.
    """
    name, row, label = first_row(
        (each for path in files.paths for each in files.rows(path)),
        decode,
        what="record",
        where=", ".join(map(repr, files.paths[:5])),
        skips=on_error == "skip",
    )
    return RecordRows(
        files=files,
        decoder=FileDecoder.of(decode, None, row),
        augmented=augmented(decode, augment, name, row),
        classes=classes,
        label=None if label is None else Column(dtype=label.dtype.str, row_shape=label.shape),
        num_listed=sum(1 for path in files.paths for _ in files.rows(path)) if on_error == "skip" else None,
    )
