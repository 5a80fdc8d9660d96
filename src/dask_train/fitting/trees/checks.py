"""What no fit of boosted trees can be, seen in the client before anything is started; without their libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_train.checkpoint.policy import Checkpoint, check_best_of_train
from dask_train.compat.xgboost import is_ranker
from dask_train.data.columns import Columns

# Early stopping of XGBoost's estimators, and by LightGBM's names for it.
_STOPS_EARLY = ("early_stopping_rounds", "early_stopping_round", "n_iter_no_change")


def check_plain(model: Any, library: str) -> None:
    """Refuse the library's own estimators for Dask, which each role would have train over a cluster again."""
    kind = type(model)
    if any(each.__module__.startswith(f"{library}.dask") for each in kind.__mro__):
        raise ValueError(
            f"model is a {kind.__name__}, which trains over Dask by itself. Pass {library}."
            f"{kind.__name__.removeprefix('Dask')}, or call the model's own fit."
        )


def check_best(checkpoint: Checkpoint | None, *, validates: bool) -> None:
    """Refuse best checkpoints that no score tells."""
    if checkpoint is not None and checkpoint.best is not None and not validates:
        raise ValueError(
            f"The best checkpoint is to be known by {checkpoint.best!r}, which nothing computes: pass validation_data "
            "or eval_set."
        )
    check_best_of_train(checkpoint)


def check_stops_early(params: Mapping[str, Any], *, validates: bool) -> None:
    """Refuse early stopping without rows that are scored, as both libraries do; of LightGBM's dart it stops nothing."""
    names = [name for name in _STOPS_EARLY if (params.get(name) or 0) > 0]
    if names and not validates and params.get("boosting_type") != "dart":
        raise ValueError(
            f"{names[0]}={params[names[0]]}: early stopping needs at least 1 validation dataset, whose scores it looks "
            "at. Pass validation_data=(X, y), or eval_set."
        )


def check_resumes(library: str, not_resumed: str) -> None:
    """Refuse to continue from a state in memory with parameters that let a fit which resumes grow other trees."""
    if not_resumed:
        raise ValueError(
            f"recovery='in_place' lets all workers continue from a state in memory when one is lost, and with "
            f"{not_resumed} {library} would grow other trees from there: its state is not all in the model. Leave "
            "recovery= or the parameter out. Without recovery= all start again, from the last checkpoint."
        )


def check_xgboost(model: Any, qid: Any) -> None:
    """Refuse what XGBoost does in one process alone."""
    kind = type(model).__name__
    if model.tree_method not in (None, "auto", "hist"):
        raise ValueError(
            f"tree_method={model.tree_method!r}: only histograms are summed over workers from memory that is shared. "
            "Leave tree_method out, or set it to 'hist'."
        )
    if model.booster == "gblinear":
        raise ValueError("booster='gblinear' has no trees. Use dask_train.linear_model, or booster='gbtree'.")
    ranks = is_ranker(model)
    if ranks and qid is None:
        raise ValueError(f"{kind} ranks rows within queries. Pass qid=, the number of each row's query.")
    if qid is not None and not ranks:
        raise ValueError(f"qid is for rankers, and model is a {kind}. Leave it out.")
    metrics = model.eval_metric if isinstance(model.eval_metric, list | tuple) else [model.eval_metric]
    if ranks and any(map(callable, metrics)):
        raise ValueError("eval_metric of a ranker is a function, which would see the queries of one worker. Name one.")


def check_rows(model: Any, library: str, columns: Columns) -> None:
    """Refuse rows that the estimator can't take."""
    _check_taken(model, columns)
    _check_labels(model, library, columns)


def check_same_features(what: str, columns: Columns, of_data: Columns) -> None:
    """Refuse rows to score that have other features than those to train on."""
    matrix, known = columns.matrix, of_data.matrix
    if (matrix.row_shape, matrix.names) != (known.row_shape, known.names):
        raise ValueError(
            f"{what} has the features {matrix.names or matrix.row_shape[0]}, and the data "
            f"{known.names or known.row_shape[0]}. Pass the same ones in the same order."
        )


def check_same_queries(what: str, columns: Columns, of_data: Columns) -> None:
    """Refuse rows to score that have queries where those to train on have none, or the other way round.

    XGBoost would take all of a worker's rows for one query.
    """
    if (columns.groups is None) != (of_data.groups is None):
        raise ValueError(
            f"{what} has no numbers of queries, and the data has some. Pass eval_qid=, one for each set."
            if columns.groups is None
            else f"{what} has numbers of queries, and the data has none. Pass qid=, too, or leave eval_qid out."
        )


def check_one_number(what: str, columns: Columns) -> None:
    """Refuse several weights, or numbers of queries, of one row."""
    for name, place in (("weights", columns.weights), ("numbers of queries", columns.groups)):
        shape = columns[place].row_shape if isinstance(place, int) else None
        if shape not in (None, (), (1,)):
            raise ValueError(
                f"{what} has {name} of the shape {shape} a row, and each row has one number of them. Pass {name} of "
                "the shape (n,)."
            )


def _check_taken(model: Any, columns: Columns) -> None:
    """Refuse categories that an estimator takes no notice of."""
    column = columns.matrix
    if column.categories is not None and not getattr(model, "enable_categorical", True):
        named = [str(each.name) for each in column.origins if each.categories is not None]
        raise ValueError(
            f"{', '.join(named)} are categories, which {type(model).__name__} takes with enable_categorical=True. Set "
            "it, or make numbers of them."
        )


def _check_labels(model: Any, library: str, columns: Columns) -> None:
    """Refuse text as labels, as far as its type is known, where the library takes numbers alone."""
    if np.dtype(columns[columns.labels].dtype).kind not in "USO":
        return
    is_classifier = hasattr(model, "predict_proba")
    if library == "xgboost" or not is_classifier:
        raise ValueError(
            f"The labels are text, and {type(model).__name__} takes numbers"
            + (": 0, 1 and so on for classes" if is_classifier else "")
            + ". Make such of them, with frame[label].astype('category').cat.codes for instance."
        )


def check_enough(num_parts: int | None, workers: int) -> None:
    """Refuse fewer partitions than workers, of data that is streamed."""
    if num_parts is not None and workers > num_parts:
        raise ValueError(
            f"workers={workers}, and the data has {num_parts} partitions with rows: if it is streamed each worker "
            "needs one at least. Cut it into more partitions, or pass a smaller number."
        )
