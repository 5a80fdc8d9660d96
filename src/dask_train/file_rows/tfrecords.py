"""``tfrecords`` and ``to_tfrecords``: TFRecord files of examples, read as rows and written, without TensorFlow."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from dask_train.collections.bags import is_bag
from dask_train.collections.frames import delayed_partitions, is_dask_frame
from dask_train.collections.partition.form import is_frame
from dask_train.file_rows.decoding import check_functions, decode_picture
from dask_train.file_rows.examples import check_feature_name, packed, parsed
from dask_train.file_rows.labels import ClassNumbers, RecordError, made_by
from dask_train.file_rows.listing import listed
from dask_train.file_rows.records import RecordFiles, RecordRows, record_rows
from dask_train.input_errors import raises_at_the_call
from dask_train.report.whole_file import remove_partials, write_whole
from dask_train.stores import checked_options, is_local, place_anywhere, reaching
from dask_train.tfrecord import framed, masked_crc32c, records_of

_GZIP = b"\x1f\x8b"


@raises_at_the_call
def tfrecords(
    paths: Any,
    *,
    features: str | None = None,
    label: str | Callable[[dict[str, Any]], Any] | None = None,
    classes: Sequence[str] | None = None,
    decode: Callable[[Any], Any] | None = None,
    augment: Callable[[np.ndarray, np.random.Generator], Any] | None = None,
    on_error: str = "raise",
    storage_options: Mapping[str, Any] | None = None,
) -> RecordRows:
    """List TFRecord files of ``tf.train.Example`` whose examples are the rows of a data set; needs no TensorFlow.

    In training a task of Dask reads each file once, and checks the checksum of each record. Records lie in shared
    memory, and are decoded for each batch.

    Parameters
    ----------
    paths : str, os.PathLike, or a list of them
        Path or URL with wildcards, such as ``"s3://bucket/train-*.tfrecord"``, of any one file system of fsspec. All
        Dask workers have to reach it. Files are in the order of :func:`dask_train.files`, and may be compressed with
        gzip.
    features : str or None
        The name of the feature that makes the row. Default: ``decode`` is given the whole example, a dict by name:
        float32 or int64 ``(n,)``, ``bytes``, or a list of ``bytes``.
    label : str, callable or None
        The name of the feature that is the label: a number, an array of several, or with ``classes`` a name. A
        function is given the example, a dict, and returns one of these. Default: no labels.
    classes : list of str, optional
        Names of all classes in the order of their numbers, where labels are names. Default: labels are numbers.
    decode : callable, optional
        Makes a row of ``features``, or of the whole example. Default: Pillow for bytes; numbers are a row as they are.
    augment, storage_options
        As :func:`dask_train.files` takes them.
    on_error : "raise" or "skip"
        ``"skip"`` leaves out examples that ``decode`` raises for. To count them, files are read once more here. A
        record whose checksum is wrong ends the run in any case.

    Returns
    -------
    RecordRows

    Raises
    ------
    TypeError, ValueError
        An argument is invalid, or there is no such file.
    DataError
        The first example can't be read or decoded.

    Notes
    -----
    A file is a partition: a Dask worker has one in memory for each of its threads.

    Examples
    --------
    >>> train = dt.tfrecords("s3://bucket/*.tfrecord", features="image", label="label")
    >>> dt.fit(model, train, epochs=5, batch_size=64, workers=2)
    """
    check_functions(decode=decode, augment=augment, on_error=on_error)
    if features is None and decode is None:
        raise ValueError(
            "Neither features= nor decode= says what a row is. Pass the name of a feature: features='image'."
        )
    numbers = ClassNumbers.of(label, classes)
    fs, names, sizes, stamps = listed(paths, storage_options)
    files = RecordFiles(
        fs=fs,
        paths=names,
        stamps=stamps,
        nbytes=sum(sizes),
        read=examples_of,
        content=bytes,
        label=None if label is None else numbers.after(partial(_label_of, label)),
    )
    row_of = partial(_row_of, features, decode)
    return record_rows(files, decode=row_of, augment=augment, classes=numbers.classes, on_error=on_error)


def examples_of(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Read the records of a file, compressed or not, each with its number as its name.

    Raises
    ------
    ValueError, OSError
        It is damaged.
    """
    start = file.read(12)
    file.seek(0)
    is_plain = len(start) == 12 and struct.unpack("<I", start[8:])[0] == masked_crc32c(start[:8])
    opened: Any = gzip.GzipFile(fileobj=file) if start.startswith(_GZIP) and not is_plain else file
    for number, data in enumerate(records_of(opened)):
        yield str(number), data


def _feature_of(example: dict[str, Any], name: str) -> Any:
    if name not in example:
        has = ", ".join(map(repr, example)) or "none"
        raise RecordError(f"has no feature {name!r}; it has {has}", "Name one that each example has.")
    return example[name]


def _label_of(label: str | Callable[[dict[str, Any]], Any], data: bytes) -> Any:
    example = parsed(data)
    if callable(label):
        return made_by(label, example)
    value = _feature_of(example, label)
    return value[0] if isinstance(value, np.ndarray) and len(value) == 1 else value


def _row_of(features: str | None, decode: Callable[[Any], Any] | None, data: bytes) -> Any:
    example = parsed(data)
    value = example if features is None else _feature_of(example, features)
    if decode is not None:
        return decode(value)
    return decode_picture(value) if isinstance(value, bytes) else value


@raises_at_the_call
def to_tfrecords(
    path: str | os.PathLike[str], rows: Any, *, storage_options: Mapping[str, Any] | None = None
) -> list[str]:
    """Write TFRecord files of ``tf.train.Example``, one for each partition; needs no TensorFlow, which can read them.

    Parameters
    ----------
    path : str or os.PathLike
        A folder or URL of any file system of fsspec. Files are ``part-00000.tfrecord`` and so on; those of these names
        are replaced.
    rows : dask.bag.Bag or dask.dataframe.DataFrame
        A bag of dicts, or a frame, whose columns are features: numbers, text, ``bytes``, ``bytearray``, views of bytes,
        lists of these, or arrays of one axis. Floats become float32 and whole numbers int64, which is all that examples
        hold. NaN is a float; other missing values raise an error, as do floats that are too large for float32.
    storage_options : dict, optional
        Keywords for the file system, such as credentials. They are not shown. Default: none.

    Returns
    -------
    list of str
        The paths of the files, in the order of partitions.

    Raises
    ------
    TypeError, ValueError
        An argument is invalid, the store can't be reached, or an example can't hold a value.

    Examples
    --------
    >>> dt.to_tfrecords("s3://bucket/train", dask.bag.from_sequence([{"x": [1.0, 2.0], "y": 0}]))
    """
    import dask
    from dask import delayed

    is_table = is_dask_frame(rows) and is_frame(rows)
    if not (is_table or is_bag(rows)):
        raise TypeError(
            f"rows is a {type(rows).__name__}; pass a Dask bag of dicts, or a Dask frame, whose columns are named. Of "
            "one column series.to_frame() makes a frame."
        )
    names = list(rows.columns) if is_table else []
    for name in names:
        check_feature_name(name)
        if names.count(name) > 1:
            raise ValueError(f"rows names {name!r} more than once. Name each column once, or rename one of them.")
    options = checked_options(storage_options, path=path)
    target = place_anywhere(path)
    with reaching("path", target, options) as (fs, folder):
        fs.makedirs(folder, exist_ok=True)
    write = delayed(_written, pure=False)
    parts = delayed_partitions(rows) if is_table else rows.to_delayed()
    paths = [f"{folder.rstrip('/')}/part-{number:05}.tfrecord" for number in range(len(parts))]
    written = list(dask.compute(*(write(fs, name, part) for name, part in zip(paths, parts, strict=True))))
    if is_local(fs):
        remove_partials(written)
    return written


def _written(fs: Any, path: str, part: Any) -> str:
    """Write a file; on local file systems it is renamed into place, elsewhere it is put as one object."""
    several = _examples_of(part) if hasattr(part, "to_dict") else part
    content = b"".join(framed(packed(each)) for each in several)
    if is_local(fs):
        write_whole(path, content)
    else:
        fs.pipe_file(path, content)
    return path


def _examples_of(frame: Any) -> list[dict[Any, Any]]:
    """Return the rows of a frame of pandas as dicts; NaN of NumPy's floats is a number, and of all else missing."""
    for name, column in frame.items():
        is_float = isinstance(column.dtype, np.dtype) and column.dtype.kind == "f"
        if missing := 0 if is_float else int(column.isna().sum()):
            raise ValueError(
                f"{missing:,} values of column {name!r} are missing, which an example can't hold; other partitions may "
                f"have more. Leave such rows out, with frame.dropna(subset=[{name!r}]); or fill them, with "
                f"frame.fillna({{{name!r}: ...}})."
            )
    rows: list[dict[Any, Any]] = frame.to_dict("records")
    return rows
