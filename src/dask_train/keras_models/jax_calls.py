"""Calls of layers on JAX whose losses and masks are their own, where Keras knows them by their ``id()``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import keras

from dask_train.compat.keras.internals import masking
from dask_train.compat.keras.layers import flatten_layers, forget_losses


class _OfThread(threading.local):
    # By its id, each tensor that could not hold its mask by itself; None if Keras does as it does.
    masks: dict[int, tuple[Any, Any]] | None = None


_OF_THREAD = _OfThread()


@contextmanager
def exact_calls() -> Iterator[None]:
    """While it lasts, this thread's calls of layers have the losses and masks that are set in them, and no others.

    Notes
    -----
    Keras 3.15 knows by their ``id()`` which losses a layer has added, and the masks of what JAX traces. Others that lie
    in the same place later are taken for them.

    Layers forget their losses when they are called the next time. By then a loss of another layer may lie where one of
    theirs lay in the call before, and is dropped, or counted twice: whenever a step is traced again, for a smaller
    batch for instance. So they forget them before a stateless call.

    A mask is forgotten when its tensor goes, but by the thread that lets it go. Where that is another one, since the
    collector of reference cycles runs in any, the mask stays, for whatever lies there next. So tensors are held along
    with their masks until the end.
    """
    _install()
    before = _OF_THREAD.masks
    _OF_THREAD.masks = {} if before is None else before
    try:
        yield
    finally:
        _OF_THREAD.masks = before


@cache
def _install() -> None:
    """Replace them once, permanently: threads that overlap would restore each other's functions."""
    of_losses, setting, getting = keras.Layer.stateless_call, masking.set_tensor_attr, masking.get_tensor_attr

    @wraps(of_losses)
    def stateless_call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if _OF_THREAD.masks is not None:
            for one in flatten_layers(layer):
                forget_losses(one)
        return of_losses(layer, *args, **kwargs)

    @wraps(setting)
    def set_tensor_attr(tensor: Any, attr: str, value: Any) -> None:
        if _OF_THREAD.masks is None:
            setting(tensor, attr, value)
        else:
            try:
                setattr(tensor, attr, value)
            except AttributeError:
                _OF_THREAD.masks[id(tensor)] = tensor, value

    @wraps(getting)
    def get_tensor_attr(tensor: Any, attr: str) -> Any:
        if _OF_THREAD.masks is None or hasattr(tensor, attr):
            return getting(tensor, attr)
        _, value = _OF_THREAD.masks.get(id(tensor), (None, None))
        return value

    keras.Layer.stateless_call = stateless_call
    masking.set_tensor_attr, masking.get_tensor_attr = set_tensor_attr, get_tensor_attr
