"""Logistic regression, binary and multinomial."""

from __future__ import annotations

from functools import partial
from typing import Any

import dask
import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dask_train.input_errors import raises_at_the_call
from dask_train.linear_model.blocks import over_blocks
from dask_train.linear_model.checks import check_class_weight, check_number, check_solving, sorting_labels
from dask_train.linear_model.collections import check_rows_unmasked, is_dask
from dask_train.linear_model.estimating import LinearEstimator, repeated, warn
from dask_train.linear_model.families import Family, Logistic, Multinomial
from dask_train.linear_model.fitting import Fitted, Task
from dask_train.linear_model.posed import Posed
from dask_train.linear_model.scores import accuracy


class LogisticRegression(ClassifierMixin, LinearEstimator):
    """Logistic regression, of the same coefficients as scikit-learn's, over the partitions of a data set.

    Parameters
    ----------
    C
        The inverse of the penalty that is added to the sum of the losses; infinite for none. Default: 1.0.
    l1_ratio
        How much of the penalty is of the absolute coefficients; the rest is of half the squared ones. Default: 0.0.
    tol
        The solver stops where no part of the mean loss's gradient is larger. Default: 0.0001.
    fit_intercept
        Whether each class has an intercept, which is not penalised.
    class_weight
        A dict of weights by class, or ``"balanced"``: the inverse of how often each occurs. Default: 1 each.
    solver
        ``"newton-cholesky"``, ``"lbfgs"``, ``"gradient_descent"``, and with an ``l1_ratio`` as well ``"newton-cd"``,
        ``"proximal_gradient"`` or ``"admm"``.
    max_iter
        Number of steps at most. Default: 100.
    warm_start
        Whether another ``fit`` begins with the coefficients of the one before.
    workers
        Role processes for Dask collections; default: one per Dask worker; 0 for this process itself.

    Attributes
    ----------
    classes_
        Sorted labels.
    coef_, intercept_
        Float64 ``(1, features)`` and ``(1,)`` for two classes, ``(classes, features)`` and ``(classes,)`` for more.
    n_iter_
        Steps with all rows, int ``(1,)``.

    Notes
    -----
    Dask collections are fitted by :func:`dask_train.train`: a step is one sum over the workers that have the rows, and
    no task on Dask's scheduler. All else is fitted in this process, by the same functions. By default they are Newton's
    steps [1]_ [2]_; where other solvers are from stands in :mod:`dask_train.linear_model.solvers`, ``.composite`` and
    ``.admm``.

    Of 50,000 rows and more, enough for the coefficients that there are, a sample is fitted first: all rows begin at its
    minimum, and end within ``tol`` anyway.

    References
    ----------
    .. [1] McCullagh, Nelder, "Generalized Linear Models", 1989, chapters 4 and 5.
    .. [2] Nocedal, Wright, "Numerical Optimization", 2006, chapter 3.
    """

    classes_: np.ndarray

    def __init__(  # noqa: PLR0913 - scikit-learn's parameters
        self,
        *,
        C: float = 1.0,
        l1_ratio: float = 0.0,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        class_weight: Any = None,
        solver: str = "newton-cholesky",
        max_iter: int = 100,
        warm_start: bool = False,
        workers: int | None = None,
    ) -> None:
        self.C = C
        self.l1_ratio = l1_ratio
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.workers = workers

    def _check_params(self) -> None:
        check_number("C", self.C, above=0.0)
        check_number("1 / C", 1.0 / self.C)
        check_solving(self)
        super()._check_params()

    def _pose(self, columns: tuple[Any, ...]) -> Posed:
        before = getattr(self, "classes_", None)
        classes = _classes_of(columns[1])
        if len(classes) < 2:
            raise ValueError(f"y has one class only, {classes.tolist()[0]!r}; a classifier needs two classes or more.")
        check_class_weight(self.class_weight, classes.tolist())
        same = before is not None and np.array_equal(before, classes)
        family: Family = Logistic() if len(classes) == 2 else Multinomial(len(classes))
        task = Task(
            family=family,
            num_features=columns[0].shape[1],
            fit_intercept=self.fit_intercept,
            alpha=1.0 / self.C,
            l1_ratio=self.l1_ratio,
            of_sum=True,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            start=self._start() if self.warm_start and same else None,
            classes=classes,
            class_weight=self.class_weight,
        )

        def take(fitted: Fitted) -> None:
            warn(fitted, task)
            self.classes_, coef = classes, fitted.coef  # not before: labels belong to the coefficients
            self.coef_ = coef[:, : task.num_features]
            self.intercept_ = coef[:, -1] if self.fit_intercept else np.zeros(len(coef))
            steps = max(fitted.steps, min(1, self.max_iter))  # scikit-learn counts the look at where it begins
            self.n_iter_ = np.array([steps], np.int32)

        return Posed(columns=columns, problem=task, take=take)

    def _start(self) -> np.ndarray:
        return np.column_stack([self.coef_, self.intercept_]) if self.fit_intercept else self.coef_

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
        check_is_fitted(self)
        return self._predicted(X, _confidence, len(self.classes_) if len(self.classes_) > 2 else 0)

    @raises_at_the_call
    def predict(self, X: Any) -> Any:
        """Return the likeliest class of each row, lazily of a Dask collection.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array
            Labels, ``(n,)``.
        """
        check_is_fitted(self)
        return self._predicted(X, partial(_labels, classes=self.classes_), dtype=self.classes_.dtype)

    @raises_at_the_call
    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, lazily of a Dask collection.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array
            Float64 ``(n, classes)``.
        """
        check_is_fitted(self)
        return self._predicted(X, _chances, len(self.classes_))

    @raises_at_the_call
    def predict_log_proba(self, X: Any) -> Any:
        """Return the logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array
            Float64 ``(n, classes)``.
        """
        return np.log(self.predict_proba(X))

    @raises_at_the_call
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the part of the rows whose class is predicted; a number, also of Dask collections.

        Parameters
        ----------
        X, y, sample_weight
            As :meth:`fit` takes them.

        Returns
        -------
        float
            From 0 to 1.
        """
        if not is_dask(X, y, sample_weight):
            check_rows_unmasked(X, y, sample_weight)
            return float(super().score(X, y, sample_weight))
        columns = self._to_score(X, y, sample_weight)
        return accuracy(self._of_block(partial(_labels, classes=self.classes_)), self.classes_, columns)


def _confidence(raw: np.ndarray) -> np.ndarray:
    return raw[:, 0] if raw.shape[1] == 1 else raw


def _labels(raw: np.ndarray, classes: np.ndarray) -> np.ndarray:
    labels: np.ndarray = classes[(raw[:, 0] > 0).astype(int) if raw.shape[1] == 1 else raw.argmax(axis=1)]
    return labels


def _chances(raw: np.ndarray) -> np.ndarray:
    if raw.shape[1] > 1:
        return np.asarray(softmax(raw, axis=1))
    return np.column_stack([expit(-raw), expit(raw)])


def _classes_of(y: Any) -> np.ndarray:
    with sorting_labels():
        if dask.is_dask_collection(y):
            y = repeated(np.concatenate(over_blocks(np.unique, y)))
        check_classification_targets(y)
        return np.unique(y)
