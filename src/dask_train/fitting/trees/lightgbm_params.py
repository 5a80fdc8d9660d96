"""What ``lightgbm.train`` makes of its parameters before it begins, and of its scores in the end."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import lightgbm
from lightgbm.basic import _ConfigAliases


def settled(params: Mapping[str, Any], num_rounds: int) -> tuple[dict[str, Any], int, list[Any]]:
    """The parameters of a booster, how many rounds there are to be, and what stops them early, as a callback.

    Parameters
    ----------
    params
        Of the estimator; number of rounds and early stopping under any of LightGBM's names for them, which go before
        ``num_rounds``, as in LightGBM.
    num_rounds
        Its ``n_estimators``.

    Raises
    ------
    ValueError
        There is to be no round.
    """
    found = {"deterministic": True, **deepcopy(dict(params))}
    if not any(found.get(name) for name in _ConfigAliases.get("force_row_wise")):
        found.setdefault("force_col_wise", True)
    rounds = int(_taken(found, "num_iterations", num_rounds))
    if rounds < 1:
        raise ValueError(f"n_estimators is {rounds}; a fit has 1 round or more.")
    patience, callbacks = int(_taken(found, "early_stopping_round", 0)), []
    if patience > 0:
        callbacks.append(
            lightgbm.early_stopping(
                patience,
                first_metric_only=bool(found.get("first_metric_only", False)),
                min_delta=found.get("early_stopping_min_delta", 0.0),
                verbose=False,
            )
        )
    return found, rounds, callbacks


def _taken(params: dict[str, Any], name: str, default: Any) -> Any:
    """A parameter by its name, or by another one that LightGBM knows; its names are not in the parameters then."""
    names = [name, *sorted(_ConfigAliases.get(name) - {name})]
    given = [value for value in [params.pop(each, None) for each in names] if value is not None]
    return given[0] if given else default


def last_scores(scores: Mapping[str, Mapping[str, Sequence[float]]], best: int) -> Any:
    """What an estimator's ``best_score_`` is: the scores of the best round, counted from 1, or of the last one.

    Parameters
    ----------
    scores
        Of all rounds, by data set and metric.
    best
        Not above 0 where nothing looked for the best one.
    """
    found: Any = defaultdict(OrderedDict)
    for name, by_metric in scores.items():
        for metric, values in by_metric.items():
            found[name][metric] = values[best - 1 if best > 0 else -1]
    return found
