"""Keras models as transformers of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from keras.wrappers import SKLearnTransformer
from sklearn.utils.validation import check_is_fitted

from dask_train.compat.sklearn import output_of_transform
from dask_train.input_errors import raises_at_the_call
from dask_train.linear_model.collections import is_dask
from dask_train.predicting.api import predict
from dask_train.sklearn.collections import as_features, check_features
from dask_train.sklearn.on_dask import OnDask


class _Here(OnDask, SKLearnTransformer):
    """What transforms in this process, and scikit-learn puts into the frames that ``set_output`` asks for."""

    def transform(self, X: Any) -> Any:
        return self._outputs(X)


class _Transforming(_Here, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """What transforms; scikit-learn would make a pandas frame, in memory, of a Dask array that is returned here."""

    @raises_at_the_call
    def transform(self, X: Any) -> Any:
        """Return what the network makes of each row, lazily of a Dask collection.

        Parameters
        ----------
        X
            As :meth:`fit` takes it.

        Returns
        -------
        array, or frame
            Float ``(n, outputs)``; with ``set_output(transform="pandas")`` a frame, of Dask where ``X`` is.

        Raises
        ------
        ValueError
            ``set_output`` asks for frames that Dask has not.
        """
        if not is_dask(X):
            return super().transform(X)
        kind = output_of_transform(self)
        if kind == "default":
            return self._outputs(X)
        if kind != "pandas":
            raise ValueError(f"set_output(transform={kind!r}) of a Dask collection: Dask has frames of pandas only.")
        from dask.dataframe import from_dask_array

        check_is_fitted(self)
        check_features(self, X, reset=False)
        if not hasattr(X, "columns"):
            # A frame made of predictions that are an array would lose the model they wait for.
            X = from_dask_array(as_features(X), columns=[str(number) for number in range(X.shape[1])])
        return predict(self.model_, X, columns=self.get_feature_names_out().tolist())

    @raises_at_the_call
    def fit_transform(self, X: Any, y: Any = None, **kwargs: Any) -> Any:
        """Fit the model, and transform the same rows.

        Parameters
        ----------
        X, y, **kwargs
            As :meth:`fit` takes them.

        Returns
        -------
        array, or frame
            As of :meth:`transform`.
        """
        return self.fit(X, y, **kwargs).transform(X)


class KerasTransformer(_Transforming):
    """A Keras network as a transformer, trained by :func:`dask_train.fit` on Dask collections.

    Keras' own ``keras.wrappers.SKLearnTransformer``, whose models and parameters it takes.

    Parameters
    ----------
    model, warm_start, model_kwargs, fit_kwargs
        As of :class:`~dask_train.sklearn.KerasClassifier`.

    Attributes
    ----------
    model_, history_, ledger_
        As of :class:`~dask_train.sklearn.KerasClassifier`.
    """

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:  # noqa: ARG002 - of scikit-learn
        """Return names of the outputs: the class's name and a number.

        Parameters
        ----------
        input_features
            Not used.

        Returns
        -------
        numpy.ndarray
            Objects, ``(outputs,)``.
        """
        check_is_fitted(self)
        prefix = type(self).__name__.lower()
        return np.array([f"{prefix}{number}" for number in range(self.model_.output_shape[-1])], dtype=object)
