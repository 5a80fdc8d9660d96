"""Private parts of scikit-learn. Made for scikit-learn 1.8 and 1.9."""

from __future__ import annotations

from typing import Any


def check_sample_weight(sample_weight: Any, rows: Any, **options: Any) -> Any:
    """Return weights as an array with one for each row, or raise scikit-learn's error.

    Replaces ``_check_sample_weight``. Without it weights of the wrong shape are refused in other words.
    """
    from sklearn.utils.validation import _check_sample_weight

    return _check_sample_weight(sample_weight, rows, **options)


def scorer_takes_weights(scorer: Any) -> bool | None:
    """Return whether a scorer of scikit-learn's takes ``sample_weight``; None of other scorers.

    Replaces ``_accept_sample_weight``. Without it a scorer's signature, ``**kwargs``, tells nothing.
    """
    asks = getattr(scorer, "_accept_sample_weight", None)
    return None if asks is None else bool(asks())


def output_of_transform(estimator: Any) -> str:
    """Return what ``set_output`` asked for: ``"default"``, ``"pandas"`` or ``"polars"``.

    Replaces ``_sklearn_output_config``. Without it Dask collections come out as arrays, whatever was asked for.
    """
    from sklearn import get_config

    output: str = getattr(estimator, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
    return output
