"""Numbers in attributes of a model and its parts, which callbacks of the first worker may set for all."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from dask_train.compat.keras.layers import flatten_layers
from dask_train.keras_models import state

# By the number of a part, and the attribute's name.
Numbers = dict[tuple[int, str], Any]

# Keras' own, which workers agree on by themselves, or which no step goes by; "training" is the mode of a torch module,
# which Keras sets as an epoch begins.
_OF_KERAS = ("stop_training", "stop_evaluating", "stop_predicting", "training", "built", "_initial_epoch")


class WatchedNumbers:
    """Numbers in attributes of a model, its layers, losses and optimizers, to see whether they were set.

    A step that runs as Python reads them anew each time, one that is traced reads them once.

    Parameters
    ----------
    model : keras.Model
        Built; that of each worker has the same parts.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        losses = [loss for loss in keras.tree.flatten(model.loss) if isinstance(loss, keras.losses.Loss)]
        optimizers = [state.innermost(optimizer) for optimizer, _ in state.held_optimizers(model)]
        self._parts = [*flatten_layers(model), *losses, *optimizers]
        self._seen: Numbers = {}
        self._trainable: list[bool] = []

    def note(self) -> None:
        """Remember them."""
        self._seen, self._trainable = self._now(), [variable.trainable for variable in self._model.variables]

    def changed(self) -> Numbers:
        """Return those that are others than were noted."""
        now = self._now().items()
        return {key: value for key, value in now if key not in self._seen or not _same(value, self._seen[key])}

    def check_trainable(self) -> None:
        """Check that the same weights are trainable.

        Raises
        ------
        ValueError
            One is that was not, or no longer.
        """
        if self._trainable != [variable.trainable for variable in self._model.variables]:
            raise ValueError(
                "A callback has set trainable of a layer or a weight, in the first of all workers. Set it before "
                "training, one call of dt.fit for each phase, or pass workers=1."
            )

    def set(self, numbers: Numbers) -> None:
        """Set what :meth:`changed` has found in another worker."""
        for (part, name), value in numbers.items():
            setattr(self._parts[part], name, value)

    def names(self, numbers: Numbers) -> str:
        """Return which numbers these are, in words."""
        return ", ".join(f"{name!r} of {getattr(self._parts[part], 'name', 'a loss')!r}" for part, name in numbers)

    def _now(self) -> Numbers:
        return {
            (number, name): value
            for number, part in enumerate(self._parts)
            for name, value in vars(part).items()
            if name not in _OF_KERAS and _is_number(name, value)
        }


def _is_number(name: str, value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return not name.startswith("_")  # Keras notes by others what it has done
    return isinstance(value, int | float | np.number)


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 - NaN, of any kind of number
