"""Parameters of estimators, checked when they fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np

from dask_train.linear_model.solving import SOLVERS, WITH_L1


def check_number(name: str, value: Any, above: float | None = None) -> None:
    """Check that it is a number from 0 on, or above a limit.

    Raises
    ------
    ValueError
        It is something else.
    """
    fits = isinstance(value, Real) and not isinstance(value, bool)
    if not (fits and (value > above if above is not None else 0 <= value < math.inf)):
        raise ValueError(f"{name} is {value!r}; it is a number {'from 0' if above is None else f'above {above:g}'}.")


def check_workers(workers: Any) -> None:
    """Check how many role processes there are to be.

    Raises
    ------
    ValueError
        It is neither None nor a whole number from 0 on.
    """
    is_whole = isinstance(workers, int | np.integer) and not isinstance(workers, bool)
    if workers is not None and not (is_whole and workers >= 0):
        raise ValueError(
            f"workers is {workers!r}; it is a whole number, 0 for this process itself, or None for one a Dask worker."
        )


def check_solving(estimator: Any) -> None:
    """How far a solver is to go; a mix of penalties, and a solver that there is for it.

    Raises
    ------
    ValueError
        A number is out of range, the ratio is not between 0 and 1, or the solver does not exist, or is not for that
        mix.
    """
    l1_ratio, solver = estimator.l1_ratio, estimator.solver
    for name in ("tol", "max_iter", "l1_ratio"):
        check_number(name, getattr(estimator, name))
    if not isinstance(estimator.max_iter, Integral):
        raise ValueError(f"max_iter is {estimator.max_iter!r}; it is a whole number of steps.")
    if estimator.max_iter < 1 and not hasattr(estimator, "predict_proba"):
        raise ValueError(f"max_iter is {estimator.max_iter!r}; it is 1 or more. A classifier takes 0, too.")
    if l1_ratio > 1:
        raise ValueError(f"l1_ratio is {l1_ratio!r}; it is a number from 0 to 1.")
    known = WITH_L1 if l1_ratio else SOLVERS
    if solver not in known:
        which = f"; with l1_ratio={l1_ratio!r} it is " if l1_ratio else "; it is "
        raise ValueError(f"solver is {solver!r}{which}{', '.join(map(repr, known[:-1]))} or {known[-1]!r}.")


def check_class_weight(class_weight: Any, classes: Sequence[Any]) -> None:
    """Weights by class: none, ``"balanced"``, or a dict, as scikit-learn takes them.

    Raises
    ------
    ValueError
        It is something else, or names what is no class while a class has no weight.
    """
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight is {class_weight!r}; it is None, 'balanced', or a dict of weights by class.")
    for label, weight in class_weight.items():
        check_number(f"class_weight[{label!r}]", weight)
    left_out, odd = [each for each in classes if each not in class_weight], set(class_weight) - set(classes)
    if left_out and odd:
        raise ValueError(
            f"class_weight has weights of {', '.join(sorted(map(repr, odd)))}, and none of the classes "
            f"{', '.join(map(repr, left_out))}. Name classes as y has them."
        )


@contextmanager
def sorting_labels() -> Iterator[None]:
    """Labels are sorted while it lasts.

    Raises
    ------
    ValueError
        The labels can't be sorted.
    """
    try:
        yield
    except TypeError as error:
        raise ValueError(
            f"The labels of y can't be sorted ({error}), as where some are missing. Fill them in, or drop such rows."
        ) from error


def check_labels(classes: np.ndarray, y: Any) -> None:
    """Check that labels can be those of a fitted classifier: text is never equal to a number.

    Raises
    ------
    ValueError
        One of both is text.
    """
    is_text = [dtype.kind in "US" for dtype in (classes.dtype, y.dtype)]
    if is_text[0] != is_text[1] and "O" not in (classes.dtype.kind, y.dtype.kind):
        raise ValueError(
            f"y has labels of dtype {y.dtype}, and the classes that were learnt are of {classes.dtype}: "
            f"{', '.join(map(repr, classes[:3].tolist()))}. Pass labels as fit had them."
        )
