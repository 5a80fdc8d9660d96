"""``tars``: tar archives of samples, as WebDataset has them, as rows of a data set."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Self

import numpy as np

from dask_train.file_rows.decoding import check_functions, decode_picture
from dask_train.file_rows.labels import ClassNumbers, RecordError, made_by
from dask_train.file_rows.listing import listed
from dask_train.file_rows.records import RecordFiles, RecordRows, record_rows
from dask_train.input_errors import raises_at_the_call

PICTURES = "jpg;jpeg;png;webp"


@raises_at_the_call
def tars(
    paths: Any,
    *,
    features: str = PICTURES,
    label: str | Callable[[dict[str, bytes]], Any] | None = None,
    classes: Sequence[str] | None = None,
    decode: Callable[[bytes], Any] | None = None,
    augment: Callable[[np.ndarray, np.random.Generator], Any] | None = None,
    on_error: str = "raise",
    storage_options: Mapping[str, Any] | None = None,
) -> RecordRows:
    """List tar archives whose samples are the rows of a data set, as WebDataset writes them.

    Members that follow each other and have the same path up to the first dot of the file's name are one sample:
    ``0001.jpg`` and ``0001.cls``. In training a task of Dask reads each archive once, from its beginning to its end.
    The bytes of one member of each sample lie in shared memory, and are decoded for each batch.

    Parameters
    ----------
    paths : str, os.PathLike, or a list of them
        Path or URL with wildcards, such as ``"s3://bucket/train-*.tar"``, of any one file system of fsspec. All Dask
        workers have to reach it. Archives are in the order of :func:`dask_train.files`, and may be compressed
        (``.tar.gz``).
    features : str
        The ending of the member that ``decode`` is given: what follows the first dot of its name, in lower case or
        capitals. Several endings with ``;`` between them stand for the first one that a sample has. Default: pictures,
        ``"jpg;jpeg;png;webp"``.
    label : str, callable or None
        The ending of the member that holds the label as text, such as ``"cls"``: a whole number, or with ``classes`` a
        name. A function is given the sample, a dict of contents by ending in lower case, and returns a number, an
        array of numbers, or a name. Default: no labels.
    classes : list of str, optional
        Names of all classes in the order of their numbers, where labels are names. Default: labels are numbers.
    decode, augment, storage_options
        As :func:`dask_train.files` takes them.
    on_error : "raise" or "skip"
        ``"skip"`` leaves out samples that ``decode`` raises for. To count them, archives are read once more here.

    Returns
    -------
    RecordRows

    Raises
    ------
    TypeError, ValueError
        An argument is invalid, or there is no such file.
    DataError
        The first sample can't be read or decoded.

    Notes
    -----
    An archive is a partition: a Dask worker has one in memory for each of its threads. Archives of 10 to 500 MB, and
    several for each Dask worker, are best.

    Examples
    --------
    >>> train = dt.tars("s3://bucket/train-*.tar", label="cls", decode=to_224)
    >>> dt.fit(model, train, epochs=5, batch_size=64, workers=2)
    """
    check_functions(decode=decode, augment=augment, on_error=on_error)
    numbers = ClassNumbers.of(label, classes)
    fs, names, sizes, stamps = listed(paths, storage_options)
    label_of: Callable[[dict[str, bytes]], Any] | None = None
    if callable(label):
        label_of = partial(made_by, label)
    elif label is not None:
        label_of = MemberText(label.lower(), is_name=classes is not None)
    files = RecordFiles(
        fs=fs,
        paths=names,
        stamps=stamps,
        nbytes=sum(sizes),
        read=samples_of,
        content=MemberContent(tuple(features.lower().split(";"))),
        label=None if label_of is None else numbers.after(label_of),
    )
    return record_rows(
        files, decode=decode or decode_picture, augment=augment, classes=numbers.classes, on_error=on_error
    )


def samples_of(file: BinaryIO) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Read the samples of an archive: the name of each, and its members by their endings.

    Raises
    ------
    ValueError, tarfile.TarError
        A sample has two members of one ending; or the archive is damaged, or lacks its end.
    """
    name, sample = "", dict[str, bytes]()
    with _WholeArchive.open(fileobj=file, mode="r|*") as archive:
        for member in archive:
            folder, _, own = member.name.rpartition("/")
            stem, dot, ending = own.partition(".")
            if not member.isfile() or not dot:
                continue
            key = f"{folder}/{stem}" if folder else stem
            if key != name and sample:
                yield name, sample
                sample = {}
            name, ending = key, ending.lower()
            if ending in sample:
                raise ValueError(f"sample {name!r} has two members .{ending}")
            content = archive.extractfile(member)
            assert content is not None
            sample[ending] = content.read()
    if sample:
        yield name, sample


class _Header(tarfile.TarInfo):
    """Header of a member; ``tarfile`` mistakes a damaged one for the end, and misses nothing where the end is cut."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        assert isinstance(archive, _WholeArchive)
        try:
            header = super().fromtarfile(archive)
        except tarfile.HeaderError as error:
            kind = type(error).__name__  # these have no public names
            if kind != "EOFHeaderError" and not (kind == "EmptyHeaderError" and archive.is_ended):
                raise ValueError(f"the archive is damaged or cut off at byte {archive.offset:,}: {error}") from error
            archive.is_ended = True
            raise
        archive.is_ended = False
        return header


class _WholeArchive(tarfile.TarFile):
    """An archive that is read to its end mark; those that were put one after the other have zeros between them."""

    tarinfo = _Header
    ignore_zeros = True
    is_ended = False


@dataclass(frozen=True)
class MemberContent:
    """Takes the first of some endings that a sample has."""

    endings: tuple[str, ...]

    def __call__(self, sample: dict[str, bytes]) -> bytes:
        for ending in self.endings:
            if ending in sample:
                return sample[ending]
        has = ", ".join(f".{ending}" for ending in sample)
        raise RecordError(
            f"has no member {' or '.join(f'.{ending}' for ending in self.endings)}; it has {has}",
            "Name one that each sample has. Members of a sample have to follow each other in the archive.",
        )


@dataclass(frozen=True)
class MemberText:
    """Takes the text of a member: a whole number, or a name.

    Attributes
    ----------
    ending
        Of the member.
    is_name
        Whether the text is a name in any case, also where it looks like a number.
    """

    ending: str
    is_name: bool

    def __call__(self, sample: dict[str, bytes]) -> int | str:
        text = MemberContent((self.ending,))(sample).decode().strip()
        if self.is_name:
            return text
        try:
            return int(text)
        except ValueError:
            return text
