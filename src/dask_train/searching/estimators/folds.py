"""Which rows are trained on and which are tested on: numbers of rows, as they travel to role processes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from dask_train.searching.texts import text_of


@dataclass(frozen=True, kw_only=True)
class Split:
    """The rows of a fold; those to train on are left out where they are all others, in order."""

    num_rows: int
    tested: np.ndarray = field(repr=False)
    trained: np.ndarray | None = field(default=None, repr=False)

    @classmethod
    def of(cls, num_rows: int, train: Any, test: Any) -> Split:
        """Return a split as scikit-learn gives it: numbers of rows, or masks."""
        trained, tested = (_numbers(each, num_rows) for each in (train, test))
        split = cls(num_rows=num_rows, tested=_small(tested))
        return (
            split
            if np.array_equal(split.train, trained)
            else cls(num_rows=num_rows, tested=split.tested, trained=_small(trained))
        )

    @property
    def train(self) -> np.ndarray:
        """Numbers of the rows to train on, int64, in order."""
        if self.trained is not None:
            return self.trained.astype(np.int64)
        others = np.ones(self.num_rows, bool)
        others[self.tested] = False
        return np.flatnonzero(others)

    @property
    def test(self) -> np.ndarray:
        """Numbers of the rows to test on, int64, in order."""
        return self.tested.astype(np.int64)


class Folds:
    """The folds of a search, made when they are asked for, and the same for all estimators of a kind.

    Parameters
    ----------
    cv
        As ``GridSearchCV`` takes it.
    num_rows, row_shape
        Of the features, which splitters are not shown: they see zeros of that shape, which take no memory.
    y, groups
        Targets, and the group of each row for splitters that keep groups together.
    """

    def __init__(self, cv: Any, num_rows: int, row_shape: tuple[int, ...], y: Any, groups: Any = None) -> None:
        self._depends = cv is None or isinstance(cv, Integral)
        self._cv = cv if self._depends or hasattr(cv, "split") else list(cv)  # which may be gone through once only
        self._rows = num_rows, row_shape, y, groups
        self._known: dict[bool, tuple[Split, ...]] = {}

    def of(self, estimator: Any) -> tuple[Split, ...]:
        """Return the folds that scikit-learn would make for an estimator; those of a classifier are stratified.

        Raises
        ------
        ValueError, TypeError
            ``cv`` is no way to split these rows.
        """
        from sklearn.base import is_classifier

        return self._of_kind(bool(is_classifier(estimator)))

    def _of_kind(self, classifies: bool) -> tuple[Split, ...]:
        kind = self._depends and classifies
        if kind not in self._known:
            self._known[kind] = tuple(_splits(self._cv, kind, *self._rows))
        return self._known[kind]

    def text(self) -> str:
        """Return what tells folds from others, on all machines: ``cv``, and a digest of all of their rows."""
        digests = []
        for classifies in (False, True) if self._depends else (False,):
            try:
                digest = hashlib.blake2b(digest_size=8)
                for split in self._of_kind(classifies):
                    for numbers in (split.train, split.test):
                        digest.update(np.append(numbers, -1).tobytes())
                digests.append(digest.hexdigest())
            except ValueError as error:  # too few rows of a class, which regressors do not mind
                digests.append(str(error))
        return f"{text_of(self._cv)} of rows {', '.join(digests)}"


def _splits(
    cv: Any, classifies: bool, num_rows: int, row_shape: tuple[int, ...], y: Any, groups: Any = None
) -> list[Split]:
    from sklearn.model_selection import check_cv

    splitter = check_cv(cv, y, classifier=classifies)
    if groups is None and _needs_groups(splitter):
        raise ValueError(f"cv={cv!r} keeps groups of rows together. Pass groups=, the group of each row.")
    nothing = np.broadcast_to(np.zeros(()), (num_rows, *row_shape))
    pairs: Iterable[tuple[Any, Any]] = splitter.split(nothing, y, *(() if groups is None else (groups,)))
    splits = [Split.of(num_rows, train, test) for train, test in pairs]
    if not splits:
        raise ValueError(f"cv={cv!r} makes no folds; pass a number from 2 on, a splitter, or pairs of row numbers.")
    return splits


def _needs_groups(splitter: Any) -> bool:
    routing = getattr(splitter, "get_metadata_routing", None)
    return routing is not None and routing().split.requests.get("groups") is True


def _numbers(selection: Any, num_rows: int) -> np.ndarray:
    numbers = np.asarray(selection)
    if numbers.dtype == bool and numbers.shape != (num_rows,):
        raise ValueError(
            f"cv gives a mask of shape {numbers.shape}, and there are {num_rows} rows. Pass one value each."
        )
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "biu"):
        raise ValueError(
            f"cv gives rows as {numbers.dtype} of shape {numbers.shape}. Pass whole numbers from 0, or a mask, (n,)."
        )
    numbers = np.flatnonzero(numbers) if numbers.dtype == bool else numbers.astype(np.int64)
    if len(numbers) and (numbers.min() < -num_rows or numbers.max() >= num_rows):
        raise ValueError(f"cv gives rows up to {numbers.max()}, and there are {num_rows}. Pass numbers from 0.")
    return np.where(numbers < 0, numbers + num_rows, numbers)


def _small(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(np.int32) if not len(numbers) or numbers.max() < 2**31 else numbers
