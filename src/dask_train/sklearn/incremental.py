"""Estimators that learn batch by batch, over the rows of a data set in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import dask
import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dask_train.data.ledger import Ledger
from dask_train.data.plan import Shuffle
from dask_train.fitting.result import ledger_of_training
from dask_train.fitting.settings import EpochSettings
from dask_train.input_errors import made_at_the_call, raises_at_the_call
from dask_train.linear_model.attributes import taken_back_on_failure
from dask_train.linear_model.collections import is_dask
from dask_train.linear_model.columns import computed_in_shared_memory, together
from dask_train.predicting.api import predict
from dask_train.report.progress import estimators_progress
from dask_train.sklearn.collections import (
    as_array,
    check_features,
    classes_of,
    numbers_of,
    one_column,
    rows_together,
    targets,
    warn_of_a_column_vector,
)
from dask_train.sklearn.learning import Learners, Learning, learnt
from dask_train.training.api import train

# What is learnt from rows before they are trained on.
_OF_ROWS = ("n_features_in_", "feature_names_in_")


def _has(name: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(getattr(self, "estimator_", self.estimator), name)


@made_at_the_call
class Incremental(MetaEstimatorMixin, BaseEstimator):
    """An estimator with ``partial_fit``, which learns the rows of Dask collections batch by batch, each exactly once.

    One role process goes through the data set's batches in shared memory, wherever its rows lie; the estimator is never
    sent from task to task. Where the process, or its Dask worker, is lost, it begins anew, or resumes from the last
    checkpoint, and no batch counts twice.

    Parameters
    ----------
    estimator
        With ``partial_fit``, such as ``SGDClassifier``. It is copied, and stays as it is.
    epochs
        Number of times that ``fit`` reads all rows. Default: 1.
    batch_size
        Rows of each ``partial_fit``. Default: 1000.
    shuffle
        True for a new order of all rows in every epoch, "partition" for one of the partitions and within them, False
        for the order of the collection.
    seed
        Seed of the orders. Default: 0.
    train_kwargs
        Keywords of :func:`dask_train.train`, such as ``checkpoint``, ``resume``, ``streaming``, ``stop``, ``client``.
        A fit that resumes with other parameters, classes, or another number of rows is an error; values of rows are
        not compared.
        Default: none.

    Attributes
    ----------
    estimator_
        The fitted one.
    classes_ : numpy.ndarray
        Sorted labels of a classifier, found block by block.
    ledger_ : Ledger
        The account of rows of the last fit.

    Examples
    --------
    >>> from sklearn.linear_model import SGDClassifier
    >>> model = Incremental(SGDClassifier(), epochs=3).fit(X, y)
    >>> model.predict(X)
    """

    estimator_: Any
    classes_: np.ndarray
    ledger_: Ledger

    def __init__(
        self,
        estimator: Any,
        *,
        epochs: int = 1,
        batch_size: int = 1000,
        shuffle: Shuffle = True,
        seed: int = 0,
        train_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.estimator = estimator
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.train_kwargs = train_kwargs

    @raises_at_the_call
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, classes: Any = None) -> Self:
        """Learn all rows, ``epochs`` times, from the beginning.

        Parameters
        ----------
        X
            ``(n, features)``: a Dask array or DataFrame, or an array or frame.
        y
            Targets, ``(n,)``; None for estimators that need none.
        sample_weight
            Of each row, ``(n,)``; for estimators whose ``partial_fit`` takes it. Default: none.
        classes
            All labels of a classifier, where they are known; None looks for them, which computes ``y`` once.

        Returns
        -------
        Incremental
            This one.

        Raises
        ------
        ValueError, TypeError
            The data or a parameter is invalid.
        DaskTrainError
            As :func:`dask_train.train` raises it.
        """
        with taken_back_on_failure(self, _OF_ROWS):
            return self._learn(clone(self.estimator), X, y, sample_weight, self.epochs, reset=True, classes=classes)

    @raises_at_the_call
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, classes: Any = None) -> Self:
        """Learn all rows once, with what was learnt before.

        Parameters
        ----------
        X, y, sample_weight
            As :meth:`fit` takes them.
        classes
            All labels that there will be, where the first rows may not have all of them; later the same, or None.

        Returns
        -------
        Incremental
            This one.

        Raises
        ------
        ValueError, TypeError, DaskTrainError
            As of :meth:`fit`.
        """
        is_first = not hasattr(self, "estimator_")
        if (self.train_kwargs or {}).get("resume"):
            raise ValueError(
                "train_kwargs has resume=True, which is of fit: partial_fit continues with what this estimator has "
                "learnt, and not with a checkpoint, which may be of other rows. Leave it out."
            )
        known = None if is_first else getattr(self, "classes_", None)
        if classes is not None and known is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(
                f"classes is {np.unique(classes).tolist()}, and the first rows were learnt with "
                f"{known.tolist()}. Name all of them with the first rows, or call fit."
            )
        before = clone(self.estimator) if is_first else self.estimator_
        classes = classes if known is None else known
        with taken_back_on_failure(self, _OF_ROWS):
            return self._learn(before, X, y, sample_weight, 1, reset=is_first, classes=classes)

    def _learn(
        self, estimator: Any, X: Any, y: Any, weight: Any, epochs: int, *, reset: bool, classes: Any = None
    ) -> Self:
        if not hasattr(estimator, "partial_fit"):
            raise TypeError(f"{type(estimator).__name__} has no partial_fit, so it can't learn batch by batch.")
        EpochSettings(epochs=epochs, batch_size=self.batch_size, shuffle=self.shuffle, seed=self.seed)
        settings = dict(self.train_kwargs or {})
        if reserved := {"data", "datasets", "roles", "wait", "framework"} & set(settings):
            raise ValueError(f"train_kwargs has {', '.join(sorted(reserved))}, which fit sets itself. Leave it out.")
        if getattr(settings.get("checkpoint"), "best", None) is not None:
            raise ValueError(
                "train_kwargs has a checkpoint with best=, and an incremental estimator reports no scores by which one "
                "could be the best. Leave best out of dt.Checkpoint."
            )
        check_features(self, X, reset=reset)
        warn_of_a_column_vector(y)
        columns = self._columns(X, y, weight, settings)
        more: dict[str, Any] = {}
        if is_classifier(estimator):
            if y is None:
                raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
            more["classes"] = classes_of(columns[1]) if classes is None else np.unique(classes)
        task = Learning(
            estimator=estimator,
            epochs=epochs,
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            seed=self.seed,
            more=more,
            has_weights=weight is not None,
            keeps=settings.get("checkpoint") is not None,
        )
        named = {"name": "incremental", "progress": estimators_progress(), **settings}
        result = train(task, roles={"worker": 1}, data=tuple(columns), framework=Learners(), **named)
        outcome = result.results["worker"][0]
        if outcome is None:  # stopped while its process did not answer
            self.estimator_, self.ledger_ = estimator, result.ledger
        else:
            self.estimator_, self.ledger_ = learnt(outcome), ledger_of_training(result.ledger, outcome)
        if more:  # not before: labels belong to what was learnt of them
            self.classes_ = more["classes"]
        return self

    def _columns(self, X: Any, y: Any, weight: Any, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Features, and targets and weights where there are some; of Dask collections computed once, if in memory."""
        columns = [numbers_of(as_array(X))] + [targets(each) for each in (y, weight) if each is not None]
        columns[1:] = columns[1:] if is_classifier(self.estimator) else map(numbers_of, columns[1:])
        if not is_dask(*columns) or settings.get("streaming"):
            return columns
        compute = partial(computed_in_shared_memory, client=settings.get("client"))
        collections = [X] + [one_column(each) for each in (y, weight) if each is not None]
        is_frame = [is_dask(each) and hasattr(each, "to_dask_array") for each in collections]
        rows = collections if all(is_frame) else columns  # frames go by their index
        return compute(together(dict(zip(("X", "y", "sample_weight"), rows, strict=False)), compute))

    def _asked(self, method: str, X: Any) -> Any:
        check_is_fitted(self, "estimator_")
        check_features(self, X, reset=False)
        rows = as_array(X)
        return predict(self.estimator_, rows, method=method) if is_dask(X) else getattr(self.estimator_, method)(rows)

    @available_if(_has("predict"))
    @raises_at_the_call
    def predict(self, X: Any) -> Any:
        """Predict each row with the estimator, lazily of a Dask collection.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array
            ``(n,)``.
        """
        return self._asked("predict", X)

    @available_if(_has("predict_proba"))
    @raises_at_the_call
    def predict_proba(self, X: Any) -> Any:
        """Predict the probability of each class, lazily of a Dask collection.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array
            Float ``(n, classes)``.
        """
        return self._asked("predict_proba", X)

    @available_if(_has("decision_function"))
    @raises_at_the_call
    def decision_function(self, X: Any) -> Any:
        """Confidence in each class, lazily of a Dask collection.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array
            ``(n,)`` of two classes, else ``(n, classes)``.
        """
        return self._asked("decision_function", X)

    @available_if(_has("transform"))
    @raises_at_the_call
    def transform(self, X: Any) -> Any:
        """Transform each row with the estimator, lazily of a Dask collection.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array
            ``(n, outputs)``.
        """
        return self._asked("transform", X)

    @available_if(_has("score"))
    @raises_at_the_call
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the estimator's own score; a number, also of Dask collections, of which features stay where they are.

        Parameters
        ----------
        X, y, sample_weight
            As :meth:`fit` takes them.

        Returns
        -------
        float
            The part of rows whose class is right, or R².

        Raises
        ------
        ValueError
            A Dask collection for an estimator that is neither classifier nor regressor.
        """
        from sklearn.metrics import accuracy_score, r2_score

        check_is_fitted(self, "estimator_")
        check_features(self, X, reset=False)
        rows, y, sample_weight = (X, y, sample_weight) if y is None else rows_together(X, y, sample_weight)
        y, sample_weight = (None if each is None else targets(each) for each in (y, sample_weight))
        if not is_dask(X):
            y, sample_weight = dask.compute(y, sample_weight)
            weights = {} if sample_weight is None else {"sample_weight": sample_weight}
            return float(self.estimator_.score(as_array(X), *([] if y is None else [y]), **weights))
        if y is None or not (is_classifier(self.estimator) or is_regressor(self.estimator)):
            raise ValueError(
                "score of a Dask collection is of classifiers and regressors, and needs y. Compute the rows for "
                f"{type(self.estimator).__name__}."
            )
        predicted, y, sample_weight = dask.compute(
            predict(self.estimator_, as_array(rows), method="predict"), y, sample_weight
        )
        measure = accuracy_score if is_classifier(self.estimator) else r2_score
        return float(measure(y, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        """Return the estimator's own."""
        tags = super().__sklearn_tags__()
        from sklearn.utils import get_tags

        own = get_tags(self.estimator)
        tags.estimator_type, tags.classifier_tags, tags.regressor_tags = (
            own.estimator_type,
            own.classifier_tags,
            own.regressor_tags,
        )
        return tags
