"""Metrics that LightGBM has not, found in the client: LightGBM itself takes no notice of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import lightgbm
import numpy as np
from lightgbm.basic import LightGBMError

from dask_train.compat.lightgbm import names_of_parameter

# By these names LightGBM is asked to score by no metric of its own.
_NO_METRIC = {"", "none", "na", "null", "custom"}


def check_metrics(params: Mapping[str, Any], eval_metric: Any) -> None:
    """Check that LightGBM has all metrics that are named.

    Parameters
    ----------
    params
        Those of the estimator.
    eval_metric
        As its ``fit`` takes it: names and functions, one or a list.

    Raises
    ------
    ValueError
        LightGBM has not, and would leave a metric out of the scores.
    """
    metrics_by_argument = {
        "eval_metric": eval_metric,
        **{name: params.get(name) for name in sorted(names_of_parameter("metric"))},
    }
    for argument, value in metrics_by_argument.items():
        for name in _names(value):
            if name.lower() not in _NO_METRIC and not _is_known(name):
                at = f" Ranks such as {name!r} are set with eval_at=." if "@" in name else ""
                raise ValueError(
                    f"{argument} names {name!r}, which is no metric of LightGBM: it would be left out of the scores."
                    f"{at} Pass one of LightGBM's, such as 'auc' or 'l2', or a function."
                )


def _names(value: Any) -> Iterator[str]:
    for each in value if isinstance(value, list | tuple | set) else [value]:
        if isinstance(each, str):
            yield from (name.strip() for name in each.split(","))


def _is_known(name: str) -> bool:
    """Return whether LightGBM scores two rows by it, or says why it can't."""
    quiet = {"verbosity": -1}
    rows = lightgbm.Dataset(np.zeros((2, 1)), label=[0.0, 1.0], group=[2], params=quiet)
    try:
        return bool(lightgbm.Booster({"objective": "none", "metric": name, **quiet}, rows).eval_train())
    except LightGBMError:  # a metric of several classes, or of other labels
        return True
