"""Least squares with a penalty of absolute values."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dask_train.input_errors import warn_at_the_call
from dask_train.linear_model.checks import check_number, check_solving
from dask_train.linear_model.estimating import warn
from dask_train.linear_model.fitting import Fitted
from dask_train.linear_model.linear import LinearRegression
from dask_train.linear_model.penalised_squares import PenalisedSquares
from dask_train.linear_model.posed import Posed


class ElasticNet(LinearRegression):
    """Least squares with two penalties, of the same coefficients as scikit-learn's, over the partitions of a data set.

    Parameters
    ----------
    alpha
        The penalty, added to half the mean squared error. Default: 1.0.
    l1_ratio
        How much of it is of the absolute coefficients; the rest is of half the squared ones. Default: 0.5.
    fit_intercept
        Whether there is an intercept, which is not penalised.
    solver
        ``"newton-cd"``: coordinate descent on the summed Gram matrix, one pass over the rows after that of the means;
        ``"proximal_gradient"`` for very many features, as it needs no such matrix; or ``"admm"``.
    max_iter, tol
        Steps that it may take; it stops where no part of the smallest subgradient is larger than ``tol`` standard
        deviations of the targets. Default: 1000 and 0.0001.
    warm_start
        Whether another ``fit`` begins with the coefficients of the one before.
    workers
        Role processes for Dask collections; default: one per Dask worker; 0 for this process itself.

    Attributes
    ----------
    coef_, intercept_, n_iter_
        As of :class:`Ridge`; how many steps it took, of several targets a list.

    Notes
    -----
    The penalties are those of [1]_, coordinate descent is that of [2]_; where the other solvers are from stands in
    :mod:`dask_train.linear_model.composite` and ``.admm``.

    References
    ----------
    .. [1] Zou, Hastie, "Regularization and Variable Selection via the Elastic Net", 2005.
    .. [2] Friedman, Hastie, Tibshirani, "Regularization Paths for Generalized Linear Models via Coordinate Descent",
       2010.
    """

    _is_matrix_of_one_target = False

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        solver: str = "newton-cd",
        max_iter: int = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        workers: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        super().__init__(fit_intercept=fit_intercept, workers=workers)

    def _check_params(self) -> None:
        check_number("alpha", self.alpha)
        check_solving(self)
        super()._check_params()

    def _pose(self, columns: tuple[Any, ...]) -> Posed:
        task = PenalisedSquares(
            l2=self.alpha * (1 - self.l1_ratio),
            l1=self.alpha * self.l1_ratio,
            fit_intercept=self.fit_intercept,
            num_features=columns[0].shape[1],
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            start=np.atleast_2d(self.coef_) if self.warm_start and hasattr(self, "coef_") else None,
        )

        def take(fits: list[Fitted]) -> None:
            for each in fits:
                warn(each, task)
            left = [str(number) for number, each in enumerate(fits) if each.stopped and each.steps == 0]
            if left and len(fits) > 1:
                warn_at_the_call(
                    f"The fit was stopped before the targets {', '.join(left)} of {len(fits)} were begun: their "
                    "coefficients are those from which a fit begins. Fit again, or resume from a checkpoint.",
                    ConvergenceWarning,
                )
            self._keep(np.concatenate([each.coef for each in fits]).T, columns[1].ndim)
            steps = [each.steps for each in fits]
            self.n_iter_: Any = steps[0] if len(steps) == 1 else steps

        return Posed(columns=columns, problem=task, take=take)


class Lasso(ElasticNet):
    """Least squares with a penalty of the absolute coefficients; the rest as of :class:`ElasticNet`.

    Parameters
    ----------
    alpha
        The penalty, added to half the mean squared error. Default: 1.0.
    fit_intercept, solver, max_iter, tol, warm_start, workers
        As of :class:`ElasticNet`, and so are the attributes.

    Notes
    -----
    The penalty is that of [1]_; the rest is as of :class:`ElasticNet`.

    References
    ----------
    .. [1] Tibshirani, "Regression Shrinkage and Selection via the Lasso", 1996.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        solver: str = "newton-cd",
        max_iter: int = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        workers: int | None = None,
    ) -> None:
        super().__init__(
            alpha,
            l1_ratio=1.0,
            fit_intercept=fit_intercept,
            solver=solver,
            max_iter=max_iter,
            tol=tol,
            warm_start=warm_start,
            workers=workers,
        )
