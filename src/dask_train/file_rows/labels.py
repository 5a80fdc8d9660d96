"""The label of each file: its folder's name, or what a function says of its path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from dask_train.errors import in_words

FOLDER = "folder"


@dataclass(frozen=True)
class ClassNumbers:
    """Numbers names of classes that are known before any label is.

    Attributes
    ----------
    classes
        The names; None if labels are numbers.
    """

    classes: tuple[str, ...] | None

    @classmethod
    def of(cls, label: Any, classes: Sequence[str] | None) -> ClassNumbers:
        """Check the names.

        Raises
        ------
        TypeError, ValueError
            There is no label to number, or a name stands twice.
        """
        if not (label is None or isinstance(label, str) or callable(label)):
            raise TypeError(f"label is a {type(label).__name__}; pass a name, a function, or None.")
        if classes is None:
            return cls(None)
        if label is None:
            raise ValueError("classes= names the classes of labels, and label is None. Pass label=, too.")
        return cls(_checked(classes))

    def after(self, label: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function that makes the number of what ``label`` makes of a record."""
        return partial(self._number, label)

    def _number(self, label: Callable[[Any], Any], record: Any) -> Any:
        value = label(record)
        if isinstance(value, bytes):
            value = value.decode()
        if not isinstance(value, str):
            if self.classes is not None:
                raise RecordError(f"has the label {value!r}, which is no name of classes=", "Leave classes= out.")
            return value
        if self.classes is None:
            raise RecordError(f"has the label {value!r}, a name", "Pass the names of all classes: classes=[...].")
        if value not in self.classes:
            raise RecordError(
                f"has the label {value!r}, and classes has {', '.join(map(repr, self.classes[:20]))}",
                "Leave classes= out, if labels are numbers; else add it there." if value.isdigit() else "Add it there.",
            )
        return self.classes.index(value)


class RecordError(Exception):
    """A record lacks what was asked for.

    Parameters
    ----------
    what
        What is wrong with it, after "Record ...".
    change
        What the reader can change.
    """

    def __init__(self, what: str, change: str) -> None:
        super().__init__(what)
        self.change = change


def made_by(label: Callable[[Any], Any], record: Any) -> Any:
    """Return what a user's function makes of a record.

    Raises
    ------
    RecordError
        It raised: the file that has the record is not damaged.
    """
    try:
        return label(record)
    except RecordError:
        raise
    except Exception as error:
        what = f"has no label, since label raised {in_words(error).rstrip('.')}"
        raise RecordError(what, "Mend label=, or leave the record out.") from error


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
        A label is invalid, or is not one of the classes.
    """
    if label is None:
        if classes is not None:
            raise ValueError("classes= names the classes of labels, and label is None. Pass label='folder'.")
        return None, None
    if label != FOLDER and not callable(label):
        raise ValueError(f"label is {label!r}; it is 'folder', a function of a path, or None.")
    values = [PurePosixPath(path).parent.name if label == FOLDER else label(path) for path in paths]  # type: ignore[operator]
    if all(isinstance(each, str) for each in values):
        return _numbered(paths, values, classes)
    if classes is not None:
        raise ValueError(f"classes= names the classes of labels, and label gives {values[0]!r}, which is no name.")
    try:
        labels = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"label gives values of different shapes: {error}.") from error
    if labels.dtype.kind not in "biuf":
        raise TypeError(f"label gives {labels.dtype}; let it return a number, an array of numbers, or a name.")
    return labels, None


def _checked(classes: Sequence[str]) -> tuple[str, ...]:
    known = tuple(classes)
    if len(set(known)) < len(known) or not all(isinstance(name, str) for name in known):
        raise ValueError(f"classes is {list(known)!r}; pass each name once.")
    return known


def _numbered(
    paths: Sequence[str], names: Sequence[str], classes: Sequence[str] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    known = tuple(sorted(set(names))) if classes is None else _checked(classes)
    numbers = {name: number for number, name in enumerate(known)}
    for path, name in zip(paths, names, strict=True):
        if name not in numbers:
            raise ValueError(
                f"The label of {path!r} is {name!r}, and classes has {', '.join(map(repr, known[:20]))}. Add it there."
            )
    return np.array([numbers[name] for name in names], np.int64), known
