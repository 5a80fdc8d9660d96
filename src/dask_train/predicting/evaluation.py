"""``evaluate``: loss and metrics of a model over all rows of a Dask collection, exact over uneven partitions."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from dask_train.arguments import check_counts
from dask_train.cluster.clients import client_or_none
from dask_train.cluster.in_tasks import frees_its_thread
from dask_train.collections.bags import is_bag
from dask_train.collections.schema.conformer import Conformer
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.config import PredictLimits
from dask_train.data.structure import leaves
from dask_train.fitting.backends import BACKENDS
from dask_train.fitting.checks import check_fits
from dask_train.fitting.finite import warn_of_evaluation
from dask_train.fitting.kinds import by_kind_of_model
from dask_train.fitting.schemas import schema_for
from dask_train.fitting.torch_module.settings import ModuleEvaluation
from dask_train.input_errors import raises_at_the_call
from dask_train.inputs.data import InputData
from dask_train.inputs.making import columns_for, input_data, names_columns
from dask_train.predicting.inputs import as_collections, check_classes
from dask_train.predicting.model import predictor
from dask_train.predicting.over_partitions import as_task, evaluated, joined, some
from dask_train.predicting.rows_to_score import label_for, rows_to_score
from dask_train.predicting.saved_models import opened_first
from dask_train.predicting.server.scores import added, results
from dask_train.predicting.server.values import Call
from dask_train.predicting.tasks import counted_block, joined_blocks, logs, num_rows, scored_block
from dask_train.report.progress import check_progress, progress_of
from dask_train.shared_data.parts import PART
from dask_train.shared_data.segments import is_data_set

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

# The class of a kind of models, by its public name, and the function of ``evaluate`` that scores them.
EVALUATE: dict[str, str] = {
    "lightgbm.Booster": "dask_train.predicting.booster_evaluation:evaluate_booster",
    "torch.nn.Module": "dask_train.fitting.torch_module.api:evaluate_module",
    "xgboost.Booster": "dask_train.predicting.booster_evaluation:evaluate_booster",
}


@overload
def evaluate(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    batch_size: int = 256,
    features: str | Sequence[str] | Mapping[str, Any] | None = None,
    label: str | Sequence[str] | Mapping[str, Any] | None = None,
    verbose: str | int | bool = "auto",
    schema: FrameSchema | str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | None = None,
) -> dict[str, float]: ...
@overload
def evaluate(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    loss: Callable[..., Any],
    metrics: Mapping[str, Any] | Sequence[Any] | None = None,
    sample_weight: Any = None,
    batch_size: int = 256,
    features: str | Sequence[str] | Mapping[str, Any] | None = None,
    label: str | Sequence[str] | Mapping[str, Any] | None = None,
    verbose: str | int | bool = "auto",
    workers: int | None = None,
    schema: FrameSchema | str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | None = None,
) -> dict[str, float]: ...
@overload
def evaluate(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    metrics: Mapping[str, Callable[..., Any]] | Sequence[Callable[..., Any]],
    sample_weight: Any = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    verbose: str | int | bool = "auto",
    schema: FrameSchema | str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | None = None,
) -> dict[str, float]: ...
@raises_at_the_call
@frees_its_thread
@opened_first
@by_kind_of_model(EVALUATE, ModuleEvaluation)
def evaluate(  # noqa: PLR0913 - Keras' own arguments, and ours
    model: Any,
    x: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    batch_size: int = 256,
    features: str | Sequence[str] | Mapping[str, Any] | None = None,
    label: str | Sequence[str] | Mapping[str, Any] | None = None,
    verbose: str | int | bool = "auto",
    schema: FrameSchema | str | os.PathLike[str] | None = None,
    client: Client | None = None,
) -> dict[str, float]:
    """Evaluate a model on all rows: what its metrics count is added up over the partitions, and then divided.

    Parameters
    ----------
    model
        A compiled Keras model; the path or URL of what ``result.save`` has written, or of a ``.keras`` file; or a
        classifier or regressor of
        scikit-learn, XGBoost or LightGBM. For a module of torch pass ``loss=``, and perhaps ``metrics=`` and
        ``workers=``, see ``docs/torch_modules.md``; for a booster of XGBoost or LightGBM ``metrics=``, functions
        of all rows' targets and predictions, see ``docs/boosted_trees.md``.
    x, y, sample_weight
        Inputs, targets and weights of rows, as ``model.evaluate`` takes them: Dask or NumPy arrays; tuples, lists or
        dicts of them for models of several inputs and outputs; a frame for ``x``, with ``label=``, or with columns
        that were cut from it; or for ``x`` a data set of :func:`~dask_train.get_dataset`, files of
        :func:`~dask_train.files` and the like, or a Dask bag of dicts with ``features=`` and ``label=``. Default of
        ``y`` and weights: none.
    batch_size
        Rows that go through a Keras model at a time. Default: 256.
    features, label
        Columns of a frame, as :func:`~dask_train.fit` takes them. Default: those that the model was fitted with.
    verbose
        Progress in partitions on standard error, as :func:`~dask_train.fit` shows it; 2 writes one line at the end.
        Default: "auto".
    schema, client
        As :func:`~dask_train.predict` takes them. Default: the model's own schema, and the client that there is.
    loss
        Loss of a torch module, as :func:`~dask_train.fit` takes it; not for other models. Default: none.
    storage_options
        Keywords for the file system of fsspec that has the model or the schema. Default: none.
    metrics
        Metrics of a torch module or a booster; not for other models. Default: none.
    workers
        Number of workers that share the rows, for a torch module; 0 for this process. Default: as many as of ``fit``.

    Returns
    -------
    dict of str to float
        A Keras model's ``loss`` and metrics, as ``model.evaluate(..., return_dict=True)`` gives them; ``accuracy`` of
        a classifier, ``r2`` of a regressor, as its ``score`` (that of a generalised linear model is D²). An awaitable
        with an asynchronous client.

    Raises
    ------
    TypeError, ValueError
        The model or the data is invalid; or there is no row.
    PredictionError, StalledError
        As :func:`~dask_train.predict` when it is computed.

    Notes
    -----
    The same as one process gives with the same ``batch_size``, except for the last digits: partitions are evaluated in
    the batches that one process would take of all rows. Metrics have to keep sums over rows in their variables, as
    those of Keras do; others raise an error. Rows at the ends of partitions, a batch at most, travel to one another.

    Examples
    --------
    >>> dt.evaluate(model, X, y)["loss"]
    >>> dt.evaluate("s3://bucket/model", frame)  # what result.save has written knows features and label
    >>> dt.evaluate(module, X, y, loss=torch.nn.CrossEntropyLoss())
    """
    check_counts(batch_size=batch_size)
    known = schema_for(model, schema)
    check_classes(x, known)
    x, y = as_collections(x, y)
    limits = PredictLimits.from_dask_config()
    client = client_or_none(client)
    check_progress(progress_of(verbose), waits=client is None or not client.asynchronous)
    model_predictor = predictor(model, method=None, meta=None, travels=client is not None, compiled=True)
    if model_predictor.scores is not None:
        call = Call.of_rows(batch_size)
        rows = rows_to_score(
            x, y, sample_weight, features, label, known=known, client=client, predictor=model_predictor
        )
        lengths = rows.lengths
        score = partial(scored_block, call, model_predictor.scores, rows.features, rows.label, rows.weight)
        lazy = partial(_scored, score, rows.parts)
        finish: Callable[[Any], Any] = partial(results, model_predictor.scores)
    else:
        label = label_for(known, x, y, label)
        data = _data_for(model_predictor.model, x, y, sample_weight, features, label, known)
        call = Call(verb="evaluate", columns=data.columns, batch_size=batch_size)
        source = data.source("data")
        parts, lengths = source.delayed_parts(PART, list), None if source.lengths is None else list(source.lengths)
        lazy = partial(_counted, call, limits, model_predictor.floatx, parts, lengths)
        finish = _some_finite
    return evaluated(client, model_predictor.value, lazy, lengths, finish, verbose)


def _some_finite(scores: dict[str, Any] | None) -> dict[str, Any]:
    """Return the scores, and warn where the loss is NaN.

    Raises
    ------
    ValueError
        There are no rows.
    """
    kept = some(scores)
    warn_of_evaluation(kept)
    return kept


def _data_for(
    model: Any, x: Any, y: Any, sample_weight: Any, features: Any, label: Any, known: FrameSchema | None
) -> InputData:
    """Return the rows for a Keras model, which are seen to fit it."""
    import keras

    from dask_train.keras_models.state import is_built
    from dask_train.predicting.server.keras_model import check_unordered

    weights = None if names_columns(sample_weight) else sample_weight
    for what, each in (("x", x), ("y", y), ("sample_weight", weights)):
        for value in leaves(each):
            if not (hasattr(value, "iloc") or is_bag(value) or is_data_set(value) or np.ndim(value)):
                raise TypeError(
                    f"{what} has {value!r}; pass arrays, or a tuple or dict of them where there are several."
                )
    if features is None and known is not None and label is not None:
        features = known.features
    features, label = columns_for(model, x, y, features, label)
    like = Conformer(known, learns=False)
    data = input_data("data", x, y, sample_weight, features=features, label=label, like=like)
    _check_targets(model, data)
    if not is_built(model):
        raise ValueError(
            f"Model {model.name!r} has no weights yet, so each process would make its own. Build or train it first."
        )
    check_unordered(model)
    if keras.backend.backend() in BACKENDS:
        check_fits(model, data, "The data", "test_step")
    return data


def _check_targets(model: Any, data: InputData) -> None:
    """Refuse to compare with nothing what Keras would."""
    import keras

    from dask_train.keras_models.state import compared_by

    if data.columns.labels is not None or type(model).test_step is not keras.Model.test_step:
        return
    own_loss = type(model).compute_loss is not keras.Model.compute_loss
    own_metrics = type(model).compute_metrics is not keras.Model.compute_metrics
    with_loss, with_metrics = compared_by(model)
    if (with_loss and not own_loss) or (with_metrics and not own_metrics):
        raise ValueError(
            "There are no targets: y is None, and the loss or the metrics that the model was compiled with compare "
            "predictions with them. Pass y, or label= with a frame or with files."
        )


def _counted(
    call: Call,
    limits: PredictLimits,
    floatx: str,
    parts: Sequence[Any],
    lengths: Sequence[int] | None,
    model: Any,
) -> tuple[Any, list[Any]]:
    """Return what a model's metrics say, delayed, and what they count in each partition."""
    count, count_last = (as_task(partial(counted_block, call, limits, floatx, is_last)) for is_last in (False, True))
    offsets, last = _offsets(parts, lengths)
    counted = [
        (count if number < last else count_last)(model, part, offset)
        for number, (part, offset) in enumerate(zip(parts, offsets, strict=True))
    ]
    total = joined(partial(as_task(partial(joined_blocks, call, limits)), model), counted)
    return as_task(partial(logs, call, limits))(model, total), counted


def _offsets(parts: Sequence[Any], lengths: Sequence[int] | None) -> tuple[list[Any], int]:
    """Return the number of rows before each partition, and from which partition on none may follow.

    A length is that of a partition which its own task has made, so nothing is computed twice; Dask takes partitions in
    order, so few wait for those before them.
    """
    if lengths is not None:
        starts = np.cumsum([0, *lengths]).tolist()
        return starts[:-1], max((number for number, length in enumerate(lengths) if length), default=0)
    size, add = as_task(num_rows), as_task(operator.add)
    offsets: list[Any] = [0]
    for part in parts[:-1]:
        offsets.append(add(offsets[-1], size(part)))
    return offsets[: len(parts)], 0


def _scored(task: Callable[..., Any], parts: Sequence[Any], model: Any) -> tuple[Any, list[Any]]:
    """Return what an estimator's predictions add to its score, delayed, in all and in each partition."""
    score = as_task(task)
    scored = [score(model, part) for part in parts]
    return joined(as_task(added), scored), scored
