"""What changes in training on torch and is no variable of Keras': buffers of modules, and random numbers.

Keras' ``TorchModuleWrapper`` saves buffers, such as the moving averages of torch's own ``BatchNorm``, and counts only
parameters among the variables of a model. Here all of it is as variables are.
"""

from __future__ import annotations

import zlib
from typing import Any
from weakref import WeakKeyDictionary

import keras
import numpy as np

from dask_train.compat.keras.layers import flatten_layers

_known: WeakKeyDictionary[Any, dict[str, TorchBuffer]] = WeakKeyDictionary()  # by the layer that wraps a module


class TorchBuffer:
    """A buffer of a module that is wrapped in a layer.

    Attributes
    ----------
    path, name
        The layer's, and what the module calls it.
    """

    trainable = False

    def __init__(self, layer: Any, name: str) -> None:
        self._layer, self.name, self.path = layer, name, f"{layer.path}/{name}"

    @property
    def value(self) -> Any:
        """The tensor."""
        return self._layer.module.get_buffer(self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return tuple(self.value.shape)

    @property
    def dtype(self) -> str:
        """Keras' name of it."""
        return str(keras.backend.standardize_dtype(self.value.dtype))

    def assign(self, value: Any) -> None:
        """Copy a value into the tensor."""
        self.value.copy_(keras.ops.convert_to_tensor(value, self.dtype))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(keras.ops.convert_to_numpy(self.value), dtype)


def torch_buffers(model: Any) -> list[TorchBuffer]:
    """Return the buffers of all modules of torch in a model, in the order of its layers; the same objects each time."""
    if keras.backend.backend() != "torch":
        return []
    buffers = []
    for layer in flatten_layers(model):
        if isinstance(layer, keras.layers.TorchModuleWrapper):
            names = [name for name, _ in layer.module.named_buffers()]
            known = _known.setdefault(layer, {})
            buffers += [known.setdefault(name, TorchBuffer(layer, name)) for name in names]
    return buffers


def torch_modules(model: Any) -> list[Any]:
    """All modules of torch in a model: its layers, also those that Keras registers with none, and what they wrap."""
    return [part for layer in flatten_layers(model) for part in layer.modules()]


class TorchRandom:
    """The state of torch's own random numbers, of which Keras takes those of ``Dropout`` where it has no seed."""

    name = path = "torch_random"
    trainable = False
    dtype = "uint8"

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of the state, in bytes."""
        return self.__array__().shape

    def assign(self, value: Any) -> None:
        """Go on with the random numbers that belong to that state."""
        import torch

        torch.set_rng_state(torch.from_numpy(np.array(keras.ops.convert_to_numpy(value), np.uint8)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        import torch

        return np.array(torch.get_rng_state().numpy(), dtype)


_random = TorchRandom()


def torch_random() -> list[TorchRandom]:
    """Return the state of torch's random numbers where Keras runs on torch; of those on the CPU."""
    return [_random] if keras.backend.backend() == "torch" else []


def seed_torch(state: Any, seed: int, rank: int) -> None:
    """Let torch's random numbers of a worker be its own: the first one's are those of a state, if there is one."""
    if keras.backend.backend() != "torch":
        return
    import torch

    if state is not None and rank == 0:
        _random.assign(state)
    else:
        entropy = [seed, rank] if state is None else [zlib.crc32(np.asarray(state).tobytes()), rank]
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
