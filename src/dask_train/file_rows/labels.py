"""The label of each file: its folder's name, or what a function says of its path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

FOLDER = "folder"


def labels_of(
    paths: Sequence[str], label: str | Callable[[str], Any] | None, classes: Sequence[str] | None
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Return the labels of files, ``(n, *shape)``, and the names of the classes that they number.

    Parameters
    ----------
    paths
        The files.
    label, classes
        As :func:`dask_train.files` takes them.

    Raises
    ------
    TypeError, ValueError
        A label can't be, or is none of the classes.
    """
    if label is None:
        if classes is not None:
            raise ValueError("classes= names the classes of labels, and label is None. Pass label='folder'.")
        return None, None
    if label != FOLDER and not callable(label):
        raise ValueError(f"label is {label!r}; it is 'folder', a function of a path, or None.")
    found = [PurePosixPath(path).parent.name if label == FOLDER else label(path) for path in paths]  # type: ignore[operator]
    if all(isinstance(each, str) for each in found):
        return _numbered(paths, found, classes)
    if classes is not None:
        raise ValueError(f"classes= names the classes of labels, and label gives {found[0]!r}, which is no name.")
    try:
        labels = np.asarray(found)
    except ValueError as error:
        raise ValueError(f"label gives values of different shapes: {error}.") from error
    if labels.dtype.kind not in "biuf":
        raise TypeError(f"label gives {labels.dtype}; let it return a number, an array of numbers, or a name.")
    return labels, None


def _numbered(
    paths: Sequence[str], names: Sequence[str], classes: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    known = tuple(sorted(set(names))) if classes is None else tuple(classes)
    if len(set(known)) < len(known) or not all(isinstance(name, str) for name in known):
        raise ValueError(f"classes is {list(known)!r}; pass each name once.")
    numbers = {name: number for number, name in enumerate(known)}
    for path, name in zip(paths, names, strict=True):
        if name not in numbers:
            raise ValueError(
                f"The label of {path!r} is {name!r}, and classes has {', '.join(map(repr, known[:20]))}. Add it there."
            )
    return np.array([numbers[name] for name in names], np.int64), known
