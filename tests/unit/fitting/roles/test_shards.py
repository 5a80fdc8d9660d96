"""Which server has which weights, and what the optimizer keeps for them."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.fitting.roles.shards import shards_of, slot_of


def made(optimizer):
    model = keras.Sequential([layers.Input((4,)), layers.Dense(50), layers.BatchNormalization(), layers.Dense(3)])
    model.compile(optimizer, "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.mark.parametrize("num_servers", [1, 2, 3])
@pytest.mark.parametrize(
    "optimizer",
    [lambda: keras.optimizers.SGD(0.1, momentum=0.9), lambda: keras.optimizers.Adam(amsgrad=True), lambda: "ftrl"],
)
def test_every_weight_has_one_server_and_its_slots_are_there_too(num_servers, optimizer):
    model = made(optimizer())
    shards = shards_of(model, num_servers)
    weights = sorted(place for shard in shards for place in shard.weights)
    assert weights == list(range(len(model.trainable_variables)))
    assert {slot for shard in shards for slot in shard.slots} == set(range(len(model.optimizer.variables)))
    for shard in shards:
        shapes = [tuple(model.trainable_variables[place].shape) for place in shard.weights]
        slots = [tuple(model.optimizer.variables[place].shape) for place in shard.slots]
        own = [shape for shape in slots if shape != ()]
        assert set(own) <= set(shapes), "slots of other servers' weights stay there"
        assert len(own) % len(shapes) == 0
    sizes = [sum(int(np.prod(model.trainable_variables[p].shape)) for p in shard.weights) for shard in shards]
    assert max(sizes) <= 253 or num_servers == 1
    # Weights, slots and the two moving averages lie one after the other.
    arrays = slot_of(model, shards[0]).arrays(bytearray(slot_of(model, shards[0]).size_bytes), 0)
    assert len(arrays) == len(shards[0].weights) + len(shards[0].slots) + 2
