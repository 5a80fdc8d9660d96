"""Linear regression, ordinary and ridge."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from dask_train.input_errors import raises_at_the_call
from dask_train.linear_model.checks import check_number
from dask_train.linear_model.collections import check_rows_unmasked, is_dask
from dask_train.linear_model.estimating import LinearEstimator
from dask_train.linear_model.least_squares import LeastSquares
from dask_train.linear_model.posed import Posed
from dask_train.linear_model.scores import explained


class LinearRegression(MultiOutputMixin, RegressorMixin, LinearEstimator):
    """Ordinary least squares, of the same coefficients as scikit-learn's, in one pass over the partitions.

    Parameters
    ----------
    fit_intercept
        Whether there is an intercept.
    workers
        Role processes for Dask collections; default: one per Dask worker; 0 for this process itself.

    Attributes
    ----------
    coef_, intercept_
        Float64 ``(features,)`` and a float for targets ``(n,)``; ``(targets, features)`` and ``(targets,)`` for
        ``(n, targets)``. Without an intercept ``intercept_`` is 0.0.

    Notes
    -----
    Each worker decomposes its rows, and the triangles of all of them are decomposed together [1]_.

    References
    ----------
    .. [1] Demmel, Grigori, Hoemmen, Langou, "Communication-optimal parallel and sequential QR and LU factorizations",
       2012.
    """

    fit_intercept: bool
    # Whether targets ``(n, 1)`` give coefficients ``(1, features)``: of scikit-learn's models only this one's are.
    _is_matrix_of_one_target = True
    _checks: ClassVar[dict[str, Any]] = {"y_numeric": True, "multi_output": True}

    def __init__(self, *, fit_intercept: bool = True, workers: int | None = None) -> None:
        self.fit_intercept = fit_intercept
        self.workers = workers

    def _penalty(self) -> float:
        return 0.0

    def _pose(self, columns: tuple[Any, ...]) -> Posed:
        task = LeastSquares(alpha=self._penalty(), fit_intercept=self.fit_intercept, num_features=columns[0].shape[1])
        return Posed(columns=columns, problem=task, take=partial(self._keep, of_targets=columns[1].ndim))

    def _keep(self, coef: np.ndarray, of_targets: int) -> None:
        """Coefficients ``(features + 1, targets)``, the intercept last, as attributes."""
        self.coef_, self.intercept_ = coef[:-1].T, coef[-1] if self.fit_intercept else 0.0
        if len(self.coef_) == 1 and (of_targets == 1 or not self._is_matrix_of_one_target):
            self.coef_ = self.coef_[0]
        if of_targets == 1 and self.fit_intercept:
            self.intercept_ = self.intercept_[0]

    @raises_at_the_call
    def predict(self, X: Any) -> Any:
        """Predict the targets of each row, lazily of a Dask collection.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array
            Float64, ``(n,)`` or ``(n, targets)``.
        """
        check_is_fitted(self)
        return self._predicted(X, np.asarray, len(self.coef_) if self.coef_.ndim == 2 else 0)

    @raises_at_the_call
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the part of the variance that is explained, R²; of Dask collections, too.

        Parameters
        ----------
        X, y, sample_weight
            As :meth:`fit` takes them.

        Returns
        -------
        float
            1 at best.
        """
        if not is_dask(X, y, sample_weight):
            check_rows_unmasked(X, y, sample_weight)
            return float(r2_score(y, self.predict(X), sample_weight=sample_weight))
        columns = self._to_score(X, y, sample_weight)  # first, as it sees whether there is a model
        return explained(self._of_block(np.asarray), _squared, columns)


def _squared(y: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    squares: np.ndarray = (y - predicted) ** 2
    return squares


class Ridge(LinearRegression):
    """Least squares with a penalty, of the same coefficients as scikit-learn's, in one pass over the partitions.

    Parameters
    ----------
    alpha
        The penalty of the squared coefficients, added to the sum of the squared errors. Default: 1.0.
    fit_intercept, workers
        As of :class:`LinearRegression`, and so are the attributes, except for ``coef_`` of targets ``(n, 1)``: it is
        ``(features,)``, and predictions are ``(n,)``.

    Notes
    -----
    The penalty [1]_ is a row more of each feature; the rest is as of :class:`LinearRegression`.

    References
    ----------
    .. [1] Hoerl, Kennard, "Ridge Regression: Biased Estimation for Nonorthogonal Problems", 1970.
    """

    _is_matrix_of_one_target = False

    def __init__(self, alpha: float = 1.0, *, fit_intercept: bool = True, workers: int | None = None) -> None:
        self.alpha = alpha
        super().__init__(fit_intercept=fit_intercept, workers=workers)

    def _check_params(self) -> None:
        check_number("alpha", self.alpha)
        super()._check_params()

    def _penalty(self) -> float:
        return self.alpha
