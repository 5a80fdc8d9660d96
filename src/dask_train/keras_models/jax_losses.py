"""The losses that layers add in steps on JAX: those of this call, all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import keras


@contextmanager
def losses_of_each_call() -> Iterator[None]:
    """While it lasts, stateless calls of layers tell all losses that are added in them, and no others.

    Notes
    -----
    Layers of Keras 3.15 know the losses that they have added by their ``id()``, and forget them when they are called
    the next time. By then a loss of another layer may lie where one of theirs lay in the call before, and is dropped,
    or counted twice, as the memory happens to be used: whenever a step is traced again, for a smaller batch for
    instance. So they forget them before.
    """
    original = keras.Layer.stateless_call

    @wraps(original)
    def stateless_call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        for one in layer._flatten_layers():
            one._loss_ids.clear()
        return original(layer, *args, **kwargs)

    with patch.object(keras.Layer, "stateless_call", stateless_call):
        yield
