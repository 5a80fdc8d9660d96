"""What workers do with weights that may differ between them."""

from __future__ import annotations

from contextlib import closing, nullcontext
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.collectives import Hosts, ProcessGroup, meet
from dask_train.fitting.roles.weights import Weights, check_on_cpu, value_of


class Queue(layers.Layer):
    """Keeps rows that it has seen, and what is the same in all workers."""

    def build(self, _):
        self.rows = self.add_weight(shape=(3,), initializer="zeros", trainable=False, name="rows")
        self.copied = self.add_weight(shape=(2,), initializer="ones", trainable=False, name="copied")

    def call(self, x):
        return x


def test_what_differs_and_may_be_no_average_is_named(on_each_rank):
    """Not what layers of Keras' keep, which are averages, nor what is the same in all workers but for rounding."""
    models = []
    for rank in range(2):
        model = keras.Sequential([layers.Input((2,)), layers.BatchNormalization(), Queue(name="queue")])
        model.layers[0].moving_mean.assign([rank, 1.0])
        model.layers[1].rows.assign([4.0 * rank, 1.0, 2.0])
        model.layers[1].copied.assign([1.0 + 1e-7 * rank, 3.0])
        models.append(model)
    for names in on_each_rank(lambda rank, replicas: Weights(models[rank], replicas).average_statistics(), 2):
        (name,) = names
        assert name.endswith("queue/rows")
    for model in models:
        np.testing.assert_allclose(value_of(model.layers[0].moving_mean), [0.5, 1.0])
        np.testing.assert_allclose(value_of(model.layers[1].rows), [2.0, 1.0, 2.0])


@pytest.mark.parametrize("only_of_keras", [False, True])
def test_what_a_row_that_weighs_nothing_has_changed_is_set_back(on_each_rank, only_of_keras):
    """Where steps gather rows, a user's own layers may have kept those, which are of all workers."""
    model = keras.Sequential([layers.Input((2,)), layers.BatchNormalization(), Queue(name="queue")])
    norm, queue = model.layers

    def set_back(_, replicas):
        weights = Weights(model, replicas)
        before = weights.statistics()
        norm.moving_mean.assign([7.0, 8.0])
        queue.rows.assign([1.0, 2.0, 3.0])
        weights.set_statistics(before, only_of_keras=only_of_keras)
        return value_of(norm.moving_mean).tolist(), value_of(queue.rows).tolist()

    assert on_each_rank(set_back, 1) == [([0.0, 0.0], [1.0, 2.0, 3.0] if only_of_keras else [0.0, 0.0, 0.0])]


def test_what_is_a_workers_own_comes_back_to_it_from_a_checkpoint_of_torch_too(on_each_rank):
    models = [keras.Sequential([layers.Input((2,)), layers.BatchNormalization(), layers.Dropout(0.5)]) for _ in "ab"]

    def own(rank, replicas):
        layer, weights = models[rank].layers[0], Weights(models[rank], replicas)
        layer.moving_mean.assign([rank, 7.0])
        models[rank].layers[1].seed_generator.state.assign([5 + rank, 3])
        kept = [one.astype("i4") if one.dtype.kind == "i" else one for one in weights.own()]
        kept = [*kept, np.zeros(5056, np.uint8)]  # torch's random numbers
        layer.moving_mean.assign([9.0, 9.0])
        models[rank].layers[1].seed_generator.state.assign([0, 0])
        weights.set_own(kept)
        return [value_of(layer.moving_mean).tolist(), value_of(models[rank].layers[1].seed_generator.state).tolist()]

    assert on_each_rank(own, 2) == [[[0.0, 7.0], [5, 3]], [[1.0, 7.0], [6, 3]]]


def test_what_a_call_may_change_is_told_from_what_only_optimizers_set():
    parts = [layers.Input((3,)), layers.BatchNormalization(synchronized=True), layers.Dropout(0.5), layers.Dense(1)]
    model = keras.Sequential(parts)
    model.layers[2].trainable = False  # frozen weights are not changed by a call
    model.compile("sgd", "mse")
    solo = Hosts.of(["solo:0"])
    with closing(ProcessGroup(solo, 0, meet(solo, 0, b"test", 1.0), None, 1.0)) as replicas:
        weights = Weights(model, replicas)
    assert [one.name for one in weights.own_variables()] == ["seed_generator_state"]
    assert [one.name for one in weights.passing_variables()] == ["moving_mean", "moving_variance"]
    assert sorted(one.name for one in weights.fixed_variables()) == ["beta", "bias", "gamma", "kernel"]


@pytest.mark.parametrize(("device", "refused"), [("/device:CPU:0", False), ("/device:GPU:0", True), ("cuda:0", True)])
def test_models_on_gpus_are_not_mirrored(device, refused):
    model = SimpleNamespace(variables=[SimpleNamespace(value=SimpleNamespace(device=device))])
    with pytest.raises(ValueError, match="gpus=0") if refused else nullcontext():
        check_on_cpu(model)
