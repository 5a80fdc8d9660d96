"""Optimizers of a worker with parameter servers: what they apply goes to the servers, whose weights come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import keras
import numpy as np

from dask_train.compat.keras.optimizers import known_gradients, step_count
from dask_train.fitting.backends import Backend
from dask_train.fitting.roles.servers import Servers
from dask_train.fitting.roles.weights import others_of, scale_of, value_of
from dask_train.keras_models import state

_CHANGE = "Let an optimizer of the model apply what changes weights, or train with ps=0."


class Pushing:
    """Stands in place of each optimizer's ``apply``; see :func:`~dask_train.fitting.roles.applying.at_every_apply`.

    Parameters
    ----------
    rank
        Whose.

    Attributes
    ----------
    failure
        What was raised while servers were asked in mid-step, which the backend shows in words of its own.

    Notes
    -----
    Weights come back before the step continues, so a step that applies gradients several times computes the later ones
    with weights that have the earlier. In the first step of a worker, and in the last one of each epoch, weights are
    looked at: those that something else has changed would be lost.
    """

    def __init__(self, model: Any, backend: Backend, servers: Servers, rank: int) -> None:
        self._model, self._backend, self._servers, self._rank = model, backend, servers, rank
        self._numbers = {id(one): number for number, (one, _) in enumerate(state.held_optimizers(model))}
        self._optimizers = [one for one, _ in state.held_optimizers(model)]
        self._weights = list(model.trainable_variables)
        self._places = {self._backend.key_of(variable): place for place, variable in enumerate(self._weights)}
        self._others = others_of(model)
        self._noted: list[np.ndarray] = []
        self._pushed: set[int] = set()  # in this step
        self._index = 0  # of the next call in this step
        self._step = 0
        self._looks = False
        self._has_looked = False
        self._was_called = False
        self.failure: BaseException | None = None

    def __call__(self, optimizer: Any, gradients: list[Any], variables: list[Any], go_on: Callable[[Any], Any]) -> Any:
        """See :func:`~dask_train.fitting.roles.applying.at_every_apply`; other gradients are passed on."""
        places = [self._place_of(variable) for variable in variables]
        number = self._numbers.get(id(optimizer))
        if not gradients or (number is None and not any(place is not None for place in places)):
            return go_on(gradients)
        if number is None:
            raise TypeError(
                f"Optimizer {optimizer.name!r} trains weights of model {self._model.name!r}, which does not show it: "
                "parameter servers would not know it. Keep it in an attribute of the model or of a layer, itself or in "
                "a list or dict, or train with ps=0."
            )
        for place, variable in zip(places, variables, strict=True):
            if place is None:
                raise ValueError(
                    f"Optimizer {optimizer.name!r} trains {_name(variable)!r}, which is not among the trainable "
                    f"weights of model {self._model.name!r} as fit begins. Let it be trainable from "
                    "the start, or use ps=0."
                )
        gradients, variables = known_gradients(optimizer, gradients, variables)
        self._was_called = True
        self._push(number, gradients, [self._place_of(variable) for variable in variables])
        return step_count(optimizer)

    def _place_of(self, variable: Any) -> int | None:
        return self._places.get(self._backend.key_of(variable))

    def _push(self, number: int, gradients: Sequence[Any], places: Sequence[Any]) -> None:
        variables = [self._weights[place] for place in places]
        parts = [
            self._backend.parts_of(gradient, variable.dtype)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        tensors = [tensor for each in parts for tensor in each]
        current = [keras.ops.convert_to_tensor(variable) for variable in variables]
        host_function = partial(self._on_host, number, places, [len(each) for each in parts])
        self._backend.exchanged(host_function, [*tensors, *current], variables)

    def _on_host(
        self, number: int, places: Sequence[int], num_parts: Sequence[int], arrays: list[np.ndarray]
    ) -> list[np.ndarray]:
        waiting = iter(arrays)
        gradients = [tuple(islice(waiting, count)) for count in num_parts]
        current = list(waiting)
        try:
            if self._looks:
                self._check_given(places, current)
            self._pushed.update(places)
            self._index += 1
            return self._servers.apply(
                places,
                gradients,
                rank=self._rank,
                steps=self._step,
                index=self._index - 1,
                optimizer=number,
                scale=scale_of(self._optimizers[number]),
            )
        except BaseException as error:
            self.failure = error
            raise

    def begin_step(self, step: int, *, looks: bool) -> None:
        """Begin the step of that number; ``looks`` where weights are to be looked at in it, as in the first."""
        self._step, self._looks = step, looks or not self._has_looked
        self._index, self._pushed = 0, set()

    def end_step(self) -> bool:
        """Note a step with rows; return whether it has pushed gradients of all trainable weights.

        Raises
        ------
        ValueError
            It has changed weights by itself, or no optimizer was asked for anything.
        """
        if not self._was_called:
            raise ValueError(
                f"A step of model {self._model.name!r} went by without an optimizer that applied gradients: parameter "
                f"servers have nothing to train with. {_CHANGE}"
            )
        if self._looks:
            self._has_looked = True
            self._check_given(range(len(self._weights)), [value_of(variable) for variable in self._weights])
            for variable, noted in zip(self._others, self._noted, strict=True):
                self._check(variable, value_of(variable), noted)
        return len(self._pushed) == len(self._weights)

    def note(self) -> None:
        """Note that what no server has is as it shall be: frozen weights, and those that are not floating-point."""
        self._noted = [value_of(variable) for variable in self._others]

    def _check_given(self, places: Sequence[int], values: Sequence[np.ndarray]) -> None:
        for place, value in zip(places, values, strict=True):
            self._check(self._weights[place], value, self._servers.given(place))

    def _check(self, variable: Any, value: np.ndarray, wanted: np.ndarray) -> None:
        if value.dtype.isbuiltin != 1:
            value = value.astype(np.float32)
        if not np.array_equal(value, wanted, equal_nan=value.dtype.kind == "f"):
            raise ValueError(
                f"A step of model {self._model.name!r} has changed {_name(variable)!r} by itself, not through an "
                "optimizer: with parameter servers each worker would change its own copy, and lose it. It may be "
                f"assigned in train_step, such as a copy of weights that follows them slowly. {_CHANGE}"
            )


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))
