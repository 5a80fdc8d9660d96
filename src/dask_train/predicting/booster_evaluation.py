"""``evaluate`` of boosters of XGBoost and LightGBM, which have no ``score``: functions of all rows' predictions."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped]

from dask_train.arguments import CheckedSettings, checked_by, takes
from dask_train.cluster.clients import client_or_none
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.fitting.schemas import schema_for
from dask_train.predicting.inputs import as_collections, check_classes
from dask_train.predicting.model import predictor
from dask_train.predicting.over_partitions import as_task, evaluated, joined, some
from dask_train.predicting.rows_to_score import rows_to_score
from dask_train.predicting.server.scores import Predictions, joined_predictions
from dask_train.predicting.server.values import Call
from dask_train.predicting.tasks import as_at_the_call, predicted_block
from dask_train.report.progress import check_progress, progress_of
from dask_train.settings.process import Settings, named_in

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

Metrics = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class BoosterEvaluation(CheckedSettings):
    """Settings of an evaluation of a booster.

    Attributes
    ----------
    metrics
        Functions of targets and predictions, ``metric(y_true, y_pred)`` as those of ``sklearn.metrics`` are, or a dict
        of them by name; with ``sample_weight=`` where rows have weights. Predictions are what the booster makes:
        probabilities ``(n,)`` of two classes, ``(n, classes)`` of more.
    sample_weight
        Weights of rows; of a frame the name of their column.
    features, label
        Columns of a frame.
    verbose, schema, client
        As in :func:`dask_train.evaluate`.
    """

    metrics: Metrics | Sequence[Callable[..., Any]]
    sample_weight: Any = None
    features: str | Sequence[str] | None = None
    label: str | None = None
    verbose: str | int | bool = checked_by(progress_of, "auto")
    schema: FrameSchema | str | os.PathLike[str] | None = None
    client: Client | None = None


@takes(BoosterEvaluation)
def evaluate_booster(model: Any, x: Any, y: Any = None, **arguments: Any) -> dict[str, float]:
    """Evaluate a booster on all rows of a Dask collection, exactly as in one process.

    Parameters
    ----------
    model : xgboost.Booster or lightgbm.Booster
        It predicts as :func:`dask_train.predict` lets it: by its best round where early stopping has found one.
    x, y
        Features and targets: Dask or NumPy arrays, or a frame for ``x``, with ``label=``. Or for ``x`` a data set of
        :func:`~dask_train.get_dataset`, or files of :func:`~dask_train.files` and the like, which have the others; or a
        Dask bag of dicts, with ``label=``.
    **arguments
        Fields of :class:`BoosterEvaluation`.

    Returns
    -------
    dict of str to float
        What the metrics give, by name. An awaitable with an asynchronous client.

    Raises
    ------
    TypeError, ValueError
        The model, the data or a metric is invalid; or there is no row.
    PredictionError
        As :func:`dask_train.predict` when it is computed.

    Notes
    -----
    Predictions are made block by block, where the blocks are. Those of all rows come together on one Dask worker, with
    targets and weights, and the metrics are called there, once: so they need not be means over rows.
    """
    settings = BoosterEvaluation.of(arguments)
    known, client = schema_for(model, settings.schema), client_or_none(settings.client)
    check_classes(x, known)
    x, y = as_collections(x, y)
    check_progress(progress_of(settings.verbose), waits=client is None or not client.asynchronous)
    model_predictor = predictor(model, method=None, meta=None, travels=client is not None)
    columns = (settings.sample_weight, settings.features, settings.label)
    rows = rows_to_score(x, y, *columns, known=known, client=client, predictor=model_predictor)
    metrics = _named(settings.metrics, weighs=rows.is_weighted)
    block = partial(predicted_block, Call.of_rows(1), rows.features, rows.label, rows.weight)
    lazy = partial(_lazy, block, partial(_scores, metrics, _settings_of(metrics)), rows.parts)
    return evaluated(client, model_predictor.value, lazy, rows.lengths, some, settings.verbose)


def _lazy(block: Callable[..., Any], scores: Callable[..., Any], parts: Sequence[Any], model: Any) -> tuple[Any, Any]:
    """Return the scores, delayed, and the predictions of each partition."""
    predicted = [as_task(block)(model, part) for part in parts]
    return as_task(scores)(joined(as_task(joined_predictions), predicted)), predicted


def _settings_of(metrics: Metrics) -> Settings:
    """Return the settings of libraries that functions of rows use, as far as that can be seen."""
    named = [library for one in metrics.values() for library in named_in(cloudpickle.dumps(one), one)]
    return Settings.here("numpy", "pandas", "sklearn", *dict.fromkeys(named))


def _scores(metrics: Metrics, settings: Settings, total: Predictions | None) -> dict[str, float] | None:
    if total is None:
        return None
    weights = {} if total.weights is None else {"sample_weight": total.weights}
    with as_at_the_call(settings):
        return {name: float(metric(total.truth, total.predicted, **weights)) for name, metric in metrics.items()}


def _named(metrics: Any, *, weighs: bool) -> dict[str, Callable[..., Any]]:
    """Metrics by name.

    Raises
    ------
    TypeError, ValueError
        One is no function, takes no weights where there are some, or has another one's name.
    """
    if isinstance(metrics, str) or not isinstance(metrics, Mapping | Sequence) or not metrics:
        raise TypeError(
            f"metrics is {metrics!r}; pass a list of functions of targets and predictions, such as "
            "[sklearn.metrics.roc_auc_score], or a dict of them by name."
        )
    if isinstance(metrics, Mapping):
        pairs = list(metrics.items())
    else:
        pairs = [(getattr(one, "__name__", repr(one)), one) for one in metrics]
    for name, one in pairs:
        if not callable(one):
            raise TypeError(f"metrics has {one!r}; pass functions of targets and predictions, as sklearn.metrics has.")
        if weighs and not _takes_weights(one):
            raise ValueError(f"The metric {name!r} takes no sample_weight=, and there is one. Leave one of them out.")
    if len(dict(pairs)) < len(pairs):
        raise ValueError(f"Two metrics are called {', '.join(name for name, _ in pairs)}. Pass a dict.")
    return dict(pairs)


def _takes_weights(metric: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(metric).parameters
    except (TypeError, ValueError):  # of native code
        return True
    return "sample_weight" in parameters or any(
        one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()
    )
