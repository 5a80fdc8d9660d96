"""``evaluate``: loss and metrics of a model over all rows of a Dask collection, exact over uneven partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dask import delayed

from dask_train.cluster.models import client_or_none, on_dask
from dask_train.cluster.on_worker.predicted import counted_block, scored_block
from dask_train.cluster.shared_segments import SharedSegments
from dask_train.collections.blocks import with_whole_rows
from dask_train.collections.pieces.form import chosen, is_frame
from dask_train.collections.pieces.part import part
from dask_train.config import PredictLimits
from dask_train.fit_checks import check_counts
from dask_train.fit_roles.layout import leaves
from dask_train.fitted_data import FitData, fit_data
from dask_train.predicted_model import Predictor, predictor
from dask_train.prediction.scores import added, results
from dask_train.prediction.values import Call

if TYPE_CHECKING:
    from distributed import Client

# So many partitions' counts are added up in one task.
FAN_IN = 16


def evaluate(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    batch_size: int = 256,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    client: Client | None = None,
) -> Any:
    """How good a model is on all rows: what its metrics count is added up over the partitions, and then divided.

    Parameters
    ----------
    model
        A compiled Keras model, or the path or URL of one in a ``.keras`` file; or a classifier or regressor of
        scikit-learn.
    x, y, sample_weight
        Inputs, targets and weights of rows, as ``model.evaluate`` takes them: Dask or NumPy arrays; tuples, lists or
        dicts of them for models of several inputs and outputs; a frame for ``x``, with ``label=``; or for ``x`` a data
        set of :func:`~dask_train.get_dataset`.
    batch_size
        Rows that go through a Keras model at a time.
    features, label
        Columns of a frame, as :func:`~dask_train.fit` takes them.
    client
        As :func:`~dask_train.predict`.

    Returns
    -------
    dict of str to float
        A Keras model's ``loss`` and metrics, as ``model.evaluate(..., return_dict=True)`` gives them; ``accuracy`` of
        a classifier, ``r2`` of a regressor, as its ``score``. An awaitable with an asynchronous client.

    Raises
    ------
    TypeError, ValueError
        The model or the data can't be; or there is no row.
    PredictionError, StalledError
        As :func:`~dask_train.predict` when it is computed.

    Notes
    -----
    Exact for metrics whose variables are sums over rows, as are those of Keras: means, counts, confusion matrices, AUC.
    The same as one process gives, but for the last digits, as long as the loss of a batch is its rows' mean (Keras'
    default reduction), which does not depend on where batches end.
    """
    check_counts(batch_size=batch_size)
    limits = PredictLimits.from_dask_config()
    client = client_or_none(client)
    found = predictor(model, method=None, meta=None, travels=client is not None, compiled=True)
    if found.scores is not None:
        what = found.scores
        parts = _scored_parts(x, y, sample_weight, features, label)
        task = partial(scored_block, Call.of_rows(batch_size), what, features, label)
        finish: Callable[[Any], Any] = partial(results, what)
    else:
        data = fit_data("data", x, y, sample_weight, features=features, label=label)
        if data.layout.y is None:
            raise ValueError("There are no targets. Pass y, or label= with a frame.")
        call = Call(verb="evaluate", layout=data.layout, columns=(), batch_size=batch_size)
        parts = _parts(data)
        task = partial(counted_block, call, limits, found.floatx)
        finish = partial(_of_metrics, found, data)
    if client is None:
        return finish(_summed(task, found.value, parts).compute(scheduler="threads"))
    sent = on_dask(client, found.value)
    if client.asynchronous:
        return _later(client, sent, task, parts, finish)
    return finish(client.compute(_summed(task, sent, parts)).result())


async def _later(client: Client, sent: Any, task: Any, parts: list[Any], finish: Callable[[Any], Any]) -> Any:
    return finish(await client.compute(_summed(task, await sent, parts)))


def _parts(data: FitData) -> list[Any]:
    """A delayed list of columns for each partition."""
    source = data.source("data")
    if isinstance(source, SharedSegments):
        blocks = [array.to_delayed().ravel() for array in with_whole_rows("data", leaves(source.arrays()))]
        return [delayed(list)(pieces) for pieces in zip(*blocks, strict=True)]
    return source.delayed_parts(part, list)


def _scored_parts(x: Any, y: Any, sample_weight: Any, features: Any, label: Any) -> list[Any]:
    """A delayed frame, or a list of arrays, for each partition."""
    if is_frame(x):
        if label is None or y is not None or sample_weight is not None:
            raise ValueError("To score an estimator on a frame, name its label column, label=, and leave y out.")
        one, several, label = chosen("x", list(x.columns), features, label)
        needed = x[[*([one] if several is None else several), label]]
        return list(needed.to_delayed()) if hasattr(needed, "to_delayed") else [delayed(needed)]
    if y is None:
        raise ValueError("There are no targets. Pass y, or label= with a frame.")
    arrays = with_whole_rows("data", [x, y] if sample_weight is None else [x, y, sample_weight])
    blocks = [array.to_delayed().ravel() for array in arrays]
    return [delayed(list)(pieces) for pieces in zip(*blocks, strict=True)]


def _summed(task: Callable[..., Any], model: Any, parts: Sequence[Any]) -> Any:
    level = [delayed(task, pure=False)(model, piece) for piece in parts]
    while len(level) > 1:
        level = [delayed(added, pure=False)(level[at : at + FAN_IN]) for at in range(0, len(level), FAN_IN)]
    return level[0]


def _of_metrics(found: Predictor, data: FitData, counted: Any) -> dict[str, Any]:
    """What the model's metrics say once they have counted all of it; the model here is left as it was."""
    from dask_train.prediction.keras_model import metric_results

    if counted is None:
        raise ValueError("There are no rows to evaluate on.")
    return metric_results(found.model, data.layout, counted)
