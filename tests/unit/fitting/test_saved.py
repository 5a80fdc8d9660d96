"""A trained model as a log keeps it: whoever opens the file has the same model."""

from __future__ import annotations

import pickle

import numpy as np
import torch

from dask_train.fitting.saved import saved


def test_a_module_is_kept_as_its_state_alone(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    module(torch.randn(4, 2))
    path = saved(module, tmp_path)
    assert path == tmp_path / "state_dict.pt"
    other = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    other.load_state_dict(torch.load(path, weights_only=True))
    assert torch.equal(module.eval()(torch.ones(1, 2)), other.eval()(torch.ones(1, 2)))


def test_a_keras_model_is_kept_whole(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)], name="net")
    path = saved(model, tmp_path)
    assert path == tmp_path / "model.keras"
    found = keras.models.load_model(path)
    assert found.name == "net"
    for one, other in zip(model.get_weights(), found.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


class Centers:
    """A model of a registered kind, of which no framework knows a format."""

    def __init__(self, centers):
        self.centers = centers


def test_a_model_of_a_registered_kind_is_pickled(tmp_path):
    path = saved(Centers([1, 2]), tmp_path)
    assert path == tmp_path / "model.pickle"
    assert pickle.loads(path.read_bytes()).centers == [1, 2]
