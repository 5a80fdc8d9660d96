"""``predict``: apply a model to the rows of a Dask collection, as another lazy collection."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dask.tokenize import tokenize

from dask_train.arguments import CheckedSettings, converted_by, positive_int
from dask_train.cluster.clients import client_or_none
from dask_train.cluster.sealed import Sealed
from dask_train.collections.bags import is_bag
from dask_train.collections.blocks import arrays_by_block
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.compat.dask import meta_of
from dask_train.config import PredictLimits
from dask_train.data.structure import filled
from dask_train.input_errors import raises_at_the_call
from dask_train.inputs.data import InputData
from dask_train.predicting.bags import as_rows
from dask_train.predicting.inputs import rows_to_predict
from dask_train.predicting.model import predictor
from dask_train.predicting.saved_models import opened_model
from dask_train.predicting.sent_models import as_collection, on_dask
from dask_train.predicting.server.values import Call
from dask_train.predicting.tasks import array_block, chosen, frame_block, series_or_frame
from dask_train.shared_data.segments import is_data_set
from dask_train.spelling import by_caller, named
from dask_train.stores import checked_options

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client


@raises_at_the_call
def predict(  # noqa: PLR0913 - what it takes of a model, of data and of what comes out
    model: Any,
    x: Any,
    *,
    batch_size: int = 256,
    features: Any = None,
    method: str | None = None,
    columns: Sequence[str] | str | None = None,
    meta: Any = None,
    schema: FrameSchema | str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | None = None,
) -> Any:
    """Predict each row of a collection, lazily; nothing is computed but, where needed, sample rows.

    Parameters
    ----------
    model
        A built Keras model; a torch module, also one that was scripted, traced or exported; the path or URL of what
        ``result.save`` has written, or of a ``.keras`` file (any that fsspec opens), which model processes read, or the
        client if the model has layers or functions of your own; an estimator of scikit-learn, XGBoost or LightGBM; a
        booster of these two; or a function of an array or frame.
    x
        A Dask or NumPy array with rows along its first axis, of any rank, and of text too for Keras on TensorFlow; a
        tuple, list or dict of them, for models of several inputs (a function or module gets a tuple as arguments, a
        dict as arguments by name); a Dask or pandas frame, or one of its columns; files of :func:`~dask_train.files`
        and the like; a data set of :func:`~dask_train.get_dataset`; or a Dask bag of dicts, whose first partition is
        computed at the call. Axes besides the first are put into one chunk each. Arrays of several inputs are cut as
        the first. NumPy arrays and frames of pandas travel in the graph: scatter or persist large ones first.
    batch_size
        Rows that go through a Keras model or a torch module at a time. It changes no result but the last digits, unless
        the model compares the rows of a batch. Default: 256.
    features
        Columns of a frame or a bag: a list gives a matrix ``(n, len(features))``, a name gives that column, a dict of
        both an array for each input. Estimators and functions get a frame of these columns, or the column. Default:
        those that the model was fitted with, where it has a schema; else all, by their names for a Keras model whose
        inputs are a dict, else as a matrix.
    method
        Method of an estimator, such as ``"predict_proba"``. Default: ``"predict"``.
    columns
        Names of what a frame's prediction has: one for a Series, a list for a DataFrame. None gives ``"prediction"``
        for one column; else numbers, or what the outputs' names make.
    meta
        For functions that don't take sample rows, or return other dtypes for them than for the data: an array, or a
        tuple or list of them, of the dtype and the row shape of the outputs, ``(0, *row_shape)``. Each block is
        checked, and none is forced; without it text comes as objects, since sample rows don't show its length.
    schema
        What the columns of a frame mean to the model: ``result.schema`` of its fit, a :class:`dask_train.FrameSchema`,
        or the path of what ``result.save`` or ``schema.save`` has written. Columns are matched by name, and categories
        by value; values that the model was not fitted with are an error. :meth:`dask_train.FrameSchema.load` reads a
        schema from another store than the model's. Default: what the model was fitted with in this process, or what
        was saved with it.
    storage_options
        Keywords for the file system of fsspec that has the model or the schema, such as credentials, as Dask's
        ``read_parquet`` takes them; for URLs alone. Never shown. Default: what the environment of each process says.
    client
        Whose Dask workers get the model. None: that of the task which calls, or the default client; without any, the
        model is used in this process, by Dask's threads, as it is when they compute.

    Returns
    -------
    Dask array, Series or DataFrame
        The same rows in the same partitions, with the same index and divisions. Arrays of ``(num_rows, *row_shape)``
        with the row chunks of ``x``, as the model's outputs are put together: one, a list or a dict. A frame gives a
        Series where there is one number per row, else a DataFrame. So does a bag, whose index begins anew in each
        partition; but features that hold arrays give arrays. An awaitable with an asynchronous client.

    Raises
    ------
    TypeError, ValueError
        The model or the data is invalid; nothing has been sent.
    PredictionError
        When it is computed: the model raised, has no room, or its processes died with the same block.
    StalledError
        When it is computed: a process did nothing for ``train.predict.timeout``.

    Notes
    -----
    The model is sent once; the graph has its key alone. A model of up to 1 MiB is a task of Dask. A larger one goes to
    two Dask workers, and the others fetch it from these when they need it. Keras models and torch modules run in a
    process of their own beside each Dask worker, with its cores and its GPU (``CUDA_VISIBLE_DEVICES`` is inherited).
    Rows are copied once into memory shared with it (floats as the model takes them), and predictions are copied once
    out of it; within it once into the outputs. bfloat16 comes as float32.

    Examples
    --------
    >>> df["outcome"] = dt.predict(model, df, features=["dep_delay", "distance"])
    >>> dt.predict(backbone, images, batch_size=64).to_zarr("features.zarr")
    """
    settings = PredictSettings.of(dict(locals()))
    options = checked_options(storage_options, model=model, schema=schema)
    return prepared(model, x, settings, options).lazy(settings.client)


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictSettings(CheckedSettings):
    """Settings of a prediction, as :func:`predict` takes them; of clients, the one that there is."""

    batch_size: int = positive_int(256)
    features: Any = None
    method: str | None = None
    columns: Sequence[str] | str | None = None
    meta: Any = None
    schema: FrameSchema | str | os.PathLike[str] | None = None
    client: Client | None = converted_by(client_or_none, None)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A prediction that has been checked, before anything is sent.

    Attributes
    ----------
    value
        The model, as tasks get it.
    call, limits
        What is asked of it.
    inputs
        The rows.
    names
        Of columns, where the rows are of a frame.
    schema
        What the model knows of the columns of frames.
    """

    value: Any
    call: Call
    limits: PredictLimits
    inputs: InputData
    names: Any
    schema: FrameSchema | None = None

    def lazy(self, client: Client | None) -> Any:
        """Return the collection; an awaitable of it with an asynchronous client."""
        if client is None:
            return self._built(self.value)
        sent = on_dask(client, self.value)
        return self._later(sent) if client.asynchronous else self._built(sent)

    async def _later(self, sent: Any) -> Any:
        return self._built(await sent)

    def _built(self, model: Any) -> Any:
        call, limits, inputs = self.call, self.limits, self.inputs
        if inputs.frame is None:
            token = tokenize(self.value, getattr(model, "key", ""), call, [array.name for array in inputs.arrays])
            task = Sealed(partial(array_block, call, limits, token))
            arrays = arrays_by_block(
                task, Sealed(chosen), name=f"predict-{token}", model=model, arrays=inputs.arrays, outputs=call.outputs
            )
            return filled(call.places, arrays.__getitem__)
        empty = [column.empty(0) for column in call.outputs]
        meta = series_or_frame(empty, meta_of(inputs.frame).index[:0], self.names)
        token = tokenize(self.value, call, inputs.frame)
        task = Sealed(partial(frame_block, call, limits, token, inputs.reads, self.names))
        return inputs.frame.map_partitions(
            task, as_collection(model), meta=meta, enforce_metadata=False, align_dataframes=False
        )


def prepared(
    model: Any,
    x: Any,
    settings: PredictSettings,
    options: Mapping[str, Any] | None = None,
    *,
    compiled: bool | None = None,
) -> Prepared:
    """Check what :func:`predict` is given.

    Parameters
    ----------
    options
        The ``storage_options``, checked.
    compiled
        As :func:`~dask_train.predicting.model.predictor` takes it.

    Raises
    ------
    TypeError, ValueError
        The model or the data is invalid.
    """
    limits, schema, columns = PredictLimits.from_dask_config(), settings.schema, settings.columns
    model, known = opened_model(model, schema, options)
    if schema is not None and not (hasattr(meta_of(x), "iloc") or is_bag(x) or is_data_set(x)):
        raise ValueError(f"schema= describes the columns of a frame, and x is a {type(x).__name__}. Leave it out.")
    travels = settings.client is not None
    model_predictor = predictor(model, method=settings.method, meta=settings.meta, travels=travels, compiled=compiled)
    x = as_rows(named("x"), x, settings.client)
    inputs = rows_to_predict(
        named("x"),
        x,
        features=settings.features,
        schema=known,
        as_frames=model_predictor.takes_frames,
        finds_categories=model_predictor.finds_categories,
        takes_text=model_predictor.takes_text,
        model=model_predictor.model,
    )
    call = model_predictor.call("predict", inputs, settings.batch_size)
    if inputs.frame is None and columns is not None:
        raise ValueError(f"columns={columns!r} names what a frame's prediction has, and x is no frame. Leave it out.")
    names = None if inputs.frame is None else _names(call, columns)
    return Prepared(value=model_predictor.value, call=call, limits=limits, inputs=inputs, names=names, schema=known)


def _names(call: Call, columns: Any) -> Any:
    """Return what :func:`series_or_frame` takes for names."""
    widths = []
    for output in call.outputs:
        if len(output.row_shape) > 1:
            raise ValueError(
                f"The model makes an array of shape {output.row_shape} of each row, which has no place in a frame. "
                + by_caller(
                    "Pass an array for x: frame[features].to_dask_array().",
                    "Write its predictions in a program: dt.predict_to takes arrays, too.",
                )
            )
        widths.append(output.row_shape[0] if output.row_shape else 1)
    if columns is None:
        return _default_names(call, widths)
    num_names = 1 if isinstance(columns, str) else len(columns)
    if num_names != sum(widths):
        raise ValueError(
            f"{named('columns')} has {num_names} names, and the model makes {sum(widths)} numbers of each row."
        )
    return columns if isinstance(columns, str) else list(columns)


def _default_names(call: Call, widths: list[int]) -> Any:
    if len(widths) == 1:
        return "prediction" if widths[0] == 1 else list(range(widths[0]))
    outer = list(call.places) if isinstance(call.places, Mapping) else [f"output_{n}" for n in range(len(widths))]
    if len(outer) != len(widths):
        outer = [f"output_{number}" for number in range(len(widths))]
    pairs = zip(outer, widths, strict=True)
    return [name if width == 1 else f"{name}_{n}" for name, width in pairs for n in range(width)]
