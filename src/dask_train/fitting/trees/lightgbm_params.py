"""What ``lightgbm.train`` makes of its parameters before it begins, and of its scores in the end."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import lightgbm

from dask_train.compat.lightgbm import names_of_parameter

# Parameters with which a round depends on more than the model: shares of features and of rows that are drawn, what is
# so if it is set at all, and what is so by certain words.
_DRAWN = ("feature_fraction", "feature_fraction_bynode")
_BAGGED = ("bagging_fraction", "pos_bagging_fraction", "neg_bagging_fraction")
_MORE_IF_SET = (
    *("extra_trees", "use_quantized_grad", "linear_tree"),
    *("cegb_penalty_feature_lazy", "cegb_penalty_feature_coupled"),
)
_MORE_IF_WORD = ("boosting", "data_sample_strategy", "objective")
_WORDS = (
    *("dart", "rf", "random_forest", "goss"),
    *("rank_xendcg", "xendcg", "xe_ndcg", "xe_ndcg_mart", "xendcg_mart"),
)
# Number of rows from which histograms are summed row by row, if those of all features have no more bins than this.
ROW_WISE_ROWS, ROW_WISE_BINS = 1_000_000, 1 << 15


def training_params(
    params: Mapping[str, Any], num_rounds: int, *, by_row: bool = False
) -> tuple[dict[str, Any], int, list[Any]]:
    """Return the parameters of a booster, how many rounds there are to be, and what stops them early, as a callback.

    Parameters
    ----------
    params
        Of the estimator; number of rounds and early stopping under any of LightGBM's names for them, which go before
        ``num_rounds``, as in LightGBM.
    num_rounds
        Its ``n_estimators``.
    by_row
        Whether histograms are summed row by row, where the parameters do not say.

    Raises
    ------
    ValueError
        There is to be no round.
    """
    booster_params = {"deterministic": True, **deepcopy(dict(params))}
    ways = ("force_col_wise", "force_row_wise")
    if not any(booster_params.get(name) for way in ways for name in names_of_parameter(way)):
        booster_params.setdefault(ways[by_row], True)
    rounds = int(_taken(booster_params, "num_iterations", num_rounds))
    if rounds < 1:
        raise ValueError(f"n_estimators is {rounds}; a fit has 1 round or more.")
    patience, callbacks = int(_taken(booster_params, "early_stopping_round", 0)), []
    if patience > 0:
        callbacks.append(
            lightgbm.early_stopping(
                patience,
                first_metric_only=bool(booster_params.get("first_metric_only", False)),
                min_delta=booster_params.get("early_stopping_min_delta", 0.0),
                verbose=False,
            )
        )
    return booster_params, rounds, callbacks


def sums_by_row(params: Mapping[str, Any], num_rows: int, num_features: int) -> bool:
    """Return whether histograms are made sooner row by row than feature by feature; for a second byte or two a cell.

    LightGBM times both and takes the quicker one, unless one is set: the last digits of trees would differ from run to
    run. This goes by sizes only, and is the same on all ranks. On two cores, rows of 28 features took 0.74 of the time
    row by row where there were 2.5 million, 0.97 with 200,000 and 1.12 with 20,000; 1,000 features 1.26.
    """
    max_bin = int(_taken(dict(params), "max_bin", 255))
    return num_rows >= ROW_WISE_ROWS and num_features * max_bin <= ROW_WISE_BINS


def not_in_the_model(params: Mapping[str, Any]) -> list[str]:
    """Return parameters with which rounds depend on more than the model, as ``name=value``.

    These are streams of random numbers, which continue from round to round, the rows of earlier draws, weights of
    ``dart``'s trees, the features that splits have used before, and coefficients that a model's text rounds.
    """
    given = {name: _given(params, name) for name in (*_DRAWN, *_BAGGED, *_MORE_IF_SET, *_MORE_IF_WORD)}
    is_bagged = (_given(params, "bagging_freq")[1] or 0) > 0
    drawn = [given[name] for name in (*_DRAWN, *(_BAGGED if is_bagged else ()))]
    pairs = [pair for pair in drawn if pair[1] not in (None, 1)]
    pairs += [given[name] for name in _MORE_IF_SET if given[name][1]]
    words = [given[name] for name in _MORE_IF_WORD]
    pairs += [(name, word) for name, word in words if isinstance(word, str) and word in _WORDS]
    return [f"{name}={value!r}" for name, value in pairs]


def _given(params: Mapping[str, Any], name: str) -> tuple[str, Any]:
    """Return a parameter by the name that it goes by, and its value; None if it is not there."""
    there = [each for each in (name, *sorted(names_of_parameter(name))) if params.get(each) is not None]
    return (there[0], params[there[0]]) if there else (name, None)


def _taken(params: dict[str, Any], name: str, default: Any) -> Any:
    """Take a parameter out, by its name or by another one that LightGBM knows."""
    names = [name, *sorted(names_of_parameter(name) - {name})]
    values = [value for value in [params.pop(each, None) for each in names] if value is not None]
    return values[0] if values else default


def last_scores(scores: Mapping[str, Mapping[str, Sequence[float]]], best: int) -> Any:
    """Return what an estimator's ``best_score_`` is: the scores of the best round, counted from 1, or of the last one.

    Parameters
    ----------
    scores
        Of all rounds, by data set and metric.
    best
        Not above 0 if nothing looked for the best one.
    """
    round_scores: Any = defaultdict(OrderedDict)
    for name, by_metric in scores.items():
        for metric, values in by_metric.items():
            round_scores[name][metric] = values[best - 1 if best > 0 else -1]
    return round_scores
