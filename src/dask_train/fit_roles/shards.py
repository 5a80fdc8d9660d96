"""How parameter servers share a model: which trainable variables, and which variables of its optimizer, are whose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from dask_train.agreement.layout import Slot
from dask_train.fit_roles.weights import statistics_of


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One server's part of a model.

    Attributes
    ----------
    weights
        Positions in ``model.trainable_variables``.
    slots
        Positions in ``model.optimizer.variables``: what the optimizer keeps for these weights, and what it keeps for
        all, such as its counter and rate.
    """

    weights: tuple[int, ...]
    slots: tuple[int, ...]


def shards_of(model: Any, num_servers: int) -> list[Shard]:
    """The parts of so many servers, alike in size; the same in every process.

    The largest weights go first, each to the server that has least (longest processing time first, Graham 1969).
    """
    sizes = [math.prod(variable.shape) for variable in model.trainable_variables]
    loads = [0] * num_servers
    owners = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        owner = loads.index(min(loads))
        owners[place] = owner
        loads[owner] += sizes[place] + 1
    of_weight = _slots_by_weight(model)
    owned = {slot for slots in of_weight for slot in slots}
    shared = [slot for slot in range(len(model.optimizer.variables)) if slot not in owned]
    return [
        Shard(
            weights=tuple(mine := [place for place, owner in enumerate(owners) if owner == server]),
            slots=tuple(sorted({*shared, *(slot for place in mine for slot in of_weight[place])})),
        )
        for server in range(num_servers)
    ]


def slot_of(model: Any, shard: Shard) -> Slot:
    """What travels on a line: the shard's weights, or gradients of them; its optimizer variables; moving averages."""
    weights = [model.trainable_variables[place] for place in shard.weights]
    slots = [model.optimizer.variables[place] for place in shard.slots]
    return Slot([(tuple(v.shape), _dtype(v)) for v in [*weights, *slots, *statistics_of(model)]])


def _slots_by_weight(model: Any) -> list[list[int]]:
    """Which variables an optimizer makes for which weight, seen while one like it is built."""
    optimizer = model.optimizer
    twin = type(optimizer).from_config(optimizer.get_config())
    made: dict[int, list[int]] = {}
    original = twin.add_variable_from_reference

    def noted(reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
        variable = original(reference_variable, *args, **kwargs)
        made.setdefault(id(reference_variable), []).append(id(variable))
        return variable

    object.__setattr__(twin, "add_variable_from_reference", noted)
    twin.build(model.trainable_variables)
    places = {id(variable): place for place, variable in enumerate(twin.variables)}
    if len(twin.variables) != len(optimizer.variables):
        raise ValueError(
            f"Optimizer {optimizer.name!r} has {len(optimizer.variables)} variables, and one of its config "
            f"{len(twin.variables)}: they can't be shared between parameter servers. Use ps=0."
        )
    return [[places[slot] for slot in made.get(id(v), []) if slot in places] for v in model.trainable_variables]


def _dtype(variable: Any) -> np.dtype:
    name = keras.backend.standardize_dtype(variable.dtype)
    return np.dtype("float32" if name == "bfloat16" else name)
