"""Checks for every estimator that takes Dask collections, in addition to scikit-learn's ``check_estimator``."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

NUM_ROWS, NUM_FEATURES = 90, 4
# Uneven ones, and one without rows.
CHUNKS, OTHER_CHUNKS = (40, 0, 1, 49), (30, 30, 30)
METHODS = ("predict", "decision_function", "predict_proba", "predict_log_proba", "transform")


class Case:
    """An estimator, and data for it in memory and on Dask.

    Parameters
    ----------
    estimator
        What is checked; it is cloned.
    rtol
        How much predictions may differ.
    """

    def __init__(self, estimator: Any, rtol: float) -> None:
        from sklearn.base import is_classifier
        from sklearn.utils import get_tags

        self._estimator, self.rtol = estimator, rtol
        self.tags, self.classifies = get_tags(estimator), is_classifier(estimator)
        random = np.random.default_rng(0)
        self.X = random.normal(size=(NUM_ROWS, NUM_FEATURES))
        signal = self.X @ [1.0, -1.0, 0.5, 0.0] + random.normal(size=NUM_ROWS)
        self.y: np.ndarray = np.exp(signal / 2)
        if self.classifies:
            multi = self.tags.classifier_tags is None or self.tags.classifier_tags.multi_class
            self.y = np.array(["a", "b", "c"])[np.digitize(signal, [-0.7, 0.7] if multi else [0.0])]
        self.weight = random.integers(0, 4, NUM_ROWS).astype(float)

    def new(self) -> Any:
        """Return a clone that is not fitted."""
        from sklearn.base import clone

        return clone(self._estimator)

    def takes_weights(self) -> bool:
        """Return whether there are sample weights."""
        from sklearn.utils.validation import has_fit_parameter

        return bool(has_fit_parameter(self._estimator, "sample_weight"))

    @cached_property
    def in_memory(self) -> Any:
        """A clone that was fitted on NumPy arrays."""
        return self.new().fit(self.X, self.y)

    @cached_property
    def on_dask(self) -> Any:
        """A clone that was fitted on Dask arrays."""
        return self.new().fit(spread(self.X), spread(self.y))

    def check_alike(self, fitted: Any, wanted: Any) -> None:
        """Check that two fitted ones predict the same, labels for all but a few rows on the border."""
        for name in METHODS:
            if not hasattr(wanted, name):
                continue
            ours, theirs = getattr(fitted, name)(self.X), getattr(wanted, name)(self.X)
            if theirs.dtype.kind in "fc":
                np.testing.assert_allclose(ours, theirs, rtol=self.rtol, atol=self.rtol, err_msg=name)
            else:
                assert (ours != theirs).mean() < 0.02, name


def spread(array: np.ndarray, chunks: tuple[int, ...] = CHUNKS) -> da.Array:
    """Return a Dask array of an array, in chunks of rows."""
    return da.from_array(array, chunks=(chunks, *array.shape[1:]))


def check_fit_on_dask_is_fit_in_memory(case: Case) -> None:
    """``fit`` returns the estimator, leaves its parameters and the data alone, and learns what it learns of NumPy."""
    estimator, x, y = case.new(), case.X.copy(), case.y.copy()
    before = {name: repr(value) for name, value in estimator.get_params().items()}
    assert estimator.fit(spread(x), spread(y)) is estimator
    assert {name: repr(value) for name, value in estimator.get_params().items()} == before
    np.testing.assert_array_equal(x, case.X)
    np.testing.assert_array_equal(y, case.y)
    lazy = [name for name, value in vars(estimator).items() if dask.is_dask_collection(value)]
    assert not lazy, "attributes are values"
    assert estimator.n_features_in_ == NUM_FEATURES
    if case.classifies:
        np.testing.assert_array_equal(estimator.classes_, np.unique(case.y))
    case.check_alike(estimator, case.in_memory)


def check_chunks_make_no_difference(case: Case) -> None:
    """Check that the same rows in other chunks, and fitted once more, give the same model."""
    estimator = case.new().fit(spread(case.X, OTHER_CHUNKS), spread(case.y))
    case.check_alike(estimator, case.on_dask)
    case.check_alike(estimator.fit(spread(case.X), case.y), case.on_dask)


def check_methods_are_lazy(case: Case) -> None:
    """Predictions of Dask arrays are Dask arrays in the same chunks of rows, made without computing anything."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was computed")

    x = spread(case.X)
    for name in METHODS:
        if not hasattr(case.on_dask, name):
            continue
        with dask.config.set(scheduler=refuse):
            lazy = getattr(case.on_dask, name)(x)
        assert dask.is_dask_collection(lazy), name
        wanted = getattr(case.on_dask, name)(case.X)
        assert (lazy.chunks[0], lazy.shape, lazy.dtype) == (CHUNKS, wanted.shape, wanted.dtype), name
        computed = lazy.compute()
        _check_equal(name, computed, wanted)


def _is_narrow(array: np.ndarray) -> bool:
    """Return whether its numbers have the digits of float32, or less."""
    return array.dtype.kind == "f" and array.dtype.itemsize < 8


def _check_equal(name: str, predictions: np.ndarray, wanted: np.ndarray) -> None:
    """Check that predictions of one model are the same, except for rounding of their dtype."""
    if wanted.dtype.kind in "fc":
        rounded = 1e-4 if _is_narrow(wanted) else 1e-9
        np.testing.assert_allclose(predictions, wanted, rtol=rounded, atol=rounded, err_msg=name)
    else:
        np.testing.assert_array_equal(predictions, wanted, err_msg=name)


def check_score_is_a_number(case: Case) -> None:
    """Check that the score of Dask collections is that of arrays, with weights as well."""
    if not hasattr(case.on_dask, "score"):
        return
    for weights in ({}, {"sample_weight": case.weight}) if case.takes_weights() else ({},):
        score = case.on_dask.score(spread(case.X), spread(case.y), **{name: spread(w) for name, w in weights.items()})
        assert isinstance(score, float), f"it is a {type(score).__name__}"
        rounded = 1e-4 if _is_narrow(case.on_dask.predict(case.X[:1])) else 1e-7
        assert score == pytest.approx(case.on_dask.score(case.X, case.y, **weights), rel=rounded)


def check_weights_are_repetitions(case: Case) -> None:
    """Check that a row of weight n is as good as n rows, and one of weight 0 as none."""
    if not case.takes_weights():
        return
    weighted = case.new().fit(spread(case.X), spread(case.y), sample_weight=spread(case.weight))
    times = case.weight.astype(int)
    case.check_alike(weighted, case.new().fit(np.repeat(case.X, times, axis=0), np.repeat(case.y, times)))


def check_frames_keep_their_names(case: Case) -> None:
    """Dask frames are fitted like arrays; their columns are known by name, and others are refused."""
    import dask.dataframe as dd
    import pandas as pd

    names = [f"x{number}" for number in range(NUM_FEATURES)]
    table = dd.from_pandas(pd.DataFrame(case.X, columns=names).assign(y=case.y), npartitions=3)
    estimator = case.new().fit(table[names], table["y"])
    assert estimator.feature_names_in_.tolist() == names
    frame = pd.DataFrame(case.X, columns=names)
    _check_equal("predict", np.asarray(estimator.predict(table[names]).compute()), estimator.predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(table[names[::-1]])


def check_sparse_partitions(case: Case) -> None:
    """Partitions that are SciPy's sparse matrices are fitted like dense ones, or refused."""
    import scipy.sparse

    sparse = spread(case.X).map_blocks(scipy.sparse.csr_array)
    if not case.tags.input_tags.sparse:
        with pytest.raises((TypeError, ValueError)):
            case.new().fit(sparse, spread(case.y))
        return
    estimator = case.new().fit(sparse, spread(case.y))
    case.check_alike(estimator, case.in_memory)
    assert type(estimator.predict(sparse).compute()) is np.ndarray


def check_what_cannot_be_is_refused(case: Case) -> None:
    """Holes, other numbers of rows or features, and what is no matrix are a ValueError."""
    for odd in (np.nan, np.inf):
        if not case.tags.input_tags.allow_nan:
            holes = case.X.copy()
            holes[-1, 1] = odd
            with pytest.raises(ValueError, match=r"(?i)nan|inf"):
                case.new().fit(spread(holes), spread(case.y))
    with pytest.raises(ValueError, match=f"{NUM_ROWS}"):
        case.new().fit(spread(case.X), spread(case.y)[:-1])
    with pytest.raises(ValueError, match="dimension"):
        case.new().fit(spread(case.X)[:, 0], spread(case.y))
    with pytest.raises(ValueError, match=f"X has {NUM_FEATURES - 1} features, but .* is expecting {NUM_FEATURES}"):
        case.on_dask.predict(spread(case.X)[:, 1:])
    if case.classifies:
        with pytest.raises(ValueError, match="class"):
            case.new().fit(spread(case.X), spread(np.full(NUM_ROWS, "a")))


def check_not_fitted(case: Case) -> None:
    """Before ``fit`` there are no predictions of Dask arrays either."""
    from sklearn.exceptions import NotFittedError

    for name in METHODS:
        if hasattr(case.new(), name):
            with pytest.raises(NotFittedError):
                getattr(case.new(), name)(spread(case.X))


def check_pickled(case: Case) -> None:
    """Check that a fitted estimator goes through pickle and predicts the same."""
    case.check_alike(pickle.loads(pickle.dumps(case.on_dask)), case.on_dask)  # noqa: S301 - our own bytes


CHECKS: tuple[Callable[[Case], None], ...] = (
    check_fit_on_dask_is_fit_in_memory,
    check_chunks_make_no_difference,
    check_methods_are_lazy,
    check_score_is_a_number,
    check_weights_are_repetitions,
    check_frames_keep_their_names,
    check_sparse_partitions,
    check_what_cannot_be_is_refused,
    check_not_fitted,
    check_pickled,
)


def check_dask_estimator(
    estimator: Any,
    client: Any = None,
    *,
    rtol: float = 1e-5,
    expected_failed_checks: Mapping[str, str] | None = None,
) -> list[str]:
    """Check that an estimator does with Dask collections what scikit-learn's estimators do with arrays.

    It complements :func:`sklearn.utils.estimator_checks.check_estimator`, which passes NumPy arrays only: the same
    conventions, on Dask arrays with uneven and empty chunks, Dask frames, and sparse partitions. What is learnt has to
    be what is learnt of the same rows in memory; predictions have to be lazy, and scores numbers.

    Parameters
    ----------
    estimator
        A classifier, or a regressor, that takes NumPy arrays as well; it is cloned. Give it a ``tol`` that makes its
        result exact to ``rtol``.
    client
        A ``distributed.Client``, or None for the current one, or Dask's threads.
    rtol
        How much what is learnt of Dask collections may differ from what is learnt in memory, in predictions.
    expected_failed_checks
        Checks that are known to fail, by name, each with the reason; they are not run.

    Returns
    -------
    list of str
        The names of the checks that were run; all have passed.

    Raises
    ------
    AssertionError
        A check has failed; a note names it.
    ValueError
        There is no check of a name that was expected to fail.

    Examples
    --------
    >>> from dask_train.linear_model import Ridge
    >>> from dask_train.testing import check_dask_estimator
    >>> check_dask_estimator(Ridge(), client)
    """
    known, left_out = {check.__name__: check for check in CHECKS}, dict(expected_failed_checks or {})
    if unknown := left_out.keys() - known.keys():
        raise ValueError(f"There is no check {', '.join(sorted(unknown))}; there are {', '.join(known)}.")
    case, run = Case(estimator, rtol), [name for name in known if name not in left_out]
    with nullcontext() if client is None else client.as_current():
        for name in run:
            try:
                known[name](case)
            except BaseException as error:
                error.add_note(f"{name} of {estimator!r}: {known[name].__doc__}")
                raise
    return run
