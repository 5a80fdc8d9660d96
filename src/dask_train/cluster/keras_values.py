"""Keras models as Dask values: arguments, results, scattered data, from process to process, optimizer state kept.

distributed's own way (``distributed.protocol.keras``) needs a method that Keras 3 dropped. Keras' own pickles forget
seed generators and custom classes. So models pickle by our parts, with arrays as buffers that Dask sends as frames,
and distributed falls back to pickle for them. One way serves a model alone, a model within a value, and a model in a
graph; and the side that receives need not have imported dask_train before.

This module is imported while distributed has just been, perhaps by another module of ours that is not whole yet. So at
its top it imports neither distributed nor any of them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from dask.sizeof import sizeof
from dask.tokenize import normalize_token

from dask_train.compat.dask import forget_types
from dask_train.settings.after_import import call_after_import


def register() -> None:
    """Let Keras models travel between Dask processes as soon as Keras is imported; imports nothing itself.

    To be called in each process that sends models, which ``import dask_train`` does; again does no harm. A Dask worker
    that gets a model has imported dask_train by that. One that makes its own, in tasks that do not import it, can be
    made to with ``distributed.worker.preload: [dask_train]`` in Dask's configuration.

    Notes
    -----
    A task that trains its argument trains the value that its Dask worker holds. Where that is needed again as it was,
    train ``copy.deepcopy(model)``.

    From then on ``pickle.dumps`` of a model, too, makes pickles that need dask-train to be read. Keep models in files
    with ``model.save``, as Keras asks.

    A Dask worker that gets its first model imports Keras and its backend in its event loop (5 s with TensorFlow).
    """
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    for dispatch in (dask_serialize, dask_deserialize):
        dispatch.register_lazy("keras", _nothing)  # takes the place of distributed's own
    if "keras" in sys.modules:
        _install()
    else:  # a hook, since Dask calls nothing before it pickles a value in which a model is hidden
        call_after_import("keras", _install)


def _install() -> None:
    import keras
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    for dispatch in (dask_serialize, dask_deserialize, sizeof, normalize_token):
        forget_types(dispatch, keras.Model)
    keras.Model.__reduce__ = _reduce
    sizeof.register(keras.Model, _size_bytes)
    normalize_token.register(keras.Model, _token)


def _reduce(model: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    from dask_train.cluster import in_transit

    return in_transit.reduce_parts(_code(), *_parts(model))


def _parts(model: Any) -> tuple[dict[str, Any], list[Any]]:
    from dask_train.keras_models.serialization import model_to_parts
    from dask_train.keras_models.state import has_lost_what_it_trained

    if not has_lost_what_it_trained(model):
        return model_to_parts(model)
    return model_to_parts(model, optimizers="new")  # it can't be trained on, here or there, but evaluated


def _size_bytes(model: Any) -> int:
    from dask_train.keras_models.serialization import model_size_bytes

    return model_size_bytes(model)


def _token(model: Any) -> tuple[Any, ...]:
    # Dask's own would pickle and unpickle the model up to three times (`dask.tokenize._normalize_pickle`).
    return "keras.Model", normalize_token(_parts(model))


@functools.cache
def _code() -> bytes:
    from dask_train.cluster import in_transit
    from dask_train.cluster.by_value import ByValue
    from dask_train.compat import distributed

    _, (code,) = ByValue(in_transit.open_model, in_transit, distributed).__reduce__()
    return code


def _nothing() -> None:
    """Register nothing, so that distributed's next way is tried, which is pickle."""
