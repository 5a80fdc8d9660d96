"""How parameter servers share a model: which trainable variables, and which variables of its optimizers, are whose."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from dask_train.compat.keras.optimizers import key_of, learning_rate_of, step_count, trained_variables
from dask_train.fitting.roles.weights import statistics_of
from dask_train.keras_models import state
from dask_train.transport.array_layout import ArraySlot


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One server's part of a model.

    Attributes
    ----------
    weights
        Positions in ``model.trainable_variables``.
    slots
        Positions in :func:`state.optimizer_variables`: what optimizers keep for these weights, and what they keep for
        all, such as their counters and rates.
    """

    weights: tuple[int, ...]
    slots: tuple[int, ...]


def shards_of(model: Any, num_servers: int) -> list[Shard]:
    """Return the parts of that many servers, alike in size; the same in every process.

    The largest weights go first, each to the server that has least (longest processing time first, Graham 1969).

    Raises
    ------
    ValueError
        An optimizer can't be shared; see :func:`check_sharing`.
    """
    sizes = [math.prod(variable.shape) for variable in model.trainable_variables]
    loads = [0] * num_servers
    owners = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        owner = loads.index(min(loads))
        owners[place] = owner
        loads[owner] += sizes[place] + 1
    slots = state.optimizer_variables(model)
    owned = _owned_slots(model) if num_servers > 1 else {}
    return [
        Shard(
            weights=tuple(place for place, owner in enumerate(owners) if owner == server),
            slots=tuple(slot for slot, v in enumerate(slots) if id(v) not in owned or owners[owned[id(v)]] == server),
        )
        for server in range(num_servers)
    ]


def check_sharing(optimizer: Any) -> None:
    """Check that an optimizer, built, can be shared between servers: each has all that it looks at.

    Raises
    ------
    ValueError
        It can't.
    """
    description = f"Optimizer {optimizer.name!r} of class {type(optimizer).__name__}"
    if hasattr(optimizer, "inner_optimizer"):
        raise ValueError(
            f"{description} scales the loss: it needs all gradients in one place, to see whether they are finite, and "
            "several servers share them. Use ps=1, or compile with auto_scale_loss=False."
        )
    if hasattr(optimizer, "optimizers"):
        raise ValueError(f"{description} is made of several, which can't be shared between several servers. Use ps=1.")
    if optimizer.global_clipnorm is not None:
        raise ValueError(
            f"global_clipnorm of {description[0].lower()}{description[1:]} needs all gradients in one place, and "
            "several servers share them. Use ps=1, or clipnorm."
        )
    owned = dict(_slots_by_place(optimizer))
    for variable in optimizer.variables:
        if id(variable) not in owned and not _is_alike_everywhere(optimizer, variable):
            raise ValueError(
                f"{description} keeps {variable.path!r}, {tuple(variable.shape)}, for all weights together or in a way "
                "that can't be seen, and several servers share them. Use ps=1, or keep what belongs to single weights "
                "in lists, in the order of the variables that build() is given."
            )


def slot_of(model: Any, shard: Shard) -> ArraySlot:
    """Return what travels on a line: the shard's weights or gradients, optimizer variables, moving averages."""
    return ArraySlot([(tuple(v.shape), _dtype(v)) for v in columns_of(model, shard)])


def columns_of(model: Any, shard: Shard) -> list[Any]:
    """Return the variables that travel on a line, in order; see :func:`slot_of`."""
    slots = state.optimizer_variables(model)
    return [
        *(model.trainable_variables[place] for place in shard.weights),
        *(slots[place] for place in shard.slots),
        *statistics_of(model),
    ]


def _owned_slots(model: Any) -> dict[int, int]:
    """By id: for which trainable variable of the model an optimizer keeps a variable."""
    places = {id(variable): place for place, variable in enumerate(model.trainable_variables)}
    place_by_slot = {}
    for optimizer, _ in state.held_optimizers(model):
        check_sharing(optimizer)
        for slot, number in _slots_by_place(optimizer):
            variable = trained_variables(optimizer)[number]
            if id(variable) in places:  # else it is frozen by now, and has no gradients
                place_by_slot[slot] = places[id(variable)]
    return place_by_slot


def _slots_by_place(optimizer: Any) -> Iterator[tuple[int, int]]:
    """Ids of an optimizer's variables that belong to single weights, and positions of these among what it is built on.

    An optimizer finds what it keeps for a weight by the weight's position in lists, or by its name in dicts.
    """
    own, weights = {id(variable) for variable in optimizer.variables}, trained_variables(optimizer)
    names = {key: place for place, v in enumerate(weights) for key in (id(v), key_of(optimizer, v), v.path)}
    for value in vars(optimizer).values():
        if isinstance(value, dict):
            pairs = [(names.get(key), slot) for key, slot in value.items() if isinstance(key, int | str)]
        elif isinstance(value, list | tuple) and len(value) == len(weights):
            pairs = list(enumerate(value))
        else:
            continue
        yield from ((id(slot), place) for place, slot in pairs if place is not None and id(slot) in own)


def _is_alike_everywhere(optimizer: Any, variable: Any) -> bool:
    """Return whether servers that apply the same steps to different weights all get the same value."""
    known = (step_count(optimizer), learning_rate_of(optimizer))
    # Of Keras' own, Nadam keeps one number for all weights, which depends on the step alone.
    return any(variable is one for one in known) or (
        type(optimizer).__module__.startswith("keras.") and tuple(variable.shape) == ()
    )


def _dtype(variable: Any) -> np.dtype:
    name = keras.backend.standardize_dtype(variable.dtype)
    return np.dtype("float32" if name == "bfloat16" else name)
