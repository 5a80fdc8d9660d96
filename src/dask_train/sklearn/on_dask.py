"""What the Keras estimators share: Keras' own wrappers, trained by ``dt.fit``, that take Dask collections too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from dask_train.compat.sklearn import check_sample_weight
from dask_train.data.ledger import Ledger
from dask_train.input_errors import raises_at_the_call
from dask_train.linear_model.attributes import taken_back_on_failure
from dask_train.linear_model.collections import is_dask
from dask_train.predicting.api import predict
from dask_train.sklearn import outputs
from dask_train.sklearn.collections import as_features, check_features, rows_once, rows_together, targets
from dask_train.sklearn.fitting import check_compiled, fitted

# What `fit` learns from rows before it trains.
_OF_ROWS = ("classes_", "_is_one_target", "n_features_in_", "feature_names_in_")


class OnDask(BaseEstimator):
    """The part of a Keras estimator that is the same for classifiers, regressors and transformers."""

    model: Any
    warm_start: bool
    model_kwargs: Mapping[str, Any] | None
    fit_kwargs: Mapping[str, Any] | None
    model_: Any
    history_: Any
    ledger_: Ledger | None

    # Whether `fit` looks at the labels before it trains.
    _looks_at_labels = False

    def __sklearn_clone__(self) -> Self:
        """Return a copy with the same parameters, all of them: Keras' own leaves ``fit_kwargs`` out."""
        copied: Self = BaseEstimator.__sklearn_clone__(self)
        return copied

    @property
    def epoch_(self) -> int:
        """Return the number of epochs of the last fit; 0 before the first."""
        return len(self.history_.epoch) if hasattr(self, "history_") else 0

    @raises_at_the_call
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **kwargs: Any) -> Self:
        """Fit the model.

        Parameters
        ----------
        X
            ``(n, features)``: a Dask array or DataFrame, or what scikit-learn takes.
        y
            Targets, ``(n,)`` or ``(n, targets)``; a classifier's labels ``(n,)``.
        sample_weight
            Of each row, ``(n,)``, as Keras takes it: the loss of a batch is the sum of its rows' weighted losses over
            the number of its rows. Default: 1 each.
        **kwargs
            Of ``fit``, Keras' or :func:`dask_train.fit`; they go before ``fit_kwargs``.

        Returns
        -------
        object
            This estimator.

        Raises
        ------
        ValueError, TypeError
            The data or a parameter is invalid.
        DaskTrainError
            As :func:`dask_train.fit` raises it.
        """
        with taken_back_on_failure(self, _OF_ROWS):  # they belong to the model, which is the one of before
            self._fit(X, y, sample_weight, kwargs)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, keywords: Mapping[str, Any]) -> None:
        if isinstance(self.model, keras.Model):
            check_compiled(self.model)
        settings = {**(self.fit_kwargs or {}), **keywords}
        on_dask = is_dask(X, y, sample_weight)
        if y is not None and on_dask:
            check_features(self, X, reset=True)
            X, y, sample_weight = rows_together(X, y, sample_weight)
            weights = [] if sample_weight is None else [targets(sample_weight)]
            columns: Sequence[Any] = [as_features(X), targets(y), *weights]
            if self._looks_at_labels and is_dask(columns[1]) and not settings.get("streaming"):
                columns = rows_once(columns, settings.get("client"), settings.get("workers"))
            X, y, *weights = columns
            settings |= dict(zip(("sample_weight",), weights, strict=False))
        elif y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. An autoencoder's is X."
            )
        else:
            X, y = validate_data(self, X, y)
            type_of_target(y, raise_unknown=True)
            if sample_weight is not None:
                settings["sample_weight"] = check_sample_weight(sample_weight, X)
        y = self._targets(y)
        model = self._model_for(X, y)
        check_compiled(model)
        self._check_model(model)
        ledger = fitted(model, X, y, settings, is_checked=not on_dask)
        self.model_, self.history_, self.ledger_ = model, model.history, ledger

    def _targets(self, y: Any) -> Any:
        """Targets as the network gets them, ``(n, targets)``."""
        self._is_one_target = y.ndim == 1
        return y[:, None] if y.ndim == 1 else y

    def _check_model(self, model: Any) -> None:
        """Check that the model's outputs can mean what they have to."""

    def _model_for(self, X: Any, y: Any) -> Any:
        """Return the model to be trained: the one of before or as it was passed, with a warm start; else a new one."""
        if self.warm_start and hasattr(self, "model_"):
            return self.model_
        if not isinstance(self.model, keras.Model):
            return self.model(X=X, y=y, **(self.model_kwargs or {}))
        return self.model if self.warm_start else keras.models.clone_model(self.model)

    @raises_at_the_call
    def predict(self, X: Any) -> Any:
        """Return the targets of each row, lazily of a Dask collection.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array
            Float ``(n,)``, or ``(n, targets)``.
        """
        return self._meant(self._outputs(X))

    def _outputs(self, X: Any) -> Any:
        """Return what the network makes of each row: lazily of a Dask collection, by ``dt.predict``; else here."""
        check_is_fitted(self)
        if not is_dask(X):
            return self.model_.predict(validate_data(self, X, reset=False), verbose=0)
        check_features(self, X, reset=False)
        return predict(self.model_, as_features(X))

    def _meant(self, raw: Any) -> Any:
        """Return what outputs of the network predict."""
        return outputs.one_target(raw) if self._is_one_target else raw

    def _predicted(self, X: Any, rows: Any) -> Any:
        """Return what is predicted of a Dask collection; ``rows`` is the same, perhaps made an array next to others."""
        if rows is X:
            return self.predict(X)
        check_is_fitted(self)
        check_features(self, X, reset=False)
        return self._meant(predict(self.model_, as_features(rows)))
