"""Private methods of Keras that are replaced for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod
from typing import Any

import keras
from keras.src.trainers.compile_utils import CompileLoss


@contextmanager
def losses_replaced(replaced: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """While it lasts, ``replaced(loss)`` is called in place of each compiled loss, once they are built.

    Replaces ``CompileLoss._flat_losses``. Without it losses that compare rows see those of one worker.
    """

    def flat_losses(self: Any) -> Any:
        losses = vars(self).get("_flat_losses")
        return [one._replace(loss=replaced(one.loss)) for one in losses] if self.built else losses

    def set_flat_losses(self: Any, losses: Any) -> None:
        vars(self)["_flat_losses"] = losses

    CompileLoss._flat_losses = property(flat_losses, set_flat_losses)
    try:
        yield
    finally:
        del CompileLoss._flat_losses


@contextmanager
def additional_losses_by(aggregate: Callable[[Any, Callable[..., Any], Any], Any]) -> Iterator[None]:
    """While it lasts, ``aggregate(model, original, loss)`` makes a number of each loss that a layer has added.

    Replaces ``Trainer._aggregate_additional_loss``, called as ``original(model, loss)``. Without it such losses count
    otherwise on workers than in one process.
    """
    trainer: Any = next(cls for cls in reversed(keras.Model.__mro__) if "_aggregate_additional_loss" in vars(cls))
    original = trainer._aggregate_additional_loss
    trainer._aggregate_additional_loss = partialmethod(aggregate, original)
    try:
        yield
    finally:
        trainer._aggregate_additional_loss = original
