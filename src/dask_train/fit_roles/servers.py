"""All parameter servers of a run as one worker sees them: gradients out, weights back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from dask_train.agreement.dialling import dial
from dask_train.agreement.lines import ask
from dask_train.agreement.network import Credentials
from dask_train.fit_roles.shards import shards_of, slot_of
from dask_train.fit_roles.weights import statistics_of, value_of

# How long a server may take to listen: it is up, and puts its model together.
_LISTENS_S = 30.0


class Servers:
    """Lines to all of them.

    Parameters
    ----------
    model : keras.Model
        Built like theirs.
    addresses
        Of the servers.
    host, credentials
        Which host this is, and what servers of other hosts ask for.
    patience_s
        How long one may take to answer.
    """

    def __init__(
        self, model: Any, addresses: Sequence[str], host: str, credentials: Credentials, patience_s: float
    ) -> None:
        self._model, self._patience_s = model, patience_s
        self.shards = shards_of(model, len(addresses))
        self._lines = [
            dial(address, slot_of(model, shard), host, credentials, _LISTENS_S)
            for address, shard in zip(addresses, self.shards, strict=True)
        ]
        self._slot_of_weight = {
            place: (line, number)
            for line, shard in zip(self._lines, self.shards, strict=True)
            for number, place in enumerate(shard.weights)
        }
        self._size = len(self._slot_of_weight)
        self._kept: set[int] = set()
        self._statistics = statistics_of(model)

    def begin(self, rank: int) -> tuple[bool, int, Any]:
        """Whether they have weights, which this model takes over; this worker's steps; what :meth:`remember` told."""
        told = self._ask("begin", rank=rank)
        ready = all(each["ready"] for each in told)
        if ready:
            self._take_weights()
        return ready, max(each["steps"] for each in told), told[0]["remembered"]

    def bring(self, steps: dict[int, int], counted: dict[int, list[np.ndarray]]) -> None:
        """Give them this model's weights and optimizer state, to begin with."""
        for line, shard in zip(self._lines, self.shards, strict=True):
            variables = [*self._weights_of(shard), *self._slots_of(shard), *self._statistics]
            line.put(0, map(value_of, variables))
        self._ask("bring", steps=steps, counted=counted)

    def keep(self, places: Sequence[int], gradients: list[np.ndarray]) -> None:
        """Keep gradients of some trainable variables for the next step; one copy, to where the servers read them."""
        for place, gradient in zip(places, gradients, strict=True):
            line, number = self._slot_of_weight[place]
            line.put(number, [gradient])
            self._kept.add(place)

    @property
    def has_gradients(self) -> bool:
        """Whether a step has given any."""
        return bool(self._kept)

    def step(self, **told: Any) -> tuple[list[np.ndarray], dict[str, Any]]:
        """Push what was kept, if anything; the new weights of all trainable variables, good until the next."""
        if self._kept:
            for place in set(self._slot_of_weight) - self._kept:
                line, number = self._slot_of_weight[place]
                line.put(number, [0])
        if told["statistics"]:
            for line, shard in zip(self._lines, self.shards, strict=True):
                line.put(len(shard.weights) + len(shard.slots), map(value_of, self._statistics))
        answers = self._ask("step", gradients=self.has_gradients, **told)
        self._kept = set()
        weights = [line.into[number] for line, number in map(self._slot_of_weight.__getitem__, range(self._size))]
        return weights, answers[0]

    def pull(self, *, statistics: bool = False) -> dict[str, Any]:
        """Let this model take over the weights of the moment; moving averages where they are asked for."""
        told = self._ask("weights", statistics=statistics)
        self._take_weights()
        if statistics:
            self._take_statistics()
        answer: dict[str, Any] = told[0]
        return answer

    def remember(self, value: Any) -> None:
        """Let the first server keep something for who takes the first worker's place."""
        ask(self._lines[:1], ("remember", {"value": value}), self._patience_s)

    def set_weights(self) -> None:
        """Give them this model's weights."""
        for line, shard in zip(self._lines, self.shards, strict=True):
            line.put(0, map(value_of, self._weights_of(shard)))
        self._ask("set_weights")

    def everything(self) -> dict[str, Any]:
        """Let this model take over weights, optimizer state and moving averages; what else a checkpoint holds."""
        told = self._ask("everything")
        self._take_weights()
        for line, shard in zip(self._lines, self.shards, strict=True):
            values = line.into[len(shard.weights) :]
            for variable, value in zip(self._slots_of(shard), values, strict=False):
                variable.assign(keras.ops.cast(np.array(value), variable.dtype))
        self._take_statistics()
        answer: dict[str, Any] = told[0]
        return answer

    def end(self, rank: int) -> None:
        """Tell that this worker has gone through all of its batches."""
        self._ask("end", rank=rank)

    def close(self) -> None:
        """Hang up."""
        for line in self._lines:
            line.close()

    def _ask(self, order: str, **told: Any) -> list[Any]:
        return ask(self._lines, (order, told), self._patience_s)

    def _weights_of(self, shard: Any) -> list[Any]:
        return [self._model.trainable_variables[place] for place in shard.weights]

    def _slots_of(self, shard: Any) -> list[Any]:
        return [self._model.optimizer.variables[place] for place in shard.slots]

    def _take_weights(self) -> None:
        for line, shard in zip(self._lines, self.shards, strict=True):
            for variable, value in zip(self._weights_of(shard), line.into, strict=False):
                variable.assign(keras.ops.cast(np.array(value), variable.dtype))

    def _take_statistics(self) -> None:
        after = len(self.shards[0].weights) + len(self.shards[0].slots)
        for variable, value in zip(self._statistics, self._lines[0].into[after:], strict=True):
            variable.assign(keras.ops.cast(np.array(value), variable.dtype))
