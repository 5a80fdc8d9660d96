"""What the estimators share: how data come in, and how predictions are made of any collection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import dask
import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from dask_train.arguments import check_flags
from dask_train.collections.partition.form import is_frame
from dask_train.collections.schema.frame_schema import FrameSchema, only_categories
from dask_train.compat.sklearn import check_sample_weight
from dask_train.driver.settings import RunSettings
from dask_train.errors import ClosedError
from dask_train.input_errors import made_at_the_call, raises_at_the_call, warn_at_the_call
from dask_train.linear_model.attributes import attributes_of, set_attributes, taken_back_on_failure
from dask_train.linear_model.blocks import Prediction, by_block
from dask_train.linear_model.categories import names_with_indicators, schema_to_learn, with_indicators
from dask_train.linear_model.checks import check_workers
from dask_train.linear_model.collections import (
    as_array,
    as_features,
    check_is_matrix,
    check_names,
    check_rows_unmasked,
    check_text_columns,
    is_dask,
)
from dask_train.linear_model.columns import columns_of, computed_here, computed_in_shared_memory, lazy_columns
from dask_train.linear_model.fitting import Fitted, Task
from dask_train.linear_model.penalised_squares import PenalisedSquares
from dask_train.linear_model.posed import Posed
from dask_train.linear_model.ranks import Alone
from dask_train.report.progress import EstimatorDisplay, estimators_progress

if TYPE_CHECKING:
    from dask_train.driver.result import Result

# What is learnt from rows before they are solved for, and what that leaves of an earlier fit.
_OF_ROWS = ("n_features_in_", "feature_names_in_", "schema_", "coef_", "classes_")


class LinearEstimator(BaseEstimator):
    """A linear model of scikit-learn's kind that also takes Dask collections."""

    coef_: np.ndarray
    intercept_: Any
    n_features_in_: int
    schema_: FrameSchema | None
    workers: int | None

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a constructor name what it takes, where it is given something else."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            made_at_the_call(cls)

    @raises_at_the_call
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model; :func:`dask_train.fit` does the same as a run that can be followed, stopped and resumed.

        Progress on Dask collections is shown as :func:`dask_train.fit` shows it, in a notebook after 10 seconds.

        Parameters
        ----------
        X
            ``(n, features)``: a Dask array or DataFrame, or what scikit-learn takes, sparse matrices as well.
        y
            Targets, ``(n,)``: labels of a classifier, or numbers in the range of the distribution. Models of squared
            errors take ``(n, targets)`` as well.
        sample_weight
            Of each row, ``(n,)``. Default: 1 each.

        Returns
        -------
        estimator
            This one.

        Raises
        ------
        ValueError
            The data or a parameter is invalid, such as labels of one class only.
        """
        posed = self._posed(X, y, sample_weight, self.workers)
        if not is_dask(*posed.columns):
            posed.take(posed.problem(Alone(*posed.columns)))
            return self

        def finish(result: Result) -> None:
            if posed.taken(result) is None:
                raise ClosedError(
                    f"{type(self).__name__} has not been fitted: the run was stopped ({result.stop_reason}) before its "
                    "first worker could return."
                )

        run = RunSettings(gpus=None, name="linear-model", progress=estimators_progress())
        posed.start(run, self.workers, finish=finish, display=EstimatorDisplay)
        return self

    # What scikit-learn is asked of the data besides.
    _checks: ClassVar[dict[str, Any]] = {}

    def _posed(self, X: Any, y: Any, sample_weight: Any, workers: int | None) -> Posed:
        """Check parameters and data, and pose the problem; nothing is started but what computes the rows.

        With 0 workers the rows are computed into this process.
        """
        self._check_params()
        before = attributes_of(self, _OF_ROWS)
        try:
            posed = self._pose(self._taken(X, y, sample_weight, workers, **self._checks))
            learnt = attributes_of(self, _OF_ROWS)
        finally:  # until they are fitted, the coefficients are those of before, of other columns
            set_attributes(self, _OF_ROWS, before)

        def take(found: Any) -> None:
            with taken_back_on_failure(self, _OF_ROWS):
                set_attributes(self, _OF_ROWS, learnt)
                posed.take(found)

        return replace(posed, take=take, learnt=learnt)

    def _posed_for(
        self, num_features: int, schema: FrameSchema | None, y: np.ndarray, labels: Callable[[], np.ndarray]
    ) -> Posed:
        """Check parameters, and pose the problem of rows that lie elsewhere.

        Parameters
        ----------
        num_features
            Of the rows, an indicator of each category among them.
        schema
            Of the frame that they were; None of arrays.
        y
            No rows of the targets' shape.
        labels
            Returns the different ones of a classifier.
        """
        import pandas as pd

        self._check_params()
        X = np.empty((0, num_features))
        self.schema_ = schema
        check_names(self, X if schema is None else pd.DataFrame(X, columns=names_with_indicators(schema)), reset=True)
        self._check_targets(y, **self._checks)
        return self._pose((X, repeated(labels()) if is_classifier(self) else y))

    def _check_params(self) -> None:
        """Check that parameters are valid; each class adds its own.

        Raises
        ------
        ValueError, TypeError
            A parameter is invalid.
        """
        check_flags(**{name: getattr(self, name) for name in ("fit_intercept", "warm_start") if hasattr(self, name)})

    def _pose(self, columns: tuple[Any, ...]) -> Posed:
        """Pose the problem of columns that were checked, whose shapes it looks at, and the labels of a classifier."""
        raise NotImplementedError

    def _taken(self, X: Any, y: Any, sample_weight: Any, workers: int | None, **checks: Any) -> tuple[Any, ...]:
        """Features, targets and perhaps weights, checked."""
        check_workers(workers)
        check_rows_unmasked(X, y, sample_weight)
        X = self._learnt(X)
        if is_dask(X, y, sample_weight):
            check_names(self, X, reset=True)
            columns = columns_of(X, y, sample_weight, workers)
            self._check_targets(columns[1], **checks)
            return columns
        if is_frame(X) and hasattr(X, "iloc"):  # of pandas; scikit-learn takes others as well
            check_text_columns(X)
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, **checks)
        if sample_weight is None:
            return X, y
        return X, y, check_sample_weight(sample_weight, X, dtype=np.float64)

    def _check_targets(self, y: Any, *, multi_output: bool = False, **_: Any) -> None:
        """Check that there is one target per row, if more are not supported."""
        if y.ndim != 1 and not multi_output:
            raise ValueError(f"y has the shape {y.shape}; it is (n,), a number or a label each. Pass y[:, 0].")

    def _learnt(self, X: Any) -> Any:
        """Note the schema of a frame, and return it with indicators of its categories; all else as it is."""
        schema = schema_to_learn(X)
        # No warm start from coefficients of other indicators.
        if _categories(schema) != _categories(getattr(self, "schema_", None)):
            for name in ("coef_", "classes_"):
                self.__dict__.pop(name, None)
        self.schema_ = schema
        return X if schema is None else with_indicators(X, schema)

    def _seen(self, X: Any) -> Any:
        """Return a collection with the features of before, as numbers; lazily of Dask's."""
        check_is_fitted(self)
        check_rows_unmasked(X)
        X = with_indicators(X, self.schema_) if self.schema_ is not None and is_frame(X) else X
        if not dask.is_dask_collection(X):
            return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        check_is_matrix(X)
        check_names(self, X, reset=False)
        return as_features(X)

    def _of_block(self, then: Callable[[np.ndarray], np.ndarray]) -> Prediction:
        return Prediction(self.coef_, self.intercept_, then)

    def _predicted(self, X: Any, then: Callable[[np.ndarray], np.ndarray], width: int = 0, dtype: Any = float) -> Any:
        """Return what is made of predictions before the link, lazily of Dask's: ``(n,)``, or ``(n, width)``."""
        X = self._seen(X)
        X = as_array("X", X) if dask.is_dask_collection(X) else X
        predict = self._of_block(then)
        return by_block(predict, X, width, dtype) if dask.is_dask_collection(X) else predict(X)

    def _to_score(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, ...]:
        """Features, targets and perhaps weights as one data set, of which nothing need be computed yet."""
        X = self._seen(as_array("X", X) if not is_dask(X) else X)
        return lazy_columns(X, y, sample_weight, computed_here if self.workers == 0 else computed_in_shared_memory)

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there are coefficients."""
        return hasattr(self, "coef_")

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn's checks have to know."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def repeated(labels: np.ndarray) -> np.ndarray:
    """Return distinct labels, each twice: if all differ, scikit-learn warns that they could be of a regression."""
    return np.repeat(np.unique(labels), 2)


def _categories(schema: FrameSchema | None) -> FrameSchema | None:
    """Return the columns of categories of a schema, if there are any."""
    categories = None if schema is None else only_categories(schema)
    return categories if categories is not None and categories.columns else None


def warn(fitted: Fitted, task: Task | PenalisedSquares) -> None:
    """Warn if a model is not what was asked for; a user who stopped it knows."""
    if fitted.stopped:
        return
    if fitted.separable:
        warn_at_the_call(
            "The classes can be separated without an error, so that without a penalty no coefficients are the best "
            f"ones: they would grow for ever, and are those of step {fitted.steps}. Pass a finite C.",
            ConvergenceWarning,
        )
    elif not fitted.converged:
        warn_at_the_call(
            f"{task.solver} did not converge to tol={task.tol:g} within {fitted.steps} steps. Raise max_iter, or scale "
            "the features alike.",
            ConvergenceWarning,
        )
