"""186 photographs in six classes: the stamps of Tux Paint, fetched once into the user's cache folder.

Owns where they come from and lie, which of them are taken, and how one is read. They come from the Debian package
``tuxpaint-stamps-default`` (GPL-2, Bill Kendrick and others), downloaded and unpacked without root. Drawings, and what
is a mirrored copy of another picture, are left out.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dask_train.datasets.fetching import TEMPORARY, cache_folder, run_program, sweep
from dask_train.errors import DataError

_PACKAGE = "tuxpaint-stamps-default"
_DOWNLOAD_TIMEOUT_S, _UNPACK_TIMEOUT_S = 600.0, 120.0  # 160 MB; some seconds on a good line
_STAMPS = Path("usr/share/tuxpaint/stamps")
# Our name of a class, and its folder in the package.
_CLASSES = {
    "bird": "animals/birds",
    "flower": "plants/flowers",
    "fruit": "food/fruit",
    "mammal": "animals/mammals",
    "vegetable": "food/vegetables",
    "vehicle": "vehicles",
}
# Of version 2022.06.04-1, the one of Debian 12; another one may have some more or fewer.
_NUM_AT_LEAST = {"bird": 30, "flower": 20, "fruit": 20, "mammal": 55, "vegetable": 15, "vehicle": 14}
_PNG = b"\x89PNG\r\n\x1a\n"


class Photographs(NamedTuple):
    """Where the pictures lie, and what is on them.

    Attributes
    ----------
    files : tuple of Path
        PNG files of about 200 to 1,000 pixels a side, most with a transparent background; in order of their classes.
    labels : np.ndarray
        int64, shape (num_files,): numbers of classes.
    classes : tuple of str
        Their names.
    """

    files: tuple[Path, ...]
    labels: np.ndarray[Any, np.dtype[np.int64]]
    classes: tuple[str, ...]


def load_photographs(folder: str | os.PathLike[str] | None = None) -> Photographs:
    """Return the pictures, fetched first where they are not there yet.

    Parameters
    ----------
    folder
        A folder with a folder of PNG files for each class, whatever the classes; nothing is fetched into it. Default:
        dask-train's cache folder, see :func:`fetch_photographs`.

    Returns
    -------
    Photographs
        Paths and labels; no picture is read yet.

    Raises
    ------
    DataError
        They can't be fetched, or there are none.

    Examples
    --------
    >>> from readers import load_photographs, read_photograph
    >>> photographs = load_photographs()                                     # doctest: +SKIP
    >>> read_photograph(photographs.files[0], size=224).shape                # doctest: +SKIP
    (224, 224, 3)
    """
    folder = fetch_photographs() if folder is None else Path(folder)
    found = {each.name: sorted(each.glob("*.png")) for each in sorted(folder.glob("*")) if each.is_dir()}
    classes = tuple(name for name, files in found.items() if files)
    if not classes:
        raise DataError(f"{folder} has no folders with PNG files in them.", change="Name a folder that has.")
    labels = np.repeat(np.arange(len(classes)), [len(found[name]) for name in classes])
    return Photographs(tuple(file for name in classes for file in found[name]), labels, classes)


def read_photograph(file: str | os.PathLike[str], size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Decode a picture and fit it into a white square, as it is in proportion.

    Parameters
    ----------
    file
        In any format that Pillow reads.
    size
        Pixels a side.

    Returns
    -------
    np.ndarray
        uint8, shape (size, size, 3): red, green, blue.

    Raises
    ------
    ImportError
        Pillow is not installed.
    OSError
        It can't be read.
    """
    try:
        from PIL import Image, ImageOps  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError("Reading pictures needs Pillow: pip install pillow") from error
    with Image.open(file) as picture:
        opaque = picture.convert("RGBA")
    white = Image.new("RGBA", opaque.size, "white")
    square = ImageOps.pad(Image.alpha_composite(white, opaque).convert("RGB"), (size, size), color="white")
    return np.asarray(square, np.uint8)


def fetch_photographs(package: str | os.PathLike[str] | None = None) -> Path:
    """Fetch the pictures where they are not there yet; safe when several processes do at once.

    Parameters
    ----------
    package
        The .deb file, where it has been downloaded already; else ``apt-get download`` does that.

    Returns
    -------
    Path
        ``dask-train/photographs`` in ``$XDG_CACHE_HOME`` or, without it, in ``~/.cache``: a folder of PNG files for
        each class. It was put there whole.

    Raises
    ------
    DataError
        It did not work; the message tells what was tried, and what can be put where.
    """
    folder = cache_folder("photographs")
    sweep(folder.parent)
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # In the same file system, so that a rename puts it there whole.
        with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder.parent) as temporary:
            chosen = _chosen(_unpacked(Path(temporary), package), Path(temporary, "chosen"))
            try:
                chosen.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster
                    raise
    except (DataError, OSError) as error:
        raise DataError(
            f"The photographs can't be fetched into {folder}. {error}",
            "They are in a Debian package, and this may be no Debian, without apt-get and dpkg-deb; or its lists of "
            "packages are old.",
            f"Download {_PACKAGE} from any Debian mirror and call fetch_photographs('the .deb file'); or put a folder "
            f"of PNG files for each class ({', '.join(_CLASSES)}) into {folder}; or load_photographs(a folder of "
            "yours).",
        ) from error
    return folder


def _unpacked(temporary: Path, package: str | os.PathLike[str] | None) -> Path:
    if package is None:
        run_program(
            ["apt-get", "download", "--quiet", _PACKAGE],
            temporary,
            timeout_s=_DOWNLOAD_TIMEOUT_S,
            called=f"apt-get download {_PACKAGE}",
        )
        package = next(temporary.glob("*.deb"), None)
        if package is None:
            raise DataError(f"apt-get download {_PACKAGE} has left no .deb file.")
    root = temporary / "root"
    command = ["dpkg-deb", "-x", os.path.abspath(package), str(root)]
    run_program(command, temporary, timeout_s=_UNPACK_TIMEOUT_S, called="dpkg-deb -x")
    return root / _STAMPS


def _chosen(stamps: Path, folder: Path) -> Path:
    """A folder with the pictures of each class, and nothing else."""
    for name, place in _CLASSES.items():
        (folder / name).mkdir(parents=True)
        for file in sorted((stamps / place).rglob("*.png")):
            below = file.relative_to(stamps / place)
            if "cartoon" in below.parts or file.stem.endswith("_mirror"):
                continue
            with file.open("rb") as content:
                if content.read(len(_PNG)) != _PNG:
                    raise DataError(f"{below} in {_PACKAGE} is no PNG file.")
            shutil.move(file, folder / name / "-".join(below.parts))
        num = len(list((folder / name).iterdir()))
        if num < _NUM_AT_LEAST[name]:
            raise DataError(f"{_PACKAGE} has {num} pictures in {place}, not {_NUM_AT_LEAST[name]} or more.")
    return folder
