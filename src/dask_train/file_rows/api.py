"""``files``: pictures and other files as rows of a data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from dask_train.collections.source import OwnRows
from dask_train.data.file_decoder import FileDecoder
from dask_train.file_rows.decoding import check_functions, decode_picture
from dask_train.file_rows.first_row import augmented, first_row
from dask_train.file_rows.labels import labels_of
from dask_train.file_rows.listing import listed
from dask_train.file_rows.paired import with_paths
from dask_train.file_rows.reading import contents_of
from dask_train.file_rows.source import FileSet, decoded_arrays, files_source
from dask_train.input_errors import raises_at_the_call


@raises_at_the_call
def files(
    paths: Any,
    *,
    label: str | Callable[[str], Any] | None = None,
    classes: Sequence[str] | None = None,
    decode: Callable[[bytes], Any] | None = None,
    augment: Callable[[np.ndarray, np.random.Generator], Any] | None = None,
    on_error: str = "raise",
    storage_options: Mapping[str, Any] | None = None,
) -> FileRows:
    """List files whose contents are the rows of a data set, such as pictures in folders by class.

    The result is data for :func:`dask_train.fit`, :func:`dask_train.train`, :func:`dask_train.evaluate` and
    :func:`dask_train.predict`. In training tasks of Dask read each file once, and its bytes lie in shared memory. The
    workers' processes decode them for each batch.

    Parameters
    ----------
    paths : str, os.PathLike, or a list of them
        Path or URL with wildcards, such as ``"s3://bucket/train/*/*.jpg"``, of any one file system of fsspec. All Dask
        workers have to reach it. A wildcard's files are sorted by path; a list keeps its order. On local disks
        symbolic links are what they link to, a link without a target raises an error, and ``**`` enters each folder
        once.
    label : "folder", callable or None
        ``"folder"`` numbers the names of the files' folders, sorted, from 0 (int64). A function is given a path and
        returns a number, an array of numbers, or a name, which is numbered like folders. Default: no labels.
    classes : list of str, optional
        Names of all classes in the order of their numbers, such as ``classes=train.classes`` for files to validate
        on. Default: the names that are found, sorted.
    decode : callable, optional
        ``decode(content: bytes)`` returns an array, or a tensor or Pillow image, of the same shape and dtype for each
        file. It is called from several threads. Default: Pillow, uint8 ``(height, width, channels)``.
    augment : callable, optional
        ``augment(row, generator)`` returns the row of one epoch, with random numbers of the
        ``numpy.random.Generator``: they depend on the seed of the fit, the epoch and the file, and so are the same for
        any number of workers, and after a resume. It is called in training only, not for rows that are validated,
        evaluated or predicted. Default: none.
    on_error : "raise" or "skip"
        What happens to files that ``decode`` raises for. ``"raise"`` ends the run with an error that names the file.
        ``"skip"`` leaves them out: each file is decoded once before training, so that all global batches are full.
    storage_options : dict, optional
        Keywords for the file system, such as credentials. They are not shown. Default: none.

    Returns
    -------
    FileRows

    Raises
    ------
    TypeError, ValueError
        An argument is invalid, there is no such file, or a label is not one of the classes.
    DataError
        The first file can't be read or decoded.

    Notes
    -----
    The first file is decoded here, to know shape and dtype of all rows. In training the bytes of a file are copied
    once into shared memory, and once per epoch from there. `dt.evaluate` and `dt.predict` decode in tasks of Dask.

    Examples
    --------
    >>> train = dt.files("train/*/*.jpg", label="folder", decode=to_224)
    >>> test = dt.files("test/*/*.jpg", label="folder", decode=to_224, classes=train.classes)
    >>> dt.fit(model, train, validation_data=test, epochs=5, batch_size=64, workers=2)
    """
    check_functions(decode=decode, augment=augment, on_error=on_error)
    fs, names, sizes, stamps = listed(paths, storage_options)
    labels, known = labels_of(names, label, classes)
    decode = decode or decode_picture
    file_set = FileSet(fs=fs, paths=names, sizes=np.array(sizes, np.int64), stamps=stamps, labels=labels)
    skips = on_error == "skip"
    _, row, _ = first_row(
        ((path, contents_of(fs, [path])[0], None) for path in names),
        decode,
        what="file",
        where=repr(paths),
        skips=skips,
    )
    return FileRows(
        file_set=file_set,
        classes=known,
        decoder=FileDecoder.of(decode, None, row),
        augmented=augmented(decode, augment, names[0], row),
        skips=skips,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FileRows(OwnRows):
    """Files as rows, made by :func:`dask_train.files`: ``files[numbers]`` and ``files[a:b]`` are some of them.

    Attributes
    ----------
    classes : tuple of str or None
        Names of the classes that labels number.
    """

    file_set: FileSet = field(repr=False)
    decoder: FileDecoder
    augmented: FileDecoder | None
    classes: tuple[str, ...] | None
    skips: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the path of each file."""
        return self.file_set.paths

    @property
    def labels(self) -> np.ndarray | None:
        """Return the label of each file, ``(n, *shape)``; None without labels."""
        return self.file_set.labels

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of files, and the shape of a decoded row."""
        return (len(self), *self.decoder.row_shape)

    @property
    def dtype(self) -> np.dtype:
        """Return the dtype of decoded rows."""
        return np.dtype(self.decoder.dtype)

    def __len__(self) -> int:
        return len(self.file_set.paths)

    def __repr__(self) -> str:
        """Return what the rows are, in a line."""
        description = f"<FileRows: {len(self):,} files, {self.dtype} {self.decoder.row_shape}"
        return f"{description}, {len(self.classes)} classes>" if self.classes else f"{description}>"

    def __getitem__(self, wanted: Any) -> Self:
        """Return some of the files, by a slice, or a list or array of numbers or booleans.

        Raises
        ------
        IndexError, TypeError
            There is no such file, or no file is selected.
        """
        numbers = np.arange(len(self))[wanted]
        if not np.ndim(numbers):
            raise TypeError(f"files[{wanted!r}] would be one row; use files.to_numpy({wanted!r}), or a slice.")
        if not len(numbers):
            raise IndexError("No file is left; pass numbers of at least one.")
        some = replace(
            self.file_set,
            paths=tuple(self.paths[number] for number in numbers.tolist()),
            sizes=self.file_set.sizes[numbers],
            stamps=tuple(self.file_set.stamps[number] for number in numbers.tolist()),
            labels=None if self.labels is None else self.labels[numbers],
        )
        return replace(self, file_set=some)

    def split(self, fraction: float, seed: int = 0) -> tuple[Self, Self]:
        """Return two parts, drawn at random, such as files to train on and to validate on.

        Parameters
        ----------
        fraction
            Part of the files that the second part has, between 0 and 1.
        seed
            Seed of the draw. Default: 0.

        Returns
        -------
        tuple of FileRows
            Both in the order of paths.

        Raises
        ------
        ValueError
            One part would have no files.
        """
        num_second = round(len(self) * fraction)
        if not 0 < num_second < len(self):
            raise ValueError(f"split({fraction!r}) of {len(self)} files leaves one part without files.")
        order = np.random.default_rng(seed).permutation(len(self))
        return self[np.sort(order[num_second:])], self[np.sort(order[:num_second])]

    def to_numpy(self, number: int) -> np.ndarray:
        """Return one file, decoded and not augmented.

        Parameters
        ----------
        number
            Of the file in :attr:`paths`.

        Returns
        -------
        numpy.ndarray
            Of the shape ``files.shape[1:]``.

        Raises
        ------
        DataError
            It can't be read or decoded.
        """
        path = self.paths[number]
        (content,) = contents_of(self.file_set.fs, [path])
        return self.decoder.opened().row(path, content, np.random.default_rng)

    def to_dask(self) -> Any:
        """Return decoded rows as Dask arrays; nothing is read. Each block is read and decoded whenever it is computed.

        Returns
        -------
        dask.array.Array, or a tuple of two
            Rows ``(n, *row_shape)`` in the order of :attr:`paths`, and labels where there are some.

        Raises
        ------
        ValueError
            Files that can't be decoded are left out, so that rows would not be those of :attr:`paths`.
        """
        if self.skips:
            raise ValueError(
                "Arrays of files with on_error='skip' would have rows that are not those of paths. Leave on_error out."
            )
        x, y = decoded_arrays(self.file_set, self.decoder)
        return x if y is None else (x, y)

    def with_paths(self, predicted: Any, classes: Sequence[str] | None = None) -> Any:
        """Return predictions of these files as a Dask frame whose index is their paths; nothing is computed.

        Parameters
        ----------
        predicted
            What :func:`dask_train.predict` has made of these files, ``(n,)`` or ``(n, width)``.
        classes
            Names of the columns, such as ``result.schema.classes`` of the fit. Default: ``files.classes`` where there
            are as many; else one column is named ``"prediction"``, and several are numbered.

        Returns
        -------
        dask.dataframe.DataFrame
            ``frame.idxmax(axis=1)`` of it names the class with the highest probability.

        Raises
        ------
        TypeError, ValueError
            These are no predictions of these files, or have more axes; or there is another number of classes.
        """
        return with_paths(self.paths, predicted, classes or self.classes, are_named=classes is not None)

    def source(self) -> Any:
        """Return the rows as processes of a run read them.

        Returns
        -------
        dask_train.collections.source.Source
            For dask-train's own use.
        """
        return files_source(self.file_set, self.augmented or self.decoder, skips=self.skips)

    def not_augmented(self) -> Self:
        """Return the same files without ``augment``.

        Returns
        -------
        FileRows
            The same, where there is no ``augment``.
        """
        return replace(self, augmented=None)
