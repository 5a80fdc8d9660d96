"""Generalised linear models: Poisson, gamma and Tweedie."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from dask_train.input_errors import raises_at_the_call
from dask_train.linear_model.checks import check_number, check_solving
from dask_train.linear_model.collections import check_rows_unmasked, is_dask
from dask_train.linear_model.estimating import LinearEstimator, warn
from dask_train.linear_model.families import Family, IdentityTweedie, Tweedie, tweedie_deviance
from dask_train.linear_model.fitting import Fitted, Task
from dask_train.linear_model.posed import Posed
from dask_train.linear_model.scores import explained


class _GeneralizedRegressor(RegressorMixin, LinearEstimator):
    """What these models share."""

    alpha: float
    l1_ratio: float
    fit_intercept: bool
    solver: str
    max_iter: int
    tol: float
    warm_start: bool

    def _family(self) -> Family:
        raise NotImplementedError

    _checks: ClassVar[dict[str, Any]] = {"y_numeric": True}

    def _check_params(self) -> None:
        check_number("alpha", self.alpha)
        check_solving(self)
        super()._check_params()
        family = self._family()
        if isinstance(family, IdentityTweedie) and not self.fit_intercept:
            raise ValueError(
                f"link='identity' with power={family.power} needs an intercept, since means are above 0. Set "
                "fit_intercept=True, or link='log'."
            )

    def _pose(self, columns: tuple[Any, ...]) -> Posed:
        task = Task(
            family=self._family(),
            num_features=columns[0].shape[1],
            fit_intercept=self.fit_intercept,
            alpha=self.alpha,
            l1_ratio=self.l1_ratio,
            of_sum=False,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            start=np.append(self.coef_, [self.intercept_] * self.fit_intercept)
            if self.warm_start and hasattr(self, "coef_")
            else None,
        )

        def take(fitted: Fitted) -> None:
            warn(fitted, task)
            self.coef_ = fitted.coef[0, : self.n_features_in_]
            self.intercept_ = fitted.coef[0, -1] if self.fit_intercept else 0.0
            self.n_iter_ = max(1, fitted.steps)  # scikit-learn counts the look at where it begins

        return Posed(columns=columns, problem=task, take=take)

    @raises_at_the_call
    def predict(self, X: Any) -> Any:
        """Return the mean of each row, lazily of a Dask collection.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array
            Float64 ``(n,)``.
        """
        return self._predicted(X, self._family().inverse_link)

    @raises_at_the_call
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the part of the deviance that is explained, D²; of Dask collections, too.

        Parameters
        ----------
        X, y, sample_weight
            As :meth:`fit` takes them.

        Returns
        -------
        float
            1 at best.
        """
        family = self._family()
        power = family.power if isinstance(family, Tweedie) else 0
        if not is_dask(X, y, sample_weight):
            check_rows_unmasked(X, y, sample_weight)
            return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=power))

        def deviance(y: np.ndarray, mean: np.ndarray) -> np.ndarray:
            family.check(y)
            return tweedie_deviance(y, mean, power)

        columns = self._to_score(X, y, sample_weight)
        return explained(self._of_block(family.inverse_link), deviance, columns)


class PoissonRegressor(_GeneralizedRegressor):
    """Poisson regression with a logarithmic link, of the same coefficients as scikit-learn's.

    Parameters
    ----------
    alpha
        The penalty, added to the mean of half the deviances. Default: 1.0.
    l1_ratio
        How much of the penalty is of the absolute coefficients; the rest is of half the squared ones. Default: 0.0.
    fit_intercept
        Whether there is an intercept, which is not penalised.
    solver
        ``"newton-cholesky"``, ``"lbfgs"``, ``"gradient_descent"``, and with an ``l1_ratio`` as well ``"newton-cd"``,
        ``"proximal_gradient"`` or ``"admm"``.
    max_iter, tol
        Steps that it may take; it stops where no part of the gradient is larger. Default: 100 and 0.0001.
    warm_start
        Whether another ``fit`` begins with the coefficients of the one before.
    workers
        Role processes for Dask collections; default: one per Dask worker; 0 for this process itself.

    Attributes
    ----------
    coef_, intercept_, n_iter_
        Float64 ``(features,)``, a float, and how many steps it took.

    Notes
    -----
    By default it is fitted by Newton's steps [1]_; see :class:`LogisticRegression`.

    References
    ----------
    .. [1] McCullagh, Nelder, "Generalized Linear Models", 1989, chapter 6; of gamma distributions chapter 8.
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        solver: str = "newton-cholesky",
        max_iter: int = 100,
        tol: float = 1e-4,
        warm_start: bool = False,
        workers: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.workers = workers

    def _family(self) -> Family:
        return Tweedie(1)

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn's checks have to know."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


class GammaRegressor(PoissonRegressor):
    """Gamma regression with a logarithmic link; parameters and attributes as :class:`PoissonRegressor`.

    Parameters
    ----------
    alpha, l1_ratio, fit_intercept, solver, max_iter, tol, warm_start, workers
        As of :class:`PoissonRegressor`.
    """

    def _family(self) -> Family:
        return Tweedie(2)


class TweedieRegressor(_GeneralizedRegressor):
    """Regression of a Tweedie distribution; parameters and attributes as :class:`PoissonRegressor`.

    Parameters
    ----------
    power
        0 for the normal distribution, 1 for Poisson's, 2 for gamma, 3 for the inverse Gaussian, and those between and
        beyond; below 0 targets may be anything. There is none between 0 and 1.
    alpha, l1_ratio, fit_intercept, solver, max_iter, tol, warm_start, workers
        As of :class:`PoissonRegressor`.
    link
        ``"identity"`` or ``"log"``; ``"auto"``, the default, is ``"identity"`` for powers up to 0 and ``"log"`` above.

    Notes
    -----
    The distributions are those of [1]_; the rest is as of :class:`PoissonRegressor`.

    References
    ----------
    .. [1] Jorgensen, "The Theory of Dispersion Models", 1997.
    """

    def __init__(  # noqa: PLR0913 - scikit-learn's parameters
        self,
        *,
        power: float = 0.0,
        alpha: float = 1.0,
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        link: str = "auto",
        solver: str = "newton-cholesky",
        max_iter: int = 100,
        tol: float = 1e-4,
        warm_start: bool = False,
        workers: int | None = None,
    ) -> None:
        self.power = power
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.link = link
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.workers = workers

    def _family(self) -> Family:
        if not isinstance(self.power, Real) or 0 < self.power < 1:
            raise ValueError(f"power is {self.power!r}; it is a number from 1 on, or up to 0.")
        if self.link not in ("auto", "identity", "log"):
            raise ValueError(f"link is {self.link!r}; it is 'auto', 'identity' or 'log'.")
        if self.link == "log" or (self.link == "auto" and self.power > 0):
            return Tweedie(self.power)
        return IdentityTweedie(self.power) if self.power else Family()

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn's checks have to know."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.power > 0
        return tags
