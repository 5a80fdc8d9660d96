"""Keras models as classifiers and regressors of scikit-learn."""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
from keras.wrappers import SKLearnClassifier, SKLearnRegressor
from sklearn.utils.multiclass import type_of_target

from dask_train.input_errors import raises_at_the_call
from dask_train.linear_model.checks import check_labels
from dask_train.linear_model.collections import is_dask
from dask_train.sklearn import outputs
from dask_train.sklearn.collections import beside, classes_of, one_hot, rows_together
from dask_train.sklearn.on_dask import OnDask


class KerasClassifier(OnDask, SKLearnClassifier):
    """A Keras network as a classifier, trained by :func:`dask_train.fit` on Dask collections.

    Keras' own ``keras.wrappers.SKLearnClassifier``, whose models and parameters it takes. Labels reach the network as
    a column of 0 and 1 for each class, so its last layer has as many units as there are classes, two for two.

    Parameters
    ----------
    model
        A compiled ``keras.Model``, or a function of ``X``, ``y`` (``(n, classes)``) and ``model_kwargs`` that returns
        one. A model is cloned before it is fitted, unless ``warm_start`` is true.
    warm_start
        Whether another ``fit`` continues from the weights of the one before, and the first with those of ``model``.
    model_kwargs
        Keywords of ``model``, where it is a function. Default: none.
    fit_kwargs
        Keywords of ``fit``, Keras' or :func:`dask_train.fit`: ``epochs``, ``workers``, ``checkpoint``, ... It is not
        changed by ``fit``'s own keywords, which go before them. Default: none.

    Attributes
    ----------
    model_ : keras.Model
        The fitted model.
    history_ : keras.callbacks.History
        Of the last fit.
    ledger_ : Ledger or None
        The account of rows of the last fit; None if Keras has trained in this process.
    classes_ : numpy.ndarray
        Sorted labels, ``(classes,)``.

    Notes
    -----
    Dask collections are trained on by ``dt.fit`` and predicted lazily by ``dt.predict``; ``classes_`` is found block by
    block, in rows that are computed once, into shared memory; with ``streaming`` labels are computed once more. What
    scikit-learn takes (NumPy, pandas) is trained on by ``dt.fit`` where there is a Dask client, and by
    Keras in this process if there is none or if a Dask task calls, as with joblib's Dask backend; predictions of
    it are made in this process.
    """

    classes_: np.ndarray
    _looks_at_labels = True

    def _targets(self, y: Any) -> Any:
        before = self.classes_ if self.warm_start and hasattr(self, "model_") else None
        if is_dask(y):
            self.classes_ = classes_of(y)
        else:
            kind = type_of_target(y)
            if kind not in ("binary", "multiclass"):
                raise ValueError(f"Only binary and multiclass target types are supported. Target type: {kind}")
            y = np.ravel(y)
            self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        if before is not None and not np.array_equal(before, self.classes_):
            new_classes, self.classes_ = self.classes_, before
            raise ValueError(
                f"A warm start keeps the classes {before.tolist()}, and y has {new_classes.tolist()}. Pass rows of "
                "all of them, or warm_start=False."
            )
        return one_hot(y, self.classes_)

    def _check_model(self, model: Any) -> None:
        """Check that each class has an output: losses may broadcast another number, and labels mean nothing."""
        shape = outputs.shape_of(model)
        if shape is not None:
            outputs.check_units(shape, len(self.classes_))

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
        return self._meant(self._outputs(X))

    def _meant(self, raw: Any) -> Any:
        return outputs.labels(raw, self.classes_)

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
            Float ``(n, classes)``. Outputs of a loss with ``from_logits=True`` go through a softmax, or through a
            sigmoid where it is binary; rows sum to 1.

        Raises
        ------
        ValueError
            The outputs are no probabilities.
        """
        raw = self._outputs(X)
        return outputs.probabilities(raw, len(self.classes_), outputs.link_of(self.model_.loss))

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
            The network's outputs, ``(n, classes)``; of two classes, as scikit-learn has them, the second's less the
            first's, ``(n,)``.
        """
        raw = self._outputs(X)
        return outputs.margins(raw) if len(self.classes_) == 2 else raw

    @raises_at_the_call
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the part of the rows whose class is predicted; a number, also of Dask collections.

        Parameters
        ----------
        X, y, sample_weight
            Rows as :meth:`fit` takes them, and a weight of each. Default: 1 each.

        Returns
        -------
        float
            From 0 to 1.
        """
        if not is_dask(X):
            return float(super().score(X, y, sample_weight))
        rows, y, sample_weight = rows_together(X, y, sample_weight)
        predicted, y, *weights = beside(self._predicted(X, rows), y, sample_weight)
        check_labels(self.classes_, y)
        right = predicted == y
        if not weights:
            return float(right.mean().compute())
        weight = weights[0].astype(np.float64)  # sums of short floats overflow
        right_weight, total = dask.compute((right * weight).sum(), weight.sum())
        return float(right_weight / total)


class KerasRegressor(OnDask, SKLearnRegressor):
    """A Keras network as a regressor, trained by :func:`dask_train.fit` on Dask collections.

    Keras' own ``keras.wrappers.SKLearnRegressor``, whose models and parameters it takes.

    Parameters
    ----------
    model, warm_start, model_kwargs, fit_kwargs
        As of :class:`KerasClassifier`; ``y`` reaches a function as ``(n, 1)``, or ``(n, targets)`` of Dask.

    Attributes
    ----------
    model_, history_, ledger_
        As of :class:`KerasClassifier`.
    """

    @raises_at_the_call
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the part of the variance that is explained, R²; a number, also of Dask collections.

        Parameters
        ----------
        X, y, sample_weight
            Rows as :meth:`fit` takes them, and a weight of each. Default: 1 each.

        Returns
        -------
        float
            1 at best; of several targets the mean.
        """
        if not is_dask(X):
            return float(super().score(X, y, sample_weight))
        rows, y, sample_weight = rows_together(X, y, sample_weight)
        several = beside(self._predicted(X, rows), y, sample_weight)
        columns = (each[:, None] if each.ndim == 1 else each for each in several)
        predicted, y, *weights = (each.astype(np.float64) for each in columns)  # sums of short floats overflow
        weight = weights[0] if weights else 1.0
        mean = (y * weight).sum(axis=0) / (y * 0 + weight).sum(axis=0)
        left, all_of_it = dask.compute(
            (weight * (y - predicted) ** 2).sum(axis=0), (weight * (y - mean) ** 2).sum(axis=0)
        )
        constant = all_of_it == 0
        explained = np.where(constant, left == 0, 1 - left / np.where(constant, 1, all_of_it))
        return float(explained.mean())
