"""Where a Keras model of an estimator is trained: by ``dt.fit`` on Dask's cluster, or by Keras in this process."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from dask_train.cluster.clients import client_or_none
from dask_train.cluster.in_tasks import is_in_task
from dask_train.data.ledger import Ledger
from dask_train.fitting.api import fit
from dask_train.fitting.finite import NOT_FINITE, describe_bad_weights
from dask_train.fitting.settings import KerasKeywords
from dask_train.linear_model.collections import check_waits, is_dask

# What only `dt.fit` takes.
OF_RUNS = frozenset(KerasKeywords.__annotations__) - set(inspect.signature(keras.Model.fit).parameters)


def check_compiled(model: Any) -> None:
    """Check that a model is one of Keras' that can be trained.

    Raises
    ------
    TypeError
        It is something else, such as nothing that a function has returned.
    ValueError
        It is not compiled, or without a loss or an optimizer.
    """
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"model is a {type(model).__name__}; pass a compiled keras.Model, or a function that returns one."
        )
    if not model.compiled or not model.loss or not model.optimizer:
        lacking = "an optimizer" if model.compiled and model.loss else "a loss"
        raise ValueError(
            f"Model {model.name!r} is {f'compiled without {lacking}' if model.compiled else 'not compiled'}. Call "
            "model.compile(optimizer, loss) before it is passed, or returned by the function that makes it."
        )


def fitted(model: Any, X: Any, y: Any, settings: Mapping[str, Any], *, is_checked: bool) -> Ledger | None:
    """Train a compiled model, whose history it has then.

    Parameters
    ----------
    model
        Trained in place.
    X, y
        Arrays, of NumPy or Dask.
    settings
        Of Keras' or our ``fit``.
    is_checked
        Whether the rows have been searched for NaN.

    Returns
    -------
    Ledger, or None
        Of the run's rows; None if Keras has trained it here.

    Raises
    ------
    ValueError, TypeError, DaskTrainError
        As :func:`dask_train.fit` raises them; or the loss is not a number, as of data with gaps.
    """
    if not is_on_cluster(X, y, settings):
        model.fit(X, y, **settings)
        return None
    if settings.get("wait", True) is not True:
        raise ValueError("wait=False is of dt.fit; an estimator's fit returns when it is fitted. Leave it out.")
    if is_checked:
        return fit(model, X, y, **settings).ledger
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NOT_FINITE)  # of an estimator that is an error
        result = fit(model, X, y, **settings)
    _check_finite(model, result.history.get("loss", []))
    return result.ledger


def _check_finite(model: Any, losses: Sequence[float]) -> None:
    """Check that something was learnt: a loss may be finite up to the step that makes weights of no number.

    Raises
    ------
    ValueError
        A loss, or a weight in the end, is NaN or infinite.
    """
    if not all(map(math.isfinite, losses)):
        what = f"The loss was {next(each for each in losses if not math.isfinite(each))}"
    elif describe_bad_weights(model) is not None:
        what = f"{NOT_FINITE} at the end"
    else:
        return
    raise ValueError(
        f"{what}, so the model is not fitted. X or y contains NaN or infinity, or values that are too large: fill gaps "
        "and scale the features, or compile a smaller learning rate."
    )


def is_on_cluster(X: Any, y: Any, settings: Mapping[str, Any]) -> bool:
    """Return whether ``dt.fit`` trains: on Dask collections, with a Dask client, or where a setting is only its own.

    In a Dask task, as of joblib's Dask backend, arrays of NumPy are trained on by the task itself: many tasks share the
    cluster already, and each keeps to its thread.

    Raises
    ------
    ValueError
        The client is asynchronous.
    """
    validation = settings.get("validation_data")
    validation = validation if isinstance(validation, tuple | list) else (validation,)
    on_dask = is_dask(X, y, settings.get("sample_weight"), *validation)
    if not (on_dask or OF_RUNS & set(settings)) and is_in_task():
        return False
    client = client_or_none(settings.get("client"))
    check_waits(client)
    return on_dask or client is not None or bool(OF_RUNS & set(settings))
