"""The pretrained network is the one that its weights were learnt for."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.errors import DataError
from readers import efficientnet_lite0, load_efficientnet_lite0, load_photographs, read_photograph
from readers.efficientnet_lite0 import PICTURE_SIZE
from readers.torch_file import read_tensors

pytestmark = pytest.mark.slow


def test_its_features_and_classes():
    model, classifier = load_efficientnet_lite0(size=64), load_efficientnet_lite0(classifies=True, size=64)
    pictures = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype("uint8")
    features, told = np.asarray(model(pictures)), np.asarray(classifier(pictures))
    assert (features.shape, features.dtype) == ((2, 1280), np.float32)
    tensors = read_tensors(efficientnet_lite0._packaged())
    scores = features @ tensors["_fc.weight"].T + tensors["_fc.bias"]
    wanted = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(told, wanted, rtol=1e-3, atol=1e-6)
    num_values = sum(value.size for name, value in tensors.items() if "num_batches" not in name)
    assert classifier.count_params() == num_values, "each number of the file is in it"


def test_weights_of_another_network(monkeypatch):
    tensors = read_tensors(efficientnet_lite0._packaged())
    for change, match in (
        ({"more": np.zeros(3)}, "has 1 tensors more, such as more"),
        ({"_bn1.bias": np.zeros(7)}, "_bn1.weight does not fit"),
    ):
        monkeypatch.setattr(efficientnet_lite0, "read_tensors", lambda _, change=change: {**tensors, **change})
        with pytest.raises(DataError, match=match):
            load_efficientnet_lite0(size=32)
    del tensors["_conv_head.weight"]
    monkeypatch.setattr(efficientnet_lite0, "read_tensors", lambda _: tensors)
    with pytest.raises(DataError, match="The file has no _conv_head"):
        load_efficientnet_lite0(size=32)


@pytest.mark.usefixtures("photographs")
def test_it_knows_what_is_on_pictures():
    wanted = {"rooster": 7, "hen": 8, "gander": 99, "pink_flamingo": 130, "penguin": 145}  # numbers of ImageNet
    files = {file.stem: file for file in load_photographs().files}
    pictures = np.stack([read_photograph(files[name], PICTURE_SIZE) for name in wanted])
    told = np.asarray(load_efficientnet_lite0(classifies=True)(pictures)).argmax(axis=1)
    assert dict(zip(wanted, told.tolist(), strict=True)) == wanted
