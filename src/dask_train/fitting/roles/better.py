"""Which of two scores of a Keras model is the better one."""

from __future__ import annotations

import sys
from typing import Any

import keras


def mode_of(model: Any, name: str) -> str:
    """Return whether less ("min") or more ("max") of a score is better, as Keras' own callbacks have it.

    Raises
    ------
    ValueError
        Keras can't tell.
    """
    judge = keras.callbacks.EarlyStopping(name, patience=sys.maxsize)
    judge.set_model(model)
    judge.on_train_begin()
    try:
        for epoch in range(2):
            judge.on_epoch_end(epoch, {name: float(epoch)})
    except ValueError as error:
        raise ValueError(
            f"The best checkpoint is to be known by {name!r}, and Keras can't tell whether less or more of it is "
            "better. Pass mode='min' or mode='max' to dt.Checkpoint."
        ) from error
    return "max" if judge.best_epoch else "min"
